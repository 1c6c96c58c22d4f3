"""What the suite tries a system on: one that runs, for most checks, and one of a lab that will be killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from streamgauge.conformance.listeners import Listeners
from streamgauge.conformance.load import Gauge
from streamgauge.model.feature import Feature
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem, System
from streamgauge.systems.base.parts import Part, stages
from streamgauge.systems.support import powercut
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.levels import Level
from streamgauge.vocabulary.waiting import wait_until

ELSEWHERE = "127.0.0.2"
"""Treated as an address that others reach."""
SERVES_WITHIN_S = 120.0
POLL_S = 0.05

LAB = """
import json, sys, time
from pathlib import Path
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.registry import systems
from streamgauge.systems.support.network import OnAddress
name, directory, wanted = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
placement = OnAddress(wanted.pop("at")) if wanted["at"] else wanted.pop("at")
running = systems()[name].start(SystemRequest(placement=placement, **wanted), directory, lambda line: print(line, file=sys.stderr))
told = {"connection": running.connection, "pids": [process.pid for process in running.processes()], "acks": running.acks}
plan = running.topic_plan()
told["plan"] = [plan.replication_factor, dict(plan.configs)]
told["configuration"] = running.configuration()
running.collect_logs(directory.with_name("other-logs"))
print(json.dumps(told, default=str), flush=True)
time.sleep(3600)
"""


class OtherLab:
    """A lab in a process of its own that keeps a system, so that it can be killed."""

    def __init__(self, name: str, directory: Path, wanted: Mapping[str, Any]) -> None:
        self.directory = directory
        """The system's own."""
        self.logs = directory.with_name("other-logs")
        """What it kept when the system had started."""
        self._log = directory.with_suffix(".log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LAB, name, str(directory), json.dumps(wanted)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.kill()
            raise SystemFailure(
                f"the system did not start: {self._log.read_text('utf-8', 'replace')[-2000:]}"
            )
        self.told: dict[str, Any] = json.loads(line)

    def kill(self) -> None:
        """SIGKILL: it can end nothing any more. Idempotent."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Bench:
    """Everything is started when it is asked for first."""

    def __init__(self, system: System, options: Mapping[str, Any]) -> None:
        self.system = system
        self.options = dict(options)
        self.directory = Path(tempfile.mkdtemp(prefix=f"streamgauge-{system.name}-"))
        self._stack = ExitStack()
        self._gauge: Gauge | None = None
        self._running: RunningSystem | None = None
        self._nodes: RunningSystem | None = None
        self._disks: powercut.Disks | None = None
        self._other: OtherLab | None = None
        self._failure: Exception | None = None
        self._starts = 0
        self.listeners: dict[str, Listeners] = {}
        """Where they listened while they started: "running", "nodes", "other"."""

    @property
    def gauge(self) -> Gauge:
        """A worker."""
        if self._gauge is None:
            self._gauge = self._stack.enter_context(Gauge(self.directory / "worker"))
        return self._gauge

    @property
    def level(self) -> Level:
        """The strongest level of one node: L3 where there is one."""
        return min(self.system.levels)

    @property
    def running(self) -> RunningSystem:
        """One node at its strongest level, on disks that can lose power where this machine can have such."""
        if self._failure is not None:
            raise self._failure
        if self._running is None:
            self._starts += 1
            volume = None
            if powercut.missing() is None and self.system.can(Feature.POWER_CUT):
                self._disks = powercut.open_disks(find_gauge(), self.directory / f"disks-{self._starts}")
                volume = self._disks.provide
            request = SystemRequest(level=self.level, options=self.options, volume=volume)
            try:
                with self._watched("running"):
                    self._running = self.system.start(request, self.home, print)
            except Exception as failure:
                self._failure = failure
                raise
        return self._running

    @property
    def home(self) -> Path:
        """The directory of the system that runs."""
        return self.directory / f"running-{self._starts}"

    @property
    def disks(self) -> powercut.Disks | None:
        """Those of `running`; None where there are none."""
        return self._disks

    def end_running(self) -> None:
        """Stops it and removes its data; the next check that asks for it has another. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()
            running.wipe()
        disks, self._disks = self._disks, None
        if disks is not None:
            disks.stop()

    @property
    def three_nodes(self) -> RunningSystem:
        """Three nodes at their strongest level."""
        if self._nodes is None:
            request = SystemRequest(nodes=3, level=min(self.system.levels_of_nodes), options=self.options)
            self.system.check(request)
            with self._watched("nodes"):
                self._nodes = self.system.start(request, self.directory / "nodes", print)
        return self._nodes

    def end_three_nodes(self) -> None:
        """Stops them and removes their data. Idempotent."""
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            nodes.stop()
            nodes.wipe()

    @property
    def other_lab(self) -> OtherLab:
        """Another lab, with the system as far from a plain one as it can be: elsewhere, over TLS, with credentials."""
        if self._other is None:
            wanted = {
                "options": self.options,
                "tls": self.system.can(Feature.TLS),
                "guarded": self.system.can(Feature.TLS) and self.system.can(Feature.CREDENTIALS),
                "at": ELSEWHERE if self.system.can(Feature.PLACES) else None,
            }
            with self._watched("other"):
                self._other = OtherLab(self.system.name, self.directory / "other", wanted)
        return self._other

    def _watched(self, which: str) -> Listeners:
        self.listeners[which] = Listeners()
        return self.listeners[which]

    def close(self) -> None:
        """Ends everything and removes its files."""
        if self._other is not None:
            self._other.kill()
        self.end_running()
        self.end_three_nodes()
        self._stack.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def bring_up(parts: Sequence[Part]) -> None:
    """Starts parts again, each kind when the one before it serves. Raises SystemFailure."""
    for stage in stages(parts):
        for part in stage:
            part.restart()
        for part in stage:
            late = wait_until(part.waits_for, SERVES_WITHIN_S, POLL_S)
            if late is not None:
                ended = "" if part.process.running() else ", and its process has ended"
                raise SystemFailure(f"{part.name} does not serve again: {late}{ended}")
