"""Unmodified clients against the reference log: librdkafka, kcat where it is installed, and Kafka's own tools."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.support.java import find_java


@contextmanager
def running_log(gauge: Path, data: Path, *options: str) -> Iterator[str]:
    """Where a log in fsync mode listens; it ends as it should."""
    command = [
        str(gauge),
        "log",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(data),
        "--durability",
        "fsync",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        word, listening = process.stdout.readline().split()
        assert word == "ready"
        yield listening
        process.terminate()
        assert process.wait(timeout=20) == 0


@pytest.fixture
def address(tmp_path: Path, real_gauge: Path) -> Iterator[str]:
    """Where a fresh log in fsync mode listens."""
    with running_log(real_gauge, tmp_path / "data") as listening:
        yield listening


def create(address: str, topic: str, partitions: int) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    return admin


def test_a_librdkafka_group_of_two_rebalances_and_reads_everything_once(address: str) -> None:
    count = 5000
    admin = create(address, "orders", 4)
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            "orders",
            str(number).encode(),
            partition=number % 4,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failed == []

    settings = {"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"}
    first, second = Consumer(settings), Consumer(settings)
    received: list[bytes] = []

    def read(consumer: Consumer) -> None:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None
            value = message.value()
            assert value is not None
            received.append(value)

    first.subscribe(["orders"])
    deadline = time.monotonic() + 60
    while len(received) < count // 2 and time.monotonic() < deadline:
        read(first)
    first.commit(asynchronous=False)
    second.subscribe(["orders"])
    while (
        not (len(first.assignment()) == 2 and len(second.assignment()) == 2) and time.monotonic() < deadline
    ):
        read(first)
        read(second)
    while len(received) < count and time.monotonic() < deadline:
        read(first)
        read(second)
    assert sorted(received, key=int) == [str(number).encode() for number in range(count)]
    assert {part.partition for part in first.assignment() + second.assignment()} == {0, 1, 2, 3}
    # Closing commits what was read.
    first.close()
    second.close()
    committed = Consumer(settings)
    offsets = committed.committed([TopicPartition("orders", index) for index in range(4)], timeout=10)
    committed.close()
    assert all(part.offset > 0 for part in offsets)
    admin.delete_topics(["orders"])["orders"].result()
    assert "orders" not in admin.list_topics(timeout=10).topics


def produce_megabytes(address: str, topic: str, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.kbytes": 65_536})
    for _ in range(megabytes * 10):
        while True:
            try:
                producer.produce(topic, bytes(100_000))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


def values(address: str, topic: str) -> list[bytes]:
    """All records of partition 0, from the beginning up to the end that the log names."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "look", "auto.offset.reset": "error"})
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    _low, high = consumer.get_watermark_offsets(place, timeout=10)
    found: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(found) < high and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.5):
            assert message.error() is None
            value = message.value()
            assert value is not None
            found.append(value)
    consumer.close()
    return found


def test_records_of_a_new_topic_are_its_own_after_an_old_one_was_deleted(
    tmp_path: Path, real_gauge: Path
) -> None:
    """Segments of a deleted topic stay while another one is alive in them; a topic made after a restart must not be looked for there."""

    def started() -> AbstractContextManager[str]:
        return running_log(real_gauge, tmp_path / "data", "--segment-mib", "16", "--memory", "96")

    expected = [b"one", b"two", b"three"]
    with started() as address:
        create(address, "keep", 1)
        admin = create(address, "old", 1)
        produce_megabytes(address, "keep", 1)
        produce_megabytes(address, "old", 75)
        admin.delete_topics(["old"])["old"].result()
        produce_megabytes(address, "keep", 18)
    with started() as address:
        create(address, "new", 1)
        producer = Producer({"bootstrap.servers": address})
        for value in expected:
            producer.produce("new", value)
        assert producer.flush(30) == 0
        assert values(address, "new") == expected
        produce_megabytes(address, "keep", 168)
        assert values(address, "new") == expected
    with started() as address:
        assert values(address, "new") == expected
        assert len(values(address, "keep")) == (1 + 18 + 168) * 10


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_time_is_found_where_it_begins(tmp_path: Path, real_gauge: Path, compression: str) -> None:
    """Also in what is not in memory any more, after a restart, and behind deleted records."""
    begin_ms = 1_700_000_000_000
    # Some come late, and one is ahead of all others; another partition lies between them.
    times = [begin_ms + 1000 * number - 5_500 * (number % 7 == 3) for number in range(400)]
    times[150] = begin_ms + 10_000_000
    asked = [0, *(times[number] + by for number in range(0, 400, 23) for by in (-1, 0, 1)), times[150] + 1]

    def started() -> AbstractContextManager[str]:
        return running_log(real_gauge, tmp_path / "data", "--segment-mib", "16", "--memory", "96")

    def due(asked_ms: int, first: int) -> int:
        offsets = range(first, len(times))
        return next((offset for offset in offsets if times[offset] >= asked_ms), -1)

    def check(address: str, first: int) -> None:
        consumer = Consumer({"bootstrap.servers": address, "group.id": "times"})
        for asked_ms in asked:
            wanted = [TopicPartition("times", partition, asked_ms) for partition in (0, 1)]
            found = {one.partition: one.offset for one in consumer.offsets_for_times(wanted, timeout=30)}
            assert found == {0: due(asked_ms, first), 1: due(asked_ms, 0)}, asked_ms
        consumer.close()
        admin = AdminClient({"bootstrap.servers": address})
        newest = {
            TopicPartition("times", partition): OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
            for partition in (0, 1)
        }
        for one, future in admin.list_offsets(newest).items():
            rest = times[first if one.partition == 0 else 0 :]
            found_newest = future.result()
            assert found_newest.timestamp == max(rest)
            assert found_newest.offset == times.index(max(rest))

    with started() as address:
        admin = create(address, "times", 2)
        # One record to a batch: of compressed batches only the first and the largest time are known.
        producer = Producer(
            {
                "bootstrap.servers": address,
                "compression.type": compression,
                "batch.num.messages": 1 if compression != "none" else 10_000,
            }
        )
        for number, time_ms in enumerate(times):
            for partition in (0, 1):
                producer.produce("times", random_bytes(number), partition=partition, timestamp=time_ms)
            producer.poll(0)
        assert producer.flush(60) == 0
        check(address, 0)
    with started() as address:
        check(address, 0)
        admin = AdminClient({"bootstrap.servers": address})
        for future in admin.delete_records([TopicPartition("times", 0, 151)]).values():
            future.result()
        check(address, 151)
    with started() as address:
        check(address, 151)


def random_bytes(seed: int) -> bytes:
    """100,000 bytes that cannot be compressed."""
    return random.Random(seed).randbytes(100_000)


def test_settings_read_back_say_what_is_done(address: str) -> None:
    admin = create(address, "settings", 1)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "settings")
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    configs = {
        name: entry.value
        for resource in (topic, broker)
        for name, entry in admin.describe_configs([resource])[resource].result().items()
    }
    assert configs["flush.messages"] == "1"
    assert configs["streamgauge.durability"] == "fsync"


def test_a_setting_that_is_followed_is_changed_and_another_is_refused(address: str) -> None:
    admin = create(address, "settings", 1)

    def change(name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ConfigResource.Type.TOPIC, "settings", incremental_configs=[entry])
        admin.incremental_alter_configs([topic])[topic].result()

    change("retention.ms", "60000")
    topic = ConfigResource(ConfigResource.Type.TOPIC, "settings")
    assert admin.describe_configs([topic])[topic].result()["retention.ms"].value == "60000"
    with pytest.raises(KafkaException, match=r"cleanup\.policy is delete here"):
        change("cleanup.policy", "compact")


def test_a_consumer_of_the_newer_group_protocol_fails_at_once(address: str) -> None:
    create(address, "orders", 1)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "newer", "group.protocol": "consumer"})
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._FATAL
    assert "API version not supported" in error.str()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)")
def test_kcat_lists_produces_and_consumes(address: str) -> None:
    def kcat(*arguments: str, text: str = "") -> str:
        command = ["kcat", "-b", address, *arguments]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    kcat("-P", "-t", "lines", text="one\ntwo\nthree\n")
    assert "lines" in kcat("-L")
    assert kcat("-C", "-t", "lines", "-o", "beginning", "-e", "-q").split() == ["one", "two", "three"]


@pytest.mark.jvm
def test_kafkas_own_tools_work(address: str) -> None:
    kafka = Kafka()
    kafka.install(None, print)
    libraries = kafka.installed()
    java = str(find_java().executable)

    def tool(name: str, *arguments: str) -> str:
        command = [java, "-Xmx256m", "-cp", f"{libraries}/*", f"org.apache.kafka.tools.{name}"]
        completed = subprocess.run(
            [*command, "--bootstrap-server", address, *arguments], capture_output=True, text=True, timeout=120
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout

    tool("TopicCommand", "--create", "--topic", "perf", "--partitions", "4", "--replication-factor", "1")
    assert "perf" in tool("TopicCommand", "--list")
    assert "PartitionCount: 4" in tool("TopicCommand", "--describe", "--topic", "perf")
    sent = tool(
        "ProducerPerformance",
        "--topic",
        "perf",
        "--num-records",
        "20000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
    )
    assert "20000 records sent" in sent
    read = tool("ConsumerPerformance", "--topic", "perf", "--num-records", "20000", "--timeout", "30000")
    assert ", 20000, " in read
    tool("TopicCommand", "--delete", "--topic", "perf")
    assert "perf" not in tool("TopicCommand", "--list")
