"""A trial's intervals and resources as read from Parquet, with histograms merged on demand.

Rows are one per interval, worker and role (columns: `model.result_columns.INTERVAL_COLUMNS`). Workers are added up
here; latencies are merged, never averaged. Levels (backlog, waiting) add up over workers, and of several
subscriptions the one that lags most counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamgauge.model.percentiles import NS_PER_MS, Beyond
from streamgauge.model.result_columns import INTERVAL_COLUMNS, RESOURCE_COLUMNS
from streamgauge.store.parquet import read_rows
from streamgauge.vocabulary.histograms import OURS, Histogram, HistogramError, decode, merge
from streamgauge.vocabulary.phases import MEASURE

Row = dict[str, Any]
Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

EDGE_S = 1e-6
"""Start times are sums of durations; this much rounding is forgiven when an interval is matched with a
window.
"""
ROLES = {"end_to_end": ("consumer",), "receive_delay": ("producer", "consumer")}
"""Rows with the distributions of a metric, for those that are not of producers alone; who was late in reading is told per subscription since 2026-11-30,
and was told of all together before."""
BUCKETS_MAX = 200_000_000
"""Filled buckets of all histograms that are held at a time: about 5 GB."""


@dataclass(frozen=True)
class Window:
    """A stretch of the schedule's axis, cut at whole intervals."""

    from_s: float
    until_s: float

    def holds(self, row: Row) -> bool:
        """Whether the row's interval lies within the window as a whole."""
        start = float(row["start_s"])
        return start >= self.from_s - EDGE_S and start + float(row["duration_s"]) <= self.until_s + EDGE_S


class Intervals:
    """Everything that was counted and recorded in a trial, one row per interval, worker and role."""

    def __init__(self, rows: list[Row], unread: Mapping[str, int] | None = None) -> None:
        """Rows with the columns of INTERVAL_COLUMNS; missing ones read as null. `unread`: per subscription the messages that it never received, by the
        audit."""
        self.rows = rows
        self.unread = dict(unread or {})
        self._decoded: dict[tuple[int, str], Histogram] = {}
        self._buckets = 0

    @classmethod
    def read(cls, directory: Path, unread: Mapping[str, int] | None = None) -> Intervals:
        """Reads `intervals.parquet`; a trial that ended before its first interval has none and gives an empty
        object.
        """
        return cls(read_rows(directory / "intervals.parquet", INTERVAL_COLUMNS), unread)

    def without(self, subscription: str) -> Intervals:
        """All rows but those of one subscription."""
        unread = {name: msgs for name, msgs in self.unread.items() if name != subscription}
        return Intervals([row for row in self.rows if row["subscription"] != subscription], unread)

    def within(self, window: Window) -> Intervals:
        """The rows of the intervals that lie in a window as a whole."""
        return Intervals([row for row in self.rows if window.holds(row)], self.unread)

    def counters(self) -> list[Row]:
        """Rows of role worker: what each worker counted in each interval."""
        return [row for row in self.rows if row["role"] == "worker"]

    def receipts(self) -> list[Row]:
        """Rows of role consumer with counters: what each subscription received in each interval."""
        return [row for row in self.rows if row["role"] == "consumer" and row["phase"] is None]

    def histogram(self, metric: str, phase: str | None, subscription: str | None = None) -> Histogram:
        """All samples of a metric whose messages were intended in the phase (any, if None), of one
        subscription or all.
        """
        return merge(self._decode(index, metric) for index in self._rows_of(metric, phase, subscription))

    def beyond(self, metric: str, phase: str | None, subscription: str | None = None) -> Beyond:
        """Samples outside of the histograms' range, and messages without an end: not acknowledged (publish, service), not received (end_to_end; of which it
        is not known when they were due, so that all of them count to the measured phase).

        Rows count them over all their metrics. publish contains service, send_delay and backpressure, so
        whichever of them ran over, publish did: the row's count is charged to its headline metric (publish,
        end_to_end) and to no other.
        """
        if metric not in ("publish", "end_to_end"):
            return Beyond(unanswered=self.unanswered(metric, phase))
        rows = [
            self.rows[index] for index in self._rows_of(metric, phase, subscription, with_histogram=False)
        ]
        lowest = [int(row["min_ns"]) for row in rows if row["min_ns"] is not None]
        highest = [int(row["max_ns"]) for row in rows if row["max_ns"] is not None]
        return Beyond(
            overflow=total(rows, "overflow"),
            negative=total(rows, "negative"),
            min_ns=min(lowest, default=None),
            max_ns=max(highest, default=None),
            unanswered=self.unanswered(metric, phase, subscription),
            is_dated=metric != "end_to_end",
        )

    def unanswered(self, metric: str, phase: str | None, subscription: str | None = None) -> int:
        """Messages without an end."""
        if metric in ("publish", "service"):
            rows = self._rows_of("publish", phase, None, with_histogram=False)
            return total((self.rows[index] for index in rows), "unacked_msgs")
        if metric != "end_to_end" or phase not in (MEASURE, None):
            return 0
        return sum(msgs for name, msgs in self.unread.items() if subscription is None or name == subscription)

    def of_phase(self, metric: str, phase: str, subscription: str | None = None) -> list[int]:
        """Indices of the rows with the distributions of a metric whose messages were intended in the phase."""
        return self._rows_of(metric, phase, subscription, with_histogram=False)

    def merged(self, indices: Iterable[int], column: str) -> Histogram:
        """What a column of histograms holds in some rows; a null is an empty one."""
        return merge(self._decode(index, column) for index in indices if self.rows[index][column])

    def histograms_by_interval(self, metric: str, phase: str | None = None) -> dict[int, Histogram]:
        """Interval index -> the samples that were seen in it, all workers and subscriptions together."""
        groups: dict[int, list[Histogram]] = defaultdict(list)
        for index in self._rows_of(metric, phase, None):
            groups[int(self.rows[index]["interval"])].append(self._decode(index, metric))
        return {interval: merge(group) for interval, group in sorted(groups.items())}

    def subscriptions(self) -> list[str]:
        """Names of subscriptions, sorted."""
        return sorted({str(row["subscription"]) for row in self.rows if row["subscription"] is not None})

    def level(self, column: str, rows: Iterable[Row]) -> dict[int, int]:
        """A level at the end of each interval: workers added up, the largest of the subscriptions; never
        below 0.
        """
        sums: dict[tuple[int, str | None], int] = defaultdict(int)
        for row in rows:
            sums[int(row["interval"]), row["subscription"]] += int(row[column] or 0)
        levels: dict[int, int] = defaultdict(int)
        for (interval, _subscription), value in sums.items():
            levels[interval] = max(levels[interval], value)
        return dict(levels)

    def _rows_of(
        self, metric: str, phase: str | None, subscription: str | None, *, with_histogram: bool = True
    ) -> list[int]:
        roles = ROLES.get(metric, ("producer",))
        return [
            index
            for index, row in enumerate(self.rows)
            if row["role"] in roles
            and row["phase"] is not None
            and (phase is None or row["phase"] == phase)
            and (subscription is None or row["subscription"] == subscription)
            and (row[metric] or not with_histogram)
        ]

    def _decode(self, index: int, metric: str) -> Histogram:
        key = (index, metric)
        if key not in self._decoded:
            found = decode(self.rows[index][metric])
            self._buckets += len(found.indices)
            if found.layout != OURS or self._buckets > BUCKETS_MAX:
                raise HistogramError("histograms of another layout, or more than can be held")
            self._decoded[key] = found
        return self._decoded[key]


@dataclass(frozen=True)
class Series:
    """One value per interval over a whole trial, for charts and steadiness; NaN where nothing is known."""

    interval: npt.NDArray[np.int64]
    start_s: Values
    duration_s: Values
    values: dict[str, Values]
    """sent_msgs, acked_msgs, acked_bytes, failed_msgs, received_msgs, received_bytes, waiting_msgs,
    backlog_msgs, and per metric and figure `publish_ms_p50`, `end_to_end_ms_max`, `send_delay_ms_p99` ...;
    from resources: `system_cpu_s`, `workers_cpu_s`, `lab_cpu_s`,
    `others_cpu_s`, `host_cpu_s`, `steal_s`, `system_rss_bytes`, `system_disk_write_bytes`."""

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self.interval)

    def within(self, window: Window) -> npt.NDArray[np.bool_]:
        """Which intervals lie in the window as a whole."""
        inside = (self.start_s >= window.from_s - EDGE_S) & (
            self.start_s + self.duration_s <= window.until_s + EDGE_S
        )
        return np.asarray(inside, dtype=np.bool_)


def felt(happened: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The intervals in which something can be felt: what happened at the end of one is felt in the next one."""
    return happened | np.concatenate(([False], happened[:-1]))


SERIES_FIGURES: dict[str, tuple[str, ...]] = {
    "publish": ("p50", "p99", "max"),
    "end_to_end": ("p50", "p99", "max"),
    "send_delay": ("p99",),
    "service": ("p50", "p99", "max"),
}


def series(intervals: Intervals, resources: list[Row], phase: str | None = None, stride: int = 1) -> Series:
    """Lines up counters, latencies (of one phase or of all) and resources on one axis.

    `stride` intervals become one point, for charts of long trials: counters add up, levels keep their
    largest, histograms are merged before percentiles are taken.
    """
    counters = intervals.counters()
    axis: dict[int, tuple[float, float]] = {}
    for row in counters:
        axis.setdefault(int(row["interval"]), (float(row["start_s"]), float(row["duration_s"])))
    order = sorted(axis)
    place = {interval: position // stride for position, interval in enumerate(order)}
    length = len(set(place.values()))
    start, duration, members = np.full(length, np.inf), np.zeros(length), np.zeros(length)
    for interval, position in place.items():
        start[position] = min(start[position], axis[interval][0])
        duration[position] += axis[interval][1]
        members[position] += 1
    values: dict[str, Values] = {}
    for column in ("sent_msgs", "acked_msgs", "acked_bytes", "failed_msgs", "cpu_s"):
        values["workers_cpu_s" if column == "cpu_s" else column] = _sums(counters, column, place, length)
    receipts = intervals.receipts()
    for column in ("received_msgs", "received_bytes"):
        values[column] = _sums(receipts, column, place, length)
    values["waiting_msgs"] = _highest(intervals.level("waiting_msgs", counters), place, length)
    values["backlog_msgs"] = _highest(intervals.level("backlog_msgs", receipts), place, length)
    values.update(_latency_values(intervals, phase, place, length))
    values.update(_resource_values(resources, place, length, members))
    return Series(
        interval=np.array(order[::stride], dtype=np.int64), start_s=start, duration_s=duration, values=values
    )


def read_resources(directory: Path) -> list[Row]:
    """Rows of `resources.parquet` (RESOURCE_COLUMNS) of the lab's machine, and of the system wherever it ran; none when the file is not
    there."""
    rows = read_rows(directory / "resources.parquet", RESOURCE_COLUMNS)
    return [row for row in rows if row["host"] is None or row["scope"] in ("system", "thread")]


def read_hosts(directory: Path) -> list[Row]:
    """Rows of `resources.parquet` that the agents of a cluster told."""
    rows = read_rows(directory / "resources.parquet", RESOURCE_COLUMNS)
    return [row for row in rows if row["host"] is not None]


def lined_up_resources(
    rows: Sequence[Row], place: dict[int, int], length: int, more: Sequence[str]
) -> dict[str, Values]:
    """What one machine used, interval by interval, with more columns of its rows of scopes host and system."""
    values = _resource_values(list(rows), place, length, np.ones(length))
    for column in more:
        values[column] = _sums([row for row in rows if row[column] is not None], column, place, length)
    return values


def total(rows: Iterable[Row], column: str) -> int:
    """Sum of a whole-number column, nulls as 0."""
    return sum(int(row[column] or 0) for row in rows)


def total_s(rows: Iterable[Row], column: str) -> float:
    """Sum of a column of seconds, nulls as 0."""
    return sum(float(row[column] or 0.0) for row in rows)


def _latency_values(
    intervals: Intervals, phase: str | None, place: dict[int, int], length: int
) -> dict[str, Values]:
    values: dict[str, Values] = {}
    for metric, figures in SERIES_FIGURES.items():
        groups: dict[int, list[Histogram]] = defaultdict(list)
        for interval, histogram in intervals.histograms_by_interval(metric, phase).items():
            if interval in place:
                groups[place[interval]].append(histogram)
        merged = {position: merge(group) for position, group in groups.items()}
        for figure in figures:
            found = np.full(length, np.nan)
            for position, histogram in merged.items():
                found[position] = _figure(histogram, figure)
            values[f"{metric}_ms_{figure}"] = found
    return values


def _figure(histogram: Histogram, figure: str) -> float:
    percent = {"p50": 50.0, "p99": 99.0, "max": 100.0}[figure]
    value = histogram.percentile(percent)
    return float("nan") if value is None else value / NS_PER_MS


def _sums(rows: Iterable[Row], column: str, place: dict[int, int], length: int) -> Values:
    result = np.full(length, np.nan)
    for row in rows:
        position = place.get(int(row["interval"]))
        if position is not None and row[column] is not None:
            before = float(result[position])
            result[position] = (0.0 if math.isnan(before) else before) + float(row[column])
    return result


def _highest(found: dict[int, int], place: dict[int, int], length: int) -> Values:
    result = np.full(length, np.nan)
    for interval, value in found.items():
        if interval in place:
            result[place[interval]] = np.fmax(result[place[interval]], value)
    return result


def _resource_values(
    resources: list[Row], place: dict[int, int], length: int, members: Values
) -> dict[str, Values]:
    def of(scope: str, column: str) -> Values:
        return _sums((row for row in resources if row["scope"] == scope), column, place, length)

    return {
        "system_cpu_s": of("system", "cpu_s"),
        "lab_cpu_s": of("lab", "cpu_s"),
        "others_cpu_s": of("others", "cpu_s"),
        "host_cpu_s": of("host", "cpu_s"),
        "steal_s": of("host", "steal_s"),
        "flushes": of("host", "flushes"),
        "flush_s": of("host", "flush_s"),
        "disk_busy_s": of("host", "disk_busy_s"),
        # A level, not a sum: the mean over the intervals that share a point.
        "system_rss_bytes": of("system", "rss_bytes") / members,
        "system_disk_write_bytes": of("system", "disk_write_bytes"),
        "system_disk_read_bytes": of("system", "disk_read_bytes"),
        "system_sync_s": of("system", "sync_s"),
        "system_sync_s2": of("system", "sync_s2"),
    }
