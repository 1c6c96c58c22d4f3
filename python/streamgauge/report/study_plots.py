"""The plots of a study: small charts, one per test or one with a curve per cell, with the printed figures in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from streamgauge.analysis.intervals import Intervals
from streamgauge.analysis.percentiles import CURVE_STEPS_PER_DECADE, PERCENTS, curve
from streamgauge.analysis.study import CellFigure, StudyOutcome
from streamgauge.analysis.study_figures import BEFORE, Measured
from streamgauge.analysis.study_figures import over_time as series_of
from streamgauge.model.figures import LATENCIES, Figure
from streamgauge.model.study import StudyCell
from streamgauge.report.format import significant
from streamgauge.report.svg import Axis, Line, chart, y_axis

TRIALS_DRAWN_MAX = 3
CURVES_MAX = 4
"""So many cells share a chart of curves."""


def over_time(outcome: StudyOutcome, cells: Sequence[StudyCell], figure: Figure) -> str:
    """One chart per cell, all with the same axis of values: a line per trial, the printed figure as a level."""
    found = {cell.name: _series(outcome.of(cell.name), figure) for cell in cells}
    values = [value for lines in found.values() for _, ys in lines for value in ys]
    printed = [outcome.printed(cell.name, figure.name) for cell in cells]
    y = y_axis(figure.axis, values + [one for one in printed if one is not None])
    charts = []
    for place, cell in enumerate(cells):
        lines = [
            Line(f"trial {number}" if len(found[cell.name]) > 1 else "here", xs, ys, 0, faint=number > 1)
            for number, (xs, ys) in enumerate(found[cell.name], start=1)
        ]
        ends = [xs[-1] for xs, _ in found[cell.name] if len(xs)]
        x = Axis("s since the start of the load", 0.0, max(ends, default=1.0))
        told = printed[place]
        if told is not None:
            lines.append(Line(f"printed: {significant(told)}", [0.0, x.high], [told, told], 1))
        note = "" if found[cell.name] else outcome.why_none(cell.name)
        charts.append(chart(cell.title, figure.hint, x, y, lines, note=note))
    return f'<div class="plots">{"".join(charts)}</div>'


def _series(trials: Sequence[Measured], figure: Figure) -> list[tuple[list[float], list[float]]]:
    """Of the first trials, those that have a series: times in s and values."""
    found = []
    for trial in trials[:TRIALS_DRAWN_MAX]:
        times, values = series_of(trial, figure.name)
        if len(times):
            found.append(([float(one) for one in times], [float(one) for one in values]))
    return found


def percentiles(outcome: StudyOutcome, cells: Sequence[StudyCell], latency: str) -> str:
    """Latency by percentile: a curve per cell (of its median trial by p99), printed percentiles as points."""
    charts = [
        _curves(outcome, cells[at : at + CURVES_MAX], latency) for at in range(0, len(cells), CURVES_MAX)
    ]
    return f'<div class="plots wide">{"".join(charts)}</div>'


def _curves(outcome: StudyOutcome, cells: Sequence[StudyCell], latency: str) -> str:
    lines: list[Line] = []
    missing = []
    for place, cell in enumerate(cells):
        points = _curve(outcome.valid(cell.name) or outcome.of(cell.name), latency)
        if points:
            steps = [step / CURVE_STEPS_PER_DECADE for step in range(len(points))]
            lines.append(Line(cell.title, steps, points, place))
        else:
            missing.append(f"{cell.title}: {outcome.why_none(cell.name)}")
        told = {
            -math.log10(1.0 - percent / 100.0): outcome.printed(cell.name, f"{latency}.{name}")
            for name, percent in PERCENTS.items()
        }
        known = {at: one for at, one in told.items() if one is not None}
        if known:
            label = "printed" if points else f"{cell.title}, printed"
            lines.append(Line(label, list(known), list(known.values()), place, marks=True))
    decades = max((max(line.x) for line in lines if len(line.x)), default=2.0)
    names = (
        (0.0, "0"),
        (0.301, "50"),
        (1.0, "90"),
        (2.0, "99"),
        (3.0, "99.9"),
        (4.0, "99.99"),
        (5.0, "99.999"),
    )
    x = Axis("percentile", 0.0, decades, names=tuple(one for one in names if one[0] <= decades))
    y = y_axis(f"{LATENCIES[latency]} (ms)", [value for line in lines for value in line.y])
    title = LATENCIES[latency].capitalize() + " by percentile"
    return chart(title, "lower is better", x, y, lines, note="; ".join(missing))


def _curve(trials: Sequence[Measured], latency: str) -> list[float]:
    """Of the trial in the middle."""
    order = sorted(
        (trial for trial in trials if getattr(trial.result, latency).count),
        key=lambda trial: getattr(trial.result, latency).p99 or math.inf,
    )
    if not order:
        return []
    middle = order[(len(order) - 1) // 2]
    return curve(Intervals.read(middle.directory).histogram(latency.removesuffix("_ms"), BEFORE))


def bars(outcome: StudyOutcome, cells: Sequence[StudyCell], figure: Figure) -> str:
    """Bars, printed beside here. Each has a scale of its own: what is compared are the shapes."""
    found = [outcome.figure(cell.name, figure.name) for cell in cells]
    printed = [outcome.printed(cell.name, figure.name) for cell in cells]
    most_here = max((one.median for one in found if one is not None), default=0.0)
    most_there = max((one for one in printed if one is not None), default=0.0)
    rows = "".join(
        _bar(outcome, cell, figure, here, there, most_here, most_there)
        for cell, here, there in zip(cells, found, printed, strict=True)
    )
    scales = (
        f"Full width: {significant(most_there)} {figure.unit} printed, {significant(most_here)} {figure.unit} here."
        if most_there
        else f"Full width: {significant(most_here)} {figure.unit}."
    )
    return (
        f'<figure class="plot"><figcaption><b>{escape(figure.axis)}</b><small>{escape(figure.hint)}</small></figcaption>'
        f'<div class="bars">{rows}</div><p class="hint">{escape(scales)}</p></figure>'
    )


def _bar(
    outcome: StudyOutcome,
    cell: StudyCell,
    figure: Figure,
    here: CellFigure | None,
    there: float | None,
    most_here: float,
    most_there: float,
) -> str:
    colour = f"--c:var(--series-{list(outcome.study.written.systems).index(cell.system) % 8})"
    words = str(cell.published.get(figure.name, "not printed"))
    upper = _strip(
        "there",
        0.0 if there is None else there / most_there,
        significant(there) if there is not None else words,
    )
    if here is None:
        lower = _strip("here none", 0.0, outcome.why_no_figure(cell.name, figure.name))
    else:
        text = significant(here.median)
        if here.interval is not None:
            text += f" [{significant(here.interval[0])}, {significant(here.interval[1])}]"
        if not here.trials:
            text += " (invalid)"
        lower = _strip("here", here.median / most_here if most_here else 0.0, text)
    return f'<div class="pair" style="{colour}"><b>{escape(cell.title)}</b>{upper}{lower}</div>'


def _strip(kind: str, share: float, text: str) -> str:
    name = kind.partition(" ")[0]
    shown = "printed" if name == "there" else "here"
    return (
        f'<div class="strip {kind}"><span>{shown}</span><i style="width:{100 * share:.1f}%"></i>'
        f"<em>{escape(text)}</em></div>"
    )
