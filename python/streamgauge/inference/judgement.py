"""Is a figure beyond a bound? Passed, failed or undecided, with the numbers that the decision rests on (experience.py).

This is the one place that turns trials and a bound into an outcome: pure, and without knowledge of cells, files or words on a screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from streamgauge.inference.experience import number_of
from streamgauge.inference.looks import ALPHA
from streamgauge.inference.number import Number

ONE_SIDED = ALPHA / 2.0


class Outcome(StrEnum):
    """What became of a gate."""

    passed = "passed"
    failed = "FAILED"
    undecided = "UNDECIDED"


@dataclass(frozen=True)
class Bound:
    """What a figure must not be: above (`>`, `>=`) or below (`<`, `<=`) a number."""

    above: bool
    at: float

    def beyond(self, value: float) -> bool:
        """Whether a value is on the wrong side, not counting the bound itself."""
        return value > self.at if self.above else value < self.at


@dataclass(frozen=True)
class Evidence:
    """What trials say about a bound on a figure, or on its ratio to the baseline."""

    number: Number
    bound: Bound

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the value."""
        return self.number.interval()

    @property
    def beyond_chance(self) -> float:
        """How probable trials like these are if the figure is not beyond the bound (one-sided p-value): small where the gate fails."""
        return self._chance(above=self.bound.above)

    @property
    def within_chance(self) -> float:
        """The same if it is beyond: small where the gate passes."""
        return self._chance(above=not self.bound.above)

    @property
    def repeats(self) -> int | None:
        """With so many trials (on both sides) the value that was found would decide; None where no number of them would."""
        return self.number.rounds_to_tell([self.bound.at], ONE_SIDED, power=0.5)

    def _chance(self, *, above: bool) -> float:
        tell = self.number.chance_unless_above if above else self.number.chance_unless_below
        return tell(self.bound.at)


def weigh(bound: Bound, other: Sequence[float], base: Sequence[float] | None, prior: float) -> Evidence:
    """What the values of trials say about a bound on them or, with `base`, on their ratio to those. All values and the bound are above 0."""
    return Evidence(number_of(other, base, prior), bound)


def decide(evidence: Evidence, corrected: float) -> Outcome:
    """The outcome. `corrected`: its `beyond_chance`, corrected for all gates that were asked at once (any one of them fails a build). Passing needs no
    correction: a build passes only if every gate does."""
    if corrected < ONE_SIDED:
        return Outcome.failed
    return Outcome.passed if evidence.within_chance < ONE_SIDED else Outcome.undecided
