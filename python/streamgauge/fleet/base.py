"""The seam for places where workers run."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from streamgauge.fleet.client import WorkerClient
from streamgauge.model.messages import Counters, IntervalsPage, TrialStatus
from streamgauge.vocabulary.errors import FleetFailure


class WorkerCalls(Protocol):
    """What a trial needs of its worker: one (fleet.client), or several that act as one (fleet.crew)."""

    def create_topics(
        self, system: Mapping[str, Any], topics: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> None:
        """Creates topics and returns when every partition has a leader."""

    def delete_topics(self, system: Mapping[str, Any], topics: Sequence[str]) -> None:
        """Deletes topics; those that do not exist are no error."""

    def describe(self, system: Mapping[str, Any], topics: Sequence[str]) -> dict[str, Any]:
        """What the live system says of itself and of the topics."""

    def create_trial(self, trial: Mapping[str, Any]) -> TrialStatus:
        """Creates a trial; readiness is proven in the background."""

    def status(self, trial: str) -> TrialStatus:
        """Where the trial is."""

    def start(self, trial: str, delay_ms: int) -> TrialStatus:
        """Starts the schedule after a delay."""

    def stop_schedule(self, trial: str, at_s: float | None = None) -> None:
        """Ends the schedule at a time on its axis, or now."""

    def begin_phase(self, trial: str, name: str, from_s: float | None = None) -> float:
        """Begins a phase; where it begins on the schedule's axis."""

    def pause(self, trial: str, subscription: str) -> None:
        """The subscription stops fetching."""

    def resume(self, trial: str, subscription: str) -> None:
        """The subscription goes on where it stopped."""

    def counters(self, trial: str) -> Counters:
        """What was counted so far."""

    def renew_lease(self, trial: str, timeout_s: float) -> None:
        """Says that the lab is still there."""

    def intervals(self, trial: str, since: int) -> IntervalsPage:
        """Complete intervals from `since` on, a bounded number of them."""

    def finish(self, trial: str, drain_s: float, quiet_s: float) -> dict[str, Any]:
        """Drains, stops and audits."""

    def abort(self, trial: str) -> None:
        """Stops the trial at once, without an audit."""


@dataclass(frozen=True)
class Worker:
    """One load worker that answers, or several that act as one."""

    name: str
    client: WorkerCalls
    pid: int | None
    """Process id where the worker runs on this machine, so that its CPU is charged to it; else None."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """Of several workers: those that run on this machine, by name."""
    lab_clock: bool = False
    """Whether start instants come in the lab's clock although the workers run elsewhere."""

    @property
    def only(self) -> WorkerClient:
        """The client of a single worker. Raises FleetFailure where there are several."""
        if isinstance(self.client, WorkerClient):
            return self.client
        raise FleetFailure("this is measured with a single worker: leave out --workers and --fleet")

    @property
    def processes(self) -> dict[str, int]:
        """Processes on this machine whose CPU is the generator's, by name."""
        return dict(self.pids) if self.pid is None else {self.name: self.pid}


class Fleet(abc.ABC):
    """A place where workers run."""

    @abc.abstractmethod
    def start(self, log_directory: Path) -> Worker:
        """Starts (or reaches) a fresh worker and waits until it answers. Raises FleetFailure."""

    @abc.abstractmethod
    def failure(self) -> str | None:
        """One sentence when the worker is gone unasked, with the last line of its log; None while it runs."""

    def answers(self) -> bool:
        """Whether a worker is left for calls that any of them can answer, whatever became of the trial."""
        return self.failure() is None

    def notes(self) -> list[str]:
        """What a reader of the figures should know of where the load came from."""
        return []

    def losses(self) -> list[str]:
        """Workers that were lost while the others went on, a sentence each: their trial is not valid."""
        return []

    @abc.abstractmethod
    def stop(self, *, at_once: bool = False) -> None:
        """Stops what was started: politely and then with SIGKILL, or `at_once`. Idempotent, never raises."""
