"""One or three Kafka nodes, as child processes on loopback: in KRaft's combined mode, or before Kafka 3.3 with a ZooKeeper.

Below the directory of a cluster:

    node-1/server.properties, log4j2.properties     as written for the node
    node-1/logs/{server,console,format,gc}.log      kept when the data is wiped
    node-1/data, node-1/tmp                         wiped
    zookeeper/zookeeper.properties, logs, data      before Kafka 3.3: what the nodes stand on
    tls/keys                                        with TLS: certificates and the nodes' key, wiped

Each node is `java -cp 'jars/*' kafka.Kafka server.properties`, run in its own directory, without Kafka's
shell scripts.
"""

from __future__ import annotations

import base64
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamgauge.model.security import Mechanism, Security, secured
from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.systems.base import Describe, Progress, ReadBack, SystemProcess, TopicPlan
from streamgauge.systems.base.own_metrics import MetricSource
from streamgauge.systems.base.parts import Part
from streamgauge.systems.kafka import durability, jmx, settings
from streamgauge.systems.support import java, kafka_broker, processes
from streamgauge.systems.support.certificates import (
    USER,
    Certificates,
    for_nodes,
    forget,
    keys_directory,
    security_of,
)
from streamgauge.systems.support.cluster import (
    StartedCluster,
    fresh_directory,
    start_in_attempts,
)
from streamgauge.systems.support.java_system import JavaLaunch
from streamgauge.systems.support.jvm_logs import JVM_ENVIRONMENT, explain, why_it_died
from streamgauge.systems.support.processes import ManagedProcess
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.format import every, plural
from streamgauge.vocabulary.levels import Level

START_TIMEOUT_S = 180.0
"""Far above the usual 5 s: a busy machine starts three JVMs slowly, and a real failure ends the wait at once
anyway.
"""
FORMAT_TIMEOUT_S = 120.0
ZOOKEEPER = "zookeeper"
ZOOKEEPER_HEAP_MIB = 256
LOGINS = "logins.conf"
"""With the password of the clients, where they must log in; beside the keys."""


@dataclass(frozen=True, kw_only=True)
class Launch(JavaLaunch):
    """Everything that is decided before the first process of a cluster runs."""

    line: tuple[int, int]
    options: settings.Options
    plan: durability.Plan
    heap_mib: int
    jmx_agent: Path | None = None
    """What shows the nodes' own metrics; None where nobody asks, or where it could not be had."""

    @property
    def on_zookeeper(self) -> bool:
        """Whether the nodes stand on a ZooKeeper."""
        return self.line < settings.KRAFT_SINCE

    @property
    def zookeeper(self) -> Path:
        """Its directory."""
        return self.directory / ZOOKEEPER


@dataclass(frozen=True)
class Layout:
    """What a launch has been given: ports, identity, files as written."""

    client_ports: Sequence[int]
    controller_ports: Sequence[int]
    cluster_id: str
    broker_settings: Mapping[str, str]
    files: Mapping[str, str]
    """Relative path -> text."""
    certificates: Certificates | None = None
    """With TLS."""
    metrics_ports: Sequence[int] = ()
    """Where the nodes show their own metrics, each to the lab alone."""

    @property
    def security(self) -> Security | None:
        """How clients reach the nodes."""
        return security_of(self.certificates)


def start_cluster(launch: Launch, progress: Progress) -> RunningKafka:
    """Formats, starts and waits until every node serves and knows all others.

    Raises SystemFailure with the reason from Kafka's log; nothing is left running then.
    """
    if "," in str(launch.directory):
        raise SystemFailure(
            f"{launch.directory}: Kafka cannot keep its data below a path with a comma, because log.dirs is a list; "
            "choose another directory"
        )
    fresh_directory(launch.directory, "Kafka")
    settings.memory_need(launch.nodes, launch.heap_mib).require()
    count = plural(launch.nodes, "node")
    progress(f"starting Kafka {launch.version} ({count}, heap {launch.heap_mib} MiB each)")
    return start_in_attempts(lambda: _start_once(launch), launch.directory, launch.options.ports, progress)


def _start_once(launch: Launch) -> RunningKafka:
    layout = _lay_out(launch)
    started: list[processes.ManagedProcess] = []
    try:
        if launch.on_zookeeper:
            started.append(_start_zookeeper(launch))
        else:
            _format(launch, layout.cluster_id)
        for node in launch.all_nodes():
            started.append(
                _start_process(
                    launch,
                    node,
                    f"Kafka node {node}",
                    node_command(launch, node, layout.metrics_ports),
                    "console.log",
                )
            )
        _wait(launch, layout, started)
    except BaseException:
        # Whatever the reason (Ctrl-C too) nothing stays behind, and data nobody has used needs no orderly
        # shutdown.
        processes.kill(started)
        forget(layout.certificates)
        raise
    return RunningKafka(launch=launch, layout=layout, started=started, certificates=layout.certificates)


def _lay_out(launch: Launch) -> Layout:
    """Chooses ports and writes the nodes' directories."""
    free = processes.free_ports(4 * launch.nodes, avoid=launch.options.ports)
    client_ports = list(launch.options.ports) or free[: launch.nodes]
    controller_ports = free[launch.nodes : 2 * launch.nodes]
    hosts = launch.placement
    is_beyond = any(hosts.host(node) != hosts.inside(node) for node in launch.all_nodes())
    between_ports = free[2 * launch.nodes : 3 * launch.nodes] if launch.tls or is_beyond else []
    metrics_ports = free[3 * launch.nodes :] if launch.jmx_agent is not None else []
    login: Mechanism | None = "plain" if launch.guarded else None
    certificates = for_nodes(launch.tls, launch.directory, hosts, launch.nodes, login)
    clients = [f"{hosts.host(node)}:{port}" for node, port in enumerate(client_ports, start=1)]
    controllers, between = (
        [f"{hosts.inside(node)}:{port}" for node, port in enumerate(ports, start=1)]
        for ports in (controller_ports, between_ports)
    )
    listeners = settings.Listeners(clients, controllers, between, certificates is not None, launch.guarded)
    broker_settings = settings.cluster_settings(launch.nodes, launch.line, launch.options)
    logging = settings.logging_file(launch.line)
    files = {}
    for node in launch.all_nodes():
        home = launch.home(node)
        for name in ("logs", "data", "tmp"):
            (home / name).mkdir(parents=True, exist_ok=True)
        if launch.volume is not None:
            launch.volume(f"node-{node}", home / "data")
        settings_of = settings.zookeeper_settings if launch.on_zookeeper else settings.node_settings
        own = settings_of(node, listeners, str(home / "data"))
        if certificates is not None:
            own |= settings.tls_settings(str(certificates.both), logs_in=launch.guarded)
        heading = f"Kafka {launch.version}, node {node} of {launch.nodes}, written by streamgauge"
        files[f"node-{node}/server.properties"] = settings.properties_text(own | broker_settings, heading)
        files[f"node-{node}/{logging.name}"] = logging.text
        if metrics_ports:
            files[f"node-{node}/{jmx.CONFIGURATION}"] = jmx.configuration_text()
    if launch.on_zookeeper:
        for name in ("logs", "data", "tmp"):
            (launch.zookeeper / name).mkdir(parents=True, exist_ok=True)
        text = settings.zookeeper_text(controllers[0], str(launch.zookeeper / "data"))
        files[f"{ZOOKEEPER}/{ZOOKEEPER}.properties"] = text
        files[f"{ZOOKEEPER}/{logging.name}"] = logging.text
    for name, text in files.items():
        (launch.directory / name).write_text(text, encoding="ascii")
    if certificates is not None and certificates.login is not None:
        certificates.private_file(LOGINS, settings.logins_text(USER, str(certificates.login.secret)))
    return Layout(
        client_ports, controller_ports, new_cluster_id(), broker_settings, files, certificates, metrics_ports
    )


def new_cluster_id() -> str:
    """A random cluster id as Kafka writes it: URL-safe base64 of a UUID without padding.

    Never with a leading dash, which the command line would take for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def node_command(launch: Launch, node: int, metrics_ports: Sequence[int] = ()) -> list[str]:
    """The command line of a node."""
    flags = settings.jvm_flags(launch.heap_mib, launch.options.jvm_flags)
    if launch.jmx_agent is not None and metrics_ports:
        configuration = launch.home(node) / jmx.CONFIGURATION
        inside = launch.placement.inside(node)
        flags.append(jmx.flag(launch.jmx_agent, inside, metrics_ports[node - 1], configuration))
    if launch.guarded:
        flags.append(f"-Djava.security.auth.login.config={keys_directory(launch.directory) / LOGINS}")
    return [*_java(launch, "node", launch.home(node), flags), "kafka.Kafka", "server.properties"]


def _java(launch: Launch, kind: str, home: Path, flags: Sequence[str]) -> list[str]:
    """The java command of a kind of process, up to the main class."""
    logging = settings.logging_file(launch.line)
    return [
        str(launch.java.executable),
        *flags,
        *launch.classes.flags(kind),
        # Native libraries are unpacked there; so they are wiped with the rest.
        f"-Djava.io.tmpdir={home / 'tmp'}",
        f"-Dkafka.logs.dir={home / 'logs'}",
        f"{logging.flag}{home / logging.name}",
        "-cp",
        f"{launch.installation.path}/*",
    ]


def _start_process(
    launch: Launch, node: int, name: str, command: Sequence[str], log_name: str, home: Path | None = None
) -> processes.ManagedProcess:
    home = home or launch.home(node)
    environment = {key: value for key, value in os.environ.items() if key not in JVM_ENVIRONMENT}
    return processes.start(
        name,
        launch.placement.command(node, command),
        home / "logs" / log_name,
        environment=environment,
        directory=home,
    )


def _start_zookeeper(launch: Launch) -> processes.ManagedProcess:
    """Brokers wait for it by themselves, for as long as they are waited for."""
    flags = settings.jvm_flags(ZOOKEEPER_HEAP_MIB, ())
    main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", f"{ZOOKEEPER}.properties"]
    command = [*_java(launch, ZOOKEEPER, launch.zookeeper, flags), *main]
    return _start_process(launch, 1, "Kafka's ZooKeeper", command, "console.log", launch.zookeeper)


def _format(launch: Launch, cluster_id: str) -> None:
    """Formats the data directories, all nodes at once: each takes a JVM start."""
    flags = ["-Xmx128m", "-XX:+UseSerialGC", java.COMPILED_QUICKLY, "-XX:+PerfDisableSharedMem"]
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", "server.properties"]
    running: list[processes.ManagedProcess] = []
    try:
        for node in launch.all_nodes():
            command = [*_java(launch, "format", launch.home(node), flags), *tool]
            running.append(
                _start_process(launch, node, f"formatting Kafka node {node}", command, "format.log")
            )
        deadline_s = time.monotonic() + FORMAT_TIMEOUT_S
        for process in running:
            if not process.wait(deadline_s):
                raise SystemFailure(
                    f"{process.name} took longer than {FORMAT_TIMEOUT_S:.0f} s (log: {process.log})"
                )
            if process.exit_status() != 0:
                raise SystemFailure(f"{process.name} failed: {explain(process.log.parent)}")
    finally:
        processes.kill(running)


def _wait(launch: Launch, layout: Layout, started: Sequence[processes.ManagedProcess]) -> None:
    """Waits until each node says in its log that it has started, answers a request, and lists all nodes."""
    ready: set[int] = set()

    def waiting_for() -> str | None:
        for node in launch.all_nodes():
            if node not in ready:
                missing = _node_missing(launch, layout, node)
                if missing is not None:
                    return f"Kafka node {node} to {missing}"
                ready.add(node)
        return None

    processes.await_started(
        waiting_for, started, START_TIMEOUT_S, lambda process: explain(process.log.parent)
    )


def _node_missing(launch: Launch, layout: Layout, node: int) -> str | None:
    """What a node still has to do, as the end of a sentence; None when it is ready."""
    log = launch.home(node) / "logs" / "server.log"
    started = "started (kafka.server.KafkaServer)" if launch.on_zookeeper else "Kafka Server started"
    if not log.exists() or started not in log.read_text(errors="replace"):
        return "say in its log that it has started"
    return _unserved(launch, layout, node)


def _unserved(launch: Launch, layout: Layout, node: int) -> str | None:
    """As `_node_missing`, by its answers alone."""
    try:
        known = kafka_broker.describe(_address(launch, layout, node), layout.security).brokers
    except kafka_broker.NotDescribed as error:
        return f"answer ({error})"
    return None if known == launch.nodes else f"know {every(launch.nodes, 'node')} (it knows {known})"


def _address(launch: Launch, layout: Layout, node: int) -> str:
    """Where clients reach a node."""
    return f"{launch.placement.host(node)}:{layout.client_ports[node - 1]}"


# ---------------------------------------------------------------------- running


@dataclass(kw_only=True)
class RunningKafka(StartedCluster):
    """Nodes that the lab has started."""

    launch: Launch = field(repr=False)
    layout: Layout = field(repr=False)

    name = "kafka"
    wiped = ("data", "tmp")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.level: Level | None = self.launch.plan.level

    def take_level(self, request: SystemRequest) -> None:
        options = self.launch.options
        plan = durability.plan(request.level, self.launch.nodes, options, where_of(request))
        self.launch = replace(self.launch, plan=plan)
        self.level = plan.level

    @property
    def serving(self) -> Sequence[ManagedProcess]:
        return self.started[-self.launch.nodes :]

    def homes(self) -> Sequence[Path]:
        return [*super().homes(), *([self.launch.zookeeper] if self.launch.on_zookeeper else [])]

    def processes(self) -> list[SystemProcess]:
        beneath = self.started[: -self.launch.nodes]
        return [*super().processes(), *(SystemProcess(ZOOKEEPER, one.pid) for one in beneath)]

    def stop(self) -> None:
        self._stopped = True
        # A node that is stopped tells its ZooKeeper so.
        processes.stop(self.serving)
        super().stop()

    def explain(self, process: ManagedProcess) -> str:
        return why_it_died(process)

    @property
    def connection(self) -> dict[str, Any]:
        bootstrap = [_address(self.launch, self.layout, node) for node in self.launch.all_nodes()]
        plain = {
            "protocol": "kafka",
            "bootstrap": bootstrap,
            "options": dict(self.launch.options.client),
        }
        return secured(plain, self.layout.security)

    @property
    def acks(self) -> durability.Acks:
        return self.launch.plan.acks

    def topic_plan(self) -> TopicPlan:
        return self.launch.plan.topic

    knows_leaders = True

    def leader(self, topic: str) -> str | None:
        def ask(node: int) -> str | None:
            address = _address(self.launch, self.layout, node)
            found = kafka_broker.describe(address, self.layout.security, topic).leader
            return None if found is None else f"node-{found}"

        return processes.first_answer(self.serving, ask, (kafka_broker.NotDescribed,))

    def metric_sources(self) -> Sequence[MetricSource]:
        return [
            jmx.METRICS.source(f"node-{node}", jmx.address(port, self.launch.placement.inside(node)))
            for node, port in enumerate(self.layout.metrics_ports, start=1)
        ]

    def parts(self) -> Sequence[Part]:
        return [self._part(node, process) for node, process in enumerate(self.serving, start=1)]

    def _part(self, node: int, process: ManagedProcess) -> Part:
        def waits_for() -> str | None:
            # Others may be down at the same time; that it knows itself and answers is what it owes.
            missing = _unserved(self.launch, self.layout, node)
            return f"Kafka node {node} to {missing}" if missing else None

        return Part(f"node-{node}", process, waits_for, (self.launch.home(node) / "data",))

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        expected = durability.Expectation(
            version=self.version,
            nodes=self.nodes,
            plan=self.launch.plan,
            level_asked=self.level,
            broker=self.layout.broker_settings,
        )
        return durability.compare(describe(topics), topics, expected)

    def configuration(self) -> dict[str, Any]:
        launch = self.launch
        return {
            "version": self.version,
            "cluster_id": self.layout.cluster_id,
            "level": self.level,
            "acks": self.acks,
            "topic": launch.plan.topic_as_json(),
            "client_options": dict(launch.options.client),
            "java": {"version": launch.java.version, "executable": str(launch.java.executable)},
            "heap_mib": launch.heap_mib,
            "commands": {
                f"node-{node}": node_command(launch, node, self.layout.metrics_ports)
                for node in launch.all_nodes()
            },
            "client_ports": list(self.layout.client_ports),
            "controller_ports": list(self.layout.controller_ports),
            "tls": self.launch.tls,
            "files": dict(self.layout.files),
            "package": {**launch.installation.source, "sha256": dict(launch.installation.sha256)},
        }
