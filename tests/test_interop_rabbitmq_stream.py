"""The native stream client, rstream (a client of RabbitMQ's community) and pika read what the others have written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rabbitmq_support import BODY, IN_NO_HURRY, PARTITIONS, run, run_and_count, trial
from streamgauge.fleet.base import Worker
from streamgauge.fleet.local import LocalFleet
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.rabbitmq.system import installed_version
from streamgauge.vocabulary.waiting import wait_until

pika = pytest.importorskip("pika")
rstream = pytest.importorskip("rstream")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(installed_version() is None, reason="rabbitmq-server is not installed"),
]
LOGIN = {"username": "guest", "password": "guest"}


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A load worker."""
    fleet = LocalFleet()
    yield fleet.start(tmp_path)
    fleet.stop()


def address(rabbitmq_streams: RunningSystem) -> dict[str, Any]:
    """Where rstream connects to."""
    host, port = rabbitmq_streams.connection["bootstrap"][0].rsplit(":", 1)
    return {"host": host, "port": int(port)} | LOGIN


def connect(rabbitmq_streams: RunningSystem) -> Any:
    """pika's connection."""
    host, port = rabbitmq_streams.connection["options"]["amqp"][0].rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def is_ours(body: bytes) -> bool:
    """Whether a message is one of the native client's, probes left out."""
    return body[:4] == b"SGm1" and len(body) == 100


async def read_streams(rabbitmq_streams: RunningSystem, streams: list[str], count: int) -> list[bytes]:
    """What rstream finds in streams, until there are that many messages of ours."""
    bodies: list[bytes] = []
    enough = asyncio.Event()

    async def take(message: Any, _context: Any) -> None:
        if is_ours(bytes(message.body)):
            bodies.append(bytes(message.body))
        if len(bodies) >= count:
            enough.set()

    consumer = rstream.Consumer(**address(rabbitmq_streams))
    await consumer.start()
    first = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST, None)
    for stream in streams:
        await consumer.subscribe(
            stream, callback=take, decoder=rstream.amqp_decoder, offset_specification=first
        )
    running = asyncio.ensure_future(consumer.run())
    try:
        await asyncio.wait_for(enough.wait(), 20.0)
    finally:
        await consumer.close()
        running.cancel()
    return bodies


def test_rstream_reads_what_the_native_client_wrote(rabbitmq_streams: RunningSystem, worker: Worker) -> None:
    topic = "from-gauge"
    worker.client.create_topics(
        rabbitmq_streams.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0
    )
    answer = run(worker, trial(rabbitmq_streams, topic, producers=1, start="none"))
    assert answer["audit"]["sent"] == answer["audit"]["acked"] == 200
    streams = [f"{topic}-{partition}" for partition in range(PARTITIONS)]
    assert len(asyncio.run(read_streams(rabbitmq_streams, streams, 200))) == 200


def test_a_super_stream_routes_what_an_amqp_client_publishes(
    rabbitmq_streams: RunningSystem, worker: Worker
) -> None:
    topic = "routed"
    worker.client.create_topics(
        rabbitmq_streams.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0
    )
    with connect(rabbitmq_streams) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(50):
            channel.basic_publish(topic, str(number % PARTITIONS), BODY, mandatory=True)
    answer = run(worker, trial(rabbitmq_streams, topic, producers=1, start="earliest"))
    assert answer["audit"]["subscriptions"][0]["unexpected"] == 50


def test_the_native_client_reads_what_rstream_wrote(rabbitmq_streams: RunningSystem, worker: Worker) -> None:
    topic = "from-rstream"
    worker.client.create_topics(
        rabbitmq_streams.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0
    )

    async def write() -> None:
        async with rstream.Producer(**address(rabbitmq_streams)) as producer:
            for number in range(50):
                message = rstream.AMQPMessage(
                    body=BODY,
                    properties=rstream.Properties(message_id=str(number)),
                    application_properties={"number": number},
                )
                await producer.send_wait(stream=f"{topic}-{number % PARTITIONS}", message=message)

    asyncio.run(write())
    answer = run(worker, trial(rabbitmq_streams, topic, producers=1, start="earliest"))
    audit = answer["audit"]["subscriptions"][0]
    # rstream's messages bear no stamp of this trial.
    assert (audit["unexpected"], audit["lost"], audit["corrupted"]) == (50, 0, 0)


def test_an_amqp_client_and_the_native_one_share_a_stream(
    rabbitmq_streams: RunningSystem, worker: Worker
) -> None:
    topic = "shared"
    worker.client.create_topics(rabbitmq_streams.connection, [{"name": topic, "partitions": 1}], 30.0)
    with connect(rabbitmq_streams) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(content_type="text/plain", headers={"number": 1})
        for _ in range(50):
            channel.basic_publish("", topic, BODY, properties, mandatory=True)
        request = trial(rabbitmq_streams, topic, producers=1, start="earliest")
        request["topics"][0]["partitions"] = 1
        audit = run(worker, request)["audit"]["subscriptions"][0]
        assert (audit["unexpected"], audit["lost"], audit["corrupted"]) == (50, 0, 0)
        channel.basic_qos(prefetch_count=100)
        bodies = []
        first = {"x-stream-offset": "first"}
        for method, _, body in channel.consume(topic, arguments=first, inactivity_timeout=3.0):
            if method is None:
                break
            channel.basic_ack(method.delivery_tag)
            bodies.append(body)
        channel.cancel()
    assert bodies[:50] == [BODY] * 50
    assert sum(map(is_ours, bodies)) == 200


def test_a_stream_that_is_deleted_leaves_the_others_alone(
    rabbitmq_streams: RunningSystem, worker: Worker
) -> None:
    topic = "deleted"
    worker.client.create_topics(
        rabbitmq_streams.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0
    )

    def delete_one() -> None:
        with connect(rabbitmq_streams) as connection:
            connection.channel().queue_delete(f"{topic}-0")

    request = trial(rabbitmq_streams, topic, producers=1, start="earliest")
    request["schedule"] = IN_NO_HURRY
    audit, errors = run_and_count(worker, request, delete_one)
    assert audit["sent"] == audit["acked"] + audit["censored"] == 200
    # One of two streams is missing from then on; its messages wait for it until the trial gives up.
    assert 10 <= audit["censored"] <= 90
    assert errors["STREAM_DOES_NOT_EXIST"] > 0
    assert audit["subscriptions"][0]["corrupted"] == 0


def test_an_idle_connection_is_kept_alive(rabbitmq_streams: RunningSystem, worker: Worker) -> None:
    topic = "idle"
    worker.client.create_topics(rabbitmq_streams.connection, [{"name": topic, "partitions": 1}], 30.0)
    request = trial(rabbitmq_streams, topic, producers=1, start="earliest")
    request["topics"][0]["partitions"] = 1
    request["system"]["options"]["heartbeat_s"] = 1
    # Four seconds without a message end a connection that nobody keeps alive.
    request["schedule"] = {"arrival": "uniform", "rate_msgs_s": 0.25, "stop_s": 5.0}
    audit, errors = run_and_count(worker, request, lambda: time.sleep(4.0))
    assert audit["sent"] == audit["acked"] > 0
    assert not errors


def test_positions_are_stored_in_the_subscriptions_name(
    rabbitmq_streams: RunningSystem, worker: Worker
) -> None:
    topic = "stored"
    worker.client.create_topics(rabbitmq_streams.connection, [{"name": topic, "partitions": 1}], 30.0)
    request = trial(rabbitmq_streams, topic, producers=1, start="earliest")
    request["topics"][0]["partitions"] = 1
    request["subscriptions"][0]["commit_interval_ms"] = 200
    audit = run(worker, request)["audit"]["subscriptions"][0]
    assert audit["lost"] == 0

    async def stored() -> int:
        async with rstream.Consumer(**address(rabbitmq_streams)) as consumer:
            return int(await consumer.query_offset(stream=topic, subscriber_name="s"))

    # The server acknowledges no storing, and does it when it comes to it.
    found = 0

    def missing() -> str | None:
        nonlocal found
        found = asyncio.run(stored())
        return "the last position to be stored" if found < 200 else None

    assert wait_until(missing, 20.0) is None, found
    # 200 messages and the probe before them; offsets begin with 0. Each storing takes an offset too.
    assert found < 250
