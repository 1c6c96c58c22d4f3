"""The seam for places where workers run."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from pathlib import Path

from streamgauge.fleet.client import WorkerClient


class FleetFailure(Exception):
    """A worker could not be started (exit status 3). The message says what to do."""


@dataclass(frozen=True)
class Worker:
    """One load worker that answers."""

    name: str
    client: WorkerClient
    pid: int | None
    """Process id where the worker runs on this machine, so that its CPU is charged to it; else None."""


class Fleet(abc.ABC):
    """A place where workers run."""

    @abc.abstractmethod
    def start(self, log_directory: Path) -> Worker:
        """Starts (or reaches) a fresh worker and waits until it answers. Raises FleetFailure."""

    @abc.abstractmethod
    def failure(self) -> str | None:
        """One sentence when the worker is gone unasked, with the last line of its log; None while it runs."""

    @abc.abstractmethod
    def stop(self, *, at_once: bool = False) -> None:
        """Stops what was started: politely and then with SIGKILL, or `at_once`. Idempotent, never raises."""
