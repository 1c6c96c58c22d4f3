"""NATS JetStream as a system under test: started on loopback, or a cluster that already runs.

The server is built with Go into the cache; without Go, a `nats-server` on the PATH (Debian's package) serves.
Around this module: server.py (configuration, processes, reading back). See docs/systems/nats.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.security import secured, told
from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.systems.base import (
    Describe,
    Progress,
    ReadBack,
    RunningSystem,
    System,
    SystemProcess,
    TopicPlan,
)
from streamgauge.systems.base.options import known, mapping, parse_address
from streamgauge.systems.nats.server import (
    REPLICATED_LEVELS,
    Expectation,
    Launch,
    compare,
    start_cluster,
)
from streamgauge.systems.support import processes, released
from streamgauge.systems.support.cache import Cache
from streamgauge.systems.support.network import ON_LOOPBACK
from streamgauge.systems.support.processes import check_free
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.levels import Level

MODULE = "github.com/nats-io/nats-server/v2"
PROGRAM = "nats-server"
VERSION_MIN = (2, 9)
"""Consumers are created by name since 2.9."""
NODES = (1, 3)
BUILD_TIMEOUT_S = 900.0
ASK_TIMEOUT_S = 20.0
OPTION_KEYS = frozenset({"ports", "client", "stream"})
CLIENT_KEYS = frozenset({"ack_policy", "window_msgs", "client_name"})
RESERVED_STREAM_KEYS = {
    "name": "streams are named after the workload's topics",
    "subjects": "the subjects of a stream are its partitions",
    "storage": "the durability levels are those of file storage",
    "num_replicas": "the number of copies follows from the durability level",
    "metadata": "the lab keeps the number of partitions there",
}


@dataclass(frozen=True)
class Options:
    """The options of a system file, checked."""

    ports: tuple[int, ...]
    client: Mapping[str, Any]
    stream: Mapping[str, str]


def parse_version(version: str, where: str) -> tuple[int, int, int]:
    """The three numbers. Raises SystemInputError for what is no version, or too old."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        raise SystemInputError(
            f"{where}'{version}' is no NATS version; expected three numbers such as 2.15.2"
        )
    numbers = (int(found.group(1)), int(found.group(2)), int(found.group(3)))
    if numbers[:2] < VERSION_MIN or numbers[0] != 2:
        raise SystemInputError(f"{where}NATS {version} is not supported; expected 2.9.0 or a later 2.x")
    return numbers


def parse_options(request: SystemRequest) -> Options:
    """Checks the options of a request. Raises SystemInputError that names the key and what was expected."""
    where = where_of(request)
    known(request.options, OPTION_KEYS, f"{where}unknown key '{{}}' for NATS")
    ports = request.options.get("ports", ())
    if not isinstance(ports, Sequence) or isinstance(ports, str):
        ports = (ports,)
    for port in ports:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise SystemInputError(f"{where}ports: {port!r} is no port; expected numbers from 1 to 65535")
    if ports and (len(ports) != request.nodes or len(set(ports)) != len(ports)):
        raise SystemInputError(f"{where}ports: expected {request.nodes} different ports, one per node")
    client = mapping(request.options.get("client") or None, "client", where)
    known(client, CLIENT_KEYS, f"{where}client: unknown key '{{}}'")
    if client.get("ack_policy", "explicit") not in ("explicit", "all", "none"):
        raise SystemInputError(
            f"{where}client.ack_policy: {client['ack_policy']!r} is none; expected explicit, all or none"
        )
    window = client.get("window_msgs", 1)
    if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= 1_000_000:
        raise SystemInputError(
            f"{where}client.window_msgs: {window!r} is not usable; expected a number of messages from 1 to 1000000"
        )
    stream = mapping(request.options.get("stream") or None, "stream", where)
    for key in stream:
        if key in RESERVED_STREAM_KEYS:
            raise SystemInputError(f"{where}stream.{key} cannot be set: {RESERVED_STREAM_KEYS[key]}")
    return Options(tuple(ports), dict(client), {key: _text(value) for key, value in stream.items()})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def plan_level(request: SystemRequest, where: str) -> Level:
    """The level to run at. Raises SystemInputError for one that so many nodes cannot give."""
    level: Level = request.level or ("L2" if request.nodes >= 3 else "L4")
    if level in REPLICATED_LEVELS and request.nodes < 3:
        raise SystemInputError(
            f"{where}durability {level} cannot be had from NATS on one node: L1 and L2 acknowledge a message when a "
            "majority of a stream's three copies has it, and one node keeps one copy. On one node there are L3 (sync "
            "before the acknowledgement) and L4 (no sync); start three nodes (--nodes 3) for L1 and L2"
        )
    return level


class Nats(System):
    """Gets and runs NATS."""

    name: ClassVar[str] = "nats"
    title: ClassVar[str] = "NATS JetStream"
    protocol: ClassVar[str] = "nats"
    default_version: ClassVar[str] = "2.15.2"
    option_keys: ClassVar[frozenset[str]] = OPTION_KEYS
    page: ClassVar[str] = "docs/systems/nats.md"
    obtained: ClassVar[str] = "a Go module, or the Debian package"
    start_time: ClassVar[StartTime] = StartTime(one_node_s=2.0, nodes_s=4.0)
    cannot: ClassVar[Mapping[Feature, str]] = {}
    omb_drivers: ClassVar[frozenset[str]] = frozenset({"nats", "jetstream"})
    mechanisms: ClassVar[frozenset[str]] = frozenset({"plain", "token", "nkey"})

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = cache

    @property
    def cache(self) -> Cache:
        """Looked up at each use: STREAMGAUGE_CACHE may change in a long-lived process."""
        return self._cache if self._cache is not None else Cache()

    def check(self, request: SystemRequest) -> None:
        where = where_of(request)
        options = parse_options(request)
        if request.connect:
            for address in request.connect:
                parse_address(address, where, "a NATS server; expected host:port such as 127.0.0.1:4222")
            if options.ports:
                raise SystemInputError(f"{where}ports cannot be set for servers that already run (connect)")
            return
        parse_version(request.version or self.default_version, where)
        if request.nodes not in NODES:
            raise SystemInputError(
                f"{where}nodes {request.nodes}: the lab runs NATS on 1 or 3 nodes; an even number tolerates no more "
                "faults than the odd one below it, and five do not fit one machine"
            )
        plan_level(request, where)
        check_free(options.ports, where)

    def installed(self, version: str | None = None) -> str | None:
        found = self.cache.find(self.name, version or self.default_version)
        if found is not None:
            return str(found.path)
        try:
            return str(self._on_path(version)[0])
        except SystemFailure:
            return None

    def missing(self) -> str | None:
        if self.installed() is None and shutil.which("go") is None:
            return _nothing_to_build_with(self.default_version)
        return None

    def install(self, version: str | None, progress: Progress) -> None:
        self._server(version, progress)

    def _server(self, version: str | None, progress: Progress) -> tuple[Path, str, Mapping[str, Any]]:
        """The program, its version, and where it comes from. Raises SystemFailure."""
        wanted = version or self.default_version
        parse_version(wanted, "")
        found = self.cache.find(self.name, wanted)
        go = shutil.which("go")
        if found is None and go is None:
            path, actual = self._on_path(version)
            return path, actual, {"program": str(path), "version": actual, "from": "the PATH"}
        log = self.cache.root / "logs" / f"{self.name}-{wanted}.log"

        def fetch(into: Path) -> Mapping[str, Any]:
            assert go is not None, "without Go and without an installation the PATH was asked"
            return build(go, wanted, into, log, progress)

        installation = self.cache.obtain(self.name, wanted, fetch, progress)
        source = {**installation.source, "sha256": dict(installation.sha256)}
        return installation.path / PROGRAM, wanted, source

    @staticmethod
    def _on_path(version: str | None) -> tuple[Path, str]:
        """A server that is installed on the machine. Raises SystemFailure."""
        path = shutil.which(PROGRAM) or shutil.which(PROGRAM, path="/usr/sbin:/usr/local/sbin")
        if path is None:
            raise SystemFailure(_nothing_to_build_with(version or Nats.default_version))
        try:
            said = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SystemFailure(f"{path} does not tell its version: {error}") from error
        found = re.search(r"(\d+\.\d+\.\d+)", said.stdout + said.stderr)
        actual = found.group(1) if found else "unknown"
        if version is not None and actual != version:
            raise SystemFailure(
                f"NATS {version} was asked for, and {path} is {actual}; install Go 1.25 or later, with which streamgauge "
                f"builds {version}, or leave the version out"
            )
        try:
            parse_version(actual, f"{path}: ")
        except SystemInputError as error:
            raise SystemFailure(str(error)) from None
        return Path(path), actual

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        self.check(request)
        options = parse_options(request)
        server, version, source = self._server(request.version, progress)
        launch = Launch(
            version=version,
            server=server,
            source=source,
            nodes=request.nodes,
            level=plan_level(request, where_of(request)),
            directory=directory.absolute(),
            ports=options.ports,
            client=options.client,
            stream=options.stream,
            volume=request.volume,
            placement=request.placement or ON_LOOPBACK,
            tls=request.tls,
            guarded=request.guarded,
        )
        return start_cluster(launch, progress)

    def attach(self, request: SystemRequest) -> RunningSystem:
        self.check(request)
        return AttachedNats(request, parse_options(request))


def _nothing_to_build_with(version: str) -> str:
    return (
        f"NATS {version} is built with Go, and there is no 'go' on the PATH; install Go 1.25 or later (https://go.dev/dl), "
        "or a ready server (Debian: apt-get install nats-server)"
    )


def build(go: str, version: str, into: Path, log: Path, progress: Progress) -> Mapping[str, Any]:
    """Builds the server into a directory. Raises SystemFailure with Go's words.

    The module's files are hashed here and compared with the checksum that streamgauge is released with. Its go.sum is one of
    them, so that what it depends on is checked by Go without asking anyone.
    """
    target = f"{MODULE}@v{version}"
    title = f"NATS {version}"
    progress(f"building {title} with Go (about a minute)")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    _run_go([go, "mod", "download", "-json", target], log, into)
    sources = _downloaded(log)
    checksum, expected = released.module_hash(sources, target), released.module(MODULE, version)
    if expected is not None:
        released.refuse(title, released.different({target: checksum}, {target: expected}))
    checked = released.said(title, expected is not None, "what Go's checksum database says", progress)
    _run_go([go, "build", "-mod=readonly", "-trimpath", "-o", str(into / PROGRAM), "."], log, sources)
    return {
        "go_module": target,
        "go_sum": checksum,
        "checked_against": checked,
        "built_by": _go_version(go),
    }


def _run_go(command: Sequence[str], log: Path, directory: Path) -> None:
    """Runs Go and waits for it. Raises SystemFailure."""
    title = "go " + " ".join(command[1:])
    # A workspace of the caller's would put other modules in the place of those that go.sum names.
    process = processes.start(
        title, command, log, environment={**os.environ, "GOWORK": "off"}, directory=directory
    )
    try:
        if not process.wait(time.monotonic() + BUILD_TIMEOUT_S):
            raise SystemFailure(f"{title} took longer than {BUILD_TIMEOUT_S:.0f} s (log: {log})")
    finally:
        processes.kill([process])
    if process.exit_status() != 0:
        raise SystemFailure(
            f"{title} failed (log: {log}); the last lines are:\n{processes.log_tail(log)}\n"
            "Does the version exist, is it newer than this Go can build, and can Go reach its module proxy (go env GOPROXY)?"
        )


def _downloaded(log: Path) -> Path:
    """Where `go mod download -json` says that the module's files are. Raises SystemFailure."""
    found = re.search(r'^\s*"Dir": (".*")', log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    if found is None:
        raise SystemFailure(f"go mod download does not say where it put the module (log: {log})")
    return Path(json.loads(found.group(1)))


def _go_version(go: str) -> str:
    try:
        said = subprocess.run(
            [go, "version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return said.stdout.strip()


class AttachedNats(RunningSystem):
    """Servers that were running already. Only looked at: never configured, stopped or wiped. Their sync_interval is not
    visible to clients, so the level read back stays unknown.
    """

    def __init__(self, request: SystemRequest, options: Options) -> None:
        self.name = Nats.name
        self.version = request.version or "unknown"
        self.nodes = len(request.connect)
        self.level = request.level
        self.attached = True
        self._connect = request.connect
        self._options = options
        self._security = request.security
        replicated = request.level in REPLICATED_LEVELS if request.level else len(request.connect) >= 3
        self._replicas = 3 if replicated else 1

    @property
    def connection(self) -> dict[str, Any]:
        plain = {
            "protocol": Nats.protocol,
            "bootstrap": list(self._connect),
            "options": dict(self._options.client),
        }
        return secured(plain, self._security)

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(self._replicas, dict(self._options.stream))

    def processes(self) -> list[SystemProcess]:
        return []

    def failure(self) -> str | None:
        return None

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        expected = Expectation(self.nodes, None, self._replicas, self._options.stream)
        return compare(describe(topics), {}, topics, expected)

    def configuration(self) -> dict[str, Any]:
        return {
            "connect": list(self._connect),
            "security": told(self._security),
            "client_options": dict(self._options.client),
            "topic": {"replication_factor": self._replicas, "configs": dict(self._options.stream)},
        }

    def collect_logs(self, into: Path) -> None:
        """Their logs are where their owner keeps them."""

    def stop(self) -> None:
        """They are not ours to stop."""

    def wipe(self) -> None:
        """They are not ours to wipe."""
