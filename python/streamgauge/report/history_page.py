"""The page of a history: a figure over the runs of a workload, with intervals, and where its level changed. One file, as a run's report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.history import History
from streamgauge.report import colours
from streamgauge.report import history as shown
from streamgauge.report.assets_of import page_script, policy
from streamgauge.report.pages import inline
from streamgauge.report.pages import render as render_page
from streamgauge.report.svg import Axis, Frame, y_axis
from streamgauge.vocabulary.figures import RESULT_FIGURES, higher_is_better, title_of, unit_of
from streamgauge.vocabulary.format import instant, plural, significant

FRAME = Frame(width=620, height=300, left=58, right=606, top=18, bottom=246)
LABELS_MAX = 6
"""So many dates stand at the foot."""


@dataclass(frozen=True)
class Mark:
    """A run, where it stands."""

    x: float
    y: float
    low: float | None
    high: float | None
    valid: bool
    told: str


@dataclass(frozen=True)
class Drawn:
    """The chart of one history, in units of the drawing."""

    told: str
    """For whoever cannot see it."""
    subtitle: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    marks: Sequence[Mark]
    levels: Sequence[tuple[float, float, float, str]]
    """From, to and height of each level, and what it is."""
    changes: Sequence[tuple[float, str]]
    versions: Sequence[tuple[float, str]]
    """Where another version begins."""
    frame: Frame = FRAME


def render(found: Sequence[History], figure: str, workload: str, home: str = "") -> str:
    """The page as text. `home`: where runs are listed, for a page that is served."""
    script = page_script()
    unit = unit_of(figure)
    return render_page(
        "history.html",
        title=f"{title_of(figure).capitalize()} of {workload}",
        policy=inline(policy(script, forms="'self'" if home else "'none'")),
        home=home,
        workload=workload,
        figure=figure,
        figures=RESULT_FIGURES if home else (),
        unit=unit,
        hint="higher is better" if higher_is_better(figure) else "lower is better",
        histories=[
            _history(one, figure, colour.css) for one, colour in zip(found, _colours(found), strict=True)
        ],
        titles=shown.TITLES,
        manifest=None,
        script=inline(script),
    )


def _colours(found: Sequence[History]) -> list[colours.Colour]:
    return colours.of(one.title.partition(",")[0] for one in found)


def _history(one: History, figure: str, colour: str) -> dict[str, Any]:
    return {
        "title": one.title,
        "summary": one.summary,
        "colour": colour,
        "drawn": _drawn(one, figure) if one.points else None,
        "rows": [(row[1], row[0], *row[2:]) for row in shown.rows(one, figure)],
        "runs": plural(len(one.points), "run"),
    }


def _drawn(one: History, figure: str) -> Drawn:
    points = one.points
    values = [value for point in points for value in (point.median, *(point.interval or ())) if value > 0]
    y = y_axis(unit_of(figure), values)
    x = Axis("", -0.5, max(len(points) - 0.5, 0.5))

    def height(value: float) -> float:
        return FRAME.y(y, min(max(value, y.low), y.high))

    marks = [
        Mark(
            FRAME.x(x, at),
            height(point.median),
            None if point.interval is None else height(point.interval[0]),
            None if point.interval is None else height(point.interval[1]),
            point.valid,
            f"{point.run_id}, version {point.version}: {significant(point.median)} {unit_of(figure)}"
            + ("" if point.valid else ", no valid trial"),
        )
        for at, point in enumerate(points)
    ]
    stride = max(1, -(-len(points) // LABELS_MAX))
    return Drawn(
        told=f"{title_of(figure)} of {one.title} over {plural(len(points), 'run')}: {one.summary}",
        subtitle=", ".join(text for text in (unit_of(figure), "logarithmic" if y.log else "") if text),
        x_ticks=[
            (FRAME.x(x, at), instant(point.started_unix_ms)[:10])
            for at, point in enumerate(points)
            if at % stride == 0
        ],
        y_ticks=[(FRAME.y(y, value), text) for value, text in y.ticks()],
        marks=marks,
        levels=[
            (FRAME.x(x, start - 0.4), FRAME.x(x, end - 0.6), height(value), significant(value))
            for start, end, value in _levels(one)
        ],
        changes=[
            (FRAME.x(x, change.at - 0.5), f"{significant(change.before)} to {significant(change.after)}")
            for change in one.changes
        ],
        versions=[
            (FRAME.x(x, at), point.version)
            for at, point in enumerate(points)
            if at == 0 or point.version != points[at - 1].version
        ],
    )


def _levels(one: History) -> list[tuple[int, int, float]]:
    """From which run to which (exclusive) each level goes, and how high it is; none where no change was found."""
    if not one.changes:
        return []
    edges = [0, *(change.at for change in one.changes), len(one.points)]
    heights = [one.changes[0].before, *(change.after for change in one.changes)]
    return [
        (start, end, value) for (start, end), value in zip(itertools.pairwise(edges), heights, strict=True)
    ]
