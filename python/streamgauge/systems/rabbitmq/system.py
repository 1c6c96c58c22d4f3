"""RabbitMQ as a system under test: Debian's package, started on loopback on one or three nodes, or a broker that runs
already.

Around this module: settings.py (options, levels, files) and nodes.py (nodes as processes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base import (
    Describe,
    Progress,
    ReadBack,
    RunningSystem,
    System,
    TopicPlan,
)
from streamgauge.systems.base.attached import AttachedSystem
from streamgauge.systems.base.boundary import require_trust
from streamgauge.systems.base.options import check_attached, check_nodes, parse_address, refuse_both
from streamgauge.systems.base.own_metrics import OwnMetrics
from streamgauge.systems.rabbitmq import settings
from streamgauge.systems.rabbitmq.metrics import METRICS
from streamgauge.systems.rabbitmq.nodes import LIBRARY, Launch, start_cluster
from streamgauge.systems.rabbitmq.settings import level_told
from streamgauge.systems.support.memory import MIB, MemoryNeed
from streamgauge.systems.support.processes import check_free
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level

BESIDE_MIB = 256
"""What a node needs beside the memory at which it stops publishers."""


def installed_version() -> str | None:
    """The version of the Debian package, or None."""
    found = [
        path.name.removeprefix("rabbitmq_server-") for path in (LIBRARY / "lib").glob("rabbitmq_server-*")
    ]
    return max(found, default=None) if (LIBRARY / "bin" / "rabbitmq-server").exists() else None


class RabbitMq(System):
    """Runs RabbitMQ."""

    name: ClassVar[str] = "rabbitmq"
    title: ClassVar[str] = "RabbitMQ"
    protocol: ClassVar[str] = "rabbitmq"
    default_version: ClassVar[str] = "3.10.8"
    option_keys: ClassVar[frozenset[str]] = settings.OPTION_KEYS
    page: ClassVar[str] = "docs/systems/rabbitmq.md"
    obtained: ClassVar[str] = "the Debian package: classic, mirrored and quorum queues, streams"
    start_time: ClassVar[StartTime] = StartTime(one_node_s=10.0, nodes_s=25.0)
    cannot: ClassVar[Mapping[Feature, str]] = {
        Feature.PLACES: "the names of its nodes and their port mapper are set up for loopback alone",
        Feature.CREDENTIALS: "its nodes know the user guest, and the lab makes no other",
    }
    omb_drivers: ClassVar[frozenset[str]] = frozenset({"rabbitmq"})
    omb_workers: ClassVar[str | None] = (
        "OMB's RabbitMQ driver makes an exchange and queues of its own, so that what is made and read back here would not be what is "
        "measured"
    )
    mechanisms: ClassVar[frozenset[str]] = frozenset({"plain", "external"})
    own_metrics: ClassVar[OwnMetrics | None] = METRICS

    @classmethod
    def told_level(cls, settings: Mapping[str, Any]) -> Level | None:
        """See System."""
        return level_told(settings)

    def check(self, request: SystemRequest) -> None:
        where = where_of(request)
        options = settings.parse_options(request)
        if request.connect:
            self._check_attached(request, options, where)
            return
        require_trust(request, self.untrusted(request))
        check_nodes(request, "RabbitMQ")
        found = installed_version()
        if request.version and found and request.version != found:
            raise SystemInputError(
                f"{where}version {request.version}: RabbitMQ comes from the Debian package, which is {found} here; "
                "attach to a broker of another version with --connect host:port"
            )
        settings.plan(request.level, request.nodes, options, where)
        MemoryNeed(
            f"{plural(request.nodes, 'node')} of RabbitMQ with memory_mb {options.memory_mb}",
            request.nodes * (options.memory_mb * 1_000_000 // MIB + BESIDE_MIB),
            "set a smaller memory_mb in the system file",
        ).check(where)
        if options.amqp:
            raise SystemInputError(f"{where}amqp is for a broker that already runs (connect)")
        check_free((*options.ports, *options.stream_ports), where)

    def untrusted(self, request: SystemRequest) -> Iterator[Untrusted]:
        return settings.untrusted(request)

    @staticmethod
    def _check_attached(request: SystemRequest, options: settings.Options, where: str) -> None:
        for address in request.connect:
            parse_address(address, where, "a RabbitMQ node; expected host:port such as 127.0.0.1:5672")
        if request.level is not None:
            raise SystemInputError(
                f"{where}durability {request.level}: AMQP does not tell how a running broker keeps its messages, "
                "so a level cannot be asked of it; choose queue and persistent in a system file instead"
            )
        if options.queue == "mirrored":
            raise SystemInputError(
                f"{where}queue: mirrored is a policy of the broker; set it there and use queue: classic"
            )
        refuse_both(request, request.options, ("user", "password"), "")
        check_attached(request, ("memory_mb", "schedulers", "ports", "stream_ports", "config"))

    def installed(self, version: str | None = None) -> str | None:
        found = installed_version()
        return str(LIBRARY) if found is not None and version in (None, found) else None

    def missing(self) -> str | None:
        if installed_version() is not None:
            return None
        return (
            "RabbitMQ is not installed: apt-get install --no-install-recommends rabbitmq-server "
            "(and stop its service, streamgauge starts nodes of its own: systemctl disable --now rabbitmq-server)"
        )

    def install(self, version: str | None, progress: Progress) -> None:
        missing = self.missing()
        if missing is not None:
            raise SystemFailure(missing)
        if self.installed(version) is None:
            raise SystemFailure(
                f"RabbitMQ {version} cannot be got: it comes from the Debian package, which is "
                f"{installed_version()} here"
            )
        progress(f"RabbitMQ {installed_version()} is installed in {LIBRARY}")

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        self.check(request)
        self.install(request.version, progress)
        options = settings.parse_options(request)
        launch = Launch(
            version=installed_version() or self.default_version,
            nodes=request.nodes,
            options=options,
            plan=settings.plan(request.level, request.nodes, options, where_of(request)),
            directory=directory.absolute(),
            volume=request.volume,
            tls=request.tls,
            has_metrics=request.has_metrics,
        )
        return start_cluster(launch, progress)

    def attach(self, request: SystemRequest) -> RunningSystem:
        self.check(request)
        return AttachedRabbitMq(request, settings.parse_options(request))


class AttachedRabbitMq(AttachedSystem):
    """A broker that was running already."""

    def __init__(self, request: SystemRequest, options: settings.Options) -> None:
        self._queue = options.queue or "classic"
        protocol = "rabbitmq-stream" if options.protocol == "stream" else RabbitMq.protocol
        own: dict[str, Any] = {"amqp": list(options.amqp)}
        if options.protocol == "amqp":
            queue_arguments = {"x-queue-type": self._queue}
            own = {"persistent": options.persistent is not False, "queue_arguments": queue_arguments}
        super().__init__(
            RabbitMq, request, request.nodes, protocol=protocol, options={**options.client, **own}
        )

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(1, {})

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        """The queues' arguments are known (the broker confirms them); what they mean for durability depends
        on policies and on the version, which AMQP does not tell.
        """
        answer = describe(topics)
        found = {f"software.{key}": value for key, value in (answer.get("software") or {}).items()}
        mismatches = []
        for topic, entry in (answer.get("topics") or {}).items():
            read = entry.get("settings") or {}
            if "mismatch" in read:
                mismatches.append(f"the queues of topic {topic} are not as asked: {read['mismatch']}")
            found |= {f"topic.{key}": value for key, value in read.items()}
        return ReadBack(level=None, settings=found, mismatches=tuple(mismatches))

    def configuration(self) -> dict[str, Any]:
        shown = {key: value for key, value in self._options.items() if key != "password"}
        return {**super().configuration(), "queue": self._queue, "client": shown}
