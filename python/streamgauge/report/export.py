"""Runs as files for other tools: CSV, Parquet, and the result file of the OpenMessaging Benchmark (OMB).

CSV and Parquet hold one row per trial, with nested figures under joined names (`publish_ms_p99`,
`audit_lost`, `cpu_workers_s`); CSV adds the series, one row per trial and interval. OMB gets one JSON file
per trial, with its keys and units: one value per 10 s, its `publishLatency` is our *service* latency because
it starts at the actual send, `publishDelayLatency` is in us.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from streamgauge.analysis.intervals import Intervals, Row, Window, read_resources, series, total, total_s
from streamgauge.model.percentiles import CURVE_STEPS_PER_DECADE, NS_PER_MS, curve
from streamgauge.model.result import TrialResult
from streamgauge.report import words
from streamgauge.report.foreign import PERIOD_S
from streamgauge.report.run import Run, read_run
from streamgauge.store.flat import flat
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.histograms import Histogram, merge
from streamgauge.vocabulary.phases import MEASURE

OMB_METRICS = (
    # OMB's name, our metric, factor from ns to OMB's unit.
    ("PublishLatency", "service", 1 / NS_PER_MS),
    ("PublishDelayLatency", "send_delay", 1e-3),
    ("EndToEndLatency", "end_to_end", 1 / NS_PER_MS),
)
OMB_PERCENTS = (
    ("50pct", 50.0),
    ("75pct", 75.0),
    ("95pct", 95.0),
    ("99pct", 99.0),
    ("999pct", 99.9),
    ("9999pct", 99.99),
)


def to_csv(run_dir: Path, out: Path) -> list[Path]:
    """Writes trials and series. `out` is the trials' file (`x.csv`, the series go to `x-series.csv`) or a
    directory.

    Returns the paths written. Raises InputError when the run cannot be read or the files cannot be written.
    """
    run = _with_trials(run_dir)
    trials = _target(out, "trials.csv", ".csv")
    lines = trials.with_name(f"{trials.stem}-series.csv" if out.suffix == ".csv" else "series.csv")
    rows = [flat(result) for result in run.results]
    _write_csv(trials, list(dict.fromkeys(key for row in rows for key in row)), rows)
    points = [point for result in run.results for point in series_rows(run, result)]
    _write_csv(lines, list(dict.fromkeys(key for point in points for key in point)), points)
    return [trials, lines]


def to_parquet(run_dir: Path, out: Path) -> list[Path]:
    """Writes one row per trial. `out` is a `.parquet` file or a directory."""
    run = _with_trials(run_dir)
    path = _target(out, "trials.parquet", ".parquet")
    rows = [flat(result) for result in run.results]
    names = list(dict.fromkeys(key for row in rows for key in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    try:
        parquet.write_table(pa.table(columns), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error}") from error
    return [path]


def to_omb(run_dir: Path, out: Path) -> list[Path]:
    """Writes an OMB result file per trial. `out` is a directory, or a `.json` file when the run has one
    trial.
    """
    run = _with_trials(run_dir)
    if out.suffix == ".json" and len(run.results) > 1:
        raise InputError(
            f"{out}: OMB has one file per trial, and this run has {len(run.results)}; give a "
            "directory instead of a file."
        )
    paths = []
    for result in run.results:
        path = _target(out, _omb_name(result), ".json")
        _write_text(path, json.dumps(omb(run.directory_of(result), result), indent=1) + "\n")
        paths.append(path)
    return paths


def series_rows(run: Run, result: TrialResult) -> list[dict[str, Any]]:
    """One row per interval with counters, levels, latencies and resources; names as in
    `analysis.intervals.Series`.
    """
    directory = run.directory_of(result)
    lined_up = series(Intervals.read(directory), read_resources(directory))
    window = next((phase for phase in result.phases if phase.name == MEASURE), None)
    rows = []
    for index in range(len(lined_up)):
        start = float(lined_up.start_s[index])
        measured = window is not None and start >= window.from_s - 1e-6
        measured = measured and (window is None or window.until_s is None or start < window.until_s - 1e-6)
        rows.append(
            {
                "run_id": result.run_id,
                "trial": result.trial,
                "system": result.system,
                "system_version": result.system_version,
                "durability": words.level(result),
                "workload": result.workload.name,
                "interval": int(lined_up.interval[index]),
                "start_s": start,
                "duration_s": float(lined_up.duration_s[index]),
                "measured": measured,
                **{name: _known(values[index]) for name, values in lined_up.values.items()},
            }
        )
    return rows


def omb(directory: Path, result: TrialResult) -> dict[str, Any]:
    """The measured phase of a trial as OMB writes it."""
    intervals = Intervals.read(directory)
    asked = result.workload
    told: dict[str, Any] = {
        "workload": asked.name,
        "driver": f"{words.system_name(result)} ({words.level(result)})",
        "messageSize": asked.message_size_bytes,
        "topics": asked.topics,
        "partitions": asked.partitions_per_topic,
        "producersPerTopic": asked.producers_per_topic,
        "consumersPerTopic": asked.subscriptions_per_topic * asked.consumers_per_subscription,
    }
    periods = _periods(intervals, result)
    told.update(_omb_rates(intervals, periods))
    for name, metric, factor in OMB_METRICS:
        merged = [
            merge(histogram for interval, histogram in found.items() if interval in period)
            for found in [intervals.histograms_by_interval(metric, MEASURE)]
            for period in periods
        ]
        plain = name[0].lower() + name[1:]
        for suffix, figure in _omb_figures(factor):
            told[plain + suffix] = [figure(histogram) for histogram in merged]
        whole = intervals.histogram(metric, MEASURE)
        for suffix, figure in _omb_figures(factor):
            told[f"aggregated{name}{suffix}"] = figure(whole)
        told[f"aggregated{name}Quantiles"] = _omb_quantiles(whole, factor)
    return told


def _omb_figures(factor: float) -> list[tuple[str, Any]]:
    figures: list[tuple[str, Any]] = [("Avg", lambda histogram: (histogram.mean or 0.0) * factor)]
    for suffix, percent in OMB_PERCENTS:
        figures.append(
            (suffix, lambda histogram, percent=percent: (histogram.percentile(percent) or 0.0) * factor)
        )
    figures.append(("Max", lambda histogram: (histogram.max or 0.0) * factor))
    return figures


def _omb_quantiles(histogram: Histogram, factor: float) -> dict[str, float]:
    """Percentile -> value on the grid of the report's curves, 100 last."""
    found: dict[str, float] = {}
    for step, value in enumerate(curve(histogram)[:-1]):
        percent = 100.0 * (1.0 - 10.0 ** (-step / CURVE_STEPS_PER_DECADE))
        found[f"{percent:.8g}"] = value * NS_PER_MS * factor
    if histogram.max is not None:
        found["100.0"] = histogram.max * factor
    return found


def _periods(intervals: Intervals, result: TrialResult) -> list[set[int]]:
    """Interval indices of each 10 s of the measured phase; the last period holds what is left."""
    phase = next((phase for phase in result.phases if phase.name == MEASURE), None)
    if phase is None:
        return []
    window = Window(phase.from_s, math.inf if phase.until_s is None else phase.until_s)
    groups: dict[int, set[int]] = defaultdict(set)
    for row in intervals.counters():
        if window.holds(row):
            groups[int((float(row["start_s"]) - window.from_s + 1e-6) // PERIOD_S)].add(int(row["interval"]))
    return [groups[period] for period in sorted(groups)]


def _omb_rates(intervals: Intervals, periods: Sequence[set[int]]) -> dict[str, list[float] | list[int]]:
    counters, receipts = intervals.counters(), intervals.receipts()
    levels = intervals.level("backlog_msgs", receipts)
    published, failed, consumed, backlog = [], [], [], []
    for period in periods:
        mine = [row for row in counters if int(row["interval"]) in period]
        taken = [row for row in receipts if int(row["interval"]) in period]
        duration = _duration_s(mine)
        published.append(total(mine, "acked_msgs") / duration)
        failed.append(total(mine, "failed_msgs") / duration)
        consumed.append(total(taken, "received_msgs") / duration)
        backlog.append(levels.get(max(period), 0))
    return {"publishRate": published, "publishErrorRate": failed, "consumeRate": consumed, "backlog": backlog}


def _duration_s(rows: Sequence[Row]) -> float:
    """How long the intervals took; those of several workers run at the same time."""
    workers = len({row["worker"] for row in rows})
    return total_s(rows, "duration_s") / workers


def _omb_name(result: TrialResult) -> str:
    parts = (
        result.workload.name,
        result.system,
        result.system_version,
        words.level(result),
        f"{result.trial:03d}{result.trial:03d}",
    )
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts)) + ".json"


def _with_trials(run_dir: Path) -> Run:
    run = read_run(run_dir)
    if not run.results:
        raise InputError(f"{run_dir}: no trial of this run has a result, so there is nothing to export.")
    return run


def _target(out: Path, name: str, suffix: str) -> Path:
    """`out` itself when it names a file of that kind, else a file in the directory `out`, which is made when
    it is missing.
    """
    if out.suffix == suffix and not out.is_dir():
        directory, path = out.parent, out
    else:
        directory, path = out, out / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{directory}: cannot be made ({error.strerror}); expected a directory or a {suffix} "
            "file that can be written."
        ) from error
    return path


def _write_csv(path: Path, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error


def _column(values: list[Any]) -> Any:
    """A Parquet column; whole numbers beside fractions become fractions, a column of nothing has the type of
    numbers.
    """
    if all(value is None for value in values):
        return pa.array(values, type=pa.float64())
    if any(isinstance(value, float) for value in values):
        return pa.array([None if value is None else float(value) for value in values], type=pa.float64())
    return pa.array(values)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
