"""A system that is kept between trials: started by the first trial of a block, stopped by whoever keeps it.

To a trial it is a system like any other, except that stopping and wiping do nothing: the next trial finds it as this
one left it, and works on topics of its own. One that has failed is not kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from streamgauge.model.system_kind import check_security
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base import (
    Describe,
    Progress,
    ReadBack,
    RunningSystem,
    System,
    SystemProcess,
    TopicPlan,
)
from streamgauge.systems.parts import Part
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.files import rescue_logs
from streamgauge.vocabulary.levels import Level


class KeptRunning(RunningSystem):
    """A running system as a trial sees it."""

    kept = True

    def __init__(self, running: RunningSystem) -> None:
        self._running = running
        self.name, self.version = running.name, running.version
        self.nodes, self.attached = running.nodes, running.attached
        self.level: Level | None = running.level
        object.__setattr__(self, "knows_leaders", running.knows_leaders)

    @property
    def connection(self) -> dict[str, Any]:
        """See RunningSystem."""
        return self._running.connection

    @property
    def acks(self) -> Literal["all", "leader", "none"]:
        """See RunningSystem."""
        return self._running.acks

    def topic_plan(self) -> TopicPlan:
        """See RunningSystem."""
        return self._running.topic_plan()

    def processes(self) -> list[SystemProcess]:
        """See RunningSystem."""
        return self._running.processes()

    def failure(self) -> str | None:
        """See RunningSystem."""
        return self._running.failure()

    def goes_on(self) -> bool:
        """See RunningSystem."""
        return self._running.goes_on()

    def parts(self) -> Sequence[Part]:
        """See RunningSystem."""
        return self._running.parts()

    def leader(self, topic: str) -> str | None:
        """See RunningSystem."""
        return self._running.leader(topic)

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        """See RunningSystem."""
        return self._running.read_back(describe, topics)

    def metrics(self) -> Mapping[str, float]:
        """See RunningSystem."""
        return self._running.metrics()

    def configuration(self) -> dict[str, Any]:
        """See RunningSystem."""
        return self._running.configuration()

    def collect_logs(self, into: Path) -> None:
        """See RunningSystem. The logs since the block began."""
        self._running.collect_logs(into)

    def stop(self) -> None:
        """Nothing: the next trial goes on with it."""

    def wipe(self) -> None:
        """Nothing: its data are removed with the block."""


class KeptSystem(System):
    """A system with at most one instance, which lives in `directory` from the first `start` to `end`."""

    def __init__(self, system: System, directory: Path) -> None:
        self._system = system
        self._directory = directory
        self._running: RunningSystem | None = None
        # These are the system's own; ClassVars of the base are shadowed by the instance's.
        taken_over = (
            "name",
            "title",
            "protocol",
            "default_version",
            "option_keys",
            "placed",
            "encrypts",
            "mechanisms",
        )
        for attribute in taken_over:
            object.__setattr__(self, attribute, getattr(system, attribute))

    def check(self, request: SystemRequest) -> None:
        """See System."""
        self._system.check(request)

    def untrusted(self, request: SystemRequest) -> Iterator[Untrusted]:
        """See System."""
        return self._system.untrusted(request)

    def installed(self, version: str | None = None) -> str | None:
        """See System."""
        return self._system.installed(version)

    def missing(self) -> str | None:
        """See System."""
        return self._system.missing()

    def install(self, version: str | None, progress: Progress) -> None:
        """See System."""
        self._system.install(version, progress)

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        """The instance that runs, or a new one. A trial's `directory` stays empty."""
        if self._running is not None and self._running.failure() is not None:
            self.end()
        if self._running is None:
            require(self._system, request)
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._running = self._system.start(request, self._directory, progress)
            except BaseException:
                # The trial keeps what it finds of logs in its own directory.
                rescue_logs(self._directory, directory)
                self.end()
                raise
        else:
            progress(f"{self._system.title} runs already")
        return KeptRunning(self._running)

    def attach(self, request: SystemRequest) -> RunningSystem:
        """See System."""
        return self._system.attach(request)

    def end(self) -> None:
        """Stops the instance and removes its data. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()
            running.wipe()
        shutil.rmtree(self._directory, ignore_errors=True)


class CheckedSystem(KeptSystem):
    """A system that is started for each trial, and checked then: what cannot run here fails that trial."""

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        """See System."""
        require(self._system, request)
        return self._system.start(request, directory, progress)


def require(system: System, request: SystemRequest) -> None:
    """Raises SystemFailure or SystemInputError when the system cannot run on this machine."""
    missing = system.missing()
    if missing:
        raise SystemFailure(f"{system.title} cannot run here: {missing}")
    check_security(system, request)
    system.check(request)
