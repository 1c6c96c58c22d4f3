"""The native client and Apache Pulsar's own Python client read what the other has written."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamgauge.fleet.base import Worker
from streamgauge.fleet.local import LocalFleet
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.pulsar.cluster import RunningPulsar
from streamgauge.systems.pulsar.system import Pulsar

pulsar = pytest.importorskip("pulsar")
pytestmark = [pytest.mark.jvm, pytest.mark.timeout(400)]
PARTITIONS = 3
MESSAGES = 200
BODY = b"written by the official client, and long enough to hold a stamp"
CODECS = ["none", "lz4", "gzip", "zstd", "snappy"]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    """One node for several facts: starting takes half a minute."""
    request = SystemRequest(level="L4", options={"journal": "async_bypass"})
    running = Pulsar().start(request, tmp_path_factory.mktemp("pulsar") / "data", print)
    yield running
    running.stop()
    running.wipe()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A load worker."""
    fleet = LocalFleet()
    yield fleet.start(tmp_path)
    fleet.stop()


@pytest.fixture(scope="module")
def official(system: RunningSystem) -> Iterator[Any]:
    """The official client."""
    client = pulsar.Client(
        f"pulsar://{system.connection['bootstrap'][0]}",
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )
    yield client
    client.close()


def name_of(topic: str) -> str:
    """A topic's name with tenant and namespace."""
    return f"persistent://streamgauge/trial/{topic}"


def trial(system: RunningSystem, topic: str, *, kind: str = "exclusive", **changes: Any) -> dict[str, Any]:
    """A trial of one topic and one second."""
    connection = system.connection
    connection["options"] = {**connection["options"], "subscription_type": kind}
    return {
        "run": 7,
        "seed": 1,
        "system": connection,
        "topics": [{"name": topic, "partitions": PARTITIONS}],
        "producers": [{"id": 0, "topic": topic, "keys": "round_robin"}],
        "subscriptions": [],
        "schedule": {"arrival": "uniform", "rate_msgs_s": float(MESSAGES), "stop_s": 1.0},
        "phases": [{"name": "measure", "from_s": 0.0}],
        "batch": {"bytes": 4096, "linger_ms": 10.0, "in_flight": 5},
        "payload": {"size_bytes": 100, "random_ratio": 0.2, "pool": 4},
        "lanes": {"realtime": "off"},
        **changes,
    }


def subscription(start: str, consumers: int = 1) -> dict[str, Any]:
    """A subscription of the native client."""
    return {"name": "s", "start": start, "consumers": consumers}


def run(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """Runs a trial to its end."""
    topic = request["topics"][0]["name"]
    client = worker.client
    client.create_topics(request["system"], [{"name": topic, "partitions": PARTITIONS}], 30.0)
    return run_on(worker, request)


def run_on(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """Runs a trial on a topic that is there."""
    number = begin(worker, request)
    time.sleep(1.2)
    return worker.client.finish(number, 20.0, 5.0)


def begin(worker: Worker, request: dict[str, Any]) -> str:
    """Starts the load of a trial, and returns the trial's id."""
    client = worker.client
    status = client.create_trial(request)
    deadline_s = time.monotonic() + 60
    while status.state == "preparing" and time.monotonic() < deadline_s:
        time.sleep(0.05)
        status = client.status(status.id)
    assert status.state == "ready", status
    client.start(status.id, 50)
    return status.id


def read_all(official: Any, topic: str, count: int, length: int = 100) -> list[Any]:
    """What the official client finds in a topic from its beginning, without readiness probes: messages of one length."""
    consumer = official.subscribe(
        name_of(topic), "official", initial_position=pulsar.InitialPosition.Earliest
    )
    messages: list[Any] = []
    while len(messages) < count:
        message = consumer.receive(timeout_millis=10_000)
        consumer.acknowledge(message)
        if len(message.data()) == length:
            messages.append(message)
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", CODECS)
def test_the_official_client_reads_what_the_native_one_wrote(
    system: RunningSystem, worker: Worker, official: Any, codec: str
) -> None:
    topic = f"from-gauge-{codec}"
    answer = run(worker, trial(system, topic, compression=codec))
    assert answer["audit"]["sent"] == answer["audit"]["acked"] == MESSAGES
    messages = read_all(official, topic, MESSAGES)
    assert all(message.data()[:4] == b"SGm1" for message in messages)
    assert {message.topic_name().rpartition("-")[2] for message in messages} == {"0", "1", "2"}


@pytest.mark.parametrize("codec", CODECS)
def test_the_native_client_reads_what_the_official_one_wrote(
    system: RunningSystem, worker: Worker, official: Any, codec: str
) -> None:
    topic = f"from-official-{codec}"
    worker.client.create_topics(system.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0)
    kinds = {
        "none": pulsar.CompressionType.NONE,
        "lz4": pulsar.CompressionType.LZ4,
        "gzip": pulsar.CompressionType.ZLib,
        "zstd": pulsar.CompressionType.ZSTD,
        "snappy": pulsar.CompressionType.SNAPPY,
    }
    producer = official.create_producer(
        name_of(topic),
        compression_type=kinds[codec],
        batching_enabled=codec != "lz4",
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for number in range(50):
        producer.send_async(BODY, None, properties={"number": str(number)}, partition_key=str(number))
    producer.flush()
    producer.close()
    answer = run_on(worker, trial(system, topic, subscriptions=[subscription("earliest")]))
    audit = answer["audit"]["subscriptions"][0]
    # The official client's messages bear no stamp of this trial.
    assert (audit["unexpected"], audit["lost"], audit["corrupted"]) == (50, 0, 0)
    assert answer["errors"] == {} if "errors" in answer else True


def test_keys_go_where_the_java_client_sends_them(
    system: RunningSystem, worker: Worker, official: Any
) -> None:
    topic = "keyed"
    producers = [{"id": 0, "topic": topic, "keys": "keyed", "key_count": 20}]
    run(worker, trial(system, topic, producers=producers))
    ours = {message.partition_key(): message.topic_name() for message in read_all(official, topic, MESSAGES)}
    assert len(ours) == 20
    keys = ("0", "7", "19")
    for key in keys:
        # The Python client hashes keys in a way of its own; Java's tool is part of the distribution.
        assert isinstance(system, RunningPulsar)
        command = [str(system.launch.java.executable), "-cp", f"{system.launch.installation.path}/lib/*"]
        command += ["org.apache.pulsar.client.cli.PulsarClientTool"]
        command += [f"{system.launch.installation.path}/conf/client.conf"]
        command += ["--url", f"pulsar://{system.connection['bootstrap'][0]}"]
        command += ["produce", "-k", key, "-m", BODY.decode().replace(",", ";"), name_of(topic)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    messages = read_all(official, topic, len(keys), len(BODY))
    theirs = {message.partition_key(): message.topic_name() for message in messages}
    assert theirs == {key: ours[key] for key in keys}


@pytest.mark.parametrize(
    ("kind", "keys"), [("failover", "round_robin"), ("shared", "none"), ("key_shared", "keyed")]
)
def test_every_subscription_type_is_read_whole(
    system: RunningSystem, worker: Worker, kind: str, keys: str
) -> None:
    topic = f"type-{kind}"
    producer: dict[str, Any] = {"id": 0, "topic": topic, "keys": keys}
    if keys == "keyed":
        producer["key_count"] = 20
    request = trial(
        system, topic, kind=kind, producers=[producer], subscriptions=[subscription("latest", consumers=2)]
    )
    audit = run(worker, request)["audit"]["subscriptions"][0]
    assert audit["received"] == MESSAGES
    assert (audit["lost"], audit["duplicated"], audit["corrupted"]) == (0, 0, 0)


def test_a_paused_subscription_resumes_where_it_was(system: RunningSystem, worker: Worker) -> None:
    topic = "paused"
    worker.client.create_topics(system.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0)
    client = worker.client
    request = trial(system, topic, subscriptions=[subscription("latest")])
    request["schedule"] = {"arrival": "uniform", "rate_msgs_s": 500.0, "stop_s": 3.0}
    number = begin(worker, request)
    time.sleep(1.0)
    client.pause(number, "s")
    time.sleep(1.0)
    client.resume(number, "s")
    time.sleep(1.3)
    audit = client.finish(number, 20.0, 5.0)["audit"]["subscriptions"][0]
    assert audit["received"] == 1500
    assert (audit["lost"], audit["duplicated"], audit["reordered"]) == (0, 0, 0)


def backlog(system: RunningSystem, topic: str) -> int:
    """Entries of a topic's partitions that its subscription has not acknowledged, as the broker tells."""
    found = 0
    for partition in range(PARTITIONS):
        path = f"admin/v2/persistent/streamgauge/trial/{topic}-partition-{partition}/stats?getPreciseBacklog=true"
        with urllib.request.urlopen(
            f"http://{system.connection['options']['admin'][0]}/{path}", timeout=10
        ) as answer:
            found += json.load(answer)["subscriptions"]["s"]["msgBacklog"]
    return found


def test_what_was_read_is_acknowledged_soon_as_the_java_client_does(
    system: RunningSystem, worker: Worker
) -> None:
    client, left = worker.client, {}
    for interval_ms in (5000, None):
        topic = f"acknowledged-{interval_ms}"
        client.create_topics(system.connection, [{"name": topic, "partitions": PARTITIONS}], 30.0)
        asked = {**subscription("latest"), "commit_interval_ms": interval_ms}
        request = trial(system, topic, subscriptions=[asked])
        request["schedule"] = {"arrival": "uniform", "rate_msgs_s": 500.0, "stop_s": 3.0}
        number = begin(worker, request)
        time.sleep(2.9)
        left[interval_ms] = backlog(system, topic)
        client.finish(number, 20.0, 5.0)
    # Of what was sent in three seconds, and what is sent in a few hundred milliseconds.
    assert left[5000] < left[None] / 3, left
