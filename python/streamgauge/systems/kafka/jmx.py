"""Kafka's own metrics, which it tells by JMX: an agent in the broker's JVM shows a few of them in Prometheus' text format.

The agent is the JMX exporter of the Prometheus project (`io.prometheus.jmx:jmx_prometheus_javaagent`), from Maven Central like Kafka itself. It is given the
names of the MBeans that are wanted and no rules, so that names are those of its default format (its documentation, "Default format"); the same
is what a cluster that already runs has to tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from streamgauge.model.own_metric import OwnMetric
from streamgauge.systems.base import Progress
from streamgauge.systems.support import maven, released
from streamgauge.systems.support.cache import Cache
from streamgauge.systems.support.java import Java
from streamgauge.systems.support.prometheus import Pick, PrometheusMetrics
from streamgauge.vocabulary.errors import SystemFailure

NAME = "jmx-exporter"
VERSION = "1.0.1"
ARTIFACT = maven.Artifact("io.prometheus.jmx", "jmx_prometheus_javaagent", VERSION)
CONFIGURATION = "jmx.yaml"
MBEANS = (
    "kafka.network:type=RequestChannel,name=RequestQueueSize",
    "kafka.network:type=RequestMetrics,name=RequestQueueTimeMs,request=Produce",
    "kafka.network:type=RequestMetrics,name=LocalTimeMs,request=Produce",
    "kafka.network:type=RequestMetrics,name=RemoteTimeMs,request=Produce",
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Produce",
    "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
    "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)


def configuration_text() -> str:
    """The agent's configuration."""
    names = "".join(f'  - "{name}"\n' for name in MBEANS)
    return f"# Written by streamgauge: the MBeans that explain latency.\nincludeObjectNames:\n{names}"


def agent(cache: Cache, java: Java, progress: Progress) -> Path | None:
    """The agent's file, fetched if need be; None where it cannot be had, which costs the metrics and nothing else."""
    log = cache.root / "logs" / f"{NAME}-{VERSION}.log"

    def fetch(into: Path) -> Mapping[str, Any]:
        return maven.copy_one("the JMX exporter", ARTIFACT, into, java, log, progress)

    try:
        installation = cache.obtain(NAME, VERSION, fetch, progress, released.files(NAME, VERSION))
    except SystemFailure as failure:
        progress(f"Kafka's own metrics will not be read: {failure}")
        return None
    return installation.path / f"{ARTIFACT.name}-{VERSION}.jar"


def flag(file: Path, host: str, port: int, configuration: Path) -> str:
    """What starts the agent in a JVM."""
    return f"-javaagent:{file}={host}:{port}:{configuration}"


def address(port: int, host: str) -> str:
    """Where it is asked."""
    return f"http://{host}:{port}/metrics"


def _time(
    name: str,
    title: str,
    bean: str,
    labels: Mapping[str, str],
    explains: str,
    role: Literal["cause", "sign"] = "cause",
) -> list[Pick]:
    """The time of an operation. JMX has the mean since the start and the count: their product is the sum."""
    count = OwnMetric(
        name=f"{name}_count", title="operations", unit="ops", kind="counter", explains="-", role="count"
    )
    metric = OwnMetric(
        name=name, title=title, unit="ms", kind="counter", explains=explains, role=role, per=count.name
    )
    return [
        Pick(metric, (f"{bean}_Mean",), labels, second=(f"{bean}_Count",)),
        Pick(count, (f"{bean}_Count",), labels),
    ]


def _produce(name: str, title: str, mbean: str, explains: str, role: Literal["cause", "sign"]) -> list[Pick]:
    """A part of the time that a produce request takes."""
    labels = {"name": mbean, "request": "Produce"}
    return _time(name, title, "kafka_network_RequestMetrics", labels, explains, role)


METRICS = PrometheusMetrics(
    [
        Pick(
            OwnMetric(
                name="request_queue",
                title="requests that wait for a thread",
                unit="requests",
                kind="gauge",
                explains="the request handlers are busy or stuck",
                role="sign",
            ),
            ("kafka_network_RequestChannel_Value",),
            {"name": "RequestQueueSize"},
        ),
        *_produce(
            "produce_queue_ms",
            "time that a produce request waited for a thread",
            "RequestQueueTimeMs",
            "the request handlers are busy",
            "sign",
        ),
        *_produce(
            "produce_local_ms",
            "time that the leader took for a produce request",
            "LocalTimeMs",
            "appending to the log: the page cache or the disk holds it up, a flush that it waits for included",
            "sign",
        ),
        *_produce(
            "produce_remote_ms",
            "time that a produce request waited for followers",
            "RemoteTimeMs",
            "replication: followers that fetch late",
            "cause",
        ),
        Pick(
            OwnMetric(
                name="produce_purgatory",
                title="produce requests that wait for followers",
                unit="requests",
                kind="gauge",
                explains="acks=all: not yet on all copies in sync",
                role="sign",
            ),
            ("kafka_server_DelayedOperationPurgatory_Value",),
            {"name": "PurgatorySize", "delayedOperation": "Produce"},
        ),
        *_time(
            "log_flush_ms",
            "time of a flush of the log (fsync)",
            "kafka_log_LogFlushStats",
            {"name": "LogFlushRateAndTimeMs"},
            "a flush holds the log that it flushes",
        ),
        Pick(
            OwnMetric(
                name="under_replicated",
                title="partitions with copies missing",
                unit="partitions",
                kind="gauge",
                explains="a follower fell behind or is gone",
            ),
            ("kafka_server_ReplicaManager_Value",),
            {"name": "UnderReplicatedPartitions"},
        ),
        Pick(
            OwnMetric(
                name="isr_shrinks",
                title="copies that fell out of sync",
                unit="shrinks",
                kind="counter",
                explains="until then, acks=all waited for them",
            ),
            ("kafka_server_ReplicaManager_Count",),
            {"name": "IsrShrinksPerSec"},
        ),
        Pick(
            OwnMetric(
                name="gc_ms",
                title="collections of the JVM",
                unit="ms",
                kind="counter",
                explains="a collection stops all threads of the broker",
            ),
            ("jvm_gc_collection_seconds_sum",),
            scale=1e3,
        ),
    ]
)
