"""What Kafka is told: the options of a system file, configuration files and JVM flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base import boundary
from streamgauge.systems.base.options import (
    byte_count,
    extra_jvm_flags,
    known,
    mapping,
    ports,
    size_mib,
    text,
    version_numbers,
)
from streamgauge.systems.support import java
from streamgauge.systems.support.memory import MIB, MemoryNeed
from streamgauge.vocabulary.errors import SystemInputError
from streamgauge.vocabulary.format import plural

OPTION_KEYS = frozenset({"heap", "jvm_flags", "ports", "broker", "topic", "client"})
CLIENT_KEYS = ("fetch.max.bytes", "max.partition.fetch.bytes")
"""How much consumers ask for at once, by the names of Kafka's own consumer."""
FETCH_BYTES = (64 << 10, 64 << 20)
VERSION_MIN = (2, 6)
"""The oldest that was tried."""
KRAFT_SINCE = (3, 3)
"""KRaft is ready for production since 3.3 (KIP-833); before it a cluster stands on ZooKeeper."""
LOG4J2_SINCE = (4, 0)
"""Kafka 4.0 moved from log4j 1 (reload4j) to log4j 2 (KIP-653)."""
SHARE_GROUPS_SINCE = (4, 0)
"""Share groups and their state topic (KIP-932)."""

HEAP_MIB_MIN = 256
SMALL_MACHINE_BYTES = 16 * 1024 * MIB
BESIDE_THE_HEAP_MIB = 350
"""What a broker needs besides its heap (code, threads, direct buffers), measured fresh: about 300 MiB."""

RESERVED_BROKER_KEYS = {
    **dict.fromkeys(
        (
            "process.roles",
            "node.id",
            "broker.id",
            "controller.quorum.voters",
            "controller.quorum.bootstrap.servers",
        ),
        "the lab lays out the nodes itself; use `nodes`",
    ),
    **dict.fromkeys(
        (
            "listeners",
            "advertised.listeners",
            "inter.broker.listener.name",
            "controller.listener.names",
            "listener.security.protocol.map",
            "port",
            "advertised.port",
            "host.name",
            "advertised.host.name",
        ),
        "the lab binds the nodes to loopback itself; use `ports`",
    ),
    **dict.fromkeys(
        ("log.dir", "log.dirs", "metadata.log.dir"),
        "the lab puts the data into the run's directory and wipes it",
    ),
    "zookeeper.connect": "the lab runs Kafka in KRaft mode only",
}
RESERVED_BROKER_PREFIXES = {
    "ssl.keystore.": "the lab makes the certificates; use `tls`",
    "ssl.client.auth": "clients of the lab show no certificate",
    "listener.name.": "the lab lays out the listeners itself; use `ports` and `tls`",
}
ALLOWED = boundary.Allowed(
    # Listeners, which have numbers in them, are reserved; no other number of a broker reaches beyond its own directory.
    numbers=re.compile(r"[a-z0-9.]+", re.ASCII),
    words=frozenset(
        {
            "cleanup.policy",
            "compression.type",
            "group.consumer.migration.policy",
            "group.coordinator.rebalance.protocols",
            "inter.broker.protocol.version",
            "log.cleanup.policy",
            "log.message.format.version",
            "log.message.timestamp.type",
            "message.timestamp.type",
            "ssl.cipher.suites",
            "ssl.enabled.protocols",
            "ssl.protocol",
        }
    ),
)
RESERVED_TOPIC_KEYS = {
    "replication.factor": "the number of copies follows from `nodes` and the durability level",
    "partitions": "the number of partitions belongs to the workload",
    "num.partitions": "the number of partitions belongs to the workload",
}


# ---------------------------------------------------------------------- options of a system file


@dataclass(frozen=True)
class Options:
    """The options of a system file, checked."""

    heap_mib: int | None = None
    jvm_flags: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    """Client ports, one per node; empty: free ones."""
    broker: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, int] = field(default_factory=dict)
    """Options of the client, as they are (docs/systems/kafka.md)."""

    def heap_for(self, nodes: int, memory_bytes: int) -> int:
        """Heap of each node in MiB: as asked, else 1 GiB; 768 MiB each where three share a machine of less
        than 16 GiB.
        """
        if self.heap_mib is not None:
            return self.heap_mib
        return 768 if nodes > 1 and memory_bytes < SMALL_MACHINE_BYTES else 1024


def parse_version(version: str, where: str) -> tuple[int, int]:
    """Major and minor number. Raises SystemInputError for what is no version, or one that is too old."""
    line = version_numbers(version, where, "Kafka", "4.3.1")[:2]
    if line < VERSION_MIN:
        raise SystemInputError(
            f"{where}Kafka {version} is older than what the lab starts: 2.6 and later, those before 3.3 with ZooKeeper. "
            "To measure an older one, start it yourself and use --connect host:port"
        )
    return line


def parse_options(request: SystemRequest) -> Options:
    """Checks the options of a request. Raises SystemInputError that names the key, what was expected, and the
    nearest known key.
    """
    where = where_of(request)
    known(request.options, OPTION_KEYS, f"{where}unknown key '{{}}' for Kafka")
    return Options(
        heap_mib=_heap(request.options.get("heap"), where),
        jvm_flags=extra_jvm_flags(
            request.options.get("jvm_flags"), where, r"-Xm[xs]", "sets the heap; use the key heap instead"
        ),
        ports=ports(request.options.get("ports"), request.nodes, where),
        broker=_settings(request.options.get("broker"), "broker", RESERVED_BROKER_KEYS, where),
        topic=_settings(request.options.get("topic"), "topic", RESERVED_TOPIC_KEYS, where),
        client=_client(request.options.get("client"), where),
    )


def memory_need(nodes: int, heap_mib: int) -> MemoryNeed:
    """What the nodes take."""
    what = f"{plural(nodes, 'node')} of Kafka with a heap of {heap_mib} MiB each"
    return MemoryNeed(what, nodes * (heap_mib + BESIDE_THE_HEAP_MIB), "set a smaller heap in the system file")


def untrusted(request: SystemRequest) -> Iterator[Untrusted]:
    """What is done for a trusted file alone. Topics' settings are the brokers' to judge: they name no code."""
    yield from boundary.jvm_flags(request.options.get("jvm_flags"))
    yield from boundary.settings("broker", request.options.get("broker"), ALLOWED)


def _heap(value: object, where: str) -> int | None:
    if value is None:
        return None
    mib = size_mib(value)
    if mib is None:
        raise SystemInputError(
            f"{where}heap '{value}': expected a size in MiB or GiB such as 1g, 768m or 768MiB"
        )
    if mib < HEAP_MIB_MIN:
        raise SystemInputError(
            f"{where}heap '{value}' is too small for a broker; expected at least {HEAP_MIB_MIN}m"
        )
    return mib


def _client(value: object, where: str) -> dict[str, int]:
    client = mapping(value, "client", where)
    known(client, CLIENT_KEYS, f"{where}client: unknown key '{{}}'")
    return {name: byte_count(size, *FETCH_BYTES, f"{where}client.{name}") for name, size in client.items()}


def _settings(value: object, key: str, reserved: Mapping[str, str], where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SystemInputError(f"{where}{key}: expected settings such as num.io.threads: 8")
    settings = {}
    for name, setting in value.items():
        reason = reserved.get(name) or _reserved_by_prefix(key, str(name))
        if reason is not None:
            raise SystemInputError(f"{where}{key}.{name} cannot be set: {reason}")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise SystemInputError(f"{where}{key}: '{name}' is no name of a Kafka setting")
        settings[name] = _text(setting, f"{where}{key}.{name}")
    return settings


def _reserved_by_prefix(key: str, name: str) -> str | None:
    if key != "broker":
        return None
    return next(
        (why for prefix, why in RESERVED_BROKER_PREFIXES.items() if name.startswith(prefix)),
        None,
    )


def _text(value: object, what: str) -> str:
    """A YAML value as Kafka writes it."""
    if isinstance(value, (bool, str, int, float)):
        return text(value)
    if isinstance(value, Sequence):
        return ",".join(_text(item, what) for item in value)
    raise SystemInputError(f"{what}: expected a text, a number, true or false, not {value!r}")


def whole_number(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


# ---------------------------------------------------------------------- files and flags

LOG4J2_TEXT = """\
status = error
appender.server.type = RollingFile
appender.server.name = server
appender.server.fileName = ${sys:kafka.logs.dir}/server.log
appender.server.filePattern = ${sys:kafka.logs.dir}/server.log.%i
appender.server.layout.type = PatternLayout
appender.server.layout.pattern = [%d] %p %m (%c)%n
appender.server.policies.type = Policies
appender.server.policies.size.type = SizeBasedTriggeringPolicy
appender.server.policies.size.size = 50MB
appender.server.strategy.type = DefaultRolloverStrategy
appender.server.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.server.ref = server
"""

LOG4J_TEXT = """\
log4j.rootLogger=INFO, server
log4j.appender.server=org.apache.log4j.RollingFileAppender
log4j.appender.server.File=${kafka.logs.dir}/server.log
log4j.appender.server.MaxFileSize=50MB
log4j.appender.server.MaxBackupIndex=2
log4j.appender.server.layout=org.apache.log4j.PatternLayout
log4j.appender.server.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def cluster_settings(nodes: int, line: tuple[int, int], options: Options) -> dict[str, str]:
    """Broker settings that are the same on every node: ours, then the system file's."""
    copies = min(nodes, 3)
    majority = copies // 2 + 1
    settings = {
        # Topics are created by the worker with the level's settings; one that springs up by itself would have
        # others.
        "auto.create.topics.enable": "false",
        # Groups need not wait for members that will not come.
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(majority),
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(majority),
    }
    if line >= SHARE_GROUPS_SINCE:
        settings["share.coordinator.state.topic.replication.factor"] = str(copies)
        settings["share.coordinator.state.topic.min.isr"] = str(majority)
    return settings | dict(options.broker)


@dataclass(frozen=True)
class Listeners:
    """Where the nodes listen: host:port of each node, in their order."""

    clients: Sequence[str]
    controllers: Sequence[str]
    between: Sequence[str] = ()
    """Where brokers listen for each other when clients speak TLS or are elsewhere; empty: at the clients' addresses."""
    is_encrypted: bool = False
    """Whether clients speak TLS."""
    logs_in: bool = False
    """Whether they must log in besides."""


def node_settings(node: int, listeners: Listeners, data: str) -> dict[str, str]:
    """Settings of one node (1, 2, ...) in KRaft's combined mode."""
    voters = ",".join(f"{index}@{address}" for index, address in enumerate(listeners.controllers, start=1))
    clients = "SSL" if listeners.is_encrypted else "PLAINTEXT"
    brokers, between = f"{clients}://{listeners.clients[node - 1]}", clients
    kinds = f"{clients}:{'SASL_SSL' if listeners.logs_in else clients}"
    if listeners.between:
        # What nodes send each other stays in plain text: what is measured is the encryption of clients.
        brokers += f",INTERNAL://{listeners.between[node - 1]}"
        between, kinds = "INTERNAL", f"{kinds},INTERNAL:PLAINTEXT"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": f"{brokers},CONTROLLER://{listeners.controllers[node - 1]}",
        "advertised.listeners": brokers,
        "inter.broker.listener.name": between,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{kinds},CONTROLLER:PLAINTEXT",
        "log.dirs": data,
    }


def zookeeper_settings(node: int, listeners: Listeners, data: str) -> dict[str, str]:
    """Settings of one node (1, 2, ...) of a cluster that stands on a ZooKeeper, at the first of the controllers' addresses."""
    found = node_settings(node, listeners, data)
    brokers = found["advertised.listeners"]
    left_out = ("process.roles", "node.id", "controller.quorum.voters", "controller.listener.names")
    return {key: value for key, value in found.items() if key not in left_out} | {
        "broker.id": str(node),
        "zookeeper.connect": listeners.controllers[0],
        "listeners": brokers,
        "listener.security.protocol.map": found["listener.security.protocol.map"].removesuffix(
            ",CONTROLLER:PLAINTEXT"
        ),
    }


def zookeeper_text(address: str, data: str) -> str:
    """The configuration of a ZooKeeper of one node."""
    host, _, port = address.rpartition(":")
    settings = {
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": host,
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
    }
    return properties_text(settings, "ZooKeeper of a Kafka before KRaft, written by streamgauge")


def tls_settings(key_and_certificate: str, *, logs_in: bool = False) -> dict[str, str]:
    """Settings of the clients' listener; the path of a PEM file with both (KIP-651)."""
    login = {"sasl.enabled.mechanisms": "PLAIN"} if logs_in else {}
    return login | {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_and_certificate,
        "ssl.client.auth": "none",
    }


def logins_text(user: str, password: str) -> str:
    """A JAAS file: the one user whom the clients' listener takes."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'KafkaServer {{\n  {module} required user_{user}="{password}";\n}};\n'


def properties_text(settings: Mapping[str, str], heading: str) -> str:
    """A Java properties file, escaped as java.util.Properties reads it."""
    lines = [f"# {heading}"]
    for key, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        if escaped.startswith(" "):
            escaped = "\\" + escaped
        lines.append(f"{key}={_ascii(escaped)}")
    return "\n".join(lines) + "\n"


def _ascii(text: str) -> str:
    """Properties files are ISO 8859-1; everything beyond ASCII is written as UTF-16 escapes."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[index : index + 2]) for index in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


@dataclass(frozen=True)
class LoggingFile:
    """The configuration of a node's log: one file, logs/server.log, bounded."""

    name: str
    text: str
    flag: str
    """The JVM flag that names the file, up to its path."""


def logging_file(line: tuple[int, int]) -> LoggingFile:
    """The logging configuration for a release line."""
    if line >= LOG4J2_SINCE:
        return LoggingFile("log4j2.properties", LOG4J2_TEXT, "-Dlog4j2.configurationFile=")
    return LoggingFile("log4j.properties", LOG4J_TEXT, "-Dlog4j.configuration=file:")


def jvm_flags(heap_mib: int, extra: Sequence[str]) -> list[str]:
    """Flags of a broker's JVM; paths are relative to the node's directory, in which it runs."""
    return [
        *java.flags(heap_mib),
        # The collector's goals as in Kafka's own start script, because that is what people run.
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-XX:MaxInlineLevel=15",
        *extra,
    ]
