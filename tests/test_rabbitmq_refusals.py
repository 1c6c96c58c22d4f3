"""Messages that RabbitMQ does not take: each has its end, and the reason is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rabbitmq_support import IN_NO_HURRY, run_and_count, trial
from streamgauge.fleet.base import Worker
from streamgauge.fleet.local import LocalFleet
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.rabbitmq.system import installed_version

pika = pytest.importorskip("pika")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(installed_version() is None, reason="rabbitmq-server is not installed"),
]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A load worker."""
    fleet = LocalFleet()
    yield fleet.start(tmp_path)
    fleet.stop()


def delete_queue(rabbitmq: RunningSystem, queue: str) -> None:
    """As an administrator would in the middle of a trial."""
    host, port = rabbitmq.connection["bootstrap"][0].rsplit(":", 1)
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        connection.channel().queue_delete(queue)


def test_messages_for_a_queue_that_was_deleted_fail_as_unroutable(
    rabbitmq: RunningSystem, worker: Worker
) -> None:
    topic = "deleted-queue"
    worker.client.create_topics(rabbitmq.connection, [{"name": topic, "partitions": 2}], 30.0)
    request = trial(rabbitmq, topic, producers=1, start="earliest")
    request["schedule"] = IN_NO_HURRY
    audit, errors = run_and_count(worker, request, lambda: delete_queue(rabbitmq, f"{topic}.0"))
    assert audit["sent"] == audit["acked"] + audit["failed"] == 200
    # One of two queues is missing from then on.
    assert 10 <= audit["failed"] <= 90
    assert 0 < errors["UNROUTABLE"] <= audit["failed"]
    assert errors["CONSUMER_CANCELLED"] == 1
    # What lay in the queue when it was deleted was acknowledged, and is lost; the client keeps up, so it is little.
    assert audit["subscriptions"][0]["lost"] <= 10


def test_messages_that_a_full_queue_refuses_fail(rabbitmq: RunningSystem, worker: Worker) -> None:
    topic = "full"
    limits = {"x-max-length": "50", "x-overflow": "reject-publish"}
    worker.client.create_topics(
        rabbitmq.connection, [{"name": topic, "partitions": 2, "configs": limits}], 30.0
    )
    audit, errors = run_and_count(worker, trial(rabbitmq, topic, producers=1, start="none"), lambda: None)
    assert audit["sent"] == audit["acked"] + audit["failed"] == 200
    # Two queues of 50 messages; RabbitMQ is not exact to the message.
    assert 90 <= audit["acked"] <= 110
    assert 0 < errors["BASIC_NACK"] <= audit["failed"]
