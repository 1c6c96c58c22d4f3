"""What several tests of the systems share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic
from streamgauge.systems.base import Describe, RunningSystem
from streamgauge.systems.nats import server as nats_server

NATS_LAUNCH = nats_server.Launch(
    version="2.15.2",
    server=Path("nats-server"),
    source={},
    nodes=1,
    level="L4",
    directory=Path("/data"),
    ports=(),
    client={},
    stream={},
)
"""A node of NATS, for tests of what is written for it: nothing is started."""


def eventually(condition: Callable[[], bool], timeout_s: float = 15.0) -> bool:
    """True as soon as the condition holds, False when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def admin_of(running: RunningSystem) -> AdminClient:
    """librdkafka's administrator of a running Kafka: an opinion that is not our own."""
    return AdminClient({"bootstrap.servers": ",".join(running.connection["bootstrap"])})


def create_topic(running: RunningSystem, name: str, partitions: int = 1) -> None:
    """Creates a topic as the system's plan says."""
    plan = running.topic_plan()
    topic = NewTopic(name, partitions, plan.replication_factor, config=dict(plan.configs))
    admin = admin_of(running)  # Its requests end with it, so it is held until they are answered.
    for created in admin.create_topics([topic]).values():
        created.result(30)
    # The controller has answered; the other nodes hear of the topic a moment later.
    for server in running.connection["bootstrap"]:
        node = AdminClient({"bootstrap.servers": server})

        def knows(node: AdminClient = node) -> bool:
            found = node.list_topics(timeout=30).topics.get(name)
            return found is not None and len(found.partitions) == partitions

        assert eventually(knows), f"{server} does not know topic {name}"


def describer(running: RunningSystem) -> Describe:
    """The worker's /v1/admin/describe (docs/worker-api.md), answered through librdkafka."""
    admin = admin_of(running)

    def settings_of(kind: str, name: str) -> dict[str, str | None]:
        resource = ConfigResource(kind, name)
        entries = admin.describe_configs([resource])[resource].result(30)
        return {key: entry.value for key, entry in entries.items()}

    def describe(topics: Sequence[str]) -> Mapping[str, Any]:
        found = admin.list_topics(timeout=30)
        return {
            "cluster_id": found.cluster_id,
            "controller": found.controller_id,
            "nodes": [
                {"id": node.id, "host": node.host, "port": node.port} for node in found.brokers.values()
            ],
            "node_settings": {str(node): settings_of("broker", str(node)) for node in found.brokers},
            "topics": {
                topic: {
                    "partitions": len(found.topics[topic].partitions),
                    "replication_factor": len(found.topics[topic].partitions[0].replicas),
                    "settings": settings_of("topic", topic),
                }
                for topic in topics
                if topic in found.topics
            },
            "software": {"name": None, "version": None},
        }

    return describe
