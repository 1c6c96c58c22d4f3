"""The forest plot of a study: every ratio that a claim rests on, with its interval, its bound and its margins, on one axis (templates/forest.html)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.steps import bounds
from streamgauge.inference.study import Estimate, Tested
from streamgauge.report.verdicts import TONES
from streamgauge.vocabulary.format import significant

WIDTH = 400.0
"""Of a strip, in units of the drawing."""
FACTOR_MAX = 20.0
"""The axis reaches no further than so many times to either side of 1, however wide an interval is; what is beyond ends at the edge."""
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class Strip:
    """A test."""

    claim: str
    """Of the first of a claim's strips; empty for the others."""
    subject: str
    tone: str
    low: float
    value: float
    high: float
    """Where the interval begins, the estimate stands and the interval ends."""
    bounds: tuple[float, ...]
    """Where the bounds are."""
    margins: tuple[float, float] | None
    """Between which no difference matters."""
    told: str
    """The same for whoever cannot see it."""


@dataclass(frozen=True)
class Forest:
    """All strips, and where the axis has ticks."""

    strips: tuple[Strip, ...]
    ticks: tuple[tuple[float, str], ...]
    width: float = WIDTH


def forest(outcome: StudyOutcome) -> Forest | None:
    """Of the tests that are ratios and have an interval; None where there is none."""
    shown = [
        (judged.claim.claim, test, test.measured)
        for judged in outcome.claims
        for test in judged.tests
        if test.test.value is None and test.measured is not None and math.isfinite(test.measured.high)
    ]
    if not shown:
        return None
    reach = _reach(shown)
    strips, before = [], ""
    for claim, test, measured in shown:
        title = outcome.study.figures[test.test.figure].title
        strips.append(_strip(claim if claim != before else "", title, test, measured, reach))
        before = claim
    ticks = tuple((_place(one, reach), significant(one)) for one in TICKS if 1 / reach <= one <= reach)
    return Forest(tuple(strips), ticks)


def _strip(claim: str, title: str, test: Tested, measured: Estimate, reach: float) -> Strip:
    asked = [one for one in bounds(test.test) if math.isfinite(one) and one > 0]
    subject = f"{title}: {test.text}"
    interval = f"{significant(measured.value)} [{significant(measured.low)}, {significant(measured.high)}]"
    margins = None
    if test.margin is not None:
        margins = _place(1 / test.margin, reach), _place(test.margin, reach)
    return Strip(
        claim,
        subject,
        TONES[test.verdict],
        _place(measured.low, reach),
        _place(measured.value, reach),
        _place(measured.high, reach),
        tuple(_place(one, reach) for one in asked),
        margins,
        f"{subject} is {interval}, bound {' to '.join(significant(one) for one in asked)}: {test.verdict}",
    )


def _reach(shown: Sequence[tuple[str, Tested, Estimate]]) -> float:
    """The factor at either end of the axis: that of the furthest interval or bound, within reason."""
    values = list(_numbers(shown))
    return min(max(max(one, 1 / one) for one in [*values, 2.0]) * 1.1, FACTOR_MAX)


def _numbers(shown: Sequence[tuple[str, Tested, Estimate]]) -> Iterable[float]:
    for _, test, measured in shown:
        yield from (one for one in (measured.low, measured.high) if one > 0)
        yield from (one for one in bounds(test.test) if math.isfinite(one) and one > 0)


def _place(value: float, reach: float) -> float:
    """From the left, in units of the drawing."""
    share = 0.5 if value <= 0 else 0.5 + 0.5 * math.log(value) / math.log(reach)
    return WIDTH * min(max(0.0 if value <= 0 else share, 0.0), 1.0)
