"""NATS servers as child processes on loopback, and what they say of themselves.

Below the directory of a cluster:

    node-1/nats-server.conf     as written for the node
    node-1/logs/server.log      kept when the data is wiped
    node-1/data                 JetStream's store, wiped
    tls/keys                    with TLS: certificates and the nodes' key, wiped
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from streamgauge.model.security import Auth, Mechanism, secured
from streamgauge.systems.base import Describe, Progress, ReadBack, TopicPlan
from streamgauge.systems.base.own_metrics import MetricSource
from streamgauge.systems.base.parts import Part
from streamgauge.systems.nats.metrics import METRICS
from streamgauge.systems.support import processes
from streamgauge.systems.support.certificates import Certificates, for_nodes, forget
from streamgauge.systems.support.cluster import (
    ClusterLaunch,
    StartedCluster,
    fresh_directory,
    start_in_attempts,
)
from streamgauge.systems.support.processes import ManagedProcess
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level, level_with

START_TIMEOUT_S = 60.0
"""Far above the usual half second; a real failure ends the wait at once anyway."""
MONITOR_TIMEOUT_S = 5.0
TLS_TIMEOUT_S = 10
"""For a handshake. The default of 2 s is short when hundreds of clients come at once to a busy machine."""
CLUSTER_NAME = "streamgauge"
LOGIN = "login.conf"
"""With the password of the clients, where they must log in; beside the keys."""
MEMORY_MB_MAX = 256
"""JetStream's memory storage, which the lab does not use."""
BUFFERED_MSGS_MAX = 100_000
"""Messages that a stream's leader holds before it refuses more ("too many requests"). The server's default of 10,000
is less than what a handful of producers have under way with the official clients' window of 4,000 each."""
FREE_SHARE = 0.75
"""Share of the disk's free space that all nodes together may fill."""
SYNC_LEVELS: tuple[Level, ...] = ("L1", "L3")
REPLICATED_LEVELS: tuple[Level, ...] = ("L1", "L2")


@dataclass(frozen=True, kw_only=True)
class Launch(ClusterLaunch):
    """Everything that is decided before the first server runs."""

    server: Path
    source: Mapping[str, Any]
    """Where the server came from, for the manifest."""
    level: Level
    ports: tuple[int, ...]
    """Client ports, one per node; empty: free ones."""
    client: Mapping[str, Any]
    """The client's options (worker API, `system.options`)."""
    stream: Mapping[str, str]
    """Settings of streams besides those that the level needs."""

    @property
    def replicas(self) -> int:
        """Copies of a stream."""
        return 3 if self.level in REPLICATED_LEVELS else 1

    @property
    def sync_always(self) -> bool:
        """Whether every write is flushed to the disk before it counts."""
        return self.level in SYNC_LEVELS


@dataclass(frozen=True)
class Ports:
    """The ports of one node."""

    client: int
    monitor: int
    cluster: int


def configuration_file(
    launch: Launch,
    node: int,
    ports: Sequence[Ports],
    file_bytes_max: int,
    certificates: Certificates | None = None,
) -> str:
    """The configuration file of a node (1, 2, ...). With certificates its clients must speak TLS; what nodes send each other
    stays in plain text.
    """
    own, host, inside = ports[node - 1], launch.placement.host(node), launch.placement.inside(node)
    store = launch.home(node) / "data"
    sync = "  sync_interval: always\n" if launch.sync_always else ""
    text = (
        f"# NATS {launch.version}, node {node} of {launch.nodes}, written by streamgauge\n"
        f"server_name: node-{node}\n"
        f"listen: {host}:{own.client}\n"
        f"http: {inside}:{own.monitor}\n"
        "jetstream {\n"
        f"  store_dir: {json.dumps(str(store))}\n"
        f"  max_mem: {MEMORY_MB_MAX}MB\n"
        f"  max_file: {file_bytes_max}\n"
        f"{sync}"
        f"{_buffered_limit(launch.version)}"
        "}\n"
    )
    if certificates is not None:
        text += (
            f"tls {{\n  cert_file: {json.dumps(str(certificates.certificate))}\n"
            f"  key_file: {json.dumps(str(certificates.key))}\n  timeout: {TLS_TIMEOUT_S}\n}}\n"
        )
    if certificates is not None and certificates.login is not None:
        # Paths are relative to this file.
        text += f"include '{os.path.relpath(certificates.directory / LOGIN, store.parent)}'\n"
    if launch.nodes > 1:
        routes = ", ".join(
            f"nats-route://{launch.placement.inside(at)}:{one.cluster}"
            for at, one in enumerate(ports, start=1)
        )
        text += f"cluster {{\n  name: {CLUSTER_NAME}\n  listen: {inside}:{own.cluster}\n  routes: [{routes}]\n}}\n"
    return text


def login_file(login: Auth) -> str:
    """What a node's configuration includes where clients must log in."""
    return f"authorization {{ user: {json.dumps(login.username)}, password: {json.dumps(login.secret)} }}\n"


def _buffered_limit(version: str) -> str:
    """The limit of buffered messages exists since 2.11."""
    numbers = tuple(int(part) for part in version.split(".")[:2])
    return f"  max_buffered_msgs: {BUFFERED_MSGS_MAX}\n" if numbers >= (2, 11) else ""


def monitor(launch: Launch, node: int, ports: Sequence[Ports], path: str) -> Any:
    """What the monitoring endpoint of a node (1, 2, ...) answers. Raises httpx.HTTPError or ValueError."""
    address = f"{launch.placement.inside(node)}:{ports[node - 1].monitor}"
    answer = httpx.get(f"http://{address}{path}", timeout=MONITOR_TIMEOUT_S, trust_env=False)
    answer.raise_for_status()
    return answer.json()


def start_cluster(launch: Launch, progress: Progress) -> RunningNats:
    """Starts the nodes and waits until each is healthy and the cluster has a leader.

    Raises SystemFailure with the reason from the log; nothing is left running then.
    """
    fresh_directory(launch.directory, "NATS")
    count = plural(launch.nodes, "node")
    progress(f"starting NATS {launch.version} ({count}{', sync always' if launch.sync_always else ''})")
    return start_in_attempts(lambda: _start_once(launch), launch.directory, launch.ports, progress)


def _start_once(launch: Launch) -> RunningNats:
    free = processes.free_ports(3 * launch.nodes, avoid=launch.ports)
    clients = list(launch.ports) or free[: launch.nodes]
    ports = [
        Ports(clients[at], free[launch.nodes + at], free[2 * launch.nodes + at]) for at in range(launch.nodes)
    ]
    file_bytes_max = int(shutil.disk_usage(launch.directory).free * FREE_SHARE / launch.nodes)
    files: dict[str, str] = {}
    started: list[processes.ManagedProcess] = []
    login: Mechanism | None = "plain" if launch.guarded else None
    certificates = for_nodes(launch.tls, launch.directory, launch.placement, launch.nodes, login)
    if certificates is not None and certificates.login is not None:
        certificates.private_file(LOGIN, login_file(certificates.login))
    try:
        for node in launch.all_nodes():
            home = launch.home(node)
            (home / "logs").mkdir(parents=True, exist_ok=True)
            if launch.volume is not None:
                launch.volume(f"node-{node}", home / "data")
            name = f"node-{node}/nats-server.conf"
            files[name] = configuration_file(launch, node, ports, file_bytes_max, certificates)
            path = launch.directory / name
            path.write_text(files[name], encoding="utf-8")
            command = [str(launch.server), "--config", str(path)]
            log = home / "logs" / "server.log"
            command = launch.placement.command(node, command)
            started.append(processes.start(f"NATS node {node}", command, log, directory=home))
        processes.await_started(
            lambda: _missing(launch, ports), started, START_TIMEOUT_S, lambda process: explain(process.log)
        )
    except BaseException:
        # Whatever the reason (Ctrl-C too) nothing stays behind.
        processes.kill(started)
        forget(certificates)
        raise
    return RunningNats(launch=launch, ports=ports, files=files, started=started, certificates=certificates)


def _missing(launch: Launch, ports: Sequence[Ports]) -> str | None:
    """What the cluster still has to do, as the rest of a sentence; None when it is ready."""
    for node in launch.all_nodes():
        try:
            monitor(launch, node, ports, "/healthz")
            cluster = monitor(launch, node, ports, "/jsz").get("meta_cluster") or {}
        except (httpx.HTTPError, ValueError) as error:
            return f"NATS node {node} to be healthy ({error})"
        if launch.nodes > 1 and not (cluster.get("leader") and cluster.get("cluster_size") == launch.nodes):
            return f"NATS node {node} to know a leader and {plural(launch.nodes, 'node')}"
    return None


def leader_of(told: Mapping[str, Any], stream: str) -> str | None:
    """Who leads a stream, from what /jsz answers with `streams=true`; "" for a stream that is not clustered. None when
    the node does not know the stream or a leader of it.
    """
    for account in told.get("account_details") or []:
        for detail in account.get("stream_detail") or []:
            if detail.get("name") == stream:
                cluster = detail.get("cluster") or {}
                return str(cluster.get("leader") or "") or ("" if not cluster else None)
    return None


def explain(log: Path) -> str:
    """Why a server ended, from its log: the last fatal or error line, else the last lines."""
    tail = processes.log_tail(log, lines=200)
    for line in reversed(tail.splitlines()):
        for mark in ("[FTL] ", "nats-server: ", "[ERR] "):
            if mark in line:
                return f"{line.partition(mark)[2].strip()} (log: {log})"
    last = "\n".join(tail.splitlines()[-processes.TAIL_LINES :])
    return (
        f"there is no error in its log {log}; the last lines are:\n{last}"
        if last
        else f"its log {log} is empty"
    )


# ---------------------------------------------------------------------- reading back


def level_of(replicas: int, sync_always: bool) -> Level:
    """The durability level that settings amount to: a stream with several copies acknowledges when a majority of
    them has stored the message (docs of JetStream, "Replication"), and each of them syncs first with
    `sync_interval: always`.
    """
    return level_with(replicated=replicas >= 3, fsynced=sync_always)


RECORDED_STREAM_KEYS = (
    "storage",
    "num_replicas",
    "retention",
    "discard",
    "max_bytes",
    "max_age",
    "max_msgs",
    "duplicate_window",
    "compression",
    "subjects",
)


@dataclass(frozen=True)
class Expectation:
    """What the live system should say of itself."""

    nodes: int
    level: Level | None
    """None: whatever is read back is right."""
    replicas: int
    stream: Mapping[str, str]
    """Settings of streams that were asked for."""


def compare(
    description: Mapping[str, Any],
    servers: Mapping[str, Mapping[str, Any]],
    topics: Sequence[str],
    expected: Expectation,
) -> ReadBack:
    """Judges what the worker's `describe` (docs/worker-api.md) and the nodes' /varz tell against what was asked. Without
    /varz (an attached cluster) whether writes are synced cannot be told, and the level is None.
    """
    settings: dict[str, Any] = {"nodes": expected.nodes}
    mismatches: list[str] = []
    syncs: list[bool] = []
    for name, varz in servers.items():
        jetstream = (varz.get("jetstream") or {}).get("config") or {}
        always = bool(jetstream.get("sync_always", False))
        syncs.append(always)
        settings[f"node.{name}.version"] = varz.get("version")
        settings[f"node.{name}.max_payload"] = varz.get("max_payload")
        for key in ("sync_interval", "max_memory", "max_storage"):
            settings[f"node.{name}.jetstream.{key}"] = jetstream.get(key)
        settings[f"node.{name}.jetstream.sync_always"] = always
        if not jetstream:
            mismatches.append(f"{name} does not run JetStream")
        elif expected.level is not None and always != (expected.level in SYNC_LEVELS):
            asked = "always" if expected.level in SYNC_LEVELS else "the default"
            mismatches.append(
                f"sync_interval of {name} is {'always' if always else 'the default'} instead of {asked}"
            )
    if servers and len(servers) != expected.nodes:
        mismatches.append(f"{expected.nodes} NATS nodes were expected, but {len(servers)} answer")
    levels: list[Level] = []
    by_topic: Mapping[str, Mapping[str, Any]] = description.get("topics") or {}
    for topic in topics:
        found = by_topic.get(topic)
        if found is None:
            mismatches.append(f"topic {topic} is not there")
            continue
        read: Mapping[str, Any] = found.get("settings") or {}
        for key in sorted({*RECORDED_STREAM_KEYS, *expected.stream}):
            # The topics of a workload are alike; one that is not is recorded under its own name.
            name = f"topic.{key}"
            if key in read:
                settings[name if settings.get(name, read[key]) == read[key] else f"topic.{topic}.{key}"] = (
                    read[key]
                )
        if read.get("storage") != "file":
            mismatches.append(f"topic {topic} is stored in {read.get('storage')} instead of file")
        replicas = int(found.get("replication_factor") or 0)
        if replicas != expected.replicas:
            mismatches.append(f"topic {topic} has {plural(replicas, 'copy')} instead of {expected.replicas}")
        for key, asked in expected.stream.items():
            if str(read.get(key)) != asked:
                mismatches.append(f"setting {key} of topic {topic} is {read.get(key)} instead of {asked}")
        if syncs:
            levels.append(level_of(replicas, all(syncs)))
    level = levels[0] if levels and len(set(levels)) == 1 else None
    return ReadBack.judged("NATS", level, expected.level, settings, mismatches)


# ---------------------------------------------------------------------- running


@dataclass(kw_only=True)
class RunningNats(StartedCluster):
    """Servers that the lab has started."""

    launch: Launch = field(repr=False)
    ports: Sequence[Ports] = field(repr=False)
    files: Mapping[str, str] = field(repr=False)

    name = "nats"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.level: Level | None = self.launch.level

    def explain(self, process: ManagedProcess) -> str:
        return explain(process.log)

    @property
    def connection(self) -> dict[str, Any]:
        hosts = self.launch.placement
        bootstrap = [f"{hosts.host(node)}:{own.client}" for node, own in enumerate(self.ports, start=1)]
        plain = {"protocol": "nats", "bootstrap": bootstrap, "options": dict(self.launch.client)}
        return secured(plain, self.security)

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(self.launch.replicas, dict(self.launch.stream))

    knows_leaders = True

    def leader(self, topic: str) -> str | None:
        def ask(node: int) -> str | None:
            told = monitor(self.launch, node, self.ports, "/jsz?streams=true&raft=true")
            found = leader_of(told, topic)
            return found if found is None or self.nodes > 1 else f"node-{node}"

        return processes.first_answer(self.started, ask, (httpx.HTTPError, ValueError))

    def metric_sources(self) -> Sequence[MetricSource]:
        if not self.launch.has_metrics:
            return ()
        inside = self.launch.placement.inside
        return [
            METRICS.source(f"node-{node}", f"http://{inside(node)}:{own.monitor}")
            for node, own in enumerate(self.ports, start=1)
        ]

    def parts(self) -> Sequence[Part]:
        return [self._part(node, process) for node, process in enumerate(self.started, start=1)]

    def _part(self, node: int, process: ManagedProcess) -> Part:
        def waits_for() -> str | None:
            try:
                monitor(self.launch, node, self.ports, "/healthz")
            except (httpx.HTTPError, ValueError) as error:
                return f"NATS node {node} to be healthy ({error})"
            return None

        return Part(f"node-{node}", process, waits_for, (self.launch.home(node) / "data",))

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        servers: dict[str, Mapping[str, Any]] = {}
        trouble = []
        for node in self.launch.all_nodes():
            try:
                servers[f"node-{node}"] = monitor(self.launch, node, self.ports, "/varz")
            except (httpx.HTTPError, ValueError) as error:
                trouble.append(f"the settings of NATS node {node} could not be read back: {error}")
        expected = Expectation(self.nodes, self.level, self.launch.replicas, self.launch.stream)
        read = compare(describe(topics), servers, topics, expected)
        return ReadBack(read.level, read.settings, (*trouble, *read.mismatches))

    def configuration(self) -> dict[str, Any]:
        launch = self.launch
        return {
            "version": self.version,
            "level": self.level,
            "acks": self.acks,
            "nodes": self.nodes,
            "client_ports": [own.client for own in self.ports],
            "client_options": dict(launch.client),
            "tls": launch.tls,
            "topic": {"replication_factor": launch.replicas, "configs": dict(launch.stream)},
            "files": dict(self.files),
            "package": dict(launch.source),
        }
