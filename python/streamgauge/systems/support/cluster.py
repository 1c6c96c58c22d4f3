"""What clusters have in common that the lab starts as child processes: how they are started, and how they end.

Each process runs in a directory of its own below the cluster's, with its logs in `logs` and what is wiped beside them.
"""

from __future__ import annotations

import abc
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from streamgauge.model.security import Security
from streamgauge.model.system_request import Placement, Volume
from streamgauge.systems.base import Progress, RunningSystem, SystemProcess
from streamgauge.systems.support import processes
from streamgauge.systems.support.certificates import Certificates, forget, security_of
from streamgauge.systems.support.network import ON_LOOPBACK
from streamgauge.systems.support.processes import ManagedProcess
from streamgauge.vocabulary.errors import SystemFailure

Running = TypeVar("Running", bound=RunningSystem)
ATTEMPTS = 3
"""Starts with fresh ports when another program has taken one between choosing and binding."""
PORT_TAKEN = re.compile(r"\bin use\b|eaddrinuse|BindException", re.IGNORECASE)
"""How Java, Go and Erlang say that somebody else listens on a port."""


@dataclass(frozen=True, kw_only=True)
class ClusterLaunch:
    """What is decided of every cluster before its first process runs."""

    version: str
    nodes: int
    directory: Path
    volume: Volume | None = None
    placement: Placement = ON_LOOPBACK
    tls: bool = False
    guarded: bool = False
    has_metrics: bool = True

    def home(self, node: int) -> Path:
        """The directory of a node (1, 2, ...)."""
        return self.directory / f"node-{node}"

    def all_nodes(self) -> range:
        """The nodes' numbers."""
        return range(1, self.nodes + 1)


def fresh_directory(directory: Path, system: str) -> None:
    """Makes the directory of a cluster, which only its owner can read. Raises SystemFailure for one in which something is."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        occupied = any(directory.iterdir())
    except OSError as error:
        raise SystemFailure(f"cannot use {directory} for {system}'s data: {error}") from error
    if occupied:
        raise SystemFailure(f"{directory} is not empty; {system} is started on fresh data only")


def start_in_attempts(
    start_once: Callable[[], Running], directory: Path, chosen_ports: Sequence[int], progress: Progress
) -> Running:
    """Starts a cluster until no port is lost to another program, each time with fresh ports in an empty directory. Ports that a
    user has chosen are tried once. Raises what `start_once` raises, which leaves nothing running then.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return start_once()
        except SystemFailure as failure:
            if chosen_ports or not PORT_TAKEN.search(str(failure)):
                raise
            progress(f"{failure}; trying other ports")
            for entry in directory.iterdir():
                shutil.rmtree(entry, ignore_errors=True)
    return start_once()


@dataclass(kw_only=True)
class StartedCluster(RunningSystem):
    """A cluster that the lab has started."""

    launch: ClusterLaunch = field(repr=False)
    started: Sequence[ManagedProcess]
    """In the order of their start."""
    certificates: Certificates | None = field(default=None, repr=False)
    """With TLS."""

    wiped: ClassVar[Sequence[str]] = ("data",)
    """What of a process's directory goes with the data."""

    def __post_init__(self) -> None:
        self.version = self.launch.version
        self.nodes = self.launch.nodes
        self.attached = False
        self._stopped = False

    @property
    def security(self) -> Security | None:
        """How clients reach the nodes."""
        return security_of(self.certificates)

    @property
    def serving(self) -> Sequence[ManagedProcess]:
        """The nodes, in their order: those of `started` without what they stand on."""
        return self.started

    @abc.abstractmethod
    def explain(self, process: ManagedProcess) -> str:
        """Why a process ended, from its log."""

    def homes(self) -> Sequence[Path]:
        """The directories of the processes."""
        return [self.launch.home(node) for node in self.launch.all_nodes()]

    def processes(self) -> list[SystemProcess]:
        return [
            SystemProcess(f"node-{node}", process.pid) for node, process in enumerate(self.serving, start=1)
        ]

    def failure(self) -> str | None:
        return None if self._stopped else processes.first_failure(self.serving, self.explain)

    def goes_on(self) -> bool:
        return processes.most_run(self.serving)

    def collect_logs(self, into: Path) -> None:
        for home in self.homes():
            for log in sorted((home / "logs").glob("*")):
                if log.is_file() and log.stat().st_size > 0:
                    processes.copy_tail(log, into / home.name / log.name)

    def stop(self) -> None:
        self._stopped = True
        processes.stop(self.started)

    def discard(self) -> None:
        self._stopped = True
        processes.kill(self.started)
        self.wipe()

    def wipe(self) -> None:
        self.stop()  # Data that is in use cannot be wiped.
        for home in self.homes():
            for name in self.wiped:
                shutil.rmtree(home / name, ignore_errors=True)
        forget(self.certificates)
