"""A trial's data as the figures are computed from it: the intervals, the measured window, and the sums over it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from streamgauge.analysis.books import unread_of
from streamgauge.analysis.intervals import (
    Intervals,
    Row,
    Series,
    Window,
    read_hosts,
    read_resources,
    series,
    total,
    total_s,
)
from streamgauge.analysis.lanes import LaneUse, lane_use
from streamgauge.analysis.untold import told
from streamgauge.model.percentiles import latency
from streamgauge.model.result import headline as headline_of
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_base import Headline, Latency
from streamgauge.model.result_columns import METRICS
from streamgauge.store.context import TrialContext
from streamgauge.vocabulary.phases import EXTRA_READER, MEASURE


@dataclass(frozen=True)
class Counted:
    """Sums over the measured window."""

    duration_s: float
    sent_msgs: int
    acked_msgs: int
    acked_bytes: int
    received_msgs: int
    received_bytes: int
    backlog_msgs_max: int
    waiting_msgs_max: int | None

    def per_second(self, amount: float) -> float:
        """A rate over the window; 0 when nothing was measured."""
        return amount / self.duration_s if self.duration_s > 0 else 0.0


@dataclass(frozen=True)
class Measured:
    """A trial's data, read and put in order."""

    raw: TrialContext
    everything: Intervals
    intervals: Intervals
    """Without what reads a backlog, which has figures of its own: the headline is of those that tail."""
    window: Window
    used: list[Row]
    """Of the resources, what lies in the window."""
    of_hosts: list[Row]
    """What agents told of the cluster's machines, over the whole trial."""
    counted: Counted
    headline: Headline
    latencies: Mapping[str, Latency]
    """Metric -> its distribution over the messages that were due in the measured phase."""
    lined_up: Series
    """Intervals and resources on one axis."""

    @classmethod
    def read(cls, raw: TrialContext, directory: Path, everything: Intervals | None = None) -> Measured:
        """Reads the Parquet files in the trial's directory, but for `everything`, its intervals, where they were read already. Raises HistogramError (a
        ValueError) for a damaged histogram."""
        if everything is None:
            everything = Intervals.read(directory, unread_of(raw.finish))
        intervals = everything.without(EXTRA_READER) if raw.workload.has_extra_reader else everything
        resources = read_resources(directory)
        window = _window(raw, intervals)
        return cls(
            raw=raw,
            everything=everything,
            intervals=intervals,
            window=window,
            used=[row for row in resources if window.holds(row)],
            of_hosts=read_hosts(directory) if raw.hosts else [],
            counted=_count(intervals, window),
            headline=headline_of(raw.untold),
            latencies={
                metric: latency(intervals.histogram(metric, MEASURE), intervals.beyond(metric, MEASURE))
                for metric in METRICS
            },
            lined_up=series(intervals, resources, MEASURE),
        )

    @property
    def asked(self) -> WorkloadResult:
        """The load that it was: at the rate that was found, where one was to be found."""
        workload = self.raw.workload
        return (
            workload.model_copy(update={"rate_msgs_s": self.raw.rate_msgs_s}) if self.raw.search else workload
        )

    @property
    def system_cores(self) -> int:
        """Of the machines that the system runs on, as far as they are known."""
        return sum(host.cores for host in self.raw.hosts) or self.raw.cores

    @cached_property
    def lane_use(self) -> list[LaneUse]:
        """How busy each thread of the generator was in the window."""
        rows = self.intervals.counters()
        ends = [float(row["start_s"]) + float(row["duration_s"]) for row in rows]
        return lane_use(self.raw.lanes, rows, self.window, max(ends, default=self.raw.measure_until_s))

    @property
    def producers(self) -> int:
        """Over all topics."""
        return self.raw.workload.topics * self.raw.workload.producers_per_topic

    def counters(self) -> list[Row]:
        """The workers' counters in the window."""
        return [row for row in self.intervals.counters() if self.window.holds(row)]

    def held_share(self) -> float:
        """Share of the time for which producers had something due and no room, the mean over producers."""
        rows = self.counters()
        seconds = total_s(rows, "duration_s")
        held_s = total_s(rows, "backpressured_s")
        return held_s / (self.producers * seconds) if self.producers and seconds else 0.0


def _window(raw: TrialContext, intervals: Intervals) -> Window:
    """The measured window. Where topics are only read, it ends with the last interval in which something came: there is an end to what
    is there, and waiting behind it is no reading."""
    if not raw.workload.consumes_only:
        return Window(raw.measure_from_s, raw.measure_until_s)
    ends = [
        float(row["start_s"]) + float(row["duration_s"])
        for row in intervals.receipts()
        if row["received_msgs"]
    ]
    until_s = min(max(ends, default=raw.measure_until_s), raw.measure_until_s)
    return Window(raw.measure_from_s, max(until_s, raw.measure_from_s))


def _count(intervals: Intervals, window: Window) -> Counted:
    counters = [row for row in intervals.counters() if window.holds(row)]
    receipts = [row for row in intervals.receipts() if window.holds(row)]
    durations = {int(row["interval"]): float(row["duration_s"]) for row in counters}
    return Counted(
        duration_s=sum(durations.values()),
        sent_msgs=total(counters, "sent_msgs"),
        acked_msgs=total(counters, "acked_msgs"),
        acked_bytes=total(counters, "acked_bytes"),
        received_msgs=total(receipts, "received_msgs"),
        received_bytes=total(receipts, "received_bytes"),
        backlog_msgs_max=max(intervals.level("backlog_msgs", receipts).values(), default=0),
        waiting_msgs_max=max(intervals.level("waiting_msgs", counters).values(), default=0)
        if told(counters, "waiting_msgs")
        else None,
    )


def errors_of(counters: list[Row]) -> dict[str, int]:
    """Kind -> count over the whole trial; the column holds a JSON object, or a mapping where the reader
    decoded it.
    """
    errors: dict[str, int] = defaultdict(int)
    for row in counters:
        found = row["errors"]
        kinds: Mapping[str, int] = json.loads(found) if isinstance(found, str) and found else (found or {})
        for kind, count in kinds.items():
            errors[kind] += int(count)
    return {kind: count for kind, count in sorted(errors.items()) if count}
