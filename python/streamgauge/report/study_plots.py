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
from streamgauge.model.result_hosts import ProbedDisk
from streamgauge.model.study_told import ToldCell
from streamgauge.report import colours
from streamgauge.report.svg import FRAME, WIDE, Axis, Chart, Frame, Line, chart, log_axis, y_axis
from streamgauge.vocabulary.figures import LATENCIES, Figure
from streamgauge.vocabulary.format import significant
from streamgauge.vocabulary.phases import CATCH_UP

TRIALS_DRAWN_MAX = 3
CURVES_MAX = 4
"""So many cells share a chart of curves."""


def over_time(
    outcome: StudyOutcome, cells: Sequence[ToldCell], figure: Figure, beside: Figure | None = None
) -> list[Chart]:
    """One chart per cell, all with the same axis of values: a line per trial, the printed figure as a level. `beside`: a second figure of the first trial, with
    an axis of its own, the same in all charts."""
    others = (
        {} if beside is None else {cell.name: _series(outcome.of(cell.name), beside)[:1] for cell in cells}
    )
    right = None
    if beside is not None:
        right = y_axis(beside.axis, [value for lines in others.values() for _, ys in lines for value in ys])
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
                _colour(outcome, cell.system),
                faint=number > 1,
            )
            for number, (xs, ys) in enumerate(found[cell.name], start=1)
        ]
        if beside is not None:
            shade = _colour(outcome, cell.system, 1)
            lines += [Line(beside.title, xs, ys, shade, right=True) for xs, ys in others[cell.name]]
        ends = [xs[-1] for xs, _ in found[cell.name] if len(xs)]
        x = Axis("s since the start of the load", 0.0, max(ends, default=1.0))
        told = printed[place]
        if told is not None:
            lines.append(Line(f"printed: {significant(told)}", [0.0, x.high], [told, told], colours.PRINTED))
        note = "" if found[cell.name] else outcome.why_none(cell.name)
        charts.append(chart(cell.title, figure.hint, x, y, lines, note=note, right=right))
    return charts


def overlaid(outcome: StudyOutcome, cells: Sequence[ToldCell], figure: Figure) -> list[Chart]:
    """One chart with a curve per cell: its first valid trial that has a series, or its first one."""
    lines: list[Line] = []
    missing = []
    for cell, shade in zip(cells, _shades(outcome, cells), strict=True):
        found = _series(outcome.valid(cell.name) or outcome.of(cell.name), figure)[:1]
        lines += [Line(cell.title, xs, ys, shade.css) for xs, ys in found]
        if not found:
            missing.append(f"{cell.title}: {outcome.why_none(cell.name)}")
        printed = outcome.printed(cell.name, figure.name)
        if printed is not None:
            end = found[0][0][-1] if found else 1.0
            lines.append(
                Line(
                    f"{cell.title}, printed",
                    [0.0, end],
                    [printed, printed],
                    shade.css,
                    faint=True,
                )
            )
    y = y_axis(figure.axis, [value for line in lines for value in line.y])
    x = Axis("s since the start of the load", 0.0, max((line.x[-1] for line in lines), default=1.0))
    return [chart(figure.title.capitalize(), figure.hint, x, y, lines, note="; ".join(missing), frame=WIDE)]


def against(outcome: StudyOutcome, cells: Sequence[ToldCell], x: Figure, y: Figure) -> list[Chart]:
    """A point per cell, medians of its trials, those of a system joined in the order of x; printed pairs as points alone."""
    lines: list[Line] = []
    missing = []
    names = list(dict.fromkeys(cell.system for cell in cells))
    shades = dict(
        zip(names, (one.css for one in colours.of(_called(outcome, name) for name in names)), strict=True)
    )
    for system in names:
        here, there = [], []
        for cell in (one for one in cells if one.system == system):
            pair = outcome.figure(cell.name, x.name), outcome.figure(cell.name, y.name)
            printed = outcome.printed(cell.name, x.name), outcome.printed(cell.name, y.name)
            if pair[0] is not None and pair[1] is not None:
                here.append((pair[0].median, pair[1].median))
            else:
                lacks = x if pair[0] is None else y
                missing.append(f"{cell.title}: {outcome.why_no_figure(cell.name, lacks.name)}")
            if printed[0] is not None and printed[1] is not None:
                there.append((printed[0], printed[1]))
        title = outcome.study.systems[system]
        for points, label, joined in (
            (sorted(here), title, True),
            (sorted(there), f"{title}, printed", False),
        ):
            if points:
                lines.append(
                    Line(
                        label,
                        [one for one, _ in points],
                        [one for _, one in points],
                        shades[system],
                        marks=True,
                        joined=joined,
                    )
                )
    axes = (
        log_axis(x.axis, [one for line in lines for one in line.x]),
        log_axis(y.axis, [one for line in lines for one in line.y]),
    )
    title = f"{y.title} against {x.title}".capitalize()
    return [chart(title, y.hint, *axes, lines, note="; ".join(dict.fromkeys(missing)), frame=WIDE)]


def fsync_over_time(disks: Sequence[ProbedDisk]) -> list[Chart]:
    """One chart with a curve per disk of each machine; none where nobody asked for seconds of it."""
    known = [disk for disk in disks if disk.fsync_ms_p99_by_second]
    if not known:
        return []
    hosts: dict[str, list[str]] = {}
    for disk in known:
        hosts.setdefault(disk.host, []).append(disk.dir)
    shades = colours.of_machines(
        (list(hosts).index(disk.host), hosts[disk.host].index(disk.dir)) for disk in known
    )
    lines = [
        Line(
            f"{disk.host} {disk.dir}",
            [second + 0.5 for second in range(len(disk.fsync_ms_p99_by_second))],
            disk.fsync_ms_p99_by_second,
            shade.css,
        )
        for disk, shade in zip(known, shades, strict=True)
    ]
    y = y_axis("p99 of an fsync (ms)", [value for line in lines for value in line.y])
    x = Axis("s since its disk was begun with", 0.0, max(line.x[-1] for line in lines))
    return [
        chart("99th percentile of an fsync, second by second", "lower is better", x, y, lines, frame=WIDE)
    ]


def _shades(outcome: StudyOutcome, cells: Sequence[ToldCell]) -> list[colours.Colour]:
    """Of cells in one chart: each its system's colour, several of one system shades of it."""
    return colours.of([_called(outcome, cell.system) for cell in cells])


def _colour(outcome: StudyOutcome, system: str, variant: int = 0) -> str:
    return colours.Colour(colours.slot_of(_called(outcome, system)), variant).css


def _called(outcome: StudyOutcome, system: str) -> str:
    return f"{system} {outcome.study.systems[system]}"


def _series(trials: Sequence[MeasuredTrial], figure: Figure) -> list[tuple[list[float], list[float]]]:
    """Of the first trials, those that have a series: times in s and values."""
    found = []
    for trial in trials[:TRIALS_DRAWN_MAX]:
        times, values = series_of(trial, figure.name)
        if len(times):
            found.append(([float(one) for one in times], [float(one) for one in values]))
    return found


def percentiles(
    outcome: StudyOutcome,
    cells: Sequence[ToldCell],
    latency: str,
    phase: str = BEFORE,
    *,
    overlay: bool = False,
) -> list[Chart]:
    """Latency by percentile: a curve per cell (of its median trial by p99), printed percentiles as points. `phase`: of messages that were due in it."""
    size = len(cells) if overlay else CURVES_MAX
    return [
        _curves(outcome, cells[at : at + size], latency, phase, WIDE if overlay else FRAME)
        for at in range(0, len(cells), size)
    ]


def _curves(
    outcome: StudyOutcome, cells: Sequence[ToldCell], latency: str, phase: str, frame: Frame
) -> Chart:
    printed_of = {BEFORE: latency, CATCH_UP: f"catch_up_{latency}"}.get(phase, "")
    lines: list[Line] = []
    missing = []
    for cell, shade in zip(cells, _shades(outcome, cells), strict=True):
        points = _curve(outcome.valid(cell.name) or outcome.of(cell.name), latency, phase)
        if points:
            steps = [step / CURVE_STEPS_PER_DECADE for step in range(len(points))]
            lines.append(Line(cell.title, steps, points, shade.css))
        else:
            missing.append(f"{cell.title}: {outcome.why_none(cell.name)}")
        told = {
            -math.log10(1.0 - percent / 100.0): outcome.printed(cell.name, f"{printed_of}.{name}")
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
    when = "" if phase == BEFORE else f", phase {phase}"
    title = f"{LATENCIES[latency].capitalize()} by percentile{when}"
    return chart(title, "lower is better", x, y, lines, note="; ".join(missing), frame=frame)


def _curve(trials: Sequence[MeasuredTrial], latency: str, phase: str) -> list[float]:
    """Of the trial in the middle."""
    order = sorted(
        (trial for trial in trials if getattr(trial.result, latency).count),
        key=lambda trial: getattr(trial.result, latency).p99 or math.inf,
    )
    if not order:
        return []
    middle = order[(len(order) - 1) // 2]
    return curve(Intervals.read(middle.directory).histogram(latency.removesuffix("_ms"), phase))


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
                "colour": _colour(outcome, cell.system),
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
