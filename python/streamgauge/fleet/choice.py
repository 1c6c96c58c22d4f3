"""Where a run's workers are: what was asked for on the command line, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from streamgauge.fleet.base import Fleet
from streamgauge.fleet.crew import OnLoss
from streamgauge.fleet.hosts import Hosts, HostsFleet, read_hosts
from streamgauge.fleet.local import LocalFleet
from streamgauge.fleet.split import Topology
from streamgauge.model.errors import InputError, nearest

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True)
class FleetChoice:
    """One worker on this machine, unless something else is asked for."""

    hosts: Hosts | None = None
    workers: int = 1
    topology: Topology = "same"
    on_loss: OnLoss = "end"

    def make(self, gauge: Path | None) -> Fleet:
        """The fleet; nothing is started yet."""
        if self.hosts is not None:
            return HostsFleet(self.hosts, topology=self.topology, on_loss=self.on_loss)
        return LocalFleet(gauge, count=self.workers, topology=self.topology, on_loss=self.on_loss)


THIS_MACHINE = FleetChoice()


def choose_fleet(hosts: Path | None, workers: int | None, topology: str, on_loss: str) -> FleetChoice:
    """Raises InputError with what was expected."""
    topologies: tuple[Topology, ...] = ("same", "split", "swarm")
    chosen_topology = _one_of("--topology", topology, topologies)
    endings: tuple[OnLoss, ...] = ("end", "go-on")
    chosen_on_loss = _one_of("--on-worker-loss", on_loss, endings)
    listed = None
    if hosts is not None:
        listed = read_hosts(hosts)
        if workers is not None:
            listed = listed.first(workers)
        listed.check(chosen_topology)
    count = workers or 1
    if listed is None and chosen_topology == "split" and count < 2:
        raise InputError("--topology split needs --workers 2 or more: one for producers, one for consumers")
    return FleetChoice(listed, count, chosen_topology, chosen_on_loss)


def _one_of(option: str, value: str, known: tuple[Choice, ...]) -> Choice:
    for one in known:
        if one == value:
            return one
    raise InputError(f"{option} {value}: expected {' or '.join(known)}{nearest(value, known)}")
