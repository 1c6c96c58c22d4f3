"""Is a figure beyond a bound? Passed, failed or undecided, with the numbers that the decision rests on.

A figure of repeats differs by factors, so its logarithm is taken for normal, and the number that is tested is the mean of the logarithms, or for a gate on
the ratio to a baseline the difference of two such means. Its spread is that of the trials, moderated by experience (spread.py): with one trial there is
nothing else to go by, with three the trials' own standard deviation is as often as not off by half. As in Smyth (2004) experience counts as PRIOR_FREEDOM
degrees of freedom; unlike there it never lowers what the trials show. On top comes what all trials of a run have in common and another run of the same has
not (RUN_SHARE): repeating within a run cannot reduce it, and without it two runs of the same would differ the more surely the longer they are.

Smyth, G. K. (2004), Linear models and empirical Bayes methods for assessing differential expression in microarray experiments, Stat. Appl. Genet. Mol.
Biol. 3(1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from streamgauge.inference import distributions
from streamgauge.inference.sequential import ERROR
from streamgauge.inference.spread import PRIOR_FREEDOM, Prior

RUN_SHARE = 0.75
"""Variance between runs over variance between trials of a run. With it and what experience adds, runs that vary as much as the trials within them fail a gate
in at most 5 of 100 comparisons (tests/test_gates.py). Without experience it takes all of START_SHARE (spread.py)."""
ONE_SIDED = ERROR / 2.0
REPEATS_MAX = 100
"""More trials than that nobody is advised to make."""


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
    """What trials say about a bound."""

    value: float
    """The figure, or its ratio to the baseline: geometric mean over trials."""
    low: float
    high: float
    """95 % interval of the value."""
    beyond_chance: float
    """How probable trials like these are if the figure is not beyond the bound (one-sided p-value): small where the gate fails."""
    within_chance: float
    """The same if it is beyond: small where the gate passes."""
    spread: float
    """The standard deviation of the logarithm between trials that all of this rests on."""
    distance: float
    """From the value to the bound, in logarithms."""
    sides: int
    """2 with a baseline."""

    @property
    def repeats(self) -> int | None:
        """With so many trials (on both sides) the value that was found would decide; None where no number of them would."""
        for trials in range(1, REPEATS_MAX + 1):
            error = self.spread * math.sqrt(self.sides * (1.0 / trials + RUN_SHARE))
            if _quantile(PRIOR_FREEDOM + self.sides * (trials - 1)) * error < self.distance:
                return trials
        return None


def weigh(bound: Bound, other: Sequence[float], base: Sequence[float] | None, prior: float) -> Evidence:
    """What the values of trials say about a bound on them or, with `base`, on their ratio to those. All values and the bound are above 0."""
    sides = [[math.log(value) for value in side] for side in (other, base) if side is not None]
    found = statistics.fmean(sides[0]) - (statistics.fmean(sides[1]) if base is not None else 0.0)
    own_freedom = sum(len(side) - 1 for side in sides)
    spread, freedom = _spread(sides, own_freedom, prior), PRIOR_FREEDOM + own_freedom
    error = spread * math.sqrt(sum(1.0 / len(side) + RUN_SHARE for side in sides))
    half = _quantile(freedom) * error
    distance = (found - math.log(bound.at)) * (1.0 if bound.above else -1.0)
    return Evidence(
        value=math.exp(found),
        low=math.exp(found - half),
        high=math.exp(found + half),
        beyond_chance=distributions.student_above(distance / error, freedom),
        within_chance=distributions.student_above(-distance / error, freedom),
        spread=spread,
        distance=abs(distance),
        sides=len(sides),
    )


def decide(evidence: Evidence, corrected: float) -> Outcome:
    """The outcome. `corrected`: its `beyond_chance`, corrected for all gates that were asked at once (any one of them fails a build). Passing needs no
    correction: a build passes only if every gate does."""
    if corrected < ONE_SIDED:
        return Outcome.failed
    return Outcome.passed if evidence.within_chance < ONE_SIDED else Outcome.undecided


def _spread(sides: Sequence[Sequence[float]], freedom: int, prior: float) -> float:
    squares = sum((value - statistics.fmean(side)) ** 2 for side in sides for value in side)
    experience = Prior(prior**2, PRIOR_FREEDOM, learnt=False)
    return math.sqrt(experience.moderate(squares / freedom if freedom else 0.0, freedom)[0])


def _quantile(freedom: float) -> float:
    """Student's t that is exceeded with probability ONE_SIDED."""
    return -distributions.student_quantile(ONE_SIDED, freedom)
