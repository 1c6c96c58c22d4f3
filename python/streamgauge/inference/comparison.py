"""Two sides beside each other: which figures differ, which do not by an amount that matters, and which are open.

Trials of one run are paired by repeat. Of two runs each is one start of everything that its trials have in common, and runs of the same differ by as much as
START_SHARE says. Holm's correction covers all figures that are looked at.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.inference.contrast import Contrast, Shape, moderate, of_two
from streamgauge.inference.estimates import holm
from streamgauge.inference.margins import margin_of
from streamgauge.inference.power import Price, price
from streamgauge.inference.samples import Measured
from streamgauge.inference.sequential import ERROR, ROUNDS_MIN
from streamgauge.inference.spread import PRIOR_FREEDOM, spread_of
from streamgauge.inference.verdict import Asked, Verdict, chances, reach


@dataclass(frozen=True)
class Sides:
    """A figure of both; each with at least one value."""

    figure: str
    base: tuple[Measured, ...]
    other: tuple[Measured, ...]


@dataclass(frozen=True)
class Difference:
    """Other over base, of one figure."""

    value: float
    """Ratio of the geometric means."""
    low: float | None
    """95 % interval; None with too few values on a side."""
    high: float | None
    margin: float
    """The smallest ratio that matters."""
    verdict: Verdict
    """Of "they differ": it holds, they are equivalent, or it is undecided."""
    by_chance: bool = False
    """It is undecided only because of so many figures one may differ by chance."""
    price: Price | None = None
    """How many more trials of each side would decide it."""


def compare(asked: Sequence[Sides]) -> list[Difference | None]:
    """All figures at once; None where a value is not above 0: there is no ratio to nothing."""
    raws = [of_two(one.other, one.base) for one in asked]
    enough = [at for at, raw in enumerate(raws) if raw is not None and raw.shape.units >= ROUNDS_MIN]
    contrasts = {at: moderate(raw, None) for at in enough if (raw := raws[at]) is not None}
    found: list[Difference | None] = []
    known = {at: chances(one, _asked(asked[at].figure)) for at, one in contrasts.items()}
    differ = {at: min(1.0, min(one.holds, one.refuted)) for at, one in known.items()}
    alone = {at: min(differ[at], one.equivalent) for at, one in known.items()}
    corrected = dict(zip(enough, holm([alone[at] for at in enough]), strict=True))
    for at, (sides, raw) in enumerate(zip(asked, raws, strict=True)):
        margin = margin_of(sides.figure)
        if raw is None:
            found.append(None)
        elif at not in contrasts:
            found.append(Difference(math.exp(raw.estimate), None, None, margin, Verdict.undecided))
        else:
            factor = corrected[at] / alone[at] if alone[at] > 0 else 1.0
            found.append(
                _difference(
                    sides.figure, contrasts[at], (differ[at], known[at].equivalent), factor, len(enough)
                )
            )
    return found


def _difference(
    figure: str, found: Contrast, chance: tuple[float, float], factor: float, count: int
) -> Difference:
    """`chance`: of differing and of being equivalent. `factor`: Holm's for the smaller of them."""
    verdict = Verdict.undecided
    if chance[1] * factor < ERROR:
        verdict = Verdict.equivalent
    elif chance[0] * factor < ERROR:
        verdict = Verdict.holds
    low, high = reach(found, ERROR)
    cost = None
    if verdict is Verdict.undecided:
        cost = price(found, _asked(figure), (), ERROR / count)
    by_chance = verdict is Verdict.undecided and min(chance) < ERROR
    ends = math.exp(low), math.exp(high)
    return Difference(math.exp(found.estimate), *ends, margin_of(figure), verdict, by_chance, cost)


def _asked(figure: str) -> Asked:
    """Whether it is above 1 (or, refuted, below)."""
    return Asked(low=0.0, margin=math.log(margin_of(figure)))


def of_series(figure: str, other: Sequence[float], base: Sequence[float]) -> tuple[Verdict, float, float]:
    """Whether the figure is higher on the one side (holds) or lower (refuted), with the ratio's 95 % interval, where each side is a single load on a single
    start, told second by second (values above 0). Seconds of a load resemble each other, so however many there are, they are one value: its spread is what
    experience says of loads, or that of the seconds where it is greater, and starts differ on top."""
    sides = [[math.log(value) for value in side] for side in (other, base)]
    seconds = max(statistics.pstdev(side) for side in sides)
    variance = max(spread_of(figure, paced=True), seconds) ** 2
    estimate = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
    found = Contrast(estimate, variance, PRIOR_FREEDOM, Shape("old", (1, 1), (1, 1)))
    low, high = reach(found, ERROR)
    return chances(found, _asked(figure)).verdict(ERROR), math.exp(low), math.exp(high)
