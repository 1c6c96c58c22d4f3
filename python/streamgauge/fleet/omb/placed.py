"""A fleet of OMB's workers: they run already, and are left running."""

from __future__ import annotations

import contextlib
from pathlib import Path

from streamgauge.fleet.base import Fleet, Worker
from streamgauge.fleet.local import LocalFleet
from streamgauge.fleet.omb.addresses import OmbWorkers
from streamgauge.fleet.omb.calls import OmbCalls
from streamgauge.fleet.omb.client import OmbClient
from streamgauge.fleet.omb.ensemble import Ensemble, Member, is_busy, process_behind
from streamgauge.vocabulary.errors import FleetFailure, WorkerLost, WorkerRefused

NAME = "omb"
LOOK_S = 1.2
"""A worker that was left behind sends a message per second at least."""


class OmbFleet(Fleet):
    """OMB's workers for the load, and one of ours for topics."""

    def __init__(self, workers: OmbWorkers, gauge: Path | None = None) -> None:
        self._workers = workers
        self._local = LocalFleet(gauge)
        self._calls: OmbCalls | None = None

    def start(self, log_directory: Path) -> Worker:
        """Reaches OMB's workers, which must be idle, and starts ours."""
        self.stop()
        topics = self._local.start(log_directory)
        members = [Member(OmbClient(url)) for url in self._workers.urls]
        ensemble = Ensemble(members)
        try:
            busy = ensemble.each(members, lambda member: is_busy(member.client, LOOK_S))
        except (WorkerLost, WorkerRefused) as error:
            self._close(ensemble)
            raise FleetFailure(
                f"{error}; expected a worker of the OpenMessaging Benchmark, as its bin/benchmark-worker starts it"
            ) from None
        except BaseException:
            self._close(ensemble)
            raise
        taken = [member.client.url for member, is_taken in zip(members, busy, strict=True) if is_taken]
        if taken:
            self._close(ensemble)
            raise FleetFailure(
                f"{', '.join(taken)}: drives a load for somebody; wait for its end, or end it with "
                f"'streamgauge fleet clean omb:{','.join(taken)}'"
            )
        for member in members:
            member.process = process_behind(member.client.url)
        self._calls = OmbCalls(ensemble, topics.client)
        pids = {member.name: member.process.pid for member in members if member.process is not None}
        return Worker(name=NAME, client=self._calls, pid=None, pids=pids, lab_clock=True)

    def _close(self, ensemble: Ensemble) -> None:
        with contextlib.suppress(Exception):
            ensemble.close()
        self._local.stop(at_once=True)

    def failure(self) -> str | None:
        """As Fleet."""
        return self._local.failure() or (None if self._calls is None else self._calls.failure)

    def answers(self) -> bool:
        """Topics are ours, whatever became of the load."""
        return self._local.failure() is None

    def notes(self) -> list[str]:
        """As Fleet."""
        if self._calls is None:
            return []
        ensemble = self._calls.ensemble
        producing = ", ".join(member.name for member in ensemble.producing)
        consuming = ", ".join(member.name for member in ensemble.consuming)
        who = (
            f"{producing} (producing and consuming)"
            if producing == consuming
            else f"{producing} (producing) and {consuming} (consuming)"
        )
        return [
            f"The load came from workers of the OpenMessaging Benchmark: {who}. They tell no publish latency and keep no books: "
            "the time from the send (service) stands for publish latency, and whether every message arrived once and unchanged is not proved"
        ]

    def stop(self, *, at_once: bool = False) -> None:
        """Ends what OMB's workers still do, and leaves them; stops ours."""
        if self._calls is not None:
            self._calls.leave(at_once=at_once)
            with contextlib.suppress(Exception):
                self._calls.ensemble.close()
            self._calls = None
        self._local.stop(at_once=at_once)


def stop_workers(workers: OmbWorkers) -> dict[str, str | None]:
    """Ends whatever these workers do, for whomever: URL -> why it could not be ended, None where it was."""
    found: dict[str, str | None] = {}
    for url in workers.urls:
        client = OmbClient(url)
        try:
            client.stop_all()
            found[url] = None
        except (WorkerLost, WorkerRefused) as error:
            found[url] = str(error)
        finally:
            client.close()
    return found
