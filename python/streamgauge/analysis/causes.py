"""Which of the things that happened explain the slow messages, and which happened by chance.

For each event (a stop of a JVM, a slow flush of the disk, steal, a metric of the system that was unusually high, ...) there is a series that says in
which intervals it could be felt: in which it happened, and the one after. *Share* is how much of what was slow lies in those intervals, *usual* how
many of all intervals they are. *Lift* is share over usual; *explained* is what share is above chance, (share - usual) / (1 - usual), which is 1 where
everything slow lies in them.

Chance is asked by shifting what was slow against all that happened (analysis/shifts.py).

What is left is ranked by how much it explains. A *sign* - a queue that grows, a core that is busy - is seen whatever the reason is, and comes after every
cause. What explains nothing beyond those before it went along with them. A coincidence is no proof; an experiment is (docs/causes.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamgauge.analysis import shifts
from streamgauge.analysis.intervals import Flags, Values, felt
from streamgauge.model.own_metric import Role

INTERVALS_MIN = 31
"""With fewer there are too few shifts for any to be improbable."""
CHANCE_MAX = 0.04
"""A little below 0.05: where what was slow comes in clusters, shifts find it a little less often than they should (tests/test_causes.py)."""
LIFT_MIN = 1.5
EVENT_SHARE_MAX = 0.5
"""What can be felt in more of the intervals than this explains nothing."""
LEVELS = (0.0, 0.5, 0.75, 0.9)
"""An event is tried as a whole and without its weaker part: packets are lost all day, and only many at once are felt."""
MAD_TO_SIGMA = 1.4826
TIMES_MIN = 2
"""What happened once may have met the slow messages by chance whenever it happened."""
LEFT_SHARE_MIN = 0.1
"""Of what was slow, beyond the causes found so far, for there to be one more."""
BLOCK_INTERVALS = 5
RESAMPLED = 400
FOUND_MAX = 6


@dataclass(frozen=True)
class Event:
    """Something that happened in some intervals, more or less of it. Nothing is 0; what is not known is nothing."""

    name: str
    strength: Values
    role: Role = "cause"

    def levels(self) -> list[Flags]:
        """Where it can be felt: all of it, and only the stronger halves and quarters. Those that can be tested: what happened once, or all
        the time, cannot."""
        happened = self.strength > 0
        if not happened.any():
            return []
        found: list[Flags] = []
        for quantile in LEVELS:
            least = float(np.quantile(self.strength[happened], quantile))
            strong = happened & (self.strength >= least)
            flags = felt(strong)
            if began(strong) >= TIMES_MIN and flags.mean() <= EVENT_SHARE_MAX:
                found.append(flags)
        return found


def began(happened: Flags) -> int:
    """How often something began."""
    return int((happened & ~np.concatenate(([False], happened[:-1]))).sum())


def unusual(values: Values, least: float = 0.0) -> Values:
    """How far values are above what is usual for them, where that is far: more than four times their spread and half of what they are, and
    `least`."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.zeros(len(values))
    usual = float(np.median(known))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(known - usual)))
    above = np.nan_to_num(values - usual)
    is_far = (above > max(4.0 * spread, 0.5 * abs(usual), 1e-12)) & (np.nan_to_num(values) > least)
    return np.where(is_far, above, 0.0)


@dataclass(frozen=True)
class Cause:
    """An event that chance does not explain."""

    event: Event
    intervals: int
    """In which it can be felt."""
    share: float
    """Of what was slow, where it can be felt."""
    usual: float
    """Of all intervals."""
    chance: float
    """How often the best of all events fits as well by chance."""
    lift: float
    lift_low: float
    lift_high: float
    """95 %, over blocks of intervals."""
    is_echo: bool
    """Whether it explains nothing that those before it do not."""

    @property
    def explained(self) -> float:
        """Of what was slow, above chance."""
        return _explained(self.share, self.usual)


def causes(slow: Values, events: Sequence[Event]) -> list[Cause]:
    """What explains `slow` (how much of it there was in each interval), best first, and then the signs that went along with it. Empty
    where no cause does, or nothing can be told: signs alone are no explanation."""
    if len(slow) < INTERVALS_MIN or slow.sum() <= 0:
        return []
    found = _significant(slow, [one for one in events if one.role == "cause"])
    if not found:
        return []
    found.sort(key=lambda one: -_explained(_share(slow, one[1]), float(one[1].mean())))
    signs = _significant(slow, [one for one in events if one.role == "sign"])
    signs.sort(key=lambda one: -_explained(_share(slow, one[1]), float(one[1].mean())))
    covered = np.zeros(len(slow), dtype=np.bool_)
    told: list[Cause] = []
    for event, flags, chance in [*found, *signs][:FOUND_MAX]:
        is_echo = event.role == "sign" or (bool(told) and not _adds(slow, flags, covered))
        if not is_echo:
            covered |= flags
        usual, share = float(flags.mean()), _share(slow, flags)
        low, high = _lift_interval(slow, flags)
        told.append(Cause(event, int(flags.sum()), share, usual, chance, share / usual, low, high, is_echo))
    return sorted(told, key=lambda one: one.is_echo)


def _significant(slow: Values, events: Sequence[Event]) -> list[tuple[Event, Flags, float]]:
    """Those that chance does not explain, each at the level that fits best, and how well chance would do."""
    levels = [(event, flags) for event in events for flags in event.levels()]
    if not levels:
        return []
    chances = _chances(slow, [flags for _, flags in levels])
    best: dict[int, tuple[Event, Flags, float]] = {}
    for (event, flags), chance in zip(levels, chances, strict=True):
        usual, share = float(flags.mean()), _share(slow, flags)
        if chance <= CHANCE_MAX and share >= LIFT_MIN * usual:
            known = best.get(id(event))
            if known is None or _explained(share, usual) > _explained(
                _share(slow, known[1]), float(known[1].mean())
            ):
                best[id(event)] = (event, flags, chance)
    return list(best.values())


def _explained(share: float, usual: float) -> float:
    return (share - usual) / (1.0 - usual)


def _share(slow: Values, flags: Flags) -> float:
    return float(slow[flags].sum() / slow.sum())


def _chances(slow: Values, flags: Sequence[Flags]) -> list[float]:
    """For each row of flags, how often the best of all rows that fit no better fits as well when what was slow is shifted."""
    length = len(slow)
    # By magnitude: one interval that is a hundred times as slow as the others would decide alone.
    amounts = np.log1p(slow)
    weights = np.fft.rfft(amounts / amounts.sum())
    rows = np.fft.rfft(np.array(flags, dtype=np.float64), axis=1)
    # Row k, column s: the share of event k when what was slow is shifted by s.
    shares = np.fft.irfft(rows * np.conj(weights), n=length, axis=1)
    usual = np.mean(flags, axis=1, keepdims=True)
    return shifts.chances(shifts.divergence(np.clip(shares, 0.0, 1.0), usual))


def _adds(slow: Values, flags: Flags, covered: Flags) -> bool:
    """Whether an event explains what lies outside of the intervals that are explained already."""
    left, mine = slow[~covered], flags[~covered]
    if len(left) < INTERVALS_MIN or left.sum() < LEFT_SHARE_MIN * slow.sum() or not mine.any():
        return False
    return _chances(left, [mine])[0] <= CHANCE_MAX and _share(left, mine) >= LIFT_MIN * float(mine.mean())


def _lift_interval(slow: Values, flags: Flags) -> tuple[float, float]:
    """The lift's interval, by drawing blocks of intervals again. The draw is the same for the same length."""
    length = len(slow)
    random = np.random.default_rng(length)
    blocks = -(-length // BLOCK_INTERVALS)
    begins = random.integers(0, length, size=(RESAMPLED, blocks))
    drawn = (begins[:, :, None] + np.arange(BLOCK_INTERVALS)).reshape(RESAMPLED, -1)[:, :length] % length
    weights, where = slow[drawn], flags[drawn]
    whole, usual = weights.sum(axis=1), where.mean(axis=1)
    known = (whole > 0) & (usual > 0)
    if not known.any():
        return 0.0, 0.0
    lifts = (weights * where).sum(axis=1)[known] / whole[known] / usual[known]
    low, high = np.percentile(lifts, [2.5, 97.5])
    return float(low), float(high)
