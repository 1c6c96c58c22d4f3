"""The native AMQP client and pika, a client of RabbitMQ's own documentation, read what the other has written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rabbitmq_support import BODY, PARTITIONS, prepare, run, trial
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


def connect(rabbitmq: RunningSystem) -> Any:
    """pika's connection."""
    host, port = rabbitmq.connection["bootstrap"][0].rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def test_pika_reads_what_the_native_client_wrote(rabbitmq: RunningSystem, worker: Worker) -> None:
    topic = "from-gauge"
    worker.client.create_topics(rabbitmq.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0)
    answer = run(worker, trial(rabbitmq, topic, producers=1, start="none"))
    assert answer["audit"]["sent"] == answer["audit"]["acked"] == 200
    with connect(rabbitmq) as connection:
        channel = connection.channel()
        bodies = []
        for partition in range(PARTITIONS):
            for method, properties, body in channel.consume(f"{topic}.{partition}", inactivity_timeout=2.0):
                if method is None:
                    break
                assert properties.delivery_mode == 2
                channel.basic_ack(method.delivery_tag)
                bodies.append(body)
            channel.cancel()
    ours = [body for body in bodies if body[:4] == b"SGm1" and len(body) == 100]
    # Two readiness probes of 32 bytes may be among them when a subscription asked for them; here there is none.
    assert len(ours) == 200


@pytest.mark.parametrize("name", ["rabbitmq", "rabbitmq_streams"])
def test_what_is_stored_is_not_read_before_the_load_begins(
    name: str, request: pytest.FixtureRequest, worker: Worker
) -> None:
    system, topic = request.getfixturevalue(name), f"stored-in-{name.replace('_', '-')}"
    worker.client.create_topics(system.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0)
    run(worker, trial(system, topic, producers=1, start="none"))
    reading = prepare(worker, trial(system, topic, producers=1, start="earliest") | {"run": 8})
    worker.client.start(reading, 3000)
    # Whoever reads before the load begins has it all long before.
    time.sleep(1.0)
    assert worker.client.counters(reading).subscriptions[0].received_msgs == 0
    time.sleep(3.2)
    audit = worker.client.finish(reading, 20.0, 5.0)["audit"]["subscriptions"][0]
    # What is stored is of another trial.
    assert (audit["unique"], audit["unexpected"], audit["lost"]) == (200, 200, 0)


def test_the_native_client_reads_what_pika_wrote(rabbitmq: RunningSystem, worker: Worker) -> None:
    topic = "from-pika"
    worker.client.create_topics(rabbitmq.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0)
    with connect(rabbitmq) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(50):
            channel.basic_publish(topic, str(number % PARTITIONS), BODY, mandatory=True)
    answer = run(worker, trial(rabbitmq, topic, producers=1, start="earliest"))
    audit = answer["audit"]["subscriptions"][0]
    # pika's messages bear no stamp of this trial.
    assert (audit["unexpected"], audit["lost"], audit["corrupted"]) == (50, 0, 0)
