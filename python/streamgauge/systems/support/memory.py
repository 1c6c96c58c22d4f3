"""Whether a system fits into the machine's memory."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from streamgauge.vocabulary.errors import SystemFailure, SystemInputError

MIB = 1024 * 1024


@dataclass(frozen=True)
class MemoryNeed:
    """What all processes of a system take together."""

    what: str
    """Whose it is ("3 nodes of Pulsar")."""
    needed_mib: int
    remedy: str
    """What a user can do ("set a smaller heap in the system file")."""

    def check(self, where: str) -> None:
        """Raises SystemInputError for more than the machine has."""
        total_mib = psutil.virtual_memory().total // MIB
        if self.needed_mib > total_mib:
            raise SystemInputError(
                f"{where}{self.what} need about {self.needed_mib} MiB, and this machine has {total_mib} MiB; {self.remedy}"
            )

    def require(self) -> None:
        """Raises SystemFailure for more than is free: before a process does, which would say it less clearly, or be killed by the
        kernel in the middle of a run.
        """
        available_mib = psutil.virtual_memory().available // MIB
        if self.needed_mib > available_mib:
            raise SystemFailure(
                f"{self.what} need about {self.needed_mib} MiB, but only {available_mib} MiB are available; close other programs, "
                f"or {self.remedy}"
            )
