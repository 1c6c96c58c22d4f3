"""What a run asks of a system under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from streamgauge.model.security import Security
from streamgauge.vocabulary.levels import Level

Volume = Callable[[str, Path], None]
"""Makes a part's data directory (part's name, path) on a storage of its own, before anything writes there."""


class Placement(Protocol):
    """Where the nodes of a system are: their addresses, and how a process is started there (network.py)."""

    @property
    def shared_host(self) -> str:
        """The address for a process that is of no node, which nodes and the lab reach."""

    def host(self, node: int) -> str:
        """The address of a node (1, 2, ...) for clients: workers and the lab."""

    def inside(self, node: int) -> str:
        """The address of a node for its peers and the lab: what no worker has to reach listens there."""

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command as it is started on a node."""


@dataclass(frozen=True)
class SystemRequest:
    """What a run asks of a system."""

    version: str | None = None
    """Version after `@` on the command line or from a system file; None is the module's default."""
    nodes: int = 1
    level: Level | None = None
    """Durability level asked for; None is the system's own default for this number of nodes."""
    connect: tuple[str, ...] = ()
    """host:port addresses of a cluster that already runs; empty: start one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the system file (heap, JVM flags, broker and topic settings); validated by the module."""
    source: str | None = None
    """The system file's path, for error messages; None when given on the command line."""
    volume: Volume | None = None
    """Set by experiments on storage; None: data directories are plain directories."""
    placement: Placement | None = None
    """Set by experiments on the network, where `System.placed` allows; None: all nodes are on loopback."""
    tls: bool = False
    """Whether a system that is started takes clients over TLS alone, where `System.encrypts` allows."""
    guarded: bool = False
    """Whether clients must log in besides, with credentials that are made for the start (`tls` only)."""
    security: Security | None = None
    """How clients reach a cluster that already runs (`connect`); None: in plain text, without credentials."""
    has_metrics: bool = True
    """Whether the system's own metrics are to be had, where it is started (key `metrics: false` says no)."""
    metrics_every_second: bool = False
    """Whether they are read every second, whatever that costs the system."""
    metrics: tuple[str, ...] = ()
    """Where a cluster that already runs tells its own metrics: URLs."""
    agents: tuple[str, ...] = ()
    """Agents on the machines of a cluster that already runs: addresses on loopback, or files of hosts."""
    trusted: bool = False
    """Whether the user trusts whoever wrote the options (`--trust-file`): they may then run code."""


def where_of(request: SystemRequest) -> str:
    """How a message about the request begins: with the system file, if there is one."""
    return f"{request.source}: " if request.source else ""


def is_encrypted(request: SystemRequest) -> bool:
    """Whether clients speak TLS with the system."""
    return request.tls or (request.security is not None and request.security.tls is not None)


def mechanism_of(request: SystemRequest) -> str | None:
    """How clients authenticate, where a system file's `security` says it."""
    auth = request.security.auth if request.security is not None else None
    return auth.mechanism if auth is not None else None
