"""Apache Kafka as a system under test: started on loopback, or a cluster that already runs.

Kafka's jars come from Maven into the cache. Around this module, each with one purpose: settings.py
(options, files, JVM flags), durability.py (levels, planned and read back), cluster.py (nodes as processes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psutil

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.system_request import SystemRequest, is_encrypted, where_of
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base import Describe, Progress, ReadBack, RunningSystem, TopicPlan
from streamgauge.systems.base.attached import AttachedSystem
from streamgauge.systems.base.boundary import require_trust
from streamgauge.systems.base.options import check_attached, check_nodes
from streamgauge.systems.base.own_metrics import OwnMetrics
from streamgauge.systems.kafka import durability, jmx, settings
from streamgauge.systems.kafka.cluster import Launch, start_cluster
from streamgauge.systems.support import kafka_broker, maven
from streamgauge.systems.support.cache import Installation
from streamgauge.systems.support.java import Java, find_java
from streamgauge.systems.support.java_system import JavaSystem
from streamgauge.systems.support.network import ON_LOOPBACK
from streamgauge.systems.support.processes import check_free
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.levels import Level

SCALA = "2.13"
LOG4J = "2.25.4"
RELOAD4J_BRIDGE = "1.7.36"


def artifacts(version: str) -> list[maven.Artifact]:
    """What makes a broker with its tools: server, tools, and a logging backend, which Kafka's poms leave to
    the distribution.
    """
    if settings.parse_version(version, "") >= settings.LOG4J2_SINCE:
        logging = maven.Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J)
    else:
        logging = maven.Artifact("org.slf4j", "slf4j-reload4j", RELOAD4J_BRIDGE)
    return [
        maven.Artifact("org.apache.kafka", f"kafka_{SCALA}", version),
        maven.Artifact("org.apache.kafka", "kafka-tools", version),
        logging,
    ]


class Kafka(JavaSystem[Launch]):
    """Gets and runs Apache Kafka."""

    name: ClassVar[str] = "kafka"
    title: ClassVar[str] = "Apache Kafka"
    protocol: ClassVar[str] = "kafka"
    default_version: ClassVar[str] = "4.3.1"
    option_keys: ClassVar[frozenset[str]] = settings.OPTION_KEYS
    small_segments: ClassVar[Mapping[str, Any]] = {"broker": {"log.segment.bytes": "1048576"}}
    page: ClassVar[str] = "docs/systems/kafka.md"
    obtained: ClassVar[str] = "Maven artifacts; needs a JDK"
    start_time: ClassVar[StartTime] = StartTime(one_node_s=4.0, nodes_s=10.0)
    level_of_topics = True
    cannot: ClassVar[Mapping[Feature, str]] = {}
    omb_drivers: ClassVar[frozenset[str]] = frozenset({"kafka"})
    omb_workers: ClassVar[str | None] = None
    mechanisms: ClassVar[frozenset[str]] = kafka_broker.MECHANISMS
    own_metrics: ClassVar[OwnMetrics | None] = jmx.METRICS

    @classmethod
    def told_level(cls, settings: Mapping[str, Any]) -> Level | None:
        """See System."""
        return durability.level_told(settings)

    def check(self, request: SystemRequest) -> None:
        where = where_of(request)
        options = settings.parse_options(request)
        if request.connect:
            for address in request.connect:
                kafka_broker.parse_address(address, where)
            check_attached(request, ("heap", "jvm_flags", "ports", "broker"))
            return
        require_trust(request, self.untrusted(request))
        line = settings.parse_version(request.version or self.default_version, where)
        if request.tls and line < settings.KRAFT_SINCE:
            raise SystemInputError(
                f"{where}Kafka {request.version} is started without TLS, as everything before 3.3: leave tls out, or use --connect"
            )
        check_nodes(request, "Kafka")
        durability.plan(request.level, request.nodes, options, where)
        heap_mib = options.heap_for(request.nodes, psutil.virtual_memory().total)
        settings.memory_need(request.nodes, heap_mib).check(where)
        check_free(options.ports, where)

    def untrusted(self, request: SystemRequest) -> Iterator[Untrusted]:
        return settings.untrusted(request)

    def installation(self, version: str, java: Java, progress: Progress) -> Installation:
        settings.parse_version(version, "")
        title = f"Kafka {version}"
        log = self.cache.root / "logs" / f"{self.name}-{version}.log"

        def fetch(into: Path) -> Mapping[str, Any]:
            return maven.copy_dependencies(title, artifacts(version), into, java, log, progress)

        return self.obtain(version, title, fetch, progress)

    def launch(self, request: SystemRequest, directory: Path, progress: Progress) -> Launch:
        version = request.version or self.default_version
        where = where_of(request)
        options = settings.parse_options(request)
        java = find_java()
        return Launch(
            version=version,
            line=settings.parse_version(version, where),
            nodes=request.nodes,
            options=options,
            plan=durability.plan(request.level, request.nodes, options, where),
            heap_mib=options.heap_for(request.nodes, psutil.virtual_memory().total),
            directory=directory.absolute(),
            java=java,
            installation=self.installation(version, java, progress),
            volume=request.volume,
            placement=request.placement or ON_LOOPBACK,
            tls=request.tls,
            guarded=request.guarded,
            jmx_agent=jmx.agent(self.cache, java, progress) if request.has_metrics else None,
        )

    def start_cluster(self, launch: Launch, progress: Progress) -> RunningSystem:
        return start_cluster(launch, progress)

    def attach(self, request: SystemRequest) -> RunningSystem:
        self.check(request)
        where = where_of(request)
        faults = []
        for address in request.connect:
            try:
                found = kafka_broker.describe(address, request.security)
            except kafka_broker.NotDescribed as error:
                faults.append(str(error))
                continue
            if not found.brokers:
                faults.append(f"{address} knows no brokers yet")
                continue
            options = settings.parse_options(request)
            plan = durability.plan(request.level, found.brokers, options, where)
            return AttachedKafka(found, plan, request, options.client)
        raise SystemFailure(
            f"cannot attach to Kafka: {'; '.join(faults)}. Is it running there, with a listener {_listener(request)}?"
        )


def _listener(request: SystemRequest) -> str:
    if is_encrypted(request):
        return "for TLS"
    return "in plain text (for TLS or SASL, a system file says so: docs/security.md)"


COMPATIBLE = "Kafka-compatible server"
"""A server that does not answer as any release of Kafka does."""


class AttachedKafka(AttachedSystem):
    """A cluster that was running already."""

    def __init__(
        self,
        found: kafka_broker.Description,
        plan: durability.Plan,
        request: SystemRequest,
        client: Mapping[str, Any],
    ) -> None:
        version = f"{found.release}.x" if found.release else None
        super().__init__(Kafka, request, found.brokers, version=version, level=request.level, options=client)
        if found.release is None:
            # Others speak its protocol, too.
            self.title = COMPATIBLE
        self._cluster_id = found.cluster_id
        self._plan = plan

    @property
    def acks(self) -> durability.Acks:
        return self._plan.acks

    def topic_plan(self) -> TopicPlan:
        return self._plan.topic

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        expected = durability.Expectation(
            version=self.version, nodes=self.nodes, plan=self._plan, level_asked=self.level, broker={}
        )
        return durability.compare(describe(topics), topics, expected)

    def configuration(self) -> dict[str, Any]:
        return {
            **super().configuration(),
            "cluster_id": self._cluster_id,
            "nodes": self.nodes,
            "acks": self.acks,
            "topic": self._plan.topic_as_json(),
            "client": dict(self._options),
        }
