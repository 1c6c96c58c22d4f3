"""The figures behind the charts, as one JSON object that the page's script reads.

Per trial: series over time and curves by percentile. Medians over repeats are taken in the page, because the
reader chooses what to plot. The number of points is bounded so that a page stays below 5 MB with any number
of trials: long trials are drawn at a coarser stride.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.intervals import EDGE_S, Intervals, Row, Series, Values, read_resources, series
from streamgauge.analysis.own_metrics import by_metric, together
from streamgauge.analysis.own_metrics import read as own_metrics
from streamgauge.analysis.quiet_measured import disturbance_of
from streamgauge.model.percentiles import CURVE_STEPS_PER_DECADE, curve
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Headline
from streamgauge.report import colours, words
from streamgauge.report.foreign import PERIOD_S, ForeignResult
from streamgauge.report.run import Run
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.phases import AFTER, BUILD, CATCH_UP, EXTRA_READER, MEASURE

OWN = "own:"
"""How the names of series begin that the systems told themselves."""
LATER_PHASES = (BUILD, CATCH_UP, AFTER)
FROM_THE_SEND = ", service time from the actual send"
"""Where publish latency is not told, the charts of it show this, and the legend says so."""
POINTS_PER_TRIAL_MAX = 900
POINTS_MAX = 18_000
WINDOWS_MAX = 600
"""Points in time over all trials of a page; a point is about 20 numbers of 5 characters."""
DIGITS = 4


def data(run: Run) -> dict[str, Any]:
    """The data island: workloads, subjects (lines of a chart's legend) and trials."""
    found = run.cells
    shades = colours.of_cells(found, curves_alike=False)
    others = colours.of([*(cell.first.system_title for cell in found), *(one.driver for one in run.foreign)])
    workloads: list[str] = []
    subjects: list[dict[str, Any]] = []
    trials: list[dict[str, Any]] = []
    points = max(30, min(POINTS_PER_TRIAL_MAX, POINTS_MAX // max(1, len(run.results))))
    for cell, colour in zip(found, shades, strict=True):
        name = cell.first.workload.name
        if name not in workloads:
            workloads.append(name)
        subjects.append(_subject(cell, colour, found, workloads.index(name), len(trials)))
        counted = set(map(id, cell.counted))
        for trial in cell.trials:
            trials.append(_trial(run, trial, len(subjects) - 1, points, counted=id(trial) in counted))
    for foreign, colour in zip(run.foreign, others[len(found) :], strict=True):
        if foreign.workload not in workloads:
            workloads.append(foreign.workload)
        subjects.append(_foreign_subject(foreign, colour, workloads.index(foreign.workload), len(trials)))
        trials.append(_foreign_trial(foreign, len(subjects) - 1))
    return {
        "workloads": workloads,
        "subjects": subjects,
        "trials": trials,
        "own": _own_charts(run, trials),
        "ownSpared": list(dict.fromkeys(said for trial in run.results for said in trial.own_metrics_spared)),
        "stepsPerDecade": CURVE_STEPS_PER_DECADE,
    }


def _own_charts(run: Run, trials: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What the systems told of themselves and that was not the same all the time: a chart each, the same name of two systems apart."""
    drawn = {name for trial in trials for name in trial["series"] if name.startswith(OWN)}
    charts: dict[str, dict[str, str]] = {}
    for result in run.results:
        for metric in result.own_metrics:
            name = _own_name(result, metric.name)
            if name in drawn:
                title = f"{result.system_title}: {metric.title}"
                charts[name] = {
                    "name": name,
                    "title": title,
                    "unit": metric.shown_unit,
                    "explains": metric.explains,
                }
    return list(charts.values())


def _own_name(trial: TrialResult, metric: str) -> str:
    return f"{OWN}{trial.system}:{metric}"


def _own_series(trial: TrialResult, directory: Path, lined_up: Series) -> dict[str, list[float | None]]:
    """What the system told of itself, its processes put together. What never changed is no line."""
    found = by_metric(own_metrics(directory, trial.own_metrics, lined_up))
    series_of = {name: together(group) for name, group in found.items()}
    return {
        _own_name(trial, name): _rounded(values)
        for name, values in series_of.items()
        if len(np.unique(values[~np.isnan(values)])) > 1
    }


def island(found: dict[str, Any]) -> str:
    """JSON that is safe within a script element: no tag can begin in it."""
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def label(cell: Cell, found: list[Cell]) -> str:
    """The shortest name that tells a cell from the others of its workload."""
    trial = cell.first
    peers = [
        other.first
        for other in found
        if other.first.workload.name == trial.workload.name and other is not cell
    ]
    name = f"{trial.system_title}{words.tls(trial)}"
    if (
        any(peer.system == trial.system and peer.system_version != trial.system_version for peer in peers)
        or not peers
    ):
        name = words.system_name(trial)
    same = [
        peer for peer in peers if (peer.system, peer.system_version) == (trial.system, trial.system_version)
    ]
    if any(peer.client != trial.client for peer in same):
        name += f", {trial.client}"
    if any(peer.nodes != trial.nodes for peer in same):
        name += f", {plural(trial.nodes, 'node')}"
    name += f" ({words.level(trial)})"
    if trial.headline == "service":
        name += FROM_THE_SEND
    asked = trial.workload
    for key, unit in (
        ("rate_msgs_s", "msg/s"),
        ("message_size_bytes", "B"),
        ("linger_ms", "ms linger"),
        ("batch_bytes", "B batches"),
    ):
        value = getattr(asked, key)
        if any(getattr(peer.workload, key) != value for peer in same):
            name += " maximum rate" if value is None else f" {value:,.10g} {unit}"
    return name


def _subject(
    cell: Cell, colour: colours.Colour, found: list[Cell], workload: int, first: int
) -> dict[str, Any]:
    trial = cell.first
    order = sorted(
        (index for index, one in enumerate(cell.trials) if any(one is counted for counted in cell.counted)),
        key=lambda index: cell.trials[index].headline_ms.p99 or math.inf,
    )
    return {
        "label": label(cell, found),
        "slot": colour.slot,
        "variant": colour.variant,
        "colour": colour.css,
        "level": words.level(trial),
        "workload": workload,
        "trials": list(range(first, first + len(cell.trials))),
        "median": first + order[(len(order) - 1) // 2],
        "target": trial.target_rate_msgs_s,
        "cores": trial.cpu.cores,
        "foreign": False,
    }


def _trial(run: Run, trial: TrialResult, subject: int, points: int, *, counted: bool) -> dict[str, Any]:
    directory = run.directory_of(trial)
    everything = Intervals.read(directory)
    extra = trial.workload.has_extra_reader
    intervals = everything.without(EXTRA_READER) if extra else everything
    count = len({row["interval"] for row in intervals.counters()})
    stride = max(1, math.ceil(count / points))
    lined_up = on_one_axis(everything, read_resources(directory), extra=extra, stride=stride)
    # Phases that follow the measured one are measured, too: they are marked instead of shaded.
    later = [
        (phase.name, phase.from_s, phase.until_s) for phase in trial.phases if phase.name in LATER_PHASES
    ]
    window = next((phase for phase in trial.phases if phase.name == MEASURE), None)
    return {
        "subject": subject,
        "number": trial.trial,
        "repeat": trial.repeat,
        "counted": counted,
        "valid": trial.validity.valid,
        "phases": later,
        "faults": [] if trial.faults is None else words.fault_bands(trial.faults, window),
        "away": away(everything),
        "measure": None if window is None else [window.from_s, later[-1][2] if later else window.until_s],
        "time": _rounded(lined_up.start_s + lined_up.duration_s / 2),
        "series": over_time(lined_up, trial.headline, _load_end_s(trial))
        | _own_series(trial, directory, lined_up),
        "publish": [rounded(value) for value in curve(intervals.histogram(trial.headline, MEASURE))],
        "end_to_end": [
            rounded(value)
            for value in curve(
                intervals.histogram("end_to_end", MEASURE), intervals.beyond("end_to_end", MEASURE).negative
            )
        ],
    }


def on_one_axis(everything: Intervals, resources: list[Row], *, extra: bool, stride: int = 1) -> Series:
    """What the charts over time are made of. `extra`: one of the subscriptions reads a backlog (EXTRA_READER): it would hide those that tail, and its
    backlog is what the chart shows of it."""
    lined_up = series(everything.without(EXTRA_READER) if extra else everything, resources, None, stride)
    if extra:
        behind = series(everything, [], None, stride)
        for column in ("received_msgs", "backlog_msgs"):
            lined_up.values[column] = behind.values[column]
    return lined_up


def away(intervals: Intervals) -> list[list[float]]:
    """[from, until] in s, in which a CPU was not to be had; the longest where they are many."""
    seen = [one for row in intervals.counters() if row["disturbance"] for one in disturbance_of(row).windows]
    longest = sorted(seen, key=lambda one: one.from_s - one.to_s)[:WINDOWS_MAX]
    return [[round(one.from_s, 4), round(one.to_s, 4)] for one in sorted(longest, key=lambda one: one.from_s)]


def _load_end_s(trial: TrialResult) -> float:
    """When the schedule ended: what is acknowledged later is no rate any more."""
    phases = [phase for phase in trial.phases if phase.name in (MEASURE, *LATER_PHASES)]
    return max((phase.until_s for phase in phases if phase.until_s is not None), default=math.inf)


def over_time(lined_up: Series, headline: Headline, load_end_s: float) -> dict[str, list[float | None]]:
    """Name in the data island -> a value per point; names without any value are left out."""
    values, duration = lined_up.values, lined_up.duration_s
    driven = lined_up.start_s + duration <= load_end_s + EDGE_S
    found = {
        "rate": np.where(driven, values["acked_msgs"] / duration, np.nan),
        "received": values["received_msgs"] / duration,
        "backlog": values["backlog_msgs"],
        "cpu_gauge": np.where(driven, values["workers_cpu_s"] / duration, np.nan),
        "cpu_system": values["system_cpu_s"] / duration,
        "cpu_lab": values["lab_cpu_s"] / duration,
        "cpu_others": values["others_cpu_s"] / duration,
        "cpu_steal": values["steal_s"] / duration,
        "memory": values["system_rss_bytes"] / 1e6,
        "written": values["system_disk_write_bytes"] / duration / 1e6,
    }
    for name, metric in (("publish", headline), ("end_to_end", "end_to_end")):
        for figure in ("p50", "p99", "max"):
            found[f"{name}_{figure}"] = values[f"{metric}_ms_{figure}"]
    kept = {name: _rounded(series_values) for name, series_values in found.items()}
    return {name: points for name, points in kept.items() if any(point is not None for point in points)}


def _foreign_subject(
    foreign: ForeignResult, colour: colours.Colour, workload: int, first: int
) -> dict[str, Any]:
    return {
        "label": f"{foreign.driver} (OMB, from the actual send)",
        "slot": colour.slot,
        "variant": colour.variant,
        "colour": colour.css,
        "level": "unknown",
        "workload": workload,
        "trials": [first],
        "median": first,
        "target": None,
        "cores": None,
        "foreign": True,
    }


def _foreign_trial(foreign: ForeignResult, subject: int) -> dict[str, Any]:
    names = {
        "rate": "publish_rate_msgs_s",
        "received": "consume_rate_msgs_s",
        "backlog": "backlog_msgs",
        **{f"publish_{figure}": f"service_ms_{figure}" for figure in ("p50", "p99", "max")},
        **{f"end_to_end_{figure}": f"end_to_end_ms_{figure}" for figure in ("p50", "p99", "max")},
    }
    length = len(foreign.series["publish_rate_msgs_s"])
    return {
        "subject": subject,
        "number": 1,
        "repeat": 1,
        "counted": True,
        "valid": None,
        "measure": None,
        "time": [PERIOD_S * (index + 0.5) for index in range(length)],
        "series": {
            ours: [rounded(value) for value in foreign.series[theirs]]
            for ours, theirs in names.items()
            if len(foreign.series[theirs]) == length
        },
        "publish": _on_grid(foreign.service_quantiles_ms),
        "end_to_end": _on_grid(foreign.end_to_end_quantiles_ms),
    }


def _on_grid(quantiles: dict[float, float]) -> list[float | None]:
    """The smallest known value at or above each point of the curves' grid."""
    if not quantiles:
        return []
    known = sorted(quantiles.items())
    below = [percent for percent, _ in known if percent < 100.0]
    if not below:
        return []
    steps = math.ceil(-math.log10(1.0 - below[-1] / 100.0) * CURVE_STEPS_PER_DECADE - 1e-9)
    found: list[float | None] = []
    for step in range(steps + 1):
        percent = 100.0 * (1.0 - 10.0 ** (-step / CURVE_STEPS_PER_DECADE))
        found.append(
            rounded(next(value for at, value in known if at >= percent - 1e-9 or at == known[-1][0]))
        )
    return found


def rounded(value: float) -> float | None:
    """Four significant digits (whole from a million on), as a whole number where it is one; None for NaN,
    which JSON does not know.
    """
    if math.isnan(value) or math.isinf(value):
        return None
    if value == 0:
        return 0
    short = float(f"{value:.{DIGITS}g}") if abs(value) < 1e6 else float(round(value))
    return int(short) if short == int(short) else short


def _rounded(values: Values | Iterable[float]) -> list[float | None]:
    return [rounded(float(value)) for value in values]
