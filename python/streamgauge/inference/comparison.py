"""Two sides beside each other: which figures differ, which do not by an amount that matters, and which are open.

Holm's correction covers all figures that are looked at: without it a system compared with itself in eight figures would "differ" in one of them every third
time. That they do not matter is corrected by itself: of each figure that is shown to differ it may be said, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.inference.checks import Verdict
from streamgauge.inference.estimates import holm
from streamgauge.inference.experience import number_of
from streamgauge.inference.looks import ALPHA
from streamgauge.inference.margins import margin_of
from streamgauge.inference.number import Number


@dataclass(frozen=True)
class Sides:
    """A figure of both, one value per trial; all above 0."""

    figure: str
    base: Sequence[float]
    other: Sequence[float]
    prior: float
    """The spread between trials by experience."""
    one_run: bool
    """Both were measured side by side in one run."""


@dataclass(frozen=True)
class Difference:
    """Other over base, of one figure."""

    ratio: Number
    margin: float
    """The smallest factor that matters."""
    verdict: Verdict
    """Of "they differ": it holds, it is no difference that matters, or it is undecided."""
    by_chance: bool = False
    """It is undecided only because of so many figures one may differ by chance."""
    trials: int | None = None
    """Of an undecided one: with so many trials of each side it would be told, if what was found is true; None where no number of them would."""

    @property
    def effect(self) -> float:
        """The difference in standard deviations between trials."""
        return self.ratio.mean / self.ratio.spread


def compare(asked: Sequence[Sides]) -> list[Difference]:
    """All figures at once."""
    numbers = [number_of(one.other, one.base, one.prior, one_run=one.one_run) for one in asked]
    chances = [_chances(one, margin_of(sides.figure)) for one, sides in zip(numbers, asked, strict=True)]
    differ, matter = (holm([pair[at] for pair in chances]) for at in (0, 1))
    return [
        _difference(one.figure, number, chance, corrected, len(asked))
        for one, number, chance, corrected in zip(
            asked, numbers, chances, zip(differ, matter, strict=True), strict=True
        )
    ]


def _chances(number: Number, margin: float) -> tuple[float, float]:
    """p-values of there being no difference, which may seem to be one either way, and of there being one that matters, which lies on one side. 1 where the 95 %
    interval that is shown would contradict it."""
    differs = min(number.chance_unless_above(1.0), number.chance_unless_below(1.0))
    matters = number.chance_unless_within(margin)
    return min(1.0, 2.0 * differs), matters if matters < ALPHA / 2.0 else 1.0


def _difference(
    figure: str, number: Number, chances: tuple[float, float], corrected: tuple[float, float], count: int
) -> Difference:
    """`corrected`: the chances, for so many figures."""
    margin = margin_of(figure)
    differs, matters = corrected
    # A difference that is shown, and shown not to matter, is none that one would choose by.
    if matters < ALPHA:
        return Difference(number, margin, Verdict.equivalent)
    if differs < ALPHA:
        return Difference(number, margin, Verdict.holds)
    nearest = number.nearest_decision(margin)
    alpha = min(ALPHA / count / (2.0 if nearest == [1.0] else 1.0), ALPHA / 2.0)
    trials = number.rounds_to_tell(nearest, alpha)
    return Difference(number, margin, Verdict.undecided, min(chances) < ALPHA, trials)
