"""What this process may do beside what every process may (capabilities(7))."""

from __future__ import annotations

from pathlib import Path

SYS_ADMIN = ("SYS_ADMIN", 21)
NET_ADMIN = ("NET_ADMIN", 12)
STATUS = Path("/proc/self/status")


def has(number: int) -> bool:
    """Whether a capability is effective; False where the kernel does not tell."""
    try:
        for line in STATUS.read_text("utf-8").splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> number & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False
