"""Two sides beside each other: which figures differ, which do not by an amount that matters, and which are open.

Holm's correction covers all figures that are looked at: without it a system compared with itself in eight figures would "differ" in one of them every third
time.
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
    corrected = holm([2.0 * min(pair) for pair in chances])
    return [
        _difference(sides.figure, number, chance, against, len(asked))
        for sides, number, chance, against in zip(asked, numbers, chances, corrected, strict=True)
    ]


def _chances(number: Number, margin: float) -> tuple[float, float]:
    """One-sided p-values of there being no difference, and of there being one that matters."""
    differs = min(number.chance_unless_above(1.0), number.chance_unless_below(1.0))
    return differs, number.chance_unless_within(margin)


def _difference(
    figure: str, number: Number, chance: tuple[float, float], corrected: float, count: int
) -> Difference:
    margin, verdict = margin_of(figure), Verdict.undecided
    differs, matters = chance
    if corrected < ALPHA:
        # A difference that is shown, and shown not to matter, is none that one would choose by.
        verdict = Verdict.equivalent if matters < ALPHA / 2.0 else Verdict.holds
    if verdict is not Verdict.undecided:
        return Difference(number, margin, verdict)
    trials = number.rounds_to_tell(number.nearest_decision(margin), ALPHA / 2.0 / count)
    return Difference(number, margin, verdict, min(differs, matters) < ALPHA / 2.0, trials)
