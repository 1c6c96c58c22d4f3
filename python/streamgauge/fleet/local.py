"""Workers as child processes on this machine."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from streamgauge.fleet.base import Worker
from streamgauge.fleet.children import last_lines, start_child, stop_child
from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.crew import Crew, CrewFleet, Member
from streamgauge.fleet.split import Capacity
from streamgauge.model.messages import Info
from streamgauge.vocabulary.choices import OnLoss, Topology
from streamgauge.vocabulary.errors import FleetFailure, WorkerLost, WorkerRefused
from streamgauge.vocabulary.gauge_binary import find_gauge, ready_address
from streamgauge.vocabulary.waiting import wait_until

READY_WITHIN_S = 10.0
READY_PER_WORKER_S = 0.5
STOP_GRACE_S = 3.0
POLL_S = 0.01
TOKEN_BYTES = 32
API_VERSION = 1
CREW = "crew"
"""What several workers are called where there is room for one name."""


@dataclass
class _Child:
    """A worker process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    token: str = field(repr=False)
    client: WorkerClient | None = None

    def failure(self) -> str | None:
        """How it ended, when it did."""
        if self.process.poll() is None:
            return None
        status = self.process.returncode
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        said = last_lines(self.log, 1) if status > 0 else ""
        return f"the worker {how}" + (f": {said}" if said else "")


def check_version(info: Info, what: str) -> None:
    """Raises FleetFailure when a worker speaks another version of the API."""
    if info.api != API_VERSION:
        raise FleetFailure(
            f"{what} speaks version {info.api} of the worker API, expected {API_VERSION}: "
            "streamgauge and gauge are from different versions, install both anew"
        )


class LocalFleet(CrewFleet):
    """Workers that are children of the lab and die with it: one, or several that share the load."""

    def __init__(
        self,
        gauge: Path | None = None,
        *,
        count: int = 1,
        topology: Topology = "same",
        on_loss: OnLoss = "end",
    ) -> None:
        super().__init__()
        self._gauge = gauge
        self._count = count
        self._topology: Topology = topology
        self._on_loss: OnLoss = on_loss
        self._children: list[_Child] = []

    def start(self, log_directory: Path) -> Worker:
        """Starts `gauge worker` on free loopback ports."""
        self.stop()
        gauge = self._gauge or find_gauge()
        log_directory.mkdir(parents=True, exist_ok=True)
        try:
            for number in range(self._count):
                name = "worker" if self._count == 1 else f"worker-{number}"
                self._launch(gauge, f"worker-{number}", log_directory / f"{name}.log")
            deadline = time.monotonic() + READY_WITHIN_S + READY_PER_WORKER_S * self._count
            infos = [self._reach(child, deadline) for child in self._children]
            for info in infos:
                check_version(info, str(gauge))
        except (WorkerLost, WorkerRefused) as error:
            self.stop(at_once=True)
            raise FleetFailure(f"the worker did not come up: {error}") from None
        except BaseException:
            self.stop(at_once=True)
            raise
        if self._count == 1:
            only = self._children[0]
            assert only.client is not None
            return Worker(name=only.name, client=only.client, pid=only.process.pid)
        members = []
        for child in self._children:
            assert child.client is not None
            # They share this machine's cores, so they are alike.
            capacity = Capacity(child.name, 1.0, frozenset({"producers", "consumers"}))
            members.append(Member(capacity, child.client))
        self._crew = Crew(members, self._topology, self._on_loss)
        pids = {child.name: child.process.pid for child in self._children}
        return Worker(name=CREW, client=self._crew, pid=None, pids=pids, lab_clock=True)

    def _launch(self, gauge: Path, name: str, log: Path) -> None:
        # Other users of the machine reach loopback as well: the worker answers to nobody but this lab.
        token = secrets.token_hex(TOKEN_BYTES)
        command = [str(gauge), "worker", "--listen", "127.0.0.1:0", "--token-file", "/dev/stdin"]
        try:
            process = start_child(command, log, secret=token)
        except OSError as error:
            raise FleetFailure(f"{gauge} could not be started: {error.strerror}") from None
        self._children.append(_Child(name, process, log, token))

    def _reach(self, child: _Child, deadline: float) -> Info:
        child.client = WorkerClient(self._await_address(child, deadline), token=child.token)
        return child.client.info()

    def _await_address(self, child: _Child, deadline: float) -> str:
        """Waits for the line `ready HOST:PORT`."""
        address: str | None = None

        def missing() -> str | None:
            nonlocal address
            address = ready_address(child.log)
            if address is not None:
                return None
            if child.process.poll() is not None:
                said = last_lines(child.log) or "it said nothing"
                raise FleetFailure(f"the worker ended with status {child.process.returncode}: {said}")
            return "the worker to be ready"

        late = wait_until(missing, max(deadline - time.monotonic(), 0.0), POLL_S)
        if late is not None:
            raise FleetFailure(f"{late} (log: {child.log})")
        assert address is not None, "the wait above ends when there is one"
        return address

    def failure(self) -> str | None:
        """How a child ended, when one did whose end is the trial's."""
        if not self._children:
            return "the worker was stopped"
        if self._crew is None:
            return self._children[0].failure()
        try:
            self._crew.check()
            for child, member in zip(self._children, self._crew.members, strict=True):
                reason = None if member.lost is not None else child.failure()
                if reason is not None:
                    self._crew.lose(member, reason)
        except WorkerLost as error:
            return str(error)
        return None

    def stop(self, *, at_once: bool = False) -> None:
        """Closes the connections and stops the children."""
        self._leave()
        for child in self._children:
            if child.client is not None:
                with contextlib.suppress(Exception):
                    child.client.close()
        for child in self._children:
            # All are asked before the first is waited for.
            if not at_once and child.process.poll() is None:
                child.process.terminate()
        for child in self._children:
            stop_child(child.process, 0.0 if at_once else STOP_GRACE_S)
        self._children = []
