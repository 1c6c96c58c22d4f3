"""The system of a trial, and what is built around it: agents on a cluster's machines, networks and disks that can fail.

It is started in an empty directory of its own, or attached to; at the end its logs are kept and everything of it is removed, whatever else went wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import time
from pathlib import Path

from streamgauge.fleet.agents import Agent, reach, read_agents
from streamgauge.model.fault import ON_NETWORK, ON_STORAGE
from streamgauge.model.result_hosts import ClusterHost
from streamgauge.model.system_request import SystemRequest
from streamgauge.runner import machine
from streamgauge.runner.observer import Observer
from streamgauge.runner.plan import TrialPlan
from streamgauge.runner.record import TrialRecord
from streamgauge.runner.resources import Watched
from streamgauge.store.directory import TrialDirectory
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.support.network import Namespaces, open_network
from streamgauge.systems.support.powercut import Disks, open_disks
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.files import rescue_logs
from streamgauge.vocabulary.gauge_binary import find_gauge

DISK_LOOK_EVERY_S = 1.0


class UnderTest:
    """Starts the system of a trial, or attaches to it, and takes it away again."""

    def __init__(
        self,
        plan: TrialPlan,
        directory: TrialDirectory,
        data: Path,
        record: TrialRecord,
        observer: Observer,
    ) -> None:
        """`data`: where the system's own data is to be."""
        self._plan = plan
        self._directory = directory
        self._data = data
        self._record = record
        self._observer = observer
        self._running: RunningSystem | None = None
        self._disk_looked_s = 0.0
        self.disks: Disks | None = None
        """Its disks, where these can fail."""
        self.network: Namespaces | None = None
        """The networks of its nodes, where these can be cut."""
        self.agents: list[Agent] = []
        """On the machines of a cluster."""

    @property
    def running(self) -> RunningSystem:
        """The system, from `start` on."""
        assert self._running is not None
        return self._running

    @property
    def outlives(self) -> bool:
        """Whether it goes on after the trial, so that what was made in it has to be taken out of it."""
        return self._record.context.attached or (self._running is not None and self._running.kept)

    def start(self) -> None:
        """Starts it or attaches to it, and notes what it is. Raises SystemFailure, SystemInputError."""
        choice = self._plan.choice
        if choice.request.agents:
            self._reach_agents()
        if choice.request.connect:
            self._observer.progress(f"attaching to {', '.join(choice.request.connect)}")
            self._running = choice.system.attach(choice.request)
        else:
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._record.update(data_directory=str(self._data.resolve()))
            problem = machine.disk_problem(self._data)
            if problem:
                raise SystemFailure(problem)
            request = self._on_network(self._on_disks(choice.request))
            self._running = choice.system.start(request, self._data, self._observer.progress)
        self._record.update(
            system_title=self._running.title or choice.system.title,
            system_version=self._running.version,
            nodes=self._running.nodes,
            attached=self._running.attached,
            configuration=self._running.configuration(),
        )
        self._note_security()

    @property
    def metrics_every_second(self) -> bool:
        """Whether the system's own metrics are wanted so, whatever that costs it."""
        return self._plan.choice.request.metrics_every_second

    def _reach_agents(self) -> None:
        """Agents on the cluster's machines, and what those can do where that may be tried."""
        request = self._plan.choice.request
        self._observer.progress("reaching the agents of the cluster's machines")
        ports = sorted({int(address.rpartition(":")[2]) for address in request.connect})
        self.agents = reach(read_agents(request.agents), ports)
        found = []
        for agent in self.agents:
            self._observer.progress(f"probing {agent.name}")
            found.append(ClusterHost(name=agent.name, cores=agent.cores, probe=agent.probe()))
        self._record.update(hosts=found)

    def _note_security(self) -> None:
        """What a reader must know of how far TLS went."""
        request = self._plan.choice.request
        if request.guarded:
            self._record.update(authentication=self.running.connection["security"]["auth"]["mechanism"])
        if request.tls and len(self.running.processes()) > 1:
            self._record.note(
                "TLS was between clients and nodes; what the system's processes sent each other was in plain text"
            )
        if request.security is not None and request.security.in_plain_sight():
            self._record.note(
                "the clients' password or token went over the network in plain text: there was no TLS (section security)"
            )

    def _on_network(self, request: SystemRequest) -> SystemRequest:
        """With faults of the network, each node has one of its own."""
        if not any(fault.action in ON_NETWORK for fault in self._plan.workload.faults):
            return request
        self.network = open_network(request.nodes)
        self._record.note(
            "each node was in a network namespace of its own, behind a bridge: that costs more CPU per packet than loopback"
        )
        return dataclasses.replace(request, placement=self.network)

    def _on_disks(self, request: SystemRequest) -> SystemRequest:
        """With faults of disks, the system's data is on disks that can have them."""
        if not any(fault.action in ON_STORAGE for fault in self._plan.workload.faults):
            return request
        self.disks = open_disks(find_gauge(), self._data.parent / f"{self._data.name}-disks")
        self._record.note(
            "the system's data was on disks in user space, which can fail on purpose: they are slower than the disk below"
        )
        return dataclasses.replace(request, volume=self.disks.provide)

    def failure(self) -> str | None:
        """Why it does not run any more; None while it does, and before it was started."""
        return None if self._running is None else self._running.failure()

    def watched(self) -> list[Watched]:
        """Its processes, as resources are sampled of them."""
        return [Watched("system", one.name, one.pid) for one in self.running.processes()]

    def disk_problem(self) -> str | None:
        """Whether the disk of its data is nearly full, looked at once a second."""
        now_s = time.monotonic()
        if self._record.context.attached or now_s - self._disk_looked_s < DISK_LOOK_EVERY_S:
            return None
        self._disk_looked_s = now_s
        return machine.disk_problem(self._data)

    def told(self, reason: str) -> str:
        """A reason that names logs where they are kept: with the trial, when the system's own directory is wiped."""
        data = re.escape(str(self._data))
        return re.sub(rf"{data}[^\s:;,]*", str(self._directory.logs), reason)

    def kill(self) -> None:
        """At once: nothing is asked politely any more."""
        if self._running is not None and not self._running.attached:
            for process in self._running.processes():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stops what was started, and keeps its logs."""
        running, attempt = self._running, self._record.attempt
        if running is not None and not running.attached:
            self._observer.progress(f"stopping {self._plan.choice.name}")
            attempt("stop the system", running.stop)
            attempt("keep the system's logs", lambda: running.collect_logs(self._directory.made_logs()))
        elif running is None:
            attempt("keep the system's logs", lambda: rescue_logs(self._data, self._directory.logs))

    def wipe(self) -> None:
        """Removes what was started, and all around it."""
        running, attempt = self._running, self._record.attempt
        if self.disks is not None:
            attempt("unmount the system's disks", self.disks.stop)
        if self.network is not None:
            attempt("remove the networks of the nodes", self.network.stop)
        if running is not None and not running.attached:
            attempt("wipe the system's data", running.wipe)
        shutil.rmtree(self._data, ignore_errors=True)
