"""Messages that RabbitMQ does not take: each has its end, and the reason is counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rabbitmq_support import trial
from streamgauge.fleet.base import Worker
from streamgauge.fleet.local import LocalFleet
from streamgauge.systems.base import RunningSystem, SystemRequest
from streamgauge.systems.rabbitmq import RabbitMq, installed_version

pika = pytest.importorskip("pika")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(installed_version() is None, reason="rabbitmq-server is not installed"),
]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    """A RabbitMQ node."""
    running = RabbitMq().start(SystemRequest(level="L4"), tmp_path_factory.mktemp("rabbitmq") / "data", print)
    yield running
    running.stop()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A load worker."""
    fleet = LocalFleet()
    yield fleet.start(tmp_path)
    fleet.stop()


def delete_queue(system: RunningSystem, queue: str) -> None:
    """As an administrator would in the middle of a trial."""
    host, port = system.connection["bootstrap"][0].rsplit(":", 1)
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        connection.channel().queue_delete(queue)


def run(
    worker: Worker, request: dict[str, Any], in_the_middle: Callable[[], None]
) -> tuple[dict[str, Any], Counter[str]]:
    """Runs a trial of one second: its audit, and errors by kind."""
    client = worker.client
    status = client.create_trial(request)
    deadline_s = time.monotonic() + 60
    while status.state == "preparing" and time.monotonic() < deadline_s:
        time.sleep(0.05)
        status = client.status(status.id)
    assert status.state == "ready", status
    client.start(status.id, 50)
    time.sleep(0.5)
    in_the_middle()
    time.sleep(0.8)
    answer = client.finish(status.id, 5.0, 2.0)
    errors: Counter[str] = Counter()
    for interval in client.intervals(status.id, 0).intervals:
        errors.update(interval["errors"])
    return answer["audit"], errors


def test_messages_for_a_queue_that_was_deleted_fail_as_unroutable(
    system: RunningSystem, worker: Worker
) -> None:
    topic = "deleted"
    worker.client.create_topics(system.connection, [{"name": topic, "partitions": 2}], 30.0)
    request = trial(system, topic, producers=1, start="earliest")
    audit, errors = run(worker, request, lambda: delete_queue(system, f"{topic}.0"))
    assert audit["sent"] == audit["acked"] + audit["failed"] == 200
    # One of two queues is missing for about half of the second.
    assert 10 <= audit["failed"] <= 90
    assert errors["UNROUTABLE"] == audit["failed"]
    assert errors["CONSUMER_CANCELLED"] == 1
    # What lay in the queue when it was deleted was acknowledged, and is lost; the client keeps up, so it is little.
    assert audit["subscriptions"][0]["lost"] <= 10


def test_messages_that_a_full_queue_refuses_fail(system: RunningSystem, worker: Worker) -> None:
    topic = "full"
    limits = {"x-max-length": "50", "x-overflow": "reject-publish"}
    worker.client.create_topics(
        system.connection, [{"name": topic, "partitions": 2, "configs": limits}], 30.0
    )
    audit, errors = run(worker, trial(system, topic, producers=1, start="none"), lambda: None)
    assert audit["sent"] == audit["acked"] + audit["failed"] == 200
    # Two queues of 50 messages; RabbitMQ is not exact to the message.
    assert 90 <= audit["acked"] <= 110
    assert errors["BASIC_NACK"] == audit["failed"]
