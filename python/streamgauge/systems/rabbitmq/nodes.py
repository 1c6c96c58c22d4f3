"""One or three RabbitMQ nodes as child processes on loopback.

Below the directory of a cluster:

    home/.erlang.cookie                                  the cluster's secret, random
    node-1/rabbitmq.conf, advanced.config, ...           as written for the node
    node-1/logs/{rabbit,console}.log                     kept when the data is wiped
    node-1/data                                          wiped
    tls/keys                                             with TLS: certificates and the nodes' key, wiped

Nodes are called gauge1@localhost and find each other through an epmd of our own (Erlang's port mapper), which is a
child process like the nodes: the machine's epmd, if there is one, is left alone. Nodes are started by the scripts in
/usr/lib/rabbitmq/bin: those in /usr/sbin change the user and drop the environment.
"""

from __future__ import annotations

import csv
import json
import os
import re
import secrets
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from streamgauge.model.security import secured
from streamgauge.systems.base import Describe, Progress, ReadBack, SystemProcess, TopicPlan
from streamgauge.systems.base.own_metrics import MetricSource
from streamgauge.systems.base.parts import Part
from streamgauge.systems.rabbitmq import settings
from streamgauge.systems.rabbitmq.metrics import METRICS
from streamgauge.systems.support import processes
from streamgauge.systems.support.certificates import Certificates, for_nodes, forget
from streamgauge.systems.support.cluster import (
    ClusterLaunch,
    StartedCluster,
    fresh_directory,
    start_in_attempts,
)
from streamgauge.systems.support.network import ON_LOOPBACK
from streamgauge.systems.support.processes import ManagedProcess
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.files import write_secret
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level

LIBRARY = Path("/usr/lib/rabbitmq")
START_TIMEOUT_S = 120.0
"""Far above the usual 5 s: a busy machine starts Erlang slowly, and a real failure ends the wait at once."""
TOOL_TIMEOUT_S = 60.0
ON_LOOPBACK_ALONE = "-kernel inet_dist_use_interface {127,0,0,1}"
READ_BACK = (
    'rabbit_json:encode([{N, [{<<"ra.wal_sync_method">>, rpc:call(N, application, get_env, '
    "[ra, wal_sync_method, datasync])}, "
    '{<<"rabbit.classic_queue_default_version">>, rpc:call(N, application, get_env, '
    "[rabbit, classic_queue_default_version, 1])}, "
    '{<<"schedulers">>, rpc:call(N, erlang, system_info, [schedulers_online])}, '
    '{<<"vm_memory_limit_bytes">>, rpc:call(N, vm_memory_monitor, get_memory_limit, [])}]} '
    "|| N <- rabbit_nodes:all_running()])."
)
"""Asks every running node at once: each call of rabbitmqctl costs a second of CPU."""


@dataclass(frozen=True, kw_only=True)
class Launch(ClusterLaunch):
    """Everything that is decided before the first process runs."""

    options: settings.Options
    plan: settings.Plan


@dataclass(frozen=True)
class Layout:
    """Ports and files of one start."""

    client_ports: Sequence[int]
    stream_ports: Sequence[int]
    """Where the nodes' stream plugins listen; empty without the plugin."""
    metrics_ports: Sequence[int]
    """Where the nodes tell their metrics; empty where nobody asks."""
    distribution_ports: Sequence[int]
    epmd_port: int
    files: Mapping[str, str]
    certificates: Certificates | None = None
    """With TLS."""


def node_name(node: int) -> str:
    """The Erlang name of a node."""
    return f"gauge{node}@localhost"


def start_cluster(launch: Launch, progress: Progress) -> RunningRabbitMq:
    """Starts the first node and then the others, which find it and join one after the other (RabbitMQ has a lock for that), and waits until all serve.

    Raises SystemFailure with the reason from RabbitMQ's log; nothing is left running then.
    """
    if " " in str(launch.directory):
        raise SystemFailure(
            f"{launch.directory}: RabbitMQ cannot keep its data below a path with a space; choose another directory"
        )
    fresh_directory(launch.directory, "RabbitMQ")
    count = plural(launch.nodes, "node")
    kind = "streams" if launch.plan.queue == "stream" else f"{launch.plan.queue} queues"
    progress(f"starting RabbitMQ {launch.version} ({count}, {kind})")
    return start_in_attempts(
        lambda: _start_once(launch, progress), launch.directory, launch.options.ports, progress
    )


def _start_once(launch: Launch, progress: Progress) -> RunningRabbitMq:
    layout = _lay_out(launch)
    started: list[processes.ManagedProcess] = []
    try:
        started.append(
            processes.start(
                "epmd",
                ["epmd", "-port", str(layout.epmd_port), "-address", processes.LOOPBACK],
                launch.directory / "epmd.log",
                environment=_base_environment(launch, layout),
            )
        )
        _await(started, layout, lambda: _refuses("epmd", layout.epmd_port))
        first, *others = launch.all_nodes()
        for nodes in ([first], others):
            started += [_start_node(launch, layout, node) for node in nodes]
            for node in nodes:
                # It says in its log that it has started, and takes connections.
                _await(started, layout, partial(_node_missing, launch, layout, node, starts=1))
        running = RunningRabbitMq(
            launch=launch, layout=layout, started=started, certificates=layout.certificates
        )
        running.complete(progress)
    except BaseException:
        # Whatever the reason (Ctrl-C too) nothing stays behind.
        processes.kill(started)
        forget(layout.certificates)
        raise
    return running


def _start_node(launch: Launch, layout: Layout, node: int) -> ManagedProcess:
    return processes.start(
        f"RabbitMQ node {node}",
        [str(LIBRARY / "bin" / "rabbitmq-server")],
        launch.home(node) / "logs" / "console.log",
        environment=_environment(launch, layout, node),
        directory=launch.home(node),
    )


def _lay_out(launch: Launch) -> Layout:
    """Chooses ports and writes the nodes' directories."""
    has_streams = launch.plan.protocol == "stream"
    kinds = 3 + has_streams
    avoid = (*launch.options.ports, *launch.options.stream_ports)
    free = iter(processes.free_ports(kinds * launch.nodes + 1, avoid=avoid))
    client_ports = list(launch.options.ports) or list(islice(free, launch.nodes))
    stream_ports: list[int] = []
    if has_streams:
        stream_ports = list(launch.options.stream_ports) or list(islice(free, launch.nodes))
    metrics_ports = list(islice(free, launch.nodes)) if launch.has_metrics else []
    names = [node_name(node) for node in launch.all_nodes()]
    certificates = for_nodes(launch.tls, launch.directory, ON_LOOPBACK, launch.nodes)
    files = {}
    for node in launch.all_nodes():
        for name in ("logs", "data", "generated", "schema"):
            (launch.home(node) / name).mkdir(parents=True, exist_ok=True)
        if launch.volume is not None:
            launch.volume(f"node-{node}", launch.home(node) / "data")
        port, stream_port = client_ports[node - 1], stream_ports[node - 1] if has_streams else None
        files[f"node-{node}/rabbitmq.conf"] = settings.configuration_file(
            port,
            names,
            launch.options,
            stream_port,
            certificates,
            metrics_ports[node - 1] if metrics_ports else None,
        )
        files[f"node-{node}/advanced.config"] = settings.advanced_file(launch.plan)
        files[f"node-{node}/enabled_plugins"] = settings.plugins_file(
            launch.plan, has_metrics=launch.has_metrics
        )
    for name, text in files.items():
        (launch.directory / name).write_text(text, encoding="ascii")
    home = launch.directory / "home"
    home.mkdir(exist_ok=True)
    write_secret(home / ".erlang.cookie", secrets.token_hex(20).encode(), 0o400)
    distribution_ports = list(islice(free, launch.nodes))
    return Layout(
        client_ports, stream_ports, metrics_ports, distribution_ports, next(free), files, certificates
    )


def _base_environment(launch: Launch, layout: Layout) -> dict[str, str]:
    """Without the caller's RABBITMQ_ and ERL_ variables, which would change settings behind the report's back."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RABBITMQ_", "ERL_", "ROOTDIR", "BINDIR", "EMU"))
    }
    return kept | {
        "HOME": str(launch.directory / "home"),
        "ERL_EPMD_PORT": str(layout.epmd_port),
        "ERL_EPMD_ADDRESS": processes.LOOPBACK,
        # Nodes, RabbitMQ's tools and what these start all bring a port mapper with them where none answers yet: one that nobody stops.
        "ERL_ZFLAGS": "-start_epmd false",
    }


def _environment(launch: Launch, layout: Layout, node: int) -> dict[str, str]:
    home = launch.home(node)
    port = layout.distribution_ports[node - 1]
    # A machine that has its name already listens for other nodes at once. Without, RabbitMQ first opens the port on
    # all addresses for a moment, to see whether it is free (rabbit_prelaunch_dist).
    named = f"-sname {node_name(node)} -kernel inet_dist_listen_min {port} inet_dist_listen_max {port}"
    erlang = f"{ON_LOOPBACK_ALONE} {named}"
    if launch.options.schedulers is not None:
        erlang += f" +S {launch.options.schedulers}:{launch.options.schedulers}"
    return _base_environment(launch, layout) | {
        "RABBITMQ_NODENAME": node_name(node),
        "RABBITMQ_DIST_PORT": str(port),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "logs"),
        "RABBITMQ_LOGS": str(home / "logs" / "rabbit.log"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(home / "generated"),
        "RABBITMQ_SCHEMA_DIR": str(home / "schema"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(home / "feature_flags"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": erlang,
        # rabbitmqctl is an Erlang node too, and listens while it runs.
        "RABBITMQ_CTL_ERL_ARGS": ON_LOOPBACK_ALONE,
    }


def _await(started: Sequence[ManagedProcess], layout: Layout, missing: Callable[[], str | None]) -> None:
    def why(process: ManagedProcess) -> str:
        holder = processes.port_holder(layout.epmd_port) if process is started[0] else None
        # It ends without a word, and with status 0, where somebody else has its port.
        return (
            explain(process.log) if holder is None else f"its port {layout.epmd_port} is in use by {holder}"
        )

    processes.await_started(missing, started, START_TIMEOUT_S, why)


def _node_missing(launch: Launch, layout: Layout, node: int, starts: int) -> str | None:
    """What a node still has to do when it has been started so many times; None when it serves."""
    name = f"RabbitMQ node {node}"
    if _starts_told(launch, node) < starts:
        return f"{name} to say in its log that it has started"
    ports = [listeners[node - 1] for listeners in (layout.client_ports, layout.stream_ports) if listeners]
    return next((refused for port in ports if (refused := _refuses(name, port))), None)


def _refuses(name: str, port: int) -> str | None:
    try:
        socket.create_connection((processes.LOOPBACK, port), timeout=1.0).close()
    except OSError as error:
        return f"{name} to accept connections on port {port} ({error})"
    return None


def _starts_told(launch: Launch, node: int) -> int:
    """How often a node says in its log that it has started."""
    log = launch.home(node) / "logs" / "rabbit.log"
    return log.read_text(errors="replace").count("Server startup complete") if log.exists() else 0


def explain(console: Path) -> str:
    """Why a node ended: the last errors of its log, else the last lines of what it printed."""
    text = processes.log_tail(console.parent / "rabbit.log", lines=200)
    errors = [line for line in text.splitlines() if "[error]" in line and line.rstrip()[-1:] != ">"]
    if errors:
        return f"{errors[-1]} (logs: {console.parent})"
    tail = processes.log_tail(console)
    # The shell around Erlang says so and ends without an error of its own.
    if tail.rstrip().endswith("Killed"):
        return f"its Erlang machine was killed by SIGKILL (logs: {console.parent})"
    return f"the last lines of {console} are:\n{tail}" if tail else f"its logs in {console.parent} are empty"


@dataclass(kw_only=True)
class RunningRabbitMq(StartedCluster):
    """Nodes that the lab has started, and before them their epmd."""

    launch: Launch = field(repr=False)
    layout: Layout = field(repr=False)

    name = "rabbitmq"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.level: Level | None = self.launch.plan.level
        self._starts: dict[int, int] = {}
        """Node -> how often its log must say that it has started; 1 where nothing is known."""

    @property
    def serving(self) -> Sequence[ManagedProcess]:
        return self.started[1:]

    def metric_sources(self) -> Sequence[MetricSource]:
        return [
            METRICS.source(f"node-{node}", f"http://{processes.LOOPBACK}:{port}/metrics")
            for node, port in enumerate(self.layout.metrics_ports, start=1)
        ]

    def explain(self, process: ManagedProcess) -> str:
        return explain(process.log)

    def complete(self, progress: Progress) -> None:
        """What is done once all nodes run: the cluster is looked at, and the policy of mirrored queues set."""
        if self.nodes > 1:
            progress("looking at the cluster")
            status = json.loads(self._tool("cluster_status", "--formatter", "json"))
            found = len(status.get("running_nodes") or [])
            if found != self.nodes:
                raise SystemFailure(
                    f"{self.nodes} RabbitMQ nodes were started, but the cluster has {found} running nodes"
                )
        if self.launch.plan.queue == "mirrored":
            policy = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
            self._tool("set_policy", "ha-all", ".*", policy, "--apply-to", "queues")

    def without_content(self, topic: str) -> Sequence[str]:
        if self.launch.plan.queue != "quorum":
            return ()
        try:
            listed = json.loads(self._tool("list_queues", "--formatter", "json", "name"))
            queues = [str(queue["name"]) for queue in listed if str(queue["name"]).startswith(f"{topic}.")]
            told = {
                name: json.loads(
                    self._tool("quorum_status", name, "--formatter", "json", tool="rabbitmq-queues")
                )
                for name in queues
            }
        except (SystemFailure, ValueError):
            return ()
        return [words for name, members in told.items() if (words := emptied(name, members))]

    def _tool(self, *arguments: str, tool: str = "rabbitmqctl") -> str:
        """Runs one of RabbitMQ's tools against the first node that lives. Raises SystemFailure."""
        alive = [at for at, process in enumerate(self.serving, start=1) if process.running()]
        node = alive[0] if alive else 1
        command = [str(LIBRARY / "bin" / tool), "-q", "-n", node_name(node), *arguments]
        try:
            done = subprocess.run(
                command,
                env=_environment(self.launch, self.layout, node),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TOOL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SystemFailure(f"{tool} {arguments[0]} failed: {error}") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise SystemFailure(f"{tool} {arguments[0]} failed: {said[-1] if said else 'no message'}")
        return done.stdout

    @property
    def connection(self) -> dict[str, Any]:
        plan = self.launch.plan
        amqp = [f"{processes.LOOPBACK}:{port}" for port in self.layout.client_ports]
        if plan.protocol == "stream":
            bootstrap = [f"{processes.LOOPBACK}:{port}" for port in self.layout.stream_ports]
            own = {"amqp": amqp, "stream_arguments": plan.stream_arguments(self.nodes)}
            options = dict(self.launch.options.client) | own
            plain = {"protocol": "rabbitmq-stream", "bootstrap": bootstrap, "options": options}
            return secured(plain, self.security)
        options = dict(self.launch.options.client) | {
            "persistent": plan.persistent,
            "queue_arguments": plan.queue_arguments(self.nodes),
        }
        plain = {"protocol": "rabbitmq", "bootstrap": amqp, "options": options}
        return secured(plain, self.security)

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(self.launch.plan.copies, {})

    def processes(self) -> list[SystemProcess]:
        """The nodes' Erlang machines; the shells that started them do nothing."""
        found = []
        for node, process in enumerate(self.serving, start=1):
            pid = process.pid
            pid_file = self.launch.home(node) / "pid"
            if pid_file.exists() and pid_file.read_text().strip().isdigit():
                pid = int(pid_file.read_text())
            found.append(SystemProcess(f"node-{node}", pid))
        return found

    knows_leaders = True

    def leader(self, topic: str) -> str | None:
        first = {topic, f"{topic}-0", f"{topic}.0"}
        try:
            listed = self._tool("list_queues", "--formatter", "csv", "name", "leader", "pid")
        except SystemFailure:
            return None
        for queue in csv.DictReader(listed.splitlines()):
            if queue.get("name") in first:
                # A classic queue has a process alone, whose name begins with its node's; as JSON that name is left out.
                told = queue.get("leader") or queue.get("pid") or ""
                return next(
                    (f"node-{node}" for node in self.launch.all_nodes() if node_name(node) in told), None
                )
        return None

    def parts(self) -> Sequence[Part]:
        return [self._part(node, process) for node, process in enumerate(self.serving, start=1)]

    def _part(self, node: int, process: ManagedProcess) -> Part:
        def note_starts() -> None:
            self._starts[node] = _starts_told(self.launch, node) + 1

        return Part(
            f"node-{node}",
            process,
            lambda: _node_missing(self.launch, self.layout, node, self._starts.get(node, 1)),
            (self.launch.home(node) / "data",),
            note_starts,
        )

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        columns = ("name", "type", "durable", "policy", "arguments", "members", "slave_pids")
        listed = json.loads(self._tool("list_queues", "--formatter", "json", *columns))
        nodes = _json_of_eval(self._tool("eval", READ_BACK))
        return compare(listed, nodes, describe(topics), topics, self.launch)

    def configuration(self) -> dict[str, Any]:
        launch = self.launch
        return {
            "version": self.version,
            "level": self.level,
            "queue": launch.plan.queue,
            "protocol": launch.plan.protocol,
            "persistent": launch.plan.persistent,
            "queue_arguments": launch.plan.queue_arguments(self.nodes),
            "memory_mb": launch.options.memory_mb,
            "schedulers": launch.options.schedulers,
            "client_ports": list(self.layout.client_ports),
            "stream_ports": list(self.layout.stream_ports),
            "tls": launch.tls,
            "files": dict(self.layout.files),
        }

    def stop(self) -> None:
        self._stopped = True
        processes.stop(self.serving)
        # Last: nodes that say goodbye to each other need epmd.
        super().stop()


def emptied(queue: str, members: Sequence[Mapping[str, Any]]) -> str | None:
    """What `quorum_status` says of a queue whose members have all begun anew: without a term and without an entry, as no queue is once it was declared.
    None of any other queue.
    """
    if not members or any(member.get("Log Index") != 0 or member.get("Term") != 0 for member in members):
        return None
    told = ", ".join(f"{member.get('Node Name')} is {member.get('Raft State')}" for member in members)
    return f"rabbitmq-queues quorum_status {queue}: {told}, log index 0, term 0"


def _json_of_eval(text: str) -> dict[str, dict[str, Any]]:
    """The JSON in what `rabbitmqctl eval` prints: an Erlang binary, <<"...">>, with escaped quotes."""
    found = re.search(r'<<"(.*)">>', text, re.DOTALL)
    if found is None:
        raise SystemFailure(f"rabbitmqctl eval printed no JSON: {text.strip()[:200]}")
    read: dict[str, dict[str, Any]] = json.loads(found.group(1).replace('\\"', '"').replace("\n", ""))
    return read


def compare(
    listed: Sequence[Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
    description: Mapping[str, Any],
    topics: Sequence[str],
    launch: Launch,
) -> ReadBack:
    """Judges what the live nodes tell against what was asked."""
    plan = launch.plan
    found: dict[str, Any] = {"persistent": plan.persistent, "nodes": len(nodes)}
    mismatches: list[str] = []
    if len(nodes) != launch.nodes:
        mismatches.append(f"{launch.nodes} RabbitMQ nodes were expected, but {len(nodes)} answer")
    for name, values in nodes.items():
        found |= {f"node.{name}.{key}": value for key, value in values.items()}
    wal_fsync = all(values.get("ra.wal_sync_method") in ("datasync", "sync") for values in nodes.values())
    levels: list[Level] = []
    by_topic = description.get("topics") or {}
    for topic in topics:
        # A stream of a super stream is called t-0, the only stream of a topic t, a queue t.0.
        suffix = r"(-\d+)?" if plan.protocol == "stream" else r"\.\d+"
        queues = [queue for queue in listed if re.fullmatch(re.escape(topic) + suffix, str(queue["name"]))]
        if not queues or topic not in by_topic:
            mismatches.append(f"topic {topic} is not there")
        for queue in queues:
            kind, copies = _kind_and_copies(queue)
            levels.append(settings.level_of(kind, plan.persistent, wal_fsync, copies))
            if (kind, copies) != (plan.queue, plan.copies):
                mismatches.append(
                    f"queue {queue['name']} is {kind} with {plural(copies, 'copy')} instead of {plan.queue} with {plan.copies}"
                )
            found |= {"topic.queue": kind, "topic.copies": copies, "topic.durable": queue.get("durable")}
    if any(level != plan.level for level in levels):
        weakest = max(levels)
        mismatches.append(
            f"durability {plan.level} was asked for, but the settings read back amount to {weakest}"
        )
    return ReadBack(
        level=max(levels, default=None), settings=found, mismatches=tuple(dict.fromkeys(mismatches))
    )


def _kind_and_copies(queue: Mapping[str, Any]) -> tuple[settings.Queue, int]:
    if "quorum" in str(queue.get("type")):
        return "quorum", len(queue.get("members") or [])
    if "stream" in str(queue.get("type")):
        return "stream", len(queue.get("members") or [])
    mirrors = queue.get("slave_pids")
    if isinstance(mirrors, list) and mirrors:
        return "mirrored", 1 + len(mirrors)
    return "classic", 1
