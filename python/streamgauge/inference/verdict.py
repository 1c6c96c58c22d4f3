"""From an estimate with its error to a verdict on what was asked of it.

A number is asked to lie within an open interval (above b, below b, between a and b). With the interval of the estimate, 95 % over all looks:

- it **holds** when the whole interval lies within what is asked, and is **refuted** when the whole interval lies outside;
- a ratio that is asked to be above 1, or below 1, is **equivalent** when the whole interval lies within the margins [1/m, m] of the smallest effect that
  matters: there is no difference that anybody would notice. This comes first: what is shown not to matter does not "hold" because it is not exactly nothing;
- it is **undecided** otherwise. An interval that only excludes 1 needs not exclude the margin to hold: the margin decides what may be neglected.

Two one-sided tests (Schuirmann 1987) show equivalence; all three are at 2.5 % one-sided, so that for no truth more than 5 % of verdicts are wrong.

Schuirmann, D. J. (1987), A comparison of the two one-sided tests procedure and the power approach, J. Pharmacokinet. Biopharm. 15, 657-680.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from streamgauge.inference import distributions
from streamgauge.inference.contrast import Contrast

RESOLUTION = 0.001
"""Relative width of a histogram's bucket: two figures that differ by less are the same figure."""


class Verdict(StrEnum):
    """What may be said of a claim, a test or a comparison."""

    holds = "holds"
    refuted = "refuted"
    equivalent = "equivalent"
    undecided = "undecided"
    not_shown = "not shown"
    """Nothing could be measured."""

    @property
    def decided(self) -> bool:
        """Whether it says something about the systems."""
        return self in (Verdict.holds, Verdict.refuted, Verdict.equivalent)


@dataclass(frozen=True)
class Asked:
    """What is asked of a number, on the scale of its estimate (logarithms, but for linear ones)."""

    low: float = -math.inf
    high: float = math.inf
    """The open interval in which it is to lie."""
    margin: float | None = None
    """Where 0 (a ratio of 1) is the bound: numbers nearer to it make no difference. None elsewhere: equivalence is no answer then."""


@dataclass(frozen=True)
class Chances:
    """Two-sided p-values of the three things that may be said; 1 for one that may not."""

    holds: float
    refuted: float
    equivalent: float

    @property
    def against(self) -> float:
        """Of either way in which the number is shown not to be what is asked."""
        return min(self.refuted, self.equivalent)

    def verdict(self, level: float) -> Verdict:
        """At a two-sided level."""
        if self.equivalent < level:
            return Verdict.equivalent
        if self.refuted < level:
            return Verdict.refuted
        return Verdict.holds if self.holds < level else Verdict.undecided


def chances(found: Contrast, asked: Asked) -> Chances:
    """What an estimate says of what is asked."""
    near = 0.0 if found.linear else RESOLUTION
    inside = [found.estimate - asked.low - near, asked.high - found.estimate - near]
    outside = [asked.low - found.estimate - near, found.estimate - asked.high - near]
    equivalent = 1.0
    if asked.margin is not None:
        equivalent = _chance(found, asked.margin - abs(found.estimate))
    # Without any variation the estimate is the number: on the bound itself it is not beyond it.
    exact = found.error == 0 and max(outside) == 0
    return Chances(_chance(found, min(inside)), 0.0 if exact else _chance(found, max(outside)), equivalent)


def reach(found: Contrast, level: float) -> tuple[float, float]:
    """The interval of an estimate at a two-sided level."""
    half = (
        distributions.student_quantile(1.0 - level / 2.0, found.freedom) * found.error if found.error else 0.0
    )
    half += 0.0 if found.linear else RESOLUTION
    return found.estimate - half, found.estimate + half


def _chance(found: Contrast, distance: float) -> float:
    """Two-sided p-value of being so far on the right side of a bound."""
    if found.error == 0:
        return float(distance <= 0)
    if math.isinf(distance):
        return float(distance < 0)
    return min(1.0, 2.0 * distributions.student_above(distance / found.error, found.freedom))


def all_of(tests: Sequence[Chances]) -> Chances:
    """Of a claim: it holds when all its tests do (intersection-union: each may be tested at the full level), and is refuted when one is, with Holm's
    correction for their number. It is equivalent when all are."""
    return Chances(
        holds=max(one.holds for one in tests),
        refuted=min(1.0, len(tests) * min(one.against if len(tests) > 1 else one.refuted for one in tests)),
        equivalent=max(one.equivalent for one in tests),
    )
