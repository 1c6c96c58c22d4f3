"""One or three Pulsar nodes on loopback: a ZooKeeper, and a bookie and a broker per node, as child processes.

Below the directory of a cluster:

    zookeeper/conf, bookie-1/conf, broker-1/conf      as written: the distribution's files with our settings
    setup/logs                                        of the process that writes the cluster's metadata
    */logs/{server,console,gc}.log                    kept when the data is wiped
    */data, */tmp                                     wiped
    tls/keys                                          with TLS: certificates and the brokers' key, wiped

Each process is `java -cp 'lib/*' MAIN-CLASS`, run in its own directory, without Pulsar's shell scripts.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.model.security import Mechanism, secured
from streamgauge.systems.base import Describe, Progress, ReadBack, SystemProcess, TopicPlan
from streamgauge.systems.base.own_metrics import MetricSource
from streamgauge.systems.base.parts import Part
from streamgauge.systems.pulsar import admin, bookies, ready, settings
from streamgauge.systems.pulsar import tls as pulsar_tls
from streamgauge.systems.pulsar.durability import Expectation, compare
from streamgauge.systems.pulsar.launch import Launch, Layout
from streamgauge.systems.pulsar.metrics import METRICS
from streamgauge.systems.support import java, processes
from streamgauge.systems.support.certificates import for_nodes, forget
from streamgauge.systems.support.cluster import StartedCluster, fresh_directory, start_in_attempts
from streamgauge.systems.support.jvm_logs import JVM_ENVIRONMENT, explain, why_it_died
from streamgauge.systems.support.processes import ManagedProcess
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level

START_TIMEOUT_S = 240.0
"""Far above the usual 30 s: a busy machine starts seven JVMs slowly, and a real failure ends the wait at once anyway."""
SETUP_TIMEOUT_S = 120.0
LOG_EVERY_S = 1.0
"""Whoever waits asks many times a second; a log is read this often."""
PLACE_TAKEN = re.compile(
    r"MetadataStoreException\$LockBusyException: Resource at (/ledgers/available/[\w.:-]+)"
)
"""What a bookie says in its log when it gives up because it is registered still."""
STOP_WAIT_S = 60.0
"""A broker unloads its topics and a bookie flushes before they end."""
BUNDLES_PER_NODE = 16
"""Brokers own a namespace in bundles; the default of 4 would leave one of three brokers with twice the load."""
PARTS = ("conf", "logs", "data", "tmp")
SETUP = "setup"
"""The process that writes the cluster's metadata once."""
ZOOKEEPER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SETUP_CLASS = "org.apache.pulsar.PulsarClusterMetadataSetup"
BOOKIE_CLASS = "org.apache.bookkeeper.server.Main"
BROKER_CLASS = "org.apache.pulsar.PulsarBrokerStarter"


def start_cluster(launch: Launch, progress: Progress) -> RunningPulsar:
    """Starts everything and waits until every broker is healthy and knows all bookies.

    Raises SystemFailure with the reason from the log; nothing is left running then.
    """
    fresh_directory(launch.directory, "Pulsar")
    launch.options.memory_need(launch.nodes).require()
    count = plural(launch.nodes, "node")
    progress(f"starting Pulsar {launch.version} ({count}: ZooKeeper, and a bookie and a broker each)")
    return start_in_attempts(
        lambda: _start_once(launch, progress), launch.directory, launch.options.ports, progress
    )


def _start_once(launch: Launch, progress: Progress) -> RunningPulsar:
    layout = _lay_out(launch)
    started: list[processes.ManagedProcess] = []
    try:
        started.append(_start(launch, "zookeeper", [ZOOKEEPER_CLASS, "conf/zookeeper.conf"]))
        _wait(started, lambda: ready.zookeeper_missing(layout))
        _set_up(launch, layout)
        # The first bookie alone: it writes what all share, and two that do so at once end with BadVersion (apache/pulsar#16455).
        first, *others = launch.all_nodes()
        for nodes in ([first], others):
            for node in nodes:
                started.append(_start(launch, f"bookie-{node}", [BOOKIE_CLASS, "--conf", "conf/bookie.conf"]))
            _wait(started, lambda: ready.bookies_missing(layout, len(started) - 1))
        progress("the bookies are up; starting the brokers")
        for node in launch.all_nodes():
            command = [BROKER_CLASS, "--broker-conf", "conf/broker.conf"]
            started.append(_start(launch, f"broker-{node}", command))
        _wait(started, lambda: ready.brokers_missing(launch, layout))
        plan = launch.plan
        quorums = {
            "bookkeeperEnsemble": plan.ensemble,
            "bookkeeperWriteQuorum": plan.write_quorum,
            "bookkeeperAckQuorum": plan.ack_quorum,
        }
        namespace = str(launch.options.client.get("namespace", settings.NAMESPACE))
        admin.create_namespace(
            layout.web(1), settings.CLUSTER, namespace, quorums, BUNDLES_PER_NODE * launch.nodes
        )
    except BaseException:
        # Whatever the reason (Ctrl-C too) nothing stays behind, and data nobody has used needs no orderly shutdown.
        processes.kill(started)
        forget(layout.certificates)
        raise
    return RunningPulsar(launch=launch, layout=layout, started=started, certificates=layout.certificates)


def _lay_out(launch: Launch) -> Layout:
    """Chooses ports and writes the processes' directories."""
    free = processes.free_ports(1 + 6 * launch.nodes, avoid=launch.options.ports)
    zookeeper = free.pop()
    login: Mechanism | None = "token" if launch.guarded else None
    certificates = for_nodes(launch.tls, launch.directory, launch.placement, launch.nodes, login)
    if certificates is not None and login is not None:
        certificates = pulsar_tls.with_token(certificates)
    ports = []
    for node in launch.all_nodes():
        given = launch.options.ports[node - 1] if launch.options.ports else free.pop()
        host, inside = launch.placement.host(node), launch.placement.inside(node)
        own = settings.NodePorts(given, free.pop(), free.pop(), free.pop(), host, inside)
        if launch.tls:
            # The ports of the system file are those of the clients.
            own = dataclasses.replace(own, broker=free.pop(), broker_tls=given, web_tls=free.pop())
        ports.append(own)
    zookeeper_host = launch.placement.shared_host
    address = f"{zookeeper_host}:{zookeeper}"
    written: dict[str, Mapping[str, str]] = {
        "zookeeper": settings.zookeeper_settings(
            zookeeper, str(launch.directory / "zookeeper" / "data"), zookeeper_host
        )
    }
    for node, own in enumerate(ports, start=1):
        data = str(launch.directory / f"bookie-{node}" / "data")
        written[f"bookie-{node}"] = settings.bookie_settings(launch.plan, launch.options, address, own, data)
        broker = settings.broker_settings(launch.plan, launch.options, address, own)
        written[f"broker-{node}"] = broker | pulsar_tls.tls_settings(own, certificates)
    for name in (*written, SETUP):
        for part in PARTS:
            (launch.directory / name / part).mkdir(parents=True, exist_ok=True)
        if launch.volume is not None and _keeps_data(name):
            launch.volume(name, launch.directory / name / "data")
        logging = launch.directory / name / "conf" / "log4j2.properties"
        logging.write_text(settings.LOG4J2_TEXT, encoding="utf-8")
    for name, own_settings in written.items():
        kind = name.partition("-")[0]
        shipped = "" if kind == "zookeeper" else _shipped(launch, kind)
        text = settings.overlaid(shipped, own_settings)
        (launch.directory / name / "conf" / f"{kind}.conf").write_text(text, encoding="utf-8")
    return Layout(zookeeper, zookeeper_host, ports, written, certificates)


def _shipped(launch: Launch, kind: str) -> str:
    """The distribution's own configuration file."""
    name = {"bookie": "bookkeeper.conf", "broker": "broker.conf"}[kind]
    path = launch.installation.path / "conf" / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SystemFailure(f"the Pulsar distribution is not whole: {error}") from error


def process_command(launch: Launch, name: str, command: Sequence[str]) -> list[str]:
    """The command line of a process; it runs in the directory of that name."""
    kind = name.partition("-")[0]
    size = "zookeeper" if kind == SETUP else kind
    memory = launch.options.memory_mib
    flags = settings.jvm_flags(memory[size], memory.get(f"{size}_direct"), launch.options.jvm_flags)
    if kind == SETUP:
        # It ends before code that is compiled better has paid.
        flags.append(java.COMPILED_QUICKLY)
    home = launch.directory / name
    return [
        str(launch.java.executable),
        *flags,
        *launch.classes.flags(kind),
        # Native libraries (RocksDB, epoll) are unpacked there; so they are wiped with the rest.
        f"-Djava.io.tmpdir={home / 'tmp'}",
        f"-Dgauge.logs.dir={home / 'logs'}",
        f"-Dlog4j2.configurationFile={home / 'conf' / 'log4j2.properties'}",
        "-cp",
        f"{launch.installation.path}/lib/*",
        *command,
    ]


def _start(launch: Launch, name: str, command: Sequence[str]) -> processes.ManagedProcess:
    home = launch.directory / name
    argv, number = process_command(launch, name, command), name.rpartition("-")[2]
    environment = {key: value for key, value in os.environ.items() if key not in JVM_ENVIRONMENT}
    return processes.start(
        f"Pulsar {name}",
        launch.placement.command(int(number), argv) if number.isdigit() else argv,
        home / "logs" / "console.log",
        environment=environment,
        directory=home,
    )


def _set_up(launch: Launch, layout: Layout) -> None:
    """Writes the cluster's metadata into ZooKeeper, which is done once before the first bookie."""
    store = f"zk:{layout.zookeeper_host}:{layout.zookeeper}"
    first = layout.ports[0]
    command = [SETUP_CLASS, "--cluster", settings.CLUSTER, "--metadata-store", store]
    command += ["--configuration-metadata-store", store]
    command += ["--web-service-url", f"http://{first.host}:{first.web}"]
    command += ["--broker-service-url", f"pulsar://{first.host}:{first.broker}"]
    if launch.tls:
        command += ["--web-service-url-tls", f"https://{first.host}:{first.web_tls}"]
        command += ["--broker-service-url-tls", f"pulsar+ssl://{first.host}:{first.broker_tls}"]
    process = _start(launch, SETUP, command)
    try:
        if not process.wait(time.monotonic() + SETUP_TIMEOUT_S):
            raise SystemFailure(
                f"setting up Pulsar's metadata took longer than {SETUP_TIMEOUT_S:.0f} s (log: {process.log})"
            )
        if process.exit_status() != 0:
            raise SystemFailure(
                f"Pulsar's metadata could not be set up (log: {process.log}); the last lines are:\n"
                f"{processes.log_tail(process.log)}"
            )
    finally:
        processes.kill([process])


def _wait(started: Sequence[processes.ManagedProcess], waiting_for: Any) -> None:
    processes.await_started(
        waiting_for, started, START_TIMEOUT_S, lambda process: explain(process.log.parent), poll_s=0.25
    )


def _keeps_data(name: str) -> bool:
    """Whether a process has data that a crash can harm: brokers keep nothing."""
    return name.startswith(("bookie", "zookeeper"))


# ---------------------------------------------------------------------- running


@dataclass(kw_only=True)
class RunningPulsar(StartedCluster):
    """ZooKeeper, bookies and brokers that the lab has started, in this order."""

    launch: Launch = field(repr=False)
    layout: Layout = field(repr=False)

    name = "pulsar"
    wiped = ("data", "tmp")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.level: Level | None = self.launch.plan.level
        self._refusals: dict[str, int] = {}
        """Bookie -> how often its log said, when it was started last, that its place was taken."""
        self._looked_s: dict[str, float] = {}
        """Bookie -> when its log was looked at."""

    @property
    def connection(self) -> dict[str, Any]:
        options = {
            "admin": [f"{own.host}:{own.web_tls or own.web}" for own in self.layout.ports],
            "namespace": settings.NAMESPACE,
            **self.launch.options.client,
        }
        bootstrap = [f"{own.host}:{own.broker_tls or own.broker}" for own in self.layout.ports]
        plain = {"protocol": "pulsar", "bootstrap": bootstrap, "options": options}
        return secured(plain, self.security)

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(self.launch.plan.write_quorum, {})

    def processes(self) -> list[SystemProcess]:
        return [SystemProcess(process.name.removeprefix("Pulsar "), process.pid) for process in self.started]

    def explain(self, process: ManagedProcess) -> str:
        return why_it_died(process)

    def homes(self) -> Sequence[Path]:
        return [self.launch.directory / name for name in (*self.layout.settings, SETUP)]

    def goes_on(self) -> bool:
        """Brokers keep nothing, so that one of them takes over what the others had. A ledger needs as many bookies as it has
        copies: with one of three gone no new one can be begun.
        """
        lost = [process.name for process in self.started if not process.running()]
        return len(lost) < self.nodes and all("broker" in name for name in lost)

    knows_leaders = True
    leader_stores = False

    def leader(self, topic: str) -> str | None:
        """The node of the broker that owns the topic. Of its bookies none leads."""
        namespace = str(self.launch.options.client.get("namespace", settings.NAMESPACE))
        for asked in self.launch.all_nodes():
            web = self.layout.web(asked, ready.PROBE_TIMEOUT_S)
            for name in (f"{topic}-partition-0", topic):
                address = admin.owner(web, namespace, name)
                for node, other in enumerate(self.layout.ports, start=1):
                    if address in (f"{other.host}:{other.broker}", f"{other.host}:{other.broker_tls}"):
                        return f"node-{node}"
        return None

    def parts(self) -> Sequence[Part]:
        return [self._part(process) for process in self.started]

    def _part(self, process: ManagedProcess) -> Part:
        name = process.name.removeprefix("Pulsar ")
        kind, _, number = name.partition("-")

        def waits_for() -> str | None:
            if kind == "zookeeper":
                return ready.zookeeper_missing(self.layout)
            node = int(number)
            own = self.layout.ports[node - 1]
            if kind == "broker":
                return ready.broker_missing(node, self.layout)
            missing = ready.bookie_missing(node, own)
            return missing if missing is None else self._insist(name, process) or missing

        data = (self.launch.directory / name / "data",) if _keeps_data(name) else ()
        return Part(
            name,
            process,
            waits_for,
            data,
            lambda: self._refusals.update({name: len(self._refused(name))}),
        )

    def _refused(self, name: str) -> list[str]:
        """The place in ZooKeeper that a bookie has found taken, once for each time: what it had registered before it died is there until the session ends
        (30 s)."""
        log = self.launch.directory / name / "logs" / "server.log"
        return PLACE_TAKEN.findall(log.read_text(errors="replace")) if log.exists() else []

    def _insist(self, name: str, process: ManagedProcess) -> str | None:
        """Starts a bookie again that has given up because its place was taken, once that is free: its process stays, and would never serve. What it waits for
        then; None when it has not given up.
        """
        if time.monotonic() < self._looked_s.get(name, 0.0) + LOG_EVERY_S:
            return None
        self._looked_s[name] = time.monotonic()
        refused = self._refused(name)
        if process.down_on_purpose or len(refused) <= self._refusals.get(name, 0):
            return None
        if ready.is_held(self.layout, refused[-1]):
            return f"{name}'s registration of before to end, with its session of ZooKeeper (30 s)"
        self._refusals[name] = len(refused)
        process.respawn()
        return f"{name} to be started again: its registration of before was still there"

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        ports = enumerate(self.layout.ports, start=1)
        read, trouble = bookies.read({f"bookie-{node}": (own.inside, own.bookie_http) for node, own in ports})
        expected = Expectation(self.nodes, self.level, self.launch.plan, self.layout.settings)
        found = compare(describe(topics), read, topics, expected)
        return ReadBack(found.level, found.settings, (*trouble, *found.mismatches))

    def metric_sources(self) -> Sequence[MetricSource]:
        if not self.launch.has_metrics:
            return ()
        found = []
        for node, own in enumerate(self.layout.ports, start=1):
            found.append(METRICS.source(f"bookie-{node}", f"http://{own.inside}:{own.bookie_http}/metrics"))
            found.append(METRICS.source(f"broker-{node}", f"http://{own.host}:{own.web}/metrics/"))
        return found

    def configuration(self) -> dict[str, Any]:
        launch = self.launch
        hidden = {key: value for key, value in launch.options.client.items() if key != "token"}
        return {
            "version": self.version,
            "level": self.level,
            "acks": self.acks,
            "journal": launch.plan.journal,
            "profile": launch.options.profile,
            "tls": launch.tls,
            "quorums": {
                "ensemble": launch.plan.ensemble,
                "write": launch.plan.write_quorum,
                "ack": launch.plan.ack_quorum,
            },
            "java": {"version": launch.java.version, "executable": str(launch.java.executable)},
            "memory_mib": dict(launch.options.memory_mib),
            "client_options": hidden,
            "commands": {
                kind: process_command(launch, kind, [])[:-2] for kind in ("zookeeper", "bookie-1", "broker-1")
            },
            "settings_beside_the_distribution": {
                name: dict(own) for name, own in self.layout.settings.items()
            },
            "package": {
                **launch.installation.source,
                "sha256": {
                    name: digest
                    for name, digest in launch.installation.sha256.items()
                    if name.startswith("conf/")
                },
            },
        }

    def stop(self) -> None:
        self._stopped = True
        # From the top down: what loses what it stands on waits for it (a bookie without ZooKeeper for half a minute).
        for kind in ("broker", "bookie", "zookeeper"):
            processes.stop([process for process in self.started if kind in process.name], wait_s=STOP_WAIT_S)
