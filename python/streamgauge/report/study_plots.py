"""The plots of a study: small charts, one per test or one with a curve per cell, with the printed figures in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from streamgauge.analysis.intervals import Intervals
from streamgauge.analysis.study_figures import BEFORE, MeasuredTrial
from streamgauge.analysis.study_figures import over_time as series_of
from streamgauge.analysis.study_outcome import CellFigure, StudyOutcome
from streamgauge.model.percentiles import CURVE_STEPS_PER_DECADE, PERCENTS, curve
from streamgauge.model.study_told import ToldCell
from streamgauge.report import colours
from streamgauge.report.svg import Axis, Chart, Line, chart, y_axis
from streamgauge.vocabulary.figures import LATENCIES, Figure
from streamgauge.vocabulary.format import significant

TRIALS_DRAWN_MAX = 3
CURVES_MAX = 4
"""So many cells share a chart of curves."""


def over_time(outcome: StudyOutcome, cells: Sequence[ToldCell], figure: Figure) -> list[Chart]:
    """One chart per cell, all with the same axis of values: a line per trial, the printed figure as a level."""
    found = {cell.name: _series(outcome.of(cell.name), figure) for cell in cells}
    values = [value for lines in found.values() for _, ys in lines for value in ys]
    printed = [outcome.printed(cell.name, figure.name) for cell in cells]
    y = y_axis(figure.axis, values + [one for one in printed if one is not None])
    charts = []
    for place, cell in enumerate(cells):
        lines = [
            Line(
                f"trial {number}" if len(found[cell.name]) > 1 else "here",
                xs,
                ys,
                _colour(outcome, cell),
                faint=number > 1,
            )
            for number, (xs, ys) in enumerate(found[cell.name], start=1)
        ]
        ends = [xs[-1] for xs, _ in found[cell.name] if len(xs)]
        x = Axis("s since the start of the load", 0.0, max(ends, default=1.0))
        told = printed[place]
        if told is not None:
            lines.append(Line(f"printed: {significant(told)}", [0.0, x.high], [told, told], colours.PRINTED))
        note = "" if found[cell.name] else outcome.why_none(cell.name)
        charts.append(chart(cell.title, figure.hint, x, y, lines, note=note))
    return charts


def _colour(outcome: StudyOutcome, cell: ToldCell) -> str:
    """Of its system."""
    return colours.Colour(colours.slot_of(f"{cell.system} {outcome.study.systems[cell.system]}")).css


def _series(trials: Sequence[MeasuredTrial], figure: Figure) -> list[tuple[list[float], list[float]]]:
    """Of the first trials, those that have a series: times in s and values."""
    found = []
    for trial in trials[:TRIALS_DRAWN_MAX]:
        times, values = series_of(trial, figure.name)
        if len(times):
            found.append(([float(one) for one in times], [float(one) for one in values]))
    return found


def percentiles(outcome: StudyOutcome, cells: Sequence[ToldCell], latency: str) -> list[Chart]:
    """Latency by percentile: a curve per cell (of its median trial by p99), printed percentiles as points."""
    return [_curves(outcome, cells[at : at + CURVES_MAX], latency) for at in range(0, len(cells), CURVES_MAX)]


def _curves(outcome: StudyOutcome, cells: Sequence[ToldCell], latency: str) -> Chart:
    lines: list[Line] = []
    missing = []
    shades = colours.of([f"{cell.system} {outcome.study.systems[cell.system]}" for cell in cells])
    for cell, shade in zip(cells, shades, strict=True):
        points = _curve(outcome.valid(cell.name) or outcome.of(cell.name), latency)
        if points:
            steps = [step / CURVE_STEPS_PER_DECADE for step in range(len(points))]
            lines.append(Line(cell.title, steps, points, shade.css))
        else:
            missing.append(f"{cell.title}: {outcome.why_none(cell.name)}")
        told = {
            -math.log10(1.0 - percent / 100.0): outcome.printed(cell.name, f"{latency}.{name}")
            for name, percent in PERCENTS.items()
        }
        known = {at: one for at, one in told.items() if one is not None}
        if known:
            label = "printed" if points else f"{cell.title}, printed"
            lines.append(Line(label, list(known), list(known.values()), shade.css, marks=True))
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


def _curve(trials: Sequence[MeasuredTrial], latency: str) -> list[float]:
    """Of the trial in the middle."""
    order = sorted(
        (trial for trial in trials if getattr(trial.result, latency).count),
        key=lambda trial: getattr(trial.result, latency).p99 or math.inf,
    )
    if not order:
        return []
    middle = order[(len(order) - 1) // 2]
    return curve(Intervals.read(middle.directory).histogram(latency.removesuffix("_ms"), BEFORE))


def bars(outcome: StudyOutcome, cells: Sequence[ToldCell], figure: Figure) -> dict[str, Any]:
    """Bars, printed beside here, each as a share of the full width and its text. Each has a scale of its own: what is compared are the shapes."""
    found = [outcome.figure(cell.name, figure.name) for cell in cells]
    printed = [outcome.printed(cell.name, figure.name) for cell in cells]
    most_here = max((one.median for one in found if one is not None), default=0.0)
    most_there = max((one for one in printed if one is not None), default=0.0)
    scales = f"Full width: {significant(most_here)} {figure.unit}."
    if most_there:
        scales = f"Full width: {significant(most_there)} {figure.unit} printed, {significant(most_here)} {figure.unit} here."
    pairs = []
    for cell, here, there in zip(cells, found, printed, strict=True):
        printed_bar = (0.0, str(cell.published.get(figure.name, "not printed")))
        if there is not None:
            printed_bar = (there / most_there, significant(there))
        here_bar = (0.0, outcome.why_no_figure(cell.name, figure.name))
        if here is not None:
            here_bar = (here.median / most_here if most_here else 0.0, _bar_text(here))
        pairs.append(
            {
                "title": cell.title,
                "colour": _colour(outcome, cell),
                "there": printed_bar,
                "here": here_bar,
                "measured": here is not None,
            }
        )
    return {"title": figure.axis, "hint": figure.hint, "scales": scales, "pairs": pairs}


def _bar_text(here: CellFigure) -> str:
    text = significant(here.median)
    if here.interval is not None:
        text += f" [{significant(here.interval[0])}, {significant(here.interval[1])}]"
    return text if here.trials else f"{text} (invalid)"
