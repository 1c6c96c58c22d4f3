"""Agents on the machines of a cluster that runs already (`gauge agent`, docs/causes.md): the lab reaches them as it reaches workers.

They are named by a file of hosts, as workers are (fleet/hosts.py: token, fingerprint or authority), or by addresses on loopback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.fleet import trust
from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.hosts import Host, ahead_ns, encryption_of, is_loopback, read_hosts, token_of
from streamgauge.fleet.local import check_version
from streamgauge.model.messages import HostSample
from streamgauge.model.result_hosts import ProbedDisk
from streamgauge.vocabulary.errors import FleetFailure, InputError, WorkerLost, WorkerRefused

SAMPLE_WITHIN_S = 0.8
PROBE_WITHIN_S = 60.0
PROBE_DISKS_MAX = 16
PROBE_FSYNC_S_MAX = 600.0
SLOWEST_BYTES_PER_S = 20e6
"""As the agent has it: a disk that is slower than that is given up."""


@dataclass(frozen=True)
class Agent:
    """An agent that answered."""

    name: str
    cores: int
    client: WorkerClient
    ahead_ns: int
    """How far its CLOCK_MONOTONIC is ahead of the lab's."""
    ports: tuple[int, ...]

    def sample(self) -> HostSample:
        """A moment of its machine. Raises WorkerLost or WorkerRefused."""
        return self.client.host(self.ports, SAMPLE_WITHIN_S)

    def probe(self) -> dict[str, Any] | None:
        """What its machine can do; None where the agent may not try (no --probe-dir)."""
        try:
            return self.client.probe_host(PROBE_WITHIN_S)
        except (WorkerLost, WorkerRefused):
            return None

    def probe_disks(self, write_bytes: int | None, fsync_s: int | None) -> list[ProbedDisk]:
        """Each of its disks. Raises FleetFailure when it may not be tried, or fails."""
        # How many there are the agent knows.
        of_disk_s = PROBE_WITHIN_S + (write_bytes or 0) / SLOWEST_BYTES_PER_S + (fsync_s or 0)
        try:
            found = self.client.probe_host(PROBE_DISKS_MAX * of_disk_s, write_bytes, fsync_s)
            return [
                ProbedDisk(
                    host=self.name,
                    dir=str(disk["dir"]),
                    write_mb_s=disk["write_mb_s"],
                    written_bytes=disk["written_bytes"],
                    read_mb_s=disk["read_mb_s"],
                    is_direct=disk["o_direct"],
                    fsync_ms_p50=disk["fsync_ms"]["p50"],
                    fsync_ms_p99=disk["fsync_ms"]["p99"],
                    fsync_ms_p99_9=disk["fsync_ms"]["p99_9"],
                    fsync_ms_max=disk["fsync_ms"]["max"],
                    fsyncs=disk["fsync_ms"]["count"],
                    fsync_ms_p99_by_second=disk["fsync_p99_ms_by_second"],
                    started_unix_ms=found["started_unix_ms"],
                )
                for disk in found["disks"]
            ]
        except (WorkerLost, WorkerRefused) as error:
            raise FleetFailure(f"agent {self.name}: its disks could not be probed: {error}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise FleetFailure(
                f"agent {self.name}: its probe has no figures that can be read: {error}"
            ) from None


def read_agents(texts: Sequence[str]) -> list[Host]:
    """The hosts that are meant: `HOST:PORT` on loopback, or the path of a file of hosts. Raises InputError."""
    found: list[Host] = []
    for text in texts:
        if text.endswith((".yaml", ".yml", ".json")):
            found += read_hosts(Path(text)).hosts
            continue
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InputError(f"agents: '{text}': expected HOST:PORT, or a file of hosts (docs/fleet.md)")
        if not is_loopback(host):
            raise InputError(
                f"agents: '{text}' is another machine: expected a file of hosts with token_file and fingerprint (docs/fleet.md); "
                "'gauge worker --make-identity DIR' makes them there"
            )
        found.append(Host(text, host, int(port), frozenset(), None, {}, None, None, None))
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"agents: two are called '{name}': give each a name of its own")
    return found


def reach(hosts: Sequence[Host], ports: Sequence[int]) -> list[Agent]:
    """Asks every agent who it is and what its clock says. Raises FleetFailure."""
    found: list[Agent] = []
    try:
        for host in hosts:
            client: WorkerClient | None = None
            try:
                client = WorkerClient(host.address, token=token_of(host), encryption=encryption_of(host))
                info = client.info()
                check_version(info, f"the agent {host.name} ({host.address})")
                client.host((), SAMPLE_WITHIN_S * 5)
                found.append(Agent(host.name, info.cores, client, ahead_ns(client), tuple(ports)))
            except (trust.NotTrusted, WorkerLost, WorkerRefused, FleetFailure) as error:
                if client is not None:
                    client.close()
                raise FleetFailure(f"agent {host.name}: {error}") from None
    except BaseException:
        for agent in found:
            agent.client.close()
        raise
    return found
