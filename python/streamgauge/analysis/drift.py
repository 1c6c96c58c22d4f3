"""Was the machine the same machine throughout a round? The probes around each round of a study, compared.

Virtual disks vary by tens of percent from minute to minute, and so does loopback, with the cores that the kernel
puts its two ends on and with what neighbours do there. A core of which a neighbour has the other thread computes 0.75 of what it does
alone: 19.8 to 26.3 GB/s in 18 probes of one hour (2026-11-28), where an hour without neighbours has a few percent. Of checksums alone, whose unit
both threads share, it was 0.63 for minutes, while brokers took no more than 1.2 times the CPU for a message, and most of them none. That comes and goes
within a round, meets all systems alike, as their order is drawn, and is part of how much rounds differ. Beyond the bounds below, cells that ran
early and cells that ran late in a round were not measured on the same machine, and the round is void. What changed between two
rounds does no harm: cells are compared round by round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.limits import number

NEXT_TRIAL = "next_trial"
"""In a study's probes: the number of the trial that came after it."""


@dataclass(frozen=True)
class Watched:
    """One figure of a probe and how much it may change, as a factor."""

    title: str
    path: tuple[str, ...]
    factor_max: float


WATCHED = (
    Watched("sequential write bandwidth", ("disk", "write_mb_s"), 2.0),
    Watched("median fsync", ("disk", "fsync_ms", "p50"), 2.0),
    Watched("checksums on one core", ("cpu", "crc32c_mb_s"), 2.0),
    Watched("loopback bandwidth", ("network", "loopback_mb_s"), 3.0),
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
        """Whether it voids what was measured between the probes."""
        return max(self.factor, 1.0 / self.factor) > self.factor_max


def next_trial(probe: Mapping[str, Any]) -> float:
    """The number of the trial that came after it. Of probes that do not tell, made before and after all trials, the first or none."""
    told = number(probe, NEXT_TRIAL)
    if told is None:
        return math.inf if probe.get("when") == "after" else 1.0
    return told


def around(probes: Sequence[Mapping[str, Any]], first: int, last: int) -> list[Mapping[str, Any]]:
    """Of probes in the order in which they were made: the last one before these trials, those among them, and the first one after them."""
    before = [probe for probe in probes if next_trial(probe) <= first][-1:]
    among = [probe for probe in probes if first < next_trial(probe) <= last]
    after = [probe for probe in probes if next_trial(probe) > last][:1]
    return [*before, *among, *after]


def drifts(probes: Sequence[Mapping[str, Any]]) -> list[Drift]:
    """How far each figure moved away from the first of these probes; nothing when there are not two."""
    found = []
    for watched in WATCHED:
        values = [value for one in probes if (value := number(one, *watched.path))]
        if len(values) > 1:
            before, *others = values
            moved = [Drift(watched.title, before, after, watched.factor_max) for after in others]
            found.append(max(moved, key=lambda one: abs(math.log(one.factor))))
    return found
