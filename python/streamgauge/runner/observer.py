"""Who watches a run: the live view, plain lines, the stream of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Headline


@dataclass(frozen=True)
class Snapshot:
    """One interval, as it is shown while a trial runs. Latencies are of the messages seen in it."""

    elapsed_s: float
    total_s: float
    phase: str
    target_msgs_s: float | None
    sent_msgs_s: float
    acked_msgs_s: float
    acked_mb_s: float
    received_msgs_s: float
    publish_ms_p50: float | None
    publish_ms_p99: float | None
    end_to_end_ms_p50: float | None
    end_to_end_ms_p99: float | None
    backlog_msgs: int
    waiting_msgs: int | None
    failed_msgs: int
    errors: dict[str, int] = field(default_factory=dict)
    headline: Headline = "publish"
    """What stands for the latency of publishing: service time where workers do not tell publish latency."""
    service_ms_p50: float | None = None
    service_ms_p99: float | None = None

    @property
    def headline_ms(self) -> tuple[float | None, float | None]:
        """Its p50 and p99."""
        if self.headline == "service":
            return self.service_ms_p50, self.service_ms_p99
        return self.publish_ms_p50, self.publish_ms_p99


@dataclass(frozen=True)
class TrialStart:
    """A trial that begins, as it is shown."""

    number: int
    trials: int
    repeat: int
    system: str
    workload: str
    summary: str
    title: str = ""
    """The system's name for people."""
    rate_msgs_s: float | None = None
    """What is asked for; None where it is as fast as can be, or is to be found."""


class Observer:
    """Every method does nothing here; a watcher overrides what it cares for. Called from the main thread, but for `sampled`."""

    def run_started(self, directory: Path, trials: int) -> None:
        """A run begins."""

    def trial_started(self, trial: TrialStart) -> None:
        """A trial begins."""

    def phase_started(self, name: str, limit_s: float | None) -> None:
        """A phase begins; `limit_s` is when it is given up, or how long it takes where that is known."""

    def progress(self, text: str) -> None:
        """What is being done within the phase."""

    def interval(self, snapshot: Snapshot) -> None:
        """An interval of load is over."""

    def recorded(self, intervals: Sequence[Mapping[str, Any]]) -> None:
        """All that workers tell of intervals that are over, as they gave it (docs/worker-api.md) and with the worker's name; before `interval`. Every
        interval comes once, with all its workers."""

    def sampled(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Who used CPU, memory and disk in an interval (RESOURCE_COLUMNS). From the thread that samples, about when the interval is recorded."""

    def remaining(self, left_s: float) -> None:
        """About so long all trials take that are not done, this one included."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def problem(self, text: str) -> None:
        """Something went wrong."""

    def trial_ended(self, result: TrialResult) -> None:
        """A trial is over and its result written."""

    def run_ended(self, directory: Path, status: str) -> None:
        """The run is over."""

    def close(self) -> None:
        """Nothing more comes."""


class Observers(Observer):
    """Tells several watchers the same."""

    def __init__(self, watchers: Sequence[Observer]) -> None:
        self._watchers = tuple(watchers)

    def run_started(self, directory: Path, trials: int) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.run_started(directory, trials)

    def trial_started(self, trial: TrialStart) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.trial_started(trial)

    def phase_started(self, name: str, limit_s: float | None) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.phase_started(name, limit_s)

    def progress(self, text: str) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.progress(text)

    def interval(self, snapshot: Snapshot) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.interval(snapshot)

    def recorded(self, intervals: Sequence[Mapping[str, Any]]) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.recorded(intervals)

    def sampled(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.sampled(rows)

    def remaining(self, left_s: float) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.remaining(left_s)

    def note(self, text: str) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.note(text)

    def problem(self, text: str) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.problem(text)

    def trial_ended(self, result: TrialResult) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.trial_ended(result)

    def run_ended(self, directory: Path, status: str) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.run_ended(directory, status)

    def close(self) -> None:
        """See Observer."""
        for watcher in self._watchers:
            watcher.close()
