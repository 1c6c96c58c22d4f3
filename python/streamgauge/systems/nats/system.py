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
from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.systems.base import (
    Describe,
    Progress,
    ReadBack,
    RunningSystem,
    System,
    TopicPlan,
)
from streamgauge.systems.base.attached import AttachedSystem
from streamgauge.systems.base.options import (
    check_attached,
    check_nodes,
    known,
    mapping,
    parse_address,
    ports,
    text,
    version_numbers,
)
from streamgauge.systems.base.own_metrics import OwnMetrics
from streamgauge.systems.nats.metrics import METRICS
from streamgauge.systems.nats.server import (
    REPLICATED_LEVELS,
    Expectation,
    Launch,
    compare,
    level_of,
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
    numbers = version_numbers(version, where, "NATS", "2.15.2")
    if numbers[:2] < VERSION_MIN or numbers[0] != 2:
        raise SystemInputError(f"{where}NATS {version} is not supported; expected 2.9.0 or a later 2.x")
    return numbers


def parse_options(request: SystemRequest) -> Options:
    """Checks the options of a request. Raises SystemInputError that names the key and what was expected."""
    where = where_of(request)
    known(request.options, OPTION_KEYS, f"{where}unknown key '{{}}' for NATS")
    own_ports = ports(request.options.get("ports"), request.nodes, where)
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
    return Options(own_ports, dict(client), {key: text(value) for key, value in stream.items()})


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
    own_metrics: ClassVar[OwnMetrics | None] = METRICS

    @classmethod
    def told_level(cls, settings: Mapping[str, Any]) -> Level | None:
        """See System."""
        syncs = [value for key, value in settings.items() if key.endswith(".jetstream.sync_always")]
        replicas = str(settings.get("topic.num_replicas", ""))
        return level_of(int(replicas), all(syncs)) if syncs and replicas.isdigit() else None

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
            check_attached(request, ("ports",))
            return
        parse_version(request.version or self.default_version, where)
        check_nodes(request, "NATS")
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
            has_metrics=request.has_metrics,
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


class AttachedNats(AttachedSystem):
    """Servers that were running already. Their sync_interval is not visible to clients, so the level read back stays unknown."""

    def __init__(self, request: SystemRequest, options: Options) -> None:
        nodes = len(request.connect)
        super().__init__(Nats, request, nodes, level=request.level, options=options.client)
        replicated = request.level in REPLICATED_LEVELS if request.level else nodes >= 3
        self._topic = TopicPlan(3 if replicated else 1, dict(options.stream))

    def topic_plan(self) -> TopicPlan:
        return self._topic

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        expected = Expectation(self.nodes, None, self._topic.replication_factor, self._topic.configs)
        return compare(describe(topics), {}, topics, expected)

    def configuration(self) -> dict[str, Any]:
        return {
            **super().configuration(),
            "client_options": dict(self._options),
            "topic": {
                "replication_factor": self._topic.replication_factor,
                "configs": dict(self._topic.configs),
            },
        }
