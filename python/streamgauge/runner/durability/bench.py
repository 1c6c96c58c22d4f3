"""What all experiments need: a system on disks that can lose power, a load worker, and loads that can be audited.

A system is started once for all experiments; each load has topics of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.fleet.base import Fleet
from streamgauge.fleet.client import WorkerClient
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.result import Durability
from streamgauge.model.result_asked import BacklogAsked
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.workload import Workload
from streamgauge.runner.acks import AckWatch
from streamgauge.runner.interrupts import Interrupts
from streamgauge.runner.observer import Observer
from streamgauge.runner.request import topic_names, topic_requests, trial_request
from streamgauge.systems.base import RunningSystem, System
from streamgauge.systems.base.parts import Part
from streamgauge.systems.support.powercut import Disks, open_disks
from streamgauge.vocabulary.errors import SystemFailure, WorkerLost, WorkerRefused
from streamgauge.vocabulary.phases import EXTRA_READER, INTERVAL_S
from streamgauge.vocabulary.waiting import wait_until

BASE_WORKLOAD = "1-topic-16-partitions-100b"
CREATE_TOPICS_WITHIN_S = 60.0
READY_WITHIN_S = 90.0
START_DELAY_MS = 200
DRAIN_S = 40.0
QUIET_S = 6.0
POLL_S = 0.05


def workload(rate_msgs_s: float, partitions: int, *, size_bytes: int = 128) -> Workload:
    """An evenly paced load of one producer whose messages are left alone until they are audited: the only
    subscription reads from the earliest message, and not before it is told to.
    """
    base = read_workload(BASE_WORKLOAD, Overrides.of(size=size_bytes, partitions=partitions))
    backlog = BacklogAsked(size_bytes=1 << 40, reader="extra", drain_share=1.0, within_s=1.0, after_s=1.0)
    return dataclasses.replace(
        base,
        name="durability",
        file=None,
        rate_msgs_s=rate_msgs_s,
        subscriptions_per_topic=0,
        consumers_per_subscription=1,
        backlog=backlog,
        warmup_s=1.0,
        duration_s=1.0,
        drain_s=DRAIN_S,
    )


class Load:
    """One load that runs on the bench. Times are seconds on its schedule's axis."""

    def __init__(
        self, client: WorkerClient, trial: str, start_s: float, topic: str, run: int, watched: bool
    ) -> None:
        self.client = client
        self.run = run
        """The number that its messages' stamps carry."""
        self.topic = topic
        """Its first topic."""
        self.trial = trial
        self.start_s = start_s
        self.watch = AckWatch(client, trial, start_s)
        """Has seen nothing of a load that is not watched."""
        if watched:
            self.watch.start()

    @property
    def now_s(self) -> float:
        """Now."""
        return time.monotonic() - self.start_s

    def finish(self) -> dict[str, Any]:
        """Ends the load, reads everything that is there from the first message on, and audits it."""
        self.watch.stop()
        self.client.stop_schedule(self.trial)
        self.client.resume(self.trial, EXTRA_READER)
        return self.client.finish(self.trial, DRAIN_S, QUIET_S)

    def close(self) -> None:
        """Ends the load without an audit, where there was none. Never raises."""
        self.watch.stop()
        with contextlib.suppress(WorkerLost, WorkerRefused):
            self.client.abort(self.trial)


@dataclass
class Bench:
    """A running system and what is needed to load and to break it."""

    choice: SystemChoice[System]
    running: RunningSystem
    disks: Disks
    client: WorkerClient
    fleet: Fleet
    run_id: str
    seed: int
    directory: Path
    data: Path
    interrupts: Interrupts
    observer: Observer
    durability: Durability = dataclasses.field(default_factory=Durability)
    loads: int = 0

    @property
    def parts(self) -> Sequence[Part]:
        """All parts of the system."""
        return self.running.parts()

    def nodes(self) -> dict[str, list[Part]]:
        """Node -> its parts; parts that belong to no node are left out."""
        found: dict[str, list[Part]] = {}
        for part in self.parts:
            number = part.name.rpartition("-")[2]
            if number.isdigit():
                found.setdefault(f"node-{number}", []).append(part)
        return dict(sorted(found.items()))

    def leader(self, load: Load) -> str | None:
        """The node that leads a load's first partition, where leading and keeping go together; None where they do not, or
        when the system does not say.
        """
        if not (self.running.knows_leaders and self.running.leader_stores):
            return None
        return self.running.leader(load.topic)

    def begin(self, load: Workload, *, interval_s: float = INTERVAL_S, watched: bool = True) -> Load:
        """Makes topics, waits until producers and the reader are ready, settles the disks and starts a load. `interval_s`: of its figures,
        0.1 at least; a phase that is begun while it runs begins with an interval. `watched`: whether acknowledgements are counted fifty times a
        second, which only a load that is interrupted needs."""
        self.loads += 1
        names = topic_names(load, self.run_id, 1, self.loads)
        plan = self.running.topic_plan()
        self.client.create_topics(
            self.running.connection, topic_requests(load, names, plan), CREATE_TOPICS_WITHIN_S
        )
        if self.durability.declared is None:
            self._read_back(names)
        request = trial_request(
            load,
            names,
            system=self.running.connection,
            acks=self.running.acks,
            run_id=self.run_id,
            trial=1,
            seed=self.seed + self.loads,
            probe=self.loads,
        )
        request["interval_ms"] = round(1000 * interval_s)
        status = self.client.create_trial(request)
        self._await_ready(status.id)
        self.client.pause(status.id, EXTRA_READER)
        self.disks.settle()
        started = self.client.start(status.id, START_DELAY_MS)
        start_s = started.start_ns / 1e9 if started.start_ns else time.monotonic() + START_DELAY_MS / 1000
        return Load(self.client, status.id, start_s, names[0], int(request["run"]), watched)

    def _await_ready(self, trial: str) -> None:
        def missing() -> str | None:
            self.check()
            status = self.client.status(trial)
            if status.ended:
                raise SystemFailure(f"a load could not be started: {status.error or status.state}")
            return None if status.state == "ready" else "a load to be ready"

        late = wait_until(missing, READY_WITHIN_S, POLL_S)
        if late is not None:
            raise SystemFailure(late)

    def _read_back(self, names: Sequence[str]) -> None:
        found = self.running.read_back(
            lambda topics: self.client.describe(self.running.connection, topics), names
        )
        self.durability = Durability(
            asked=self.choice.request.level,
            declared=found.level,
            settings=dict(found.settings),
            mismatches=list(found.mismatches),
        )

    def wait(self, seconds: float) -> None:
        """Sleeps, looking around."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left_s, POLL_S))

    def check(self) -> None:
        """Raises when the user wants to stop, or something died that should not have."""
        self.interrupts.check()
        died = self.running.failure() or self.fleet.failure() or self.disks.failure()
        if died:
            raise SystemFailure(died)

    def close(self) -> None:
        """Stops and removes everything. Every step is tried."""
        for step in (
            self.fleet.stop,
            self._wake,
            self.running.stop,
            lambda: self.running.collect_logs(self._made(self.directory / "logs")),
            self.disks.stop,
            self.running.wipe,
            lambda: shutil.rmtree(self.data, ignore_errors=True),
        ):
            try:
                step()
            except Exception as error:
                self.observer.note(f"could not clean up: {str(error) or type(error).__name__}")

    def _wake(self) -> None:
        """Disks without power would keep processes from ending; delays would keep them long."""
        self.disks.release()
        self.disks.delay_syncs((), 0.0)

    @staticmethod
    def _made(path: Path) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        return path


def open_bench(
    choice: SystemChoice[System],
    *,
    gauge: Path,
    fleet: Fleet,
    run_id: str,
    seed: int,
    directory: Path,
    data: Path,
    disk_options: Sequence[str],
    interrupts: Interrupts,
    observer: Observer,
) -> Bench:
    """Starts disks, the system on them and a worker. Nothing is left behind when that fails."""
    disks = open_disks(gauge, data.parent / f"{data.name}-disks", disk_options)
    running: RunningSystem | None = None
    try:
        worker = fleet.start(directory / "logs")
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        request = dataclasses.replace(choice.request, volume=disks.provide)
        running = choice.system.start(request, data, observer.progress)
        return Bench(
            choice, running, disks, worker.only, fleet, run_id, seed, directory, data, interrupts, observer
        )
    except BaseException:
        fleet.stop(at_once=True)
        if running is not None:
            running.stop()
        disks.stop()
        shutil.rmtree(data, ignore_errors=True)
        raise
