"""RabbitMQ's options, durability levels and files.

Two things decide how durable a message is in RabbitMQ: what kind of queue it goes to, and whether it is persistent
(AMQP's delivery mode 2). `level_of` is that theory as code; planning and reading back both use it.

- A *classic* queue keeps one copy. RabbitMQ before 3.13 fsyncs persistent messages before it confirms them, many at
  a time; transient ones are confirmed from memory.
- A *mirrored* classic queue (policy `ha-mode: all`, gone since RabbitMQ 4) confirms when all mirrors have done so.
- A *quorum* queue confirms when a majority has the message in its write-ahead log. The log is fsynced
  (`ra.wal_sync_method = datasync`) unless that is turned off, and then the same queue is replicated and not fsynced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from streamgauge.systems.base import Level, SystemInputError, SystemRequest

Queue = Literal["classic", "mirrored", "quorum"]
QUEUES: tuple[Queue, ...] = ("classic", "mirrored", "quorum")
NODES = (1, 3)
MEMORY_MB = 1024
"""Above this a node stops publishers (`vm_memory_high_watermark`): explicit, so that it is comparable."""
DISK_FREE_MB = 500
OPTION_KEYS = frozenset(
    {
        "queue",
        "persistent",
        "memory_mb",
        "schedulers",
        "ports",
        "config",
        "consumer_acks",
        "prefetch_msgs",
        "user",
        "password",
        "virtual_host",
    }
)


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
    ports: tuple[int, ...] = ()
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

    def queue_arguments(self, nodes: int) -> dict[str, Any]:
        """Arguments with which queues are declared. On several nodes leaders are spread over them."""
        if self.queue == "quorum":
            arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-quorum-initial-group-size": self.copies}
            return arguments | ({"x-queue-leader-locator": "balanced"} if nodes > 1 else {})
        return {"x-queue-type": "classic"} | ({"x-queue-master-locator": "min-masters"} if nodes > 1 else {})


def where_of(request: SystemRequest) -> str:
    """Beginning of an error message."""
    return f"{request.source}: " if request.source else ""


def parse_options(request: SystemRequest) -> Options:
    """Checks a system file's options. Raises SystemInputError."""
    where, given = where_of(request), request.options
    unknown = sorted(set(given) - OPTION_KEYS)
    if unknown:
        raise SystemInputError(
            f"{where}RabbitMQ has no option '{unknown[0]}'; it has {', '.join(sorted(OPTION_KEYS))}"
        )
    queue = given.get("queue")
    if queue is not None and queue not in QUEUES:
        raise SystemInputError(f"{where}queue: expected one of {', '.join(QUEUES)}, found {queue}")
    persistent = given.get("persistent")
    if persistent is not None and not isinstance(persistent, bool):
        raise SystemInputError(f"{where}persistent: expected true or false, found {persistent}")
    acks = given.get("consumer_acks", "manual")
    if acks not in ("manual", "automatic"):
        raise SystemInputError(f"{where}consumer_acks: expected manual or automatic, found {acks}")
    client = {
        key: given[key]
        for key in ("consumer_acks", "prefetch_msgs", "user", "password", "virtual_host")
        if key in given
    }
    if "prefetch_msgs" in given:
        _number(given, "prefetch_msgs", 0, 65535, where)
    config = given.get("config", {})
    if not isinstance(config, Mapping):
        raise SystemInputError(f"{where}config: expected names and values of rabbitmq.conf, found {config}")
    return Options(
        queue=queue,
        persistent=persistent,
        memory_mb=_number(given, "memory_mb", 128, 1 << 20, where) or MEMORY_MB,
        schedulers=_number(given, "schedulers", 1, 1024, where),
        ports=_ports(given.get("ports"), request.nodes, where),
        config={str(key): _text(value) for key, value in config.items()},
        client=client,
    )


def _number(given: Mapping[str, Any], key: str, low: int, high: int, where: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SystemInputError(f"{where}{key}: expected a whole number from {low} to {high}, found {value}")
    return value


def _ports(value: Any, nodes: int, where: str) -> tuple[int, ...]:
    if value is None:
        return ()
    ports = value if isinstance(value, list) else [value]
    if len(ports) != nodes or any(not isinstance(port, int) or not 1 <= port <= 65535 for port in ports):
        raise SystemInputError(
            f"{where}ports: expected one port from 1 to 65535 for each of {nodes} node(s), found {value}"
        )
    return tuple(ports)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---------------------------------------------------------------------- durability


def level_of(queue: Queue, persistent: bool, wal_fsync: bool, copies: int) -> Level:
    """The durability level of a confirmed message."""
    replicated = queue != "classic" and copies >= 2
    fsynced = wal_fsync if queue == "quorum" else persistent
    if replicated:
        return "L1" if fsynced else "L2"
    return "L3" if fsynced else "L4"


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
        # A quorum queue writes every message to its log, whatever the delivery mode.
        persistent=options.persistent if options.persistent is not None else (queue == "quorum" or fsync),
        wal_fsync=fsync if queue == "quorum" else True,
        copies=copies,
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
        f"{where}{asked} on {nodes} node(s). A classic queue keeps one copy: L3 (persistent messages, fsynced "
        "before the confirm) and L4 (transient). Quorum queues give L1 and L2 on three nodes, L3 and L4 on one; "
        "mirrored queues give L1 (persistent) and L2 (transient) on three. "
        + (
            "L1 and L2 need --nodes 3"
            if nodes == 1 and level in ("L1", "L2")
            else "leave queue and persistent out to get what the level needs"
        )
    )


# ---------------------------------------------------------------------- files


def configuration_file(port: int, node_names: Sequence[str], options: Options) -> str:
    """rabbitmq.conf of a node."""
    lines = {
        "listeners.tcp.default": f"127.0.0.1:{port}",
        "loopback_users": "none",
        "vm_memory_high_watermark.absolute": f"{options.memory_mb}MB",
        "disk_free_limit.absolute": f"{DISK_FREE_MB}MB",
        "log.file.level": "info",
    }
    if len(node_names) > 1:
        lines["cluster_formation.peer_discovery_backend"] = "classic_config"
        for number, name in enumerate(node_names, start=1):
            lines[f"cluster_formation.classic_config.nodes.{number}"] = name
    return "".join(f"{key} = {value}\n" for key, value in (lines | dict(options.config)).items())


def advanced_file(found: Plan) -> str:
    """advanced.config: Erlang terms for what rabbitmq.conf has no key for."""
    if found.queue == "quorum" and not found.wal_fsync:
        return "[{ra, [{wal_sync_method, none}]}].\n"
    return "[].\n"
