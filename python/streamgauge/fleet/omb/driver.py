"""OMB's driver files, written from what a worker of ours is asked to do (docs/worker-api.md), and what OMB cannot be told of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KAFKA_CLASS = "io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver"
PULSAR_CLASS = "io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver"
ACKS = {"all": "all", "leader": "1", "none": "0"}
COMMIT_NEVER_MS = 2**31 - 1
BUFFER_BYTES_MIN = 1 << 20
"""A producer's buffer is never smaller, however many of them share the workload's."""
LARGE_BYTES = 900_000
"""Messages up to this size fit into the 1 MiB that the Java client allows by default for a request."""
PULSAR_WEB_PORT = 8080


@dataclass
class Driver:
    """A driver file, how topics are called for its clients, and what is not as asked."""

    text: str
    title: str
    """For the result: which driver it is."""
    topic: str = "{}"
    """How a topic's name becomes what the client is given."""
    cannot: list[str] = field(default_factory=list)


def render(request: Mapping[str, Any]) -> Driver:
    """The driver for a trial's request, whose protocol is one that `refusals` lets through."""
    return _pulsar(request) if request["system"]["protocol"] == "pulsar" else _kafka(request)


def _kafka(request: Mapping[str, Any]) -> Driver:
    cannot: list[str] = []
    batch = request["batch"]
    linger_ms = math.ceil(float(batch["linger_ms"]))
    if linger_ms != batch["linger_ms"]:
        cannot.append(
            f"linger of {batch['linger_ms']:g} ms: {linger_ms} ms, the Java client knows whole ms only"
        )
    share_bytes = int(batch["buffer_bytes"]) // max(len(request["producers"]), 1)
    buffer_bytes = max(share_bytes, BUFFER_BYTES_MIN, int(batch["bytes"]))
    if buffer_bytes > share_bytes:
        cannot.append(
            f"a buffer of {batch['buffer_bytes']} bytes over all producers: each has {buffer_bytes} bytes of its own"
        )
    common = {"bootstrap.servers": ",".join(request["system"]["bootstrap"])}
    options = dict(request["system"].get("options", {}))
    if (client_id := options.pop("client_id", None)) is not None:
        common["client.id"] = str(client_id)
    producer = {
        "acks": ACKS[request["acks"]],
        "linger.ms": linger_ms,
        "batch.size": int(batch["bytes"]),
        "buffer.memory": buffer_bytes,
        "max.in.flight.requests.per.connection": int(batch["in_flight"]),
        "compression.type": request["compression"],
        "enable.idempotence": str(bool(request["idempotence"])).lower(),
    }
    largest = _largest_bytes(request["payload"])
    if largest > LARGE_BYTES:
        producer["max.request.size"] = largest + LARGE_BYTES
    if any(one["keys"] == "round_robin" for one in request["producers"]):
        producer["partitioner.class"] = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    commits_ms = _commit_ms(request)
    consumer = {
        # The topics are new: from their beginning on, no partition that is assigned late leaves anything out.
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": COMMIT_NEVER_MS if commits_ms is None else commits_ms,
        # What else there is has the names of Kafka's own consumer.
        **options,
    }
    text = _yaml(
        {
            "name": "Kafka",
            "driverClass": KAFKA_CLASS,
            # Topics are made by the lab, and not by this driver, which wants both all the same.
            "replicationFactor": 1,
            "topicConfig": "",
            "commonConfig": _properties(common),
            "producerConfig": _properties(producer),
            "consumerConfig": _properties(consumer),
        }
    )
    return Driver(text, "its Kafka driver", cannot=cannot)


def _pulsar(request: Mapping[str, Any]) -> Driver:
    cannot: list[str] = []
    system, batch = request["system"], request["batch"]
    options = system.get("options", {})
    namespace = str(options.get("namespace") or "public/default")
    linger_ms = math.ceil(float(batch["linger_ms"]))
    if linger_ms != batch["linger_ms"]:
        cannot.append(
            f"linger of {batch['linger_ms']:g} ms: {linger_ms} ms, OMB's Pulsar driver knows whole ms only"
        )
    if request["compression"] != "none":
        cannot.append(f"compression {request['compression']}: OMB's Pulsar driver does not compress")
    if request["idempotence"]:
        cannot.append(
            "idempotence: deduplication is the namespace's, which OMB's Pulsar driver does not set for our topics"
        )
    cannot.append(
        f"{batch['in_flight']} requests in flight and a buffer of {batch['buffer_bytes']} bytes: OMB's Pulsar driver bounds "
        "the client's memory instead (256 MB)"
    )
    cannot.append(
        f"OMB's Pulsar driver makes a namespace of its own for each worker and trial ({namespace.split('/')[0]}/omb-...) and leaves it there; "
        f"the topics are in {namespace}"
    )
    web = options.get("admin") or [
        f"{server.rpartition(':')[0]}:{PULSAR_WEB_PORT}" for server in system["bootstrap"]
    ]
    text = _yaml(
        {
            "name": "Pulsar",
            "driverClass": PULSAR_CLASS,
            "client": {
                "serviceUrl": f"pulsar://{','.join(system['bootstrap'])}",
                "httpUrl": f"http://{','.join(web)}",
                "namespacePrefix": f"{namespace.split('/')[0]}/omb",
                # Named only when the tenant is made, and ours is there.
                "clusterName": "standalone",
                "topicType": "persistent",
                "persistence": {
                    "ensembleSize": 1,
                    "writeQuorum": 1,
                    "ackQuorum": 1,
                    "deduplicationEnabled": False,
                },
            },
            "producer": {
                "batchingEnabled": True,
                "batchingMaxPublishDelayMs": max(linger_ms, 1),
                "batchingMaxBytes": int(batch["bytes"]),
                "blockIfQueueFull": True,
                "pendingQueueSize": 0,
            },
            "consumer": {"receiverQueueSize": 10000, "subscriptionType": "Failover"},
        }
    )
    return Driver(text, "its Pulsar driver", f"persistent://{namespace}/{{}}", cannot)


def _commit_ms(request: Mapping[str, Any]) -> int | None:
    """The shortest interval at which a subscription commits; None when none does."""
    given = [one.get("commit_interval_ms", 5000) for one in request["subscriptions"]]
    return min((int(one) for one in given if one is not None), default=None)


def _largest_bytes(payload: Mapping[str, Any]) -> int:
    """Of a message. Templates are base64: four characters for three bytes."""
    if "templates_base64" in payload:
        return max(3 * len(text) // 4 for text in payload["templates_base64"])
    return max(int(size) for size in payload.get("sizes_bytes", [payload.get("size_bytes", 0)]))


def _properties(values: Mapping[str, Any]) -> str:
    """As Java's Properties read them: a backslash is doubled."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in values.items())


def _yaml(value: Mapping[str, Any]) -> str:
    """JSON is YAML, and needs no rules for quoting of its own."""
    return json.dumps(value, indent=2) + "\n"
