"""RabbitMQ's options, durability levels and files.

Two things decide how durable a message is in RabbitMQ: what kind of queue it goes to, and whether it is persistent
(AMQP's delivery mode 2). `level_of` is that theory as code; planning and reading back both use it.

- A *classic* queue keeps one copy. RabbitMQ before 3.13 fsyncs persistent messages before it confirms them, many at
  a time; transient ones are confirmed from memory.
- A *mirrored* classic queue (policy `ha-mode: all`, gone since RabbitMQ 4) confirms when all mirrors have done so.
- A *quorum* queue confirms when a majority has the message in its write-ahead log. The log is fsynced
  (`ra.wal_sync_method = datasync`) unless that is turned off, and then the same queue is replicated and not fsynced.
- A *stream* confirms when a majority has the message in its log, which is never fsynced for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base import boundary
from streamgauge.systems.base.options import known, ports, text
from streamgauge.systems.support.certificates import Certificates
from streamgauge.systems.support.processes import LOOPBACK
from streamgauge.vocabulary.errors import SystemInputError
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level, level_with

Queue = Literal["classic", "mirrored", "quorum", "stream"]
QUEUES: tuple[Queue, ...] = get_args(Queue)
ClientProtocol = Literal["amqp", "stream"]
PROTOCOLS: tuple[ClientProtocol, ...] = ("amqp", "stream")
MEMORY_MB = 1024
"""Above this a node stops publishers (`vm_memory_high_watermark`): explicit, so that it is comparable."""
DISK_FREE_MB = 500
CLIENT_KEYS: Mapping[ClientProtocol, tuple[str, ...]] = {
    "amqp": ("consumer_acks", "prefetch_msgs", "user", "password", "virtual_host"),
    "stream": ("credits", "streams_per_connection", "user", "password", "virtual_host"),
}
"""Options that are handed to the client as they are."""
OPTION_KEYS = frozenset(
    {
        "queue",
        "protocol",
        "persistent",
        "memory_mb",
        "schedulers",
        "ports",
        "stream_ports",
        "amqp",
        "config",
        "consumer_acks",
        "prefetch_msgs",
        "credits",
        "streams_per_connection",
        "user",
        "password",
        "virtual_host",
    }
)
ALLOWED = boundary.Allowed(
    numbers=re.compile(
        r"(channel_max|connection_max|max_message_size|heartbeat|frame_max|initial_frame_max|handshake_timeout|consumer_timeout"
        r"|vm_memory_high_watermark[\w.]*|disk_free_limit\.\w+|(stream\.)?tcp_listen_options\.[\w.]+|num_acceptors\.\w+"
        r"|collect_statistics_interval|raft\.(?!data_dir)\w+|mirroring_sync_\w+|msg_store_\w+|queue_index_\w+|classic_queue\.\w+"
        r"|stream\.(initial_credits|credits_required_for_unblocking|frame_max|heartbeat)|background_gc_\w+|lazy_queue_\w+"
        r"|quorum_\w+|delegate_count|net_ticktime|queue_leader_locator|channel_operation_timeout)",
        re.ASCII,
    ),
    words=frozenset(
        {
            "cluster_partition_handling",
            "collect_statistics",
            "log.console.level",
            "log.file.level",
            "queue_leader_locator",
            "queue_master_locator",
            "vm_memory_calculation_strategy",
        }
    ),
)
"""Lines for rabbitmq.conf. Listeners, users, files of logs and definitions, back ends and discovery are not among them."""
RESERVED_CONFIG = re.compile(r"(stream\.)?listeners\.|stream\.advertised_")


@dataclass(frozen=True)
class Options:
    """A system file's options, checked."""

    queue: Queue | None = None
    """Kind of queue; None: what the level needs."""
    persistent: bool | None = None
    """Whether messages are persistent; None: what the level needs."""
    memory_mb: int = MEMORY_MB
    schedulers: int | None = None
    """Erlang's scheduler threads per node (+S); None: Erlang's own choice, one per core."""
    protocol: ClientProtocol = "amqp"
    """What the client speaks; only streams have a protocol of their own."""
    ports: tuple[int, ...] = ()
    """Ports of the AMQP listeners."""
    stream_ports: tuple[int, ...] = ()
    """Ports of the stream listeners."""
    amqp: tuple[str, ...] = ()
    """AMQP listeners of an attached broker whose stream listeners are connected to."""
    config: Mapping[str, str] = field(default_factory=dict)
    """More lines for rabbitmq.conf."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Options of the client, as they are (docs/systems/rabbitmq.md)."""


@dataclass(frozen=True)
class Plan:
    """How durable, and by which means."""

    level: Level
    queue: Queue
    persistent: bool
    wal_fsync: bool
    """Whether quorum queues fsync their write-ahead log before they confirm."""
    copies: int
    protocol: ClientProtocol = "amqp"

    def stream_arguments(self, nodes: int) -> dict[str, str]:
        """Arguments with which streams are created over their own protocol."""
        return {"queue-leader-locator": "balanced"} if nodes > 1 else {}

    def queue_arguments(self, nodes: int) -> dict[str, Any]:
        """Arguments with which queues are declared. On several nodes leaders are spread over them."""
        if self.queue == "quorum":
            arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-quorum-initial-group-size": self.copies}
            return arguments | ({"x-queue-leader-locator": "balanced"} if nodes > 1 else {})
        if self.queue == "stream":
            arguments = {"x-queue-type": "stream", "x-initial-cluster-size": self.copies}
            return arguments | ({"x-queue-leader-locator": "balanced"} if nodes > 1 else {})
        return {"x-queue-type": "classic"} | ({"x-queue-master-locator": "min-masters"} if nodes > 1 else {})


def parse_options(request: SystemRequest) -> Options:
    """Checks a system file's options. Raises SystemInputError."""
    where, given = where_of(request), request.options
    known(given, OPTION_KEYS, f"{where}unknown key '{{}}' for RabbitMQ")
    queue = given.get("queue")
    if queue is not None and queue not in QUEUES:
        raise SystemInputError(f"{where}queue: expected one of {', '.join(QUEUES)}, found {queue}")
    protocol = given.get("protocol", "stream" if queue == "stream" else "amqp")
    if protocol not in PROTOCOLS:
        raise SystemInputError(f"{where}protocol: expected one of {', '.join(PROTOCOLS)}, found {protocol}")
    if protocol == "stream" and queue != "stream":
        raise SystemInputError(f"{where}protocol: stream is for streams only; set queue: stream too")
    persistent = given.get("persistent")
    if persistent is not None and not isinstance(persistent, bool):
        raise SystemInputError(f"{where}persistent: expected true or false, found {persistent}")
    if persistent is not None and queue == "stream":
        raise SystemInputError(
            f"{where}persistent: a stream writes every message to its log and never fsyncs it for a confirm; leave it out"
        )
    config = given.get("config", {})
    if not isinstance(config, Mapping):
        raise SystemInputError(f"{where}config: expected names and values of rabbitmq.conf, found {config}")
    return Options(
        queue=queue,
        protocol=protocol,
        persistent=persistent,
        memory_mb=_number(given, "memory_mb", 128, 1 << 20, where) or MEMORY_MB,
        schedulers=_number(given, "schedulers", 1, 1024, where),
        ports=ports(given.get("ports"), request.nodes, where),
        stream_ports=ports(given.get("stream_ports"), request.nodes, where, "stream_ports"),
        amqp=_addresses(given.get("amqp"), where),
        config={str(key): _line(str(key), text(value), where) for key, value in config.items()},
        client=_client_options(given, protocol, queue, where),
    )


def untrusted(request: SystemRequest) -> Iterator[Untrusted]:
    """What is done for a trusted file alone."""
    return boundary.settings("config", request.options.get("config"), ALLOWED)


def _line(key: str, value: str, where: str) -> str:
    """The value of one line of rabbitmq.conf. Raises SystemInputError for what would be more than that line, or a listener."""
    if not re.fullmatch(r"[\w.$-]+", key, re.ASCII) or "\n" in value or "\r" in value:
        raise SystemInputError(f"{where}config.{key}: expected the name of a setting and a value of one line")
    if RESERVED_CONFIG.match(key):
        raise SystemInputError(
            f"{where}config.{key} cannot be set: the lab binds the nodes to loopback itself; use ports and stream_ports"
        )
    return value


def _client_options(
    given: Mapping[str, Any], protocol: ClientProtocol, queue: Queue | None, where: str
) -> dict[str, Any]:
    acks = given.get("consumer_acks", "manual")
    if acks not in ("manual", "automatic"):
        raise SystemInputError(f"{where}consumer_acks: expected manual or automatic, found {acks}")
    _number(given, "prefetch_msgs", 0, 65535, where)
    _number(given, "credits", 1, 65535, where)
    _number(given, "streams_per_connection", 1, 128, where)
    other: ClientProtocol = "stream" if protocol == "amqp" else "amqp"
    others = set(CLIENT_KEYS[other]) - set(CLIENT_KEYS[protocol])
    if other == "stream":
        others |= {"stream_ports", "amqp"}
    for key in sorted(others & set(given)):
        raise SystemInputError(
            f"{where}{key} has no meaning with protocol: {protocol}; it belongs to protocol: {other}"
        )
    if queue == "stream" and protocol == "amqp" and (acks == "automatic" or given.get("prefetch_msgs") == 0):
        raise SystemInputError(
            f"{where}{'consumer_acks' if acks == 'automatic' else 'prefetch_msgs'}: over AMQP, RabbitMQ delivers a "
            "stream only with manual acknowledgements and a prefetch limit"
        )
    return {key: given[key] for key in CLIENT_KEYS[protocol] if key in given}


def _number(given: Mapping[str, Any], key: str, low: int, high: int, where: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SystemInputError(f"{where}{key}: expected a whole number from {low} to {high}, found {value}")
    return value


def _addresses(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    addresses = value if isinstance(value, list) else [value]
    if any(not re.fullmatch(r".+:\d{1,5}", str(address)) for address in addresses):
        raise SystemInputError(f"{where}amqp: expected host:port of AMQP listeners, found {value}")
    return tuple(map(str, addresses))


# ---------------------------------------------------------------------- durability


def level_of(queue: Queue, persistent: bool, wal_fsync: bool, copies: int) -> Level:
    """The durability level of a confirmed message."""
    replicated = queue != "classic" and copies >= 2
    fsynced = {"quorum": wal_fsync, "stream": False}.get(queue, persistent)
    return level_with(replicated=replicated, fsynced=fsynced)


def level_told(told: Mapping[str, Any]) -> Level | None:
    """The level of settings that were read back and stored; None where they do not tell."""
    queue = next((kind for kind in QUEUES if kind == told.get("topic.queue")), None)
    copies, persistent = told.get("topic.copies"), told.get("persistent")
    synced = [value for key, value in told.items() if key.endswith(".ra.wal_sync_method")]
    if queue is None or not isinstance(copies, int) or not isinstance(persistent, bool):
        return None
    return level_of(queue, persistent, all(one in ("datasync", "sync") for one in synced), copies)


def plan(level: Level | None, nodes: int, options: Options, where: str) -> Plan:
    """Chooses the kind of queue, persistence and the write-ahead log's fsync. Raises SystemInputError."""
    aim: Level = level or _default_level(nodes, options)
    queue: Queue = options.queue or ("quorum" if aim in ("L1", "L2") else "classic")
    if queue == "mirrored" and nodes == 1:
        raise SystemInputError(f"{where}queue: mirrored needs more than one node; start three (--nodes 3)")
    copies = 1 if queue == "classic" else nodes
    fsync = aim in ("L1", "L3")
    found = Plan(
        level=aim,
        queue=queue,
        # Quorum queues and streams write every message to their log, whatever the delivery mode.
        persistent=options.persistent
        if options.persistent is not None
        else (queue in ("quorum", "stream") or fsync),
        wal_fsync=fsync if queue == "quorum" else True,
        copies=copies,
        protocol=options.protocol,
    )
    actual = level_of(found.queue, found.persistent, found.wal_fsync, found.copies)
    if actual != aim:
        raise SystemInputError(_refusal(aim, nodes, options, where))
    return found


def _default_level(nodes: int, options: Options) -> Level:
    """Without a level asked for: what the options amount to; else one copy in memory on one node, as the
    other systems' own default, and a quorum queue on three.
    """
    if options.queue == "quorum" or (options.queue is None and options.persistent is None and nodes > 1):
        return "L1" if nodes > 1 else "L3"
    if options.queue == "stream":
        return "L2" if nodes > 1 else "L4"
    if options.queue == "mirrored":
        return "L2" if options.persistent is False else "L1"
    return "L3" if options.persistent else "L4"


def _refusal(level: Level, nodes: int, options: Options, where: str) -> str:
    asked = f"durability {level} cannot be had from RabbitMQ"
    if options.queue is not None:
        asked += f" with queue: {options.queue}"
    if options.persistent is not None:
        asked += f" and persistent: {str(options.persistent).lower()}"
    return (
        f"{where}{asked} on {plural(nodes, 'node')}. A classic queue keeps one copy: L3 (persistent messages, fsynced "
        "before the confirm) and L4 (transient). Quorum queues give L1 and L2 on three nodes, L3 and L4 on one; "
        "mirrored queues give L1 (persistent) and L2 (transient) on three; streams, which never fsync before the "
        "confirm, L2 on three and L4 on one. "
        + (
            "L1 and L2 need --nodes 3"
            if nodes == 1 and level in ("L1", "L2")
            else "leave queue and persistent out to get what the level needs"
        )
    )


# ---------------------------------------------------------------------- files


def configuration_file(
    port: int,
    node_names: Sequence[str],
    options: Options,
    stream_port: int | None = None,
    certificates: Certificates | None = None,
    metrics_port: int | None = None,
) -> str:
    """rabbitmq.conf of a node. `stream_port`: where its stream plugin listens, if it has one. With certificates clients must
    speak TLS on both; what nodes send each other stays in plain text.
    """
    lines = {
        **(
            _plain_listeners(port, stream_port) if certificates is None else _tls_listeners(port, stream_port)
        ),
        "loopback_users": "none",
        "vm_memory_high_watermark.absolute": f"{options.memory_mb}MB",
        "disk_free_limit.absolute": f"{DISK_FREE_MB}MB",
        "log.file.level": "info",
    }
    if metrics_port is not None:
        lines |= {
            "prometheus.tcp.ip": LOOPBACK,
            "prometheus.tcp.port": str(metrics_port),
            # Its agent would add up every queue's figures all the time, for a page that nobody looks at.
            "management_agent.disable_metrics_collector": "true",
        }
    if certificates is not None:
        lines |= {
            "ssl_options.cacertfile": str(certificates.authority),
            "ssl_options.certfile": str(certificates.certificate),
            "ssl_options.keyfile": str(certificates.key),
            "ssl_options.verify": "verify_none",
            "ssl_options.fail_if_no_peer_cert": "false",
        }
    if len(node_names) > 1:
        lines["cluster_formation.peer_discovery_backend"] = "classic_config"
        # The first node looks ten times for others, which the lab starts once it serves: for 1 s in all, and not for 5.
        lines["cluster_formation.discovery_retry_interval"] = "100"
        for number, name in enumerate(node_names, start=1):
            lines[f"cluster_formation.classic_config.nodes.{number}"] = name
    return "".join(f"{key} = {value}\n" for key, value in (lines | dict(options.config)).items())


def _plain_listeners(port: int, stream_port: int | None) -> dict[str, str]:
    lines = {"listeners.tcp.default": f"{LOOPBACK}:{port}"}
    if stream_port is not None:
        lines |= {
            "stream.listeners.tcp.1": f"{LOOPBACK}:{stream_port}",
            # What clients are told to connect to: the default is the machine's name, where nothing listens.
            "stream.advertised_host": LOOPBACK,
            "stream.advertised_port": str(stream_port),
        }
    return lines


def _tls_listeners(port: int, stream_port: int | None) -> dict[str, str]:
    lines = {"listeners.tcp": "none", "listeners.ssl.default": f"{LOOPBACK}:{port}"}
    if stream_port is not None:
        lines |= {
            "stream.listeners.tcp": "none",
            "stream.listeners.ssl.1": f"{LOOPBACK}:{stream_port}",
            "stream.advertised_tls_host": LOOPBACK,
            "stream.advertised_tls_port": str(stream_port),
        }
    return lines


def advanced_file(found: Plan) -> str:
    """advanced.config: Erlang terms for what rabbitmq.conf has no key for."""
    if found.queue == "quorum" and not found.wal_fsync:
        return "[{ra, [{wal_sync_method, none}]}].\n"
    return "[].\n"


def plugins_file(found: Plan, *, has_metrics: bool) -> str:
    """enabled_plugins: only what the client and the lab need, since a plugin costs memory and CPU."""
    wanted = ["rabbitmq_prometheus"] * has_metrics + ["rabbitmq_stream"] * (found.protocol == "stream")
    return f"[{','.join(wanted)}].\n"
