"""What the kernel counts of the disk under a directory (Documentation/admin-guide/iostats.rst): flushes of its write cache, and busy time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DISKSTATS = Path("/proc/diskstats")
BUSY_MS, FLUSHES, FLUSH_MS = 12, 18, 19
"""Columns, from 0; flushes are counted since Linux 5.5."""


@dataclass(frozen=True)
class DiskReading:
    """Totals since the machine started."""

    flushes: int
    flush_s: float
    busy_s: float


def disk_name(directory: Path) -> str | None:
    """The whole disk that a directory lies on, as /proc/diskstats calls it; None where there is none (a network, memory)."""
    try:
        number = directory.stat().st_dev
        device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    except OSError:
        return None
    # Flushes are counted for the disk and not for its partitions.
    return device.parent.name if (device / "partition").exists() else device.name


def read_disk(name: str) -> DiskReading | None:
    """The disk's counters; None where the kernel does not tell."""
    try:
        lines = DISKSTATS.read_text("ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > FLUSH_MS and fields[2] == name:
            return DiskReading(int(fields[FLUSHES]), int(fields[FLUSH_MS]) / 1e3, int(fields[BUSY_MS]) / 1e3)
    return None
