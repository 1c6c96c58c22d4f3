"""Workers on machines of a list (docs/fleet.md): `gauge worker` runs there already, the lab only reaches them.

```yaml
token_file: secrets/token           # for all hosts; a host may have its own
hosts:
  - name: load-1
    address: 10.0.0.11:7400
    fingerprint: sha256:...         # or ca: authority.pem
    roles: producers                # producers, consumers, both (default)
    weight: 8                       # default: its cores
    labels: {rack: a}
```
"""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from streamgauge.fleet import trust
from streamgauge.fleet.base import Worker
from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.crew import Crew, CrewFleet, Member
from streamgauge.fleet.local import CREW, check_version
from streamgauge.fleet.split import Capacity, Role
from streamgauge.model.document import Document, FileModel, read_document
from streamgauge.vocabulary.choices import OnLoss, Topology
from streamgauge.vocabulary.errors import FleetFailure, InputError, Problem, WorkerLost, WorkerRefused
from streamgauge.vocabulary.format import plural

CLOCK_READINGS = 20
"""The reading with the shortest round trip tells how far a worker's clock is ahead."""
HOSTS_MAX = 64


class HostEntry(FileModel):
    """One host as written."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    address: str
    roles: Literal["producers", "consumers", "both"] = "both"
    weight: Annotated[float, Field(gt=0)] | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    token_file: str | None = None
    fingerprint: Annotated[str, Field(pattern=trust.FINGERPRINT.pattern)] | None = None
    ca: str | None = None


class HostsFile(FileModel):
    """The file as written."""

    token_file: str | None = None
    hosts: list[HostEntry]


@dataclass(frozen=True)
class Host:
    """A host, looked at."""

    name: str
    host: str
    port: int
    roles: frozenset[Role]
    weight: float | None
    labels: dict[str, str]
    token_file: Path | None
    fingerprint: str | None
    ca: Path | None

    @property
    def address(self) -> str:
        """As in URLs."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Hosts:
    """The hosts of a file."""

    file: str
    hosts: tuple[Host, ...]

    def first(self, count: int) -> Hosts:
        """The first `count` of them. Raises InputError when there are fewer."""
        if count > len(self.hosts):
            raise InputError(f"--workers {count}: {self.file} lists {plural(len(self.hosts), 'host')}")
        return replace(self, hosts=self.hosts[:count])

    def check(self, topology: Topology) -> None:
        """Raises InputError when nobody would send or receive."""
        for role in ("producers", "consumers"):
            if not any(role in host.roles for host in self.hosts):
                raise InputError(Problem(f"no host has the role {role} or both", self.file))
        if topology == "swarm" and any(len(host.roles) < 2 for host in self.hosts):
            raise InputError(
                Problem(
                    "--topology swarm needs hosts with the role both: each reads what it sends", self.file
                )
            )
        if topology == "split" and len(self.hosts) < 2:
            raise InputError(Problem("--topology split needs two hosts or more", self.file))


def read_hosts(path: Path) -> Hosts:
    """Reads a hosts file; paths in it are relative to it. Raises InputError with every problem and its line."""
    document = read_document(path)
    written = document.validate(HostsFile)
    problems: list[Problem] = []
    if not 1 <= len(written.hosts) <= HOSTS_MAX:
        problems.append(document.problem(f"hosts: expected 1 to {HOSTS_MAX}", ("hosts",)))
    if written.token_file is not None and not (path.parent / written.token_file).is_file():
        text = f"token_file: no such file: {path.parent / written.token_file}"
        problems.append(document.problem(text, ("token_file",)))
    hosts: list[Host] = []
    for at, entry in enumerate(written.hosts):
        if any(other.name == entry.name for other in written.hosts[:at]):
            text = f"two hosts are called '{entry.name}': give each a name of its own"
            problems.append(document.problem(text, ("hosts", at, "name")))
        token = entry.token_file or written.token_file
        found = _host(document, at, entry, path.parent, token, problems)
        if found is not None:
            hosts.append(found)
    if problems:
        raise InputError(problems)
    return Hosts(str(path), tuple(hosts))


def _host(
    document: Document,
    at: int,
    entry: HostEntry,
    base: Path,
    token_file: str | None,
    problems: list[Problem],
) -> Host | None:
    def problem(text: str, key: str) -> None:
        problems.append(document.problem(text, ("hosts", at, key)))

    before = len(problems)
    host, _, port = entry.address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        problem(f"address: expected HOST:PORT, found '{entry.address}'", "address")
    if entry.fingerprint is not None and entry.ca is not None:
        problem("ca: expected fingerprint or ca, not both", "ca")
    encrypted = entry.fingerprint is not None or entry.ca is not None
    if not is_loopback(host) and not (encrypted and token_file):
        problem(
            f"'{entry.address}' is another machine: expected token_file and fingerprint (or ca); "
            "'gauge worker --make-identity DIR' makes them there",
            "address",
        )
    for key, file in (("token_file", entry.token_file), ("ca", entry.ca)):
        if file is not None and not (base / file).is_file():
            problem(f"{key}: no such file: {base / file}", key)
    if len(problems) > before:
        return None
    roles: frozenset[Role] = (
        frozenset({"producers", "consumers"}) if entry.roles == "both" else frozenset({entry.roles})
    )
    return Host(
        name=entry.name,
        host=host,
        port=int(port),
        roles=roles,
        weight=entry.weight,
        labels=dict(entry.labels),
        token_file=base / token_file if token_file else None,
        fingerprint=entry.fingerprint,
        ca=base / entry.ca if entry.ca else None,
    )


def is_loopback(host: str) -> bool:
    """Whether a host name or an IP address is this machine's loopback."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class HostsFleet(CrewFleet):
    """Workers that run already. They are left running."""

    def __init__(self, hosts: Hosts, *, topology: Topology, on_loss: OnLoss) -> None:
        super().__init__()
        self._hosts = hosts
        self._topology: Topology = topology
        self._on_loss: OnLoss = on_loss

    def start(self, log_directory: Path) -> Worker:
        """Reaches all workers and reads their clocks."""
        self.stop()
        members: list[Member] = []
        try:
            for host in self._hosts.hosts:
                members.append(self._reach(host))
        except BaseException:
            for member in members:
                member.client.close()
            raise
        self._crew = Crew(members, self._topology, self._on_loss, one_clock=False)
        return Worker(name=CREW, client=self._crew, pid=None, lab_clock=True)

    def _reach(self, host: Host) -> Member:
        client: WorkerClient | None = None
        try:
            client = WorkerClient(host.address, token=token_of(host), encryption=encryption_of(host))
            info = client.info()
            check_version(info, f"the worker {host.name} ({host.address})")
            capacity = Capacity(host.name, host.weight or float(info.cores), host.roles)
            return Member(capacity, client, ahead_ns=ahead_ns(client))
        except (trust.NotTrusted, WorkerLost, WorkerRefused, FleetFailure) as error:
            if client is not None:
                client.close()
            raise FleetFailure(f"host {host.name} of {self._hosts.file}: {error}") from None

    def failure(self) -> str | None:
        """As Fleet."""
        if self._crew is None:
            return "the workers were left"
        try:
            self._crew.check()
        except WorkerLost as error:
            return str(error)
        return None

    def stop(self, *, at_once: bool = False) -> None:
        """Ends a trial that still runs there, and leaves the workers to the next run."""
        self._leave(abort=not at_once)


def token_of(host: Host) -> str | None:
    """What it must be shown. Raises NotTrusted."""
    return None if host.token_file is None else trust.read_token(host.token_file)


def encryption_of(host: Host) -> ssl.SSLContext | None:
    """Which certificate it must show. Raises NotTrusted."""
    if host.fingerprint is not None:
        return trust.pinned(host.host, host.port, host.fingerprint)
    return None if host.ca is None else trust.authority(host.ca)


def ahead_ns(client: WorkerClient) -> int:
    """How far a worker's CLOCK_MONOTONIC is ahead of the lab's: from the exchange with the shortest round trip, as
    if both ways took half of it (RFC 5905, clock filter). Good to half of that round trip."""
    best: tuple[int, int] | None = None
    for _ in range(CLOCK_READINGS):
        before_ns = time.monotonic_ns()
        there_ns = client.info().monotonic_ns
        after_ns = time.monotonic_ns()
        reading = (after_ns - before_ns, there_ns - (before_ns + after_ns) // 2)
        best = reading if best is None or reading < best else best
    assert best is not None
    return best[1]
