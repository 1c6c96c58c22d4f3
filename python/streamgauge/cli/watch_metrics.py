"""Metrics of a run for Prometheus and what reads its format, second by second (docs/live.md has them all).

Everything is counted from a trial's start, so that a scrape that is missed loses nothing. The trial before the one that runs is still told, so that
its last seconds are not lost between two scrapes.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from streamgauge.analysis.intervals import Intervals, Row, total, total_s
from streamgauge.cli.watch_feed import Second, SecondsObserver
from streamgauge.model.result import TrialResult
from streamgauge.report.openmetrics import Buckets, Exposition
from streamgauge.runner.observer import Snapshot, TrialStart
from streamgauge.vocabulary import phases
from streamgauge.vocabulary.version import version

PHASES = (
    "probe before",
    phases.PROVISION,
    phases.SETTLE,
    phases.SEARCH,
    phases.CREATE_TOPICS,
    phases.START_CONSUMERS,
    phases.WARM_UP,
    phases.MEASURE,
    phases.BUILD,
    phases.CATCH_UP,
    phases.AFTER,
    phases.DRAIN,
    phases.AUDIT,
    phases.COLLECT,
    phases.WIPE,
    "probe after",
    "report",
    "ended",
)
"""Probes between rounds of a study are told as `probe after`."""
LATENCIES = {
    "publish": ("streamgauge_publish_latency_seconds", "From when a message was due to its acknowledgement."),
    "service": ("streamgauge_service_time_seconds", "From the actual send to the acknowledgement."),
    "end_to_end": ("streamgauge_end_to_end_latency_seconds", "From when a message was due to its receipt."),
    "send_delay": (
        "streamgauge_send_delay_seconds",
        "From when a message was due to its send: the generator's own.",
    ),
    "receive_delay": (
        "streamgauge_receive_delay_seconds",
        "How long messages may have waited for the generator to read them.",
    ),
}
Labels = dict[str, str]
Key = tuple[str, str, str | None]
"""Metric, phase in which the messages were due, subscription."""


@dataclass
class Totals:
    """What a trial has counted so far."""

    labels: Labels
    snapshot: Snapshot | None = None
    due_msgs: float | None = None
    lasted_s: float = 0.0
    watched_s: float = 0.0
    """Of all workers: how long it is known whether they were disturbed."""
    disturbed_s: float = 0.0
    disturbed_share: float | None = None
    """Of the last second."""
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Columns of the interval table, all workers."""
    received: dict[str, dict[str, int]] = field(default_factory=dict)
    """Subscription -> columns."""
    backlog: dict[str, int] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Owner -> CPU."""
    written_bytes: int = 0
    rss_bytes: int | None = None
    latencies: dict[Key, Buckets] = field(default_factory=lambda: defaultdict(Buckets))
    lost_msgs: int | None = None


class MetricsObserver(SecondsObserver):
    """Counts, and tells what it has counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run = ""
        self._trials = 0
        self._done: set[int] = set()
        self._phase = ""
        self._left_s: float | None = None
        self._now: Totals | None = None
        self._before: Totals | None = None

    def run_started(self, directory: Path, trials: int) -> None:
        """See Observer."""
        with self._lock:
            self._run, self._trials = directory.name, trials

    def trial_started(self, trial: TrialStart) -> None:
        """See Observer."""
        with self._lock:
            self._trials = trial.trials
            self._before = self._now
            labels = {
                "run": self._run,
                "trial": str(trial.number),
                "system": trial.system,
                "workload": trial.workload,
            }
            if self._before is not None and self._before.labels == labels:
                # Another try of the same trial takes its place.
                self._before = None
            self._now = Totals(labels)

    def phase_started(self, name: str, limit_s: float | None) -> None:  # noqa: ARG002
        """See Observer."""
        with self._lock:
            self._phase = "probe after" if name.startswith("probe after") else name

    def remaining(self, left_s: float) -> None:
        """See Observer."""
        with self._lock:
            self._left_s = left_s

    def interval(self, snapshot: Snapshot) -> None:
        """See Observer."""
        with self._lock:
            if self._now is not None:
                self._now.snapshot = snapshot

    def second(self, second: Second) -> None:
        """See SecondsObserver."""
        with self._lock:
            if self._now is not None:
                _add(self._now, second)

    def trial_ended(self, result: TrialResult) -> None:
        """See Observer."""
        with self._lock:
            self._done.add(result.trial)
            if self._now is not None and result.audit.enabled:
                self._now.lost_msgs = result.audit.lost

    def run_ended(self, directory: Path, status: str) -> None:  # noqa: ARG002
        """See Observer."""
        with self._lock:
            self._phase, self._left_s = "ended", 0.0

    def text(self) -> str:
        """All of it, as OpenMetrics."""
        with self._lock:
            return self._write().text()

    def _write(self) -> Exposition:
        to = Exposition()
        of_run = {"run": self._run}
        to.family("streamgauge_run", "info", "The run that is going on.")
        to.info({**of_run, "version": version()})
        to.family("streamgauge_trials", "gauge", "Trials of the run, as far as is known.")
        to.gauge(of_run, self._trials)
        to.family("streamgauge_trials_done", "gauge", "Trials that are over.")
        to.gauge(of_run, len(self._done))
        to.family(
            "streamgauge_left_seconds",
            "gauge",
            "About so long the trials that are not done take, as estimated when the last one began or ended.",
            "seconds",
        )
        if self._left_s is not None:
            to.gauge(of_run, self._left_s)
        to.family("streamgauge_phase", "stateset", "The phase of the trial, or of the run.")
        to.state(self._now.labels if self._now else of_run, PHASES, self._phase)
        trials = [one for one in (self._before, self._now) if one is not None]
        _write_counts(to, trials)
        _write_now(to, trials)
        _write_machine(to, trials)
        for metric, (name, told) in LATENCIES.items():
            to.family(name, "histogram", told, "seconds")
            for one in trials:
                for (of, phase, subscription), buckets in one.latencies.items():
                    if of == metric:
                        named = {} if subscription is None else {"subscription": subscription}
                        to.histogram({**one.labels, **named, "phase": phase}, buckets)
        return to


def _add(totals: Totals, second: Second) -> None:
    counters, receipts = second.intervals.counters(), second.intervals.receipts()
    totals.lasted_s += second.duration_s
    target = totals.snapshot.target_msgs_s if totals.snapshot is not None else None
    if target is not None and _is_scheduled(totals):
        totals.due_msgs = (totals.due_msgs or 0.0) + target * second.duration_s
    for column in ("sent_msgs", "sent_bytes", "acked_msgs", "acked_bytes", "failed_msgs"):
        totals.counts[column] += total(counters, column)
    for name in second.intervals.subscriptions():
        rows = [row for row in receipts if row["subscription"] == name]
        of = totals.received.setdefault(name, defaultdict(int))
        for column in ("received_msgs", "received_bytes"):
            of[column] += total(rows, column)
        totals.backlog[name] = max(total(rows, "backlog_msgs"), 0)
    _add_machine(totals, second, counters)
    _add_latencies(totals, second.intervals)


def _is_scheduled(totals: Totals) -> bool:
    """Whether messages are still due: what comes in the drain is not."""
    return totals.snapshot is not None and totals.snapshot.phase in phases.ON_SCHEDULE


def _add_machine(totals: Totals, second: Second, counters: list[Row]) -> None:
    watched = [row for row in counters if row["disturbed_s"] is not None]
    watched_s, disturbed_s = total_s(watched, "duration_s"), total_s(watched, "disturbed_s")
    totals.watched_s += watched_s
    totals.disturbed_s += disturbed_s
    totals.disturbed_share = disturbed_s / watched_s if watched_s else None
    totals.cpu_s["generator"] += total_s(counters, "cpu_s")
    for scope in ("system", "lab", "others"):
        totals.cpu_s[scope] += total_s((row for row in second.resources if row["scope"] == scope), "cpu_s")
    totals.cpu_s["steal"] += total_s((row for row in second.resources if row["scope"] == "host"), "steal_s")
    system = [row for row in second.resources if row["scope"] == "system"]
    totals.written_bytes += total(system, "disk_write_bytes")
    if system:
        totals.rss_bytes = total(system, "rss_bytes")


def _add_latencies(totals: Totals, intervals: Intervals) -> None:
    for index, row in enumerate(intervals.rows):
        if row["phase"] is None:
            continue
        for metric in LATENCIES:
            found = intervals.merged([index], metric)
            below = above = 0
            # A row counts what is outside of the range over all its metrics: it is charged to its headline (Intervals.beyond).
            if metric == ("end_to_end" if row["role"] == "consumer" else "publish"):
                below, above = row["negative"] or 0, row["overflow"] or 0
            if metric in ("publish", "service") and (found.count or above):
                above += row["unacked_msgs"] or 0
            if found.count or below or above:
                totals.latencies[metric, row["phase"], row["subscription"]].add(
                    found, below=below, above=above
                )


def _write_counts(to: Exposition, trials: list[Totals]) -> None:
    to.family(
        "streamgauge_due_messages", "counter", "Messages that the schedule has asked for: rate times time."
    )
    for one in trials:
        if one.due_msgs is not None:
            to.counter(one.labels, one.due_msgs)
    for name, column, told in (
        ("sent_messages", "sent_msgs", "Messages handed to the client."),
        ("sent_bytes", "sent_bytes", "Their payload."),
        ("acked_messages", "acked_msgs", "Messages acknowledged."),
        ("acked_bytes", "acked_bytes", "Their payload."),
        ("failed_messages", "failed_msgs", "Messages that failed for good."),
    ):
        to.family(f"streamgauge_{name}", "counter", told)
        for one in trials:
            to.counter(one.labels, one.counts[column])
    for name, column, told in (
        ("received_messages", "received_msgs", "Messages received by a subscription."),
        ("received_bytes", "received_bytes", "Their payload."),
    ):
        to.family(f"streamgauge_{name}", "counter", told)
        for one in trials:
            for subscription, counts in one.received.items():
                to.counter({**one.labels, "subscription": subscription}, counts[column])
    to.family(
        "streamgauge_lost_messages", "gauge", "Messages that the audit at the end of the trial has missed."
    )
    for one in trials:
        if one.lost_msgs is not None:
            to.gauge(one.labels, one.lost_msgs)


def _write_now(to: Exposition, trials: list[Totals]) -> None:
    rates: tuple[tuple[str, str, Callable[[Snapshot], float | None]], ...] = (
        ("target", "Messages per second that are asked for.", lambda one: one.target_msgs_s),
        ("sent", "Messages sent per second, in the last second.", lambda one: one.sent_msgs_s),
        ("acked", "Messages acknowledged per second, in the last second.", lambda one: one.acked_msgs_s),
        ("received", "Messages received per second, in the last second.", lambda one: one.received_msgs_s),
    )
    now = [(one, one.snapshot) for one in trials if one.snapshot is not None]
    for name, told, of in rates:
        to.family(f"streamgauge_{name}_messages_per_second", "gauge", told)
        for one, snapshot in now:
            value = of(snapshot)
            if value is not None:
                to.gauge(one.labels, value)
    to.family("streamgauge_waiting_messages", "gauge", "Messages sent, and neither acknowledged nor failed.")
    for one, snapshot in now:
        if snapshot.waiting_msgs is not None:
            to.gauge(one.labels, snapshot.waiting_msgs)
    to.family(
        "streamgauge_backlog_messages",
        "gauge",
        "Messages acknowledged, and not yet received by a subscription.",
    )
    for one in trials:
        for subscription, msgs in one.backlog.items():
            to.gauge({**one.labels, "subscription": subscription}, msgs)


def _write_machine(to: Exposition, trials: list[Totals]) -> None:
    to.family("streamgauge_cpu_seconds", "counter", "CPU used, by owner.", "seconds")
    for one in trials:
        for owner, cpu_s in one.cpu_s.items():
            to.counter({**one.labels, "owner": owner}, cpu_s)
    to.family(
        "streamgauge_system_memory_bytes",
        "gauge",
        "Resident memory of the system's processes on this machine.",
        "bytes",
    )
    for one in trials:
        if one.rss_bytes is not None:
            to.gauge(one.labels, one.rss_bytes)
    to.family("streamgauge_system_written_bytes", "counter", "What they have written to disk.", "bytes")
    for one in trials:
        to.counter(one.labels, one.written_bytes)
    watched = [one for one in trials if one.watched_s]
    to.family(
        "streamgauge_watched_seconds",
        "counter",
        "Time of which it is known whether a CPU was not to be had, summed over workers.",
        "seconds",
    )
    for one in watched:
        to.counter(one.labels, one.watched_s)
    to.family("streamgauge_disturbed_seconds", "counter", "How much of it was disturbed.", "seconds")
    for one in watched:
        to.counter(one.labels, one.disturbed_s)
    to.family("streamgauge_disturbed_ratio", "gauge", "Share of the last second that was disturbed.", "ratio")
    for one in watched:
        if one.disturbed_share is not None:
            to.gauge(one.labels, one.disturbed_share)
