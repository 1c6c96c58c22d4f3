"""All ratios that a study's claims ask about, one below the other: estimate, 95 % interval, what was asked for, and the margin within which nothing matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.inference.checks import Tested, bounds, is_directional, margin_of_test
from streamgauge.inference.claims import Judged
from streamgauge.report.svg import Axis
from streamgauge.report.verdict_words import tone_of
from streamgauge.vocabulary.format import significant

REACH_MIN, REACH_MAX = 2.0, 100.0
"""The axis goes from 1/reach to reach."""
LEFT, RIGHT, ROW, TOP, BOTTOM = 300.0, 760.0, 30.0, 24.0, 44.0
"""In the drawing's units; on a narrow page it is scrolled, not made smaller."""


@dataclass(frozen=True)
class Row:
    """One ratio, where it stands in the drawing."""

    label: str
    y: float
    at: float
    low: float
    high: float
    cut_low: bool
    """The interval goes beyond the axis."""
    cut_high: bool
    margin: tuple[float, float] | None
    asked: tuple[float, ...]
    """Where the bounds are."""
    tone: str
    told: str
    """The row in words."""


@dataclass(frozen=True)
class Forest:
    """The drawing."""

    rows: Sequence[Row]
    ticks: Sequence[tuple[float, str]]
    one: float
    """Where the ratio 1 stands."""
    height: float


def forest(claims: Sequence[Judged]) -> Forest | None:
    """None where no ratio has an interval."""
    tests = [(one, test) for one in claims for test in one.tests if _is_drawn(test)]
    if not tests:
        return None
    ends = [abs(math.log(end)) for _, test in tests for end in _interval(test) if end > 0]
    asked = [abs(math.log(one)) for _, test in tests for one in bounds(test.test) if 0 < one < math.inf]
    reach = min(max(math.exp(max(ends + asked)) * 1.1, REACH_MIN), REACH_MAX)
    axis = Axis("ratio", 1.0 / reach, reach, log=True)
    rows = [_row(judged, test, axis, place) for place, (judged, test) in enumerate(tests)]
    ticks = [(_x(axis, at), text) for at, text in axis.ticks() if axis.low <= at <= axis.high]
    return Forest(rows, ticks, _x(axis, 1.0), TOP + ROW * len(rows) + BOTTOM)


def _is_drawn(test: Tested) -> bool:
    measured = test.measured
    return test.test.value is None and measured is not None and measured.interval is not None


def _interval(test: Tested) -> tuple[float, float]:
    assert test.measured is not None
    assert test.measured.interval is not None
    return test.measured.interval


def _row(judged: Judged, test: Tested, axis: Axis, place: int) -> Row:
    low, high = _interval(test)
    assert test.measured is not None
    margin = margin_of_test(test.test) if is_directional(test.test) else None
    interval = f"{significant(low)} to {significant(high)}"
    return Row(
        label=f"{test.test.figure}: {test.text}",
        y=TOP + ROW * (place + 0.5),
        at=_x(axis, test.measured.value),
        low=_x(axis, low),
        high=_x(axis, high),
        cut_low=low < axis.low,
        cut_high=high > axis.high,
        margin=None if margin is None else (_x(axis, 1.0 / margin), _x(axis, margin)),
        asked=tuple(_x(axis, one) for one in bounds(test.test) if 0 < one < math.inf),
        tone=tone_of(test.verdict),
        told=f"{judged.claim.claim}: {test.text} {significant(test.measured.value)} ({interval}), {test.verdict}",
    )


def _x(axis: Axis, value: float) -> float:
    return LEFT + min(max(axis.place(max(value, 1e-12)), 0.0), 1.0) * (RIGHT - LEFT)
