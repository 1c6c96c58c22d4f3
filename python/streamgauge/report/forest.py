"""Ratios, one below the other: estimate, 95 % interval, what was asked for, and the margin within which nothing matters (templates/forest.html).

Each stands below its own label, so that a phone shows both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.analysis.compare import Compared
from streamgauge.inference.checks import Tested, Verdict, bounds, is_directional, margin_of_test
from streamgauge.inference.claims import Judged
from streamgauge.inference.comparison import Difference
from streamgauge.report.svg import Axis
from streamgauge.report.verdict_words import tone_of
from streamgauge.vocabulary.figures import higher_is_better, title_of
from streamgauge.vocabulary.format import significant

REACH_MIN, REACH_MAX = 2.0, 100.0
"""The axis goes from 1/reach to reach."""
LEFT, RIGHT, ROW, TOP, BOTTOM = 22.0, 598.0, 46.0, 6.0, 50.0
"""In the drawing's units; it is as wide as its page."""


@dataclass(frozen=True)
class Ratio:
    """One ratio as it was found."""

    label: str
    told: str
    """In words."""
    value: float | None
    """None where only bounds are known."""
    interval: tuple[float, float]
    margin: float | None
    asked: tuple[float, ...] = ()
    """Bounds that were asked for."""
    tone: str = "plain"
    colour: str | None = None


@dataclass(frozen=True)
class Row:
    """One ratio, where it stands in the drawing."""

    ratio: Ratio
    y: float
    at: float | None
    low: float
    high: float
    cut_low: bool
    """The interval goes beyond the axis."""
    cut_high: bool
    margin: tuple[float, float] | None
    asked: tuple[float, ...]
    """Where the bounds are."""


@dataclass(frozen=True)
class Forest:
    """The drawing."""

    title: str
    told: str
    """For whoever cannot see it."""
    key: str
    """What is drawn how."""
    rows: Sequence[Row]
    ticks: Sequence[tuple[float, str]]
    one: float
    """Where the ratio 1 stands."""
    height: float


def forest(claims: Sequence[Judged]) -> Forest | None:
    """Of a study's claims; None where no ratio has an interval."""
    ratios = [_of_claim(one, test) for one in claims for test in one.tests if _is_drawn(test)]
    key = "ratio; dashed: asked for; shaded: a difference that does not matter"
    return _forest("Ratios of the claims", key, ratios)


def of_figures(title: str, found: Sequence[tuple[str, Compared, str | None]]) -> Forest | None:
    """Of compared figures, each with what stands before its label and the colour of its system; None where no figure has a ratio."""
    ratios = [
        _of_figure(before, one, one.difference, colour)
        for before, one, colour in found
        if one.difference is not None
    ]
    key = "times the base, with 95 % intervals; shaded: a difference that does not matter"
    return _forest(title, key, ratios)


def _forest(title: str, key: str, ratios: Sequence[Ratio]) -> Forest | None:
    if not ratios:
        return None
    ends = [end for one in ratios for end in (*one.interval, *one.asked) if 0 < end < math.inf]
    furthest = max((abs(math.log(end)) for end in ends), default=0.0)
    reach = min(max(math.exp(min(furthest, math.log(REACH_MAX))) * 1.1, REACH_MIN), REACH_MAX)
    axis = Axis("ratio", 1.0 / reach, reach, log=True)
    ticks = [(_x(axis, at), text) for at, text in axis.ticks() if axis.low <= at <= axis.high]
    return Forest(
        title=title,
        told=f"{title}: {'; '.join(one.told for one in ratios)}",
        key=key,
        rows=[_row(one, axis, place) for place, one in enumerate(ratios)],
        ticks=ticks,
        one=_x(axis, 1.0),
        height=TOP + ROW * len(ratios) + BOTTOM,
    )


def _is_drawn(test: Tested) -> bool:
    measured = test.measured
    return test.test.value is None and measured is not None and measured.interval is not None


def _of_claim(judged: Judged, test: Tested) -> Ratio:
    assert test.measured is not None
    assert test.measured.interval is not None
    low, high = test.measured.interval
    return Ratio(
        label=f"{test.test.figure}: {test.text}",
        told=f"{judged.claim.claim}: {test.text} {test.measured.text}, {test.verdict}",
        value=test.measured.value,
        interval=(low, high),
        margin=margin_of_test(test.test) if is_directional(test.test) else None,
        asked=bounds(test.test),
        tone=tone_of(test.verdict),
    )


def _of_figure(before: str, one: Compared, found: Difference, colour: str | None) -> Ratio:
    low, high = found.ratio.interval()
    figure = f"{before}{title_of(one.figure)}"
    label = f"{figure}: {significant(found.ratio.value)} times ({significant(low)} to {significant(high)})"
    tone = "plain"
    if found.verdict is Verdict.holds:
        tone = "good" if (found.ratio.value > 1) == higher_is_better(one.figure) else "bad"
    return Ratio(
        label=label,
        told=f"{label}, {one.verdict}",
        value=found.ratio.value,
        interval=(low, high),
        margin=found.margin,
        tone=tone,
        colour=colour,
    )


def _row(ratio: Ratio, axis: Axis, place: int) -> Row:
    low, high = ratio.interval
    margin = ratio.margin
    return Row(
        ratio=ratio,
        y=TOP + ROW * place + 32.0,
        at=None if ratio.value is None else _x(axis, ratio.value),
        low=_x(axis, low),
        high=_x(axis, high),
        cut_low=low < axis.low,
        cut_high=high > axis.high,
        margin=None if margin is None else (_x(axis, 1.0 / margin), _x(axis, margin)),
        asked=tuple(_x(axis, one) for one in ratio.asked if 0 < one < math.inf),
    )


def _x(axis: Axis, value: float) -> float:
    return LEFT + min(max(axis.place(max(value, 1e-12)), 0.0), 1.0) * (RIGHT - LEFT)
