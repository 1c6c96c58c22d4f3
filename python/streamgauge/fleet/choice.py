"""Where a run's workers are: what was asked for on the command line, checked.

`--fleet` names a hosts file, or `kubernetes` (settings in kubernetes.yaml) or `kubernetes:FILE`, or lists workers of the OpenMessaging
Benchmark: `omb:URL,URL`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from streamgauge.fleet.base import Fleet
from streamgauge.fleet.hosts import Hosts, HostsFleet, read_hosts
from streamgauge.fleet.kubernetes.api import Cluster
from streamgauge.fleet.kubernetes.placed import KubernetesFleet
from streamgauge.fleet.kubernetes.settings import KubernetesSettings, read_settings
from streamgauge.fleet.local import LocalFleet
from streamgauge.fleet.omb.addresses import OmbWorkers, read_addresses
from streamgauge.fleet.omb.placed import OmbFleet
from streamgauge.vocabulary.choices import ON_LOSS, TOPOLOGIES, OnLoss, Topology
from streamgauge.vocabulary.errors import InputError, nearest

Choice = TypeVar("Choice", bound=str)

KUBERNETES = "kubernetes"


@dataclass(frozen=True)
class FleetChoice:
    """One worker on this machine, unless something else is asked for."""

    hosts: Hosts | None = None
    kubernetes: KubernetesSettings | None = None
    workers: int = 1
    topology: Topology = "same"
    on_loss: OnLoss = "end"
    omb: OmbWorkers | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether workers run, or may run, on other machines."""
        return self.hosts is not None or self.kubernetes is not None or self.omb is not None

    def make(self, gauge: Path | None) -> Fleet:
        """The fleet; nothing is started yet."""
        if self.hosts is not None:
            return HostsFleet(self.hosts, topology=self.topology, on_loss=self.on_loss)
        if self.kubernetes is not None:
            # Imported when it is needed: nobody else starts slower for it.

            return KubernetesFleet(self.kubernetes, gauge=gauge, topology=self.topology, on_loss=self.on_loss)
        if self.omb is not None:
            # Imported when it is needed, as above.

            return OmbFleet(self.omb, gauge)
        return LocalFleet(gauge, count=self.workers, topology=self.topology, on_loss=self.on_loss)


THIS_MACHINE = FleetChoice()


def choose_fleet(fleet: str | None, workers: int | None, topology: str, on_loss: str) -> FleetChoice:
    """Raises InputError with what was expected."""
    chosen_topology = _one_of("--topology", topology, TOPOLOGIES)
    chosen_on_loss = _one_of("--on-worker-loss", on_loss, ON_LOSS)
    listed = None
    if fleet is not None:
        theirs = read_addresses(fleet)
        if theirs is not None:
            return _of_omb(theirs, workers, chosen_topology, chosen_on_loss)
        settings = in_kubernetes(fleet, workers)
        if settings is not None:
            alone = settings.workers == 1 or (settings.workers is None and settings.written.release is None)
            if chosen_topology == "split" and alone:
                raise InputError(
                    "--topology split needs two workers or more (--workers, or workers in the file)"
                )
            return FleetChoice(None, settings, settings.workers or 1, chosen_topology, chosen_on_loss)
        listed = read_hosts(Path(fleet))
        if workers is not None:
            listed = listed.first(workers)
        listed.check(chosen_topology)
    count = workers or 1
    if listed is None and chosen_topology == "split" and count < 2:
        raise InputError("--topology split needs --workers 2 or more: one for producers, one for consumers")
    return FleetChoice(listed, None, count, chosen_topology, chosen_on_loss)


def _of_omb(theirs: OmbWorkers, workers: int | None, topology: Topology, on_loss: OnLoss) -> FleetChoice:
    """Raises InputError for what is OMB's own way."""
    if topology != "same":
        raise InputError(
            f"--topology {topology}: of OMB's workers the first half produces and the others consume (one does both): leave it out"
        )
    if on_loss != "end":
        raise InputError(
            "--on-worker-loss go-on: the consumers and counters of one of OMB's workers cannot be taken over by another: leave it out"
        )
    chosen = theirs if workers is None else theirs.first(workers)
    return FleetChoice(workers=len(chosen.urls), omb=chosen)


def in_kubernetes(fleet: str, workers: int | None = None) -> KubernetesSettings | None:
    """The settings where `--fleet` means a cluster; None where it names a hosts file. Raises InputError."""
    word, colon, file = fleet.partition(":")
    if word != KUBERNETES:
        return None
    if colon and not file:
        raise InputError(f"--fleet {fleet}: expected a file behind the colon, as in kubernetes:FILE")
    settings = read_settings(Path(file) if file else None, workers)
    # Without the client, or a cluster to ask, nothing can come of it, and that is said before anything is started.
    Cluster(settings.written.context, settings.written.namespace)
    return settings


def _one_of(option: str, value: str, known: tuple[Choice, ...]) -> Choice:
    for one in known:
        if one == value:
            return one
    raise InputError(f"{option} {value}: expected {' or '.join(known)}{nearest(value, known)}")
