"""An estimate with its error: of the logarithm of a figure in a cell, or of its ratio between two.

The design is blocks. One *start* of a variant (a set-up of a system) runs one full round of its cells, and variants alternate within a round. So log y =
cell + start + round + noise, and a contrast of two cells is analysed paired by round:

- within a variant both are measured on one start, which cancels as the round does; the unit is the round;
- between variants the round cancels and the starts stay: they are noise, and the unit is the pair of starts, of which there is one for each round;
- where fewer than ROUNDS_MIN rounds have both sides, or the sides have no rounds in common (two runs), the sides are taken for independent samples. Rounds
  that have but one side are otherwise left out of the estimate.

In an *old design* all repeats of a variant are on one start. Repeats tell nothing of how starts differ, so that is supposed: as much as START_SHARE says,
with the variance of the repeats as its measure. It is said wherever it is supposed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from streamgauge.inference.samples import Measured
from streamgauge.inference.sequential import ROUNDS_MIN
from streamgauge.inference.spread import START_SHARE, Prior

Kind = Literal["one cell", "one start", "two starts", "apart", "old"]
"""What a variance is of: values of a cell; differences within a start; differences between starts; values of two independent sides; values that share their
starts. Variances of one kind and figure are alike."""
OLD_DESIGN = "old design: all repeats are on one start, judged as if starts differed as experience says"


@dataclass(frozen=True)
class Shape:
    """How the error of an estimate follows from the variance of a unit."""

    kind: Kind
    counts: tuple[int, ...]
    """Units of each side; one number where they are differences."""
    starts: tuple[int, ...] = ()
    """In an old design: starts of each side."""

    @property
    def units(self) -> int:
        """How many units there are, of the side with fewer."""
        return min(self.counts)

    @property
    def per_unit(self) -> float:
        """Variance of the estimate over that of a unit."""
        return sum(1.0 / count for count in self.counts) + sum(START_SHARE / count for count in self.starts)

    @property
    def freedom(self) -> int:
        """What the values themselves give."""
        return sum(count - 1 for count in self.counts)

    def after(self, more: int) -> Shape:
        """With so many more rounds, each on starts of its own."""
        return Shape(self.kind, tuple(count + more for count in self.counts), self.starts)


@dataclass(frozen=True)
class Raw:
    """An estimate before its variance is moderated."""

    estimate: float
    """Of a logarithm; of the figure itself where `linear`."""
    variance: float
    """Of a unit, by the values alone."""
    floor: float
    """A unit's variance is not below what trials know of themselves."""
    shape: Shape
    linear: bool = False


@dataclass(frozen=True)
class Contrast:
    """An estimate that may be judged."""

    estimate: float
    variance: float
    """Of a unit."""
    prior_freedom: float
    shape: Shape
    linear: bool = False

    @property
    def error(self) -> float:
        """Standard error of the estimate."""
        return math.sqrt(self.variance * self.shape.per_unit)

    @property
    def freedom(self) -> float:
        """Of Student's t."""
        return self.prior_freedom + self.shape.freedom

    def after(self, more: int) -> Contrast:
        """The same estimate with so many more rounds."""
        return Contrast(self.estimate, self.variance, self.prior_freedom, self.shape.after(more), self.linear)


def usual_variance(spread: float, kind: Kind) -> float:
    """What experience says of the variance of a unit, from the spread between trials of a start."""
    sides = 2.0 if kind in ("one start", "two starts") else 1.0
    starts = 0.0 if kind in ("one start", "old") else START_SHARE
    return sides * spread**2 * (1.0 + starts)


def moderate(raw: Raw, prior: Prior | None) -> Contrast:
    """With what else is known of the variance. No prior: by the values alone (which must be two at least)."""
    if prior is None:
        return Contrast(raw.estimate, max(raw.variance, raw.floor), 0.0, raw.shape, raw.linear)
    variance, _ = prior.moderate(raw.variance, raw.shape.freedom)
    return Contrast(raw.estimate, max(variance, raw.floor), prior.freedom, raw.shape, raw.linear)


def of_one(values: Sequence[Measured]) -> Raw:
    """A figure of one cell (at least one value). On its own scale, not a logarithm's, where a value is not above 0."""
    linear = min(one.value for one in values) <= 0
    numbers = [one.value if linear else math.log(one.value) for one in values]
    floor = 0.0 if linear else _noise(values)
    starts = _starts(values)
    if _is_old(len(starts), len(values)):
        shape = Shape("old", (len(values),), (len(starts),))
        return Raw(statistics.fmean(numbers), _variance(numbers), floor, shape, linear)
    units = _means(zip((one.start for one in values), numbers, strict=True))
    return Raw(statistics.fmean(units), _variance(units), floor, Shape("one cell", (len(units),)), linear)


def of_two(other: Sequence[Measured], base: Sequence[Measured]) -> Raw | None:
    """Other over base (each with at least one value), as a logarithm; None where a value is not above 0: there is no ratio to nothing."""
    if min(one.value for one in (*other, *base)) <= 0:
        return None
    return _paired(other, base) or _apart(other, base)


def _paired(other: Sequence[Measured], base: Sequence[Measured]) -> Raw | None:
    """By round; None where too few rounds have both sides, or repeats share their starts."""
    first, second = ({one.round: one for one in side} for side in (other, base))
    pairs = [(first[number], second[number]) for number in sorted(first.keys() & second.keys())]
    if len(pairs) < min(ROUNDS_MIN, len(first), len(second)):
        return None
    differences = [math.log(a.value / b.value) for a, b in pairs]
    floor = statistics.fmean(a.error**2 + b.error**2 for a, b in pairs)
    if all(a.start == b.start for a, b in pairs):
        shape = Shape("one start", (len(pairs),))
        return Raw(statistics.fmean(differences), _variance(differences), floor, shape)
    starts = [(a.start, b.start) for a, b in pairs]
    fewest = min(len({one[side] for one in starts}) for side in (0, 1))
    if _is_old(fewest, len(pairs)):
        return None
    units = _means(zip(starts, differences, strict=True))
    return Raw(statistics.fmean(units), _variance(units), floor, Shape("two starts", (len(units),)))


def _apart(other: Sequence[Measured], base: Sequence[Measured]) -> Raw:
    """Two independent samples with one variance."""
    sides = (other, base)
    logs = [[math.log(one.value) for one in side] for side in sides]
    starts = tuple(len(_starts(side)) for side in sides)
    floor = statistics.fmean(_noise(side) for side in sides)
    if any(_is_old(count, len(side)) for count, side in zip(starts, sides, strict=True)):
        shape = Shape("old", tuple(len(side) for side in sides), starts)
        return Raw(_between(logs), _pooled(logs), floor, shape)
    units = [
        _means(zip((one.start for one in side), numbers, strict=True))
        for side, numbers in zip(sides, logs, strict=True)
    ]
    return Raw(_between(units), _pooled(units), floor, Shape("apart", tuple(map(len, units))))


def _is_old(starts: int, values: int) -> bool:
    """Whether values share their starts, and there are too few of these to tell how they differ."""
    return starts < min(values, ROUNDS_MIN)


def _starts(values: Sequence[Measured]) -> set[str]:
    return {one.start for one in values}


def _means(keyed: Iterable[tuple[Hashable, float]]) -> list[float]:
    """The mean of each unit: what was measured on one start is one."""
    groups: dict[Hashable, list[float]] = {}
    for key, value in keyed:
        groups.setdefault(key, []).append(value)
    return [statistics.fmean(group) for group in groups.values()]


def _between(sides: Sequence[Sequence[float]]) -> float:
    return statistics.fmean(sides[0]) - statistics.fmean(sides[1])


def _variance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    # Not statistics.variance, whose exact fractions take ten times as long; logarithms need none.
    middle = statistics.fmean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def _pooled(sides: Sequence[Sequence[float]]) -> float:
    freedom = sum(len(side) - 1 for side in sides)
    return sum((len(side) - 1) * _variance(side) for side in sides) / freedom if freedom else 0.0


def _noise(values: Sequence[Measured]) -> float:
    """What trials know of themselves, as a variance."""
    return statistics.fmean(one.error**2 for one in values)
