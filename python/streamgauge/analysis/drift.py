"""Was the machine the same machine at the end? The probes before and after a run, compared.

Virtual disks vary by tens of percent from minute to minute, and so does loopback, with the cores that the kernel
puts its two ends on; one core's arithmetic varies by a few percent. Beyond the bounds below, cells that ran early and
cells that ran late were not measured on the same machine, however they were interleaved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.limits import number


@dataclass(frozen=True)
class Watched:
    """One figure of a probe and how much it may change, as a factor."""

    title: str
    path: tuple[str, ...]
    factor_max: float


WATCHED = (
    Watched("sequential write bandwidth", ("disk", "write_mb_s"), 2.0),
    Watched("median fsync", ("disk", "fsync_ms", "p50"), 2.0),
    Watched("checksums on one core", ("cpu", "crc32c_mb_s"), 1.25),
    Watched("loopback bandwidth", ("network", "loopback_mb_s"), 2.0),
)


@dataclass(frozen=True)
class Drift:
    """How one figure moved."""

    title: str
    before: float
    after: float
    factor_max: float

    @property
    def factor(self) -> float:
        """After over before."""
        return self.after / self.before

    @property
    def too_far(self) -> bool:
        """Whether it invalidates what was measured between the probes."""
        return max(self.factor, 1.0 / self.factor) > self.factor_max


def drifts(probes: Sequence[Mapping[str, Any]]) -> list[Drift]:
    """What moved from the first probe to the last; nothing when there are not two."""
    if len(probes) < 2:
        return []
    found = []
    for watched in WATCHED:
        before, after = number(probes[0], *watched.path), number(probes[-1], *watched.path)
        if before and after:
            found.append(Drift(watched.title, before, after, watched.factor_max))
    return found
