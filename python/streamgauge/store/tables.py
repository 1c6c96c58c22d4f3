"""Intervals and resources: from the lines written during a trial to Parquet (columns in model/result_columns.py)."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet

from streamgauge.model.messages import (
    Disturbance,
    Index,
    Interval,
    LatencyEntry,
    LatencyPart,
    Message,
    Moment,
    Span,
)
from streamgauge.model.result_columns import (
    INTERVAL_COLUMNS,
    METRIC_COLUMNS,
    METRICS,
    PROFILE_COLUMNS,
    RESOURCE_COLUMNS,
)
from streamgauge.store.directory import TrialDirectory
from streamgauge.store.files import read_lines
from streamgauge.store.private import clear_logs
from streamgauge.vocabulary.errors import InputError

ROWS_PER_GROUP = 2000
"""Rows with histograms weigh some tens of kB; a group is what is held in memory at a time."""
DISTURBANCE_FIGURES = ("quiet_s", "disturbed_s", "quiet_sent_msgs", "quiet_acked_msgs", "undecided_msgs")
DISTURBANCE_DETAILS = ("windows", "unlisted", "attraction", "steal_s", "stretches_s", "probes_cpu_s")

Row = dict[str, Any]


class IntervalLine(Interval):
    """An interval as it was appended."""

    worker: str = "worker-0"


class ResourceLine(Message):
    """What one scope used in an interval, as it was appended (RESOURCE_COLUMNS)."""

    interval: Index
    start_s: Moment
    duration_s: Span
    scope: str
    process: str | None = None
    cpu_s: float | None = None
    steal_s: float | None = None
    rss_bytes: int | None = None
    disk_write_bytes: int | None = None
    disk_read_bytes: int | None = None
    flushes: int | None = None
    flush_s: float | None = None
    disk_busy_s: float | None = None
    host: str | None = None
    run_delay_s: float | None = None
    disk_queue_s: float | None = None
    disk_ops: int | None = None
    disk_op_s: float | None = None
    net_received_bytes: int | None = None
    net_sent_bytes: int | None = None
    pressure_cpu_s: float | None = None
    pressure_io_s: float | None = None
    pressure_memory_s: float | None = None
    retransmits: int | None = None
    memory_available_bytes: int | None = None
    page_cache_bytes: int | None = None
    disturbed_s: float | None = None
    syncs: int | None = None
    sync_s: float | None = None
    sync_s2: float | None = None


class MetricLine(Message):
    """What one process told of itself at the end of an interval, as it was appended."""

    interval: Index
    start_s: Moment
    duration_s: Span
    at_s: Moment
    source: str
    values: dict[str, float]


def seal(trial: TrialDirectory) -> None:
    """Turns the lines of a trial into Parquet and removes them, and the user's home directory from its logs. Idempotent."""
    trial.close()
    for name, write in (("intervals", write_intervals), ("resources", write_resources)):
        lines, table = trial.path / f"{name}.jsonl", trial.path / f"{name}.parquet"
        if lines.exists() or not table.exists():
            write(lines, table)
            lines.unlink(missing_ok=True)
    lines = trial.path / "metrics.jsonl"
    if lines.exists():
        write_metrics(lines, trial.path / "metrics.parquet")
        lines.unlink()
    clear_logs(trial.logs)


def write_intervals(lines: Path, table: Path) -> int:
    """Turns `intervals.jsonl` into `intervals.parquet`; the number of rows. Deterministic: same lines, same
    table."""
    rows = (row for line in read_lines(lines, IntervalLine) for row in interval_rows(line.worker, line))
    return _write(rows, INTERVAL_COLUMNS, table)


def write_resources(lines: Path, table: Path) -> int:
    """Turns `resources.jsonl` into `resources.parquet`; the number of rows."""
    rows = (line.model_dump() for line in read_lines(lines, ResourceLine))
    return _write(rows, RESOURCE_COLUMNS, table)


def write_metrics(lines: Path, table: Path) -> int:
    """Turns `metrics.jsonl` into `metrics.parquet`; the number of rows."""
    rows = (
        {**line.model_dump(exclude={"values"}), "metric": name, "value": value}
        for line in read_lines(lines, MetricLine)
        for name, value in line.values.items()
    )
    return _write(rows, METRIC_COLUMNS, table)


def write_profile(rows: Iterable[Row], table: Path) -> int:
    """Writes `profile.parquet`, in which a row is a thread seen at a moment; the number of rows."""
    return _write(rows, PROFILE_COLUMNS, table)


def interval_rows(worker: str, interval: Interval) -> Iterator[Row]:
    """The rows of one interval: one for the worker, one per subscription with its counters, and one per phase
    (and subscription) with the histograms."""
    key: Row = {
        "worker": worker,
        "interval": interval.index,
        "start_s": interval.start_s,
        "duration_s": interval.duration_s,
    }
    left = {"worker", "index", "start_s", "duration_s", "subscriptions", "latencies"}
    counters = interval.model_dump(exclude={*left, "disturbance"})
    counters["errors"] = json.dumps(counters["errors"])
    lanes = [round(cpu_s, 6) for cpu_s in interval.lanes_cpu_s]
    counters["lanes_cpu_s"] = json.dumps(lanes) if lanes else None
    yield {**key, "role": "worker", **counters, **_disturbance(interval.disturbance)}
    quiet = interval.disturbance.quiet_received_msgs if interval.disturbance else None
    for subscription, quiet_msgs in zip_longest(interval.subscriptions, quiet or ()):
        if subscription is None:
            break
        figures = {**subscription.model_dump(exclude={"name"}), "quiet_received_msgs": quiet_msgs}
        yield {**key, "role": "consumer", "subscription": subscription.name, **figures}
    groups: dict[tuple[str, str, str | None], list[LatencyEntry]] = {}
    for entry in interval.latencies:
        role = "producer" if entry.subscription is None else "consumer"
        groups.setdefault((role, entry.phase, entry.subscription), []).append(entry)
    for (role, phase, name), entries in groups.items():
        yield {**key, "role": role, "phase": phase, "subscription": name, **_histograms(entries)}


def _disturbance(disturbance: Disturbance | None) -> Row:
    if disturbance is None:
        return {}
    told = disturbance.model_dump()
    details = {name: told[name] for name in DISTURBANCE_DETAILS}
    return {**{name: told[name] for name in DISTURBANCE_FIGURES}, "disturbance": json.dumps(details)}


def _histograms(entries: Iterable[LatencyEntry]) -> Row:
    row: Row = {"overflow": 0, "negative": 0}
    for entry in entries:
        if entry.metric not in METRICS:
            continue  # Of a newer worker.
        row[entry.metric] = _decoded(entry.histogram) if entry.histogram else None
        row["overflow"] += entry.overflow
        row["negative"] += entry.negative
        if entry.unacked_msgs:
            row["unacked_msgs"] = entry.unacked_msgs
        if entry.metric in ("publish", "end_to_end") and entry.count:
            row["min_ns"], row["max_ns"] = entry.min_ns, entry.max_ns
        if entry.quiet is not None and entry.censored is not None:
            row |= _parts(entry, entry.quiet, entry.censored)
    return row


def _parts(entry: LatencyEntry, quiet: LatencyPart, censored: LatencyPart) -> Row:
    row: Row = {f"{entry.metric}_left_out": entry.left_out}
    for name, part in (("quiet", quiet), ("censored", censored)):
        row[f"{entry.metric}_{name}"] = _decoded(part.histogram) if part.histogram else None
    if entry.metric in ("publish", "end_to_end"):
        row["quiet_overflow"], row["quiet_negative"] = quiet.overflow, quiet.negative
        row["censored_overflow"] = censored.overflow
    return row


def _decoded(histogram: str) -> bytes:
    try:
        return base64.b64decode(histogram, validate=True)
    except ValueError:
        raise InputError("intervals.jsonl holds a histogram that is not base64") from None


def _write(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], table: Path) -> int:
    handle, name = tempfile.mkstemp(dir=table.parent, prefix=f".{table.name}.")
    os.close(handle)
    temporary = Path(name)
    count = write_table(rows, columns, temporary)
    temporary.replace(table)
    return count


def write_table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], sink: Path | BinaryIO) -> int:
    """Writes rows as Parquet, with these columns; the number of rows. Same rows, same bytes."""
    types = {"string": pyarrow.string(), "binary": pyarrow.binary(), "int32": pyarrow.int32()}
    types |= {"int64": pyarrow.int64(), "float64": pyarrow.float64()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    count = 0
    group: list[Mapping[str, Any]] = []
    with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:

        def flush() -> None:
            if group:
                filled = [{name: row.get(name) for name in columns} for row in group]
                writer.write_table(pyarrow.Table.from_pylist(filled, schema=schema))
                group.clear()

        for row in rows:
            group.append(row)
            count += 1
            if len(group) >= ROWS_PER_GROUP:
                flush()
        flush()
    return count
