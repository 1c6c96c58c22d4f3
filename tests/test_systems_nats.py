"""NATS as a system: what is refused before anything starts, what is written, what is read back; and the real server, driven by
the gauge, read and written by NATS's own Python client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import nats
import psutil
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.nats import server
from streamgauge.systems.nats.system import Nats, build
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import FleetFailure, SystemFailure, SystemInputError
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.levels import Level
from systems_support import NATS_LAUNCH

LEVELS: tuple[Level, ...] = ("L1", "L2", "L3", "L4")
PORTS = [server.Ports(1, 2, 3), server.Ports(4, 5, 6), server.Ports(7, 8, 9)]


# ---------------------------------------------------------------------- before anything starts


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (SystemRequest(level="L1"), "start three nodes"),
        (SystemRequest(level="L2"), "On one node there are L3"),
        (SystemRequest(nodes=2), "1 or 3 nodes"),
        (SystemRequest(version="latest"), "three numbers such as 2.15.2"),
        (SystemRequest(version="2.3.0"), "2.9.0 or a later 2.x"),
        (SystemRequest(connect=("nonsense",)), "expected host:port"),
        (SystemRequest(options={"port": [1]}), "did you mean 'ports'?"),
        (SystemRequest(options={"ports": [1, 2]}), "expected 1 different ports"),
        (SystemRequest(options={"client": {"ack_policy": "some"}}), "expected explicit, all or none"),
        (SystemRequest(options={"client": {"window": 1}}), "did you mean 'window_msgs'?"),
        (SystemRequest(options={"client": {"window_msgs": 0}}), "from 1 to 1000000"),
        (SystemRequest(options={"stream": {"num_replicas": 3}}), "follows from the durability level"),
        (SystemRequest(options={"stream": 3}), "expected keys and values"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_starts(request_: SystemRequest, expected: str) -> None:
    with pytest.raises(SystemInputError, match="file.yaml: .*" + expected.replace("?", r"\?")):
        Nats().check(replace(request_, source="file.yaml"))


def test_a_port_in_use_is_refused_with_its_holder() -> None:
    port = processes.free_ports(1)[0]
    with (
        socket.create_server((processes.LOOPBACK, port)),
        pytest.raises(SystemInputError, match=rf"port {port} is in use by .*pid"),
    ):
        Nats().check(SystemRequest(options={"ports": [port]}))


def test_every_level_of_the_table_can_be_had() -> None:
    for level in LEVELS:
        Nats().check(SystemRequest(level=level, nodes=3))
    for level in LEVELS[2:]:
        Nats().check(SystemRequest(level=level, nodes=1))


def test_levels_are_written_and_judged_alike() -> None:
    for level in LEVELS:
        launch = replace(NATS_LAUNCH, nodes=3, level=level)
        assert server.level_of(launch.replicas, launch.sync_always) == level
        text = server.configuration_file(launch, 2, PORTS, 1000)
        assert ("sync_interval: always" in text) == launch.sync_always
        assert "127.0.0.1:4\n" in text
        assert "127.0.0.1:5\n" in text
        assert "127.0.0.1:6\n" in text
        assert (
            "routes: [nats-route://127.0.0.1:3, nats-route://127.0.0.1:6, nats-route://127.0.0.1:9]" in text
        )
    assert "cluster" not in server.configuration_file(NATS_LAUNCH, 1, PORTS[:1], 1000)
    assert "max_buffered_msgs" not in server.configuration_file(
        replace(NATS_LAUNCH, version="2.9.10"), 1, PORTS[:1], 1000
    )


def described(replicas: int = 1, **settings: str) -> dict[str, Any]:
    return {"topics": {"t": {"replication_factor": replicas, "settings": {"storage": "file"} | settings}}}


def varz(sync_always: bool = False) -> dict[str, Any]:
    config = {"sync_interval": 120_000_000_000, "max_storage": 1} | (
        {"sync_always": True} if sync_always else {}
    )
    return {"version": "2.15.2", "jetstream": {"config": config}}


def test_settings_read_back_are_judged() -> None:
    expected = server.Expectation(nodes=1, level="L3", replicas=1, stream={})
    right = server.compare(described(), {"node-1": varz(sync_always=True)}, ["t"], expected)
    assert (right.level, right.mismatches) == ("L3", ())
    assert right.settings["node.node-1.jetstream.sync_always"] is True
    assert right.settings["topic.storage"] == "file"
    wrong = server.compare(described(3, storage="memory"), {"node-1": varz()}, ["t", "u"], expected)
    said = " ".join(wrong.mismatches)
    for part in (
        "sync_interval of node-1 is the default instead of always",
        "topic u is not there",
        "stored in memory instead of file",
        "3 copies instead of 1",
        "amount to L2",
    ):
        assert part in said
    changed = replace(expected, level=None, stream={"max_age": "5"})
    assert "max_age of topic t is 7 instead of 5" in " ".join(
        server.compare(described(max_age="7"), {}, ["t"], changed).mismatches
    )


def test_the_reason_of_a_failed_start_is_found_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[1] 2026/01/01 00:00:00.0 [INF] Starting\n[1] 2026/01/01 00:00:00.1 [FTL] No space left\n"
    )
    assert server.explain(log) == f"No space left (log: {log})"
    log.write_text("nats-server: a.conf:3:4: unknown field\n")
    assert server.explain(log).startswith("a.conf:3:4: unknown field")
    assert "is empty" in server.explain(tmp_path / "none.log")


def test_a_version_that_does_not_exist_is_told_with_gos_words(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'unknown revision v2.99.0' >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(SystemFailure, match="unknown revision"):
        build(str(go), "2.99.0", tmp_path, tmp_path / "log", lambda _: None)


def test_without_go_and_without_a_server_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    if Path("/usr/sbin/nats-server").exists():
        pytest.skip("this machine has Debian's server")
    missing = Nats().missing()
    assert missing is not None
    assert "install Go" in missing
    assert "apt-get install nats-server" in missing


# ---------------------------------------------------------------------- with the real server


class Worker:
    """A `gauge worker` and its API."""

    def __init__(self, gauge: Path) -> None:
        self.process = subprocess.Popen(
            [str(gauge), "worker", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line
        assert line[0] == "ready"
        self.http = httpx.Client(base_url=f"http://{line[1]}/v1", timeout=90, trust_env=False)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def trial(self, body: dict[str, Any], running_s: float) -> Any:
        """Runs a trial to its end."""
        trial = self.post("/trials", body)["id"]
        deadline = time.monotonic() + 60
        while (status := self.http.get(f"/trials/{trial}").json())["state"] != "ready":
            assert status["state"] == "preparing", status
            assert time.monotonic() < deadline, status
            time.sleep(0.05)
        self.post(f"/trials/{trial}/start", {})
        end = time.monotonic() + running_s
        while time.monotonic() < end:
            time.sleep(0.5)
            self.post(f"/trials/{trial}/lease", {})
        return self.post(f"/trials/{trial}/finish", {"drain_s": 30.0, "quiet_s": 10.0})

    def end(self) -> None:
        self.http.close()
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    try:
        gauge = find_gauge()
    except FleetFailure as failure:
        pytest.fail(f"{failure}; run the tests with make test")
    worker = Worker(gauge)
    yield worker
    worker.end()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningNats]:
    started = Nats().start(SystemRequest(), tmp_path_factory.mktemp("nats") / "system", lambda _: None)
    assert isinstance(started, server.RunningNats)
    yield started
    started.stop()
    started.wipe()
    assert all(not psutil.pid_exists(process.pid) for process in started.processes())


def body(running: server.RunningNats, topic: str, **changes: Any) -> dict[str, Any]:
    """A short trial of 2000 msg/s for 3 s."""
    return {
        "run": 77,
        "seed": 1,
        "system": running.connection,
        "topics": [{"name": topic, "partitions": 4}],
        "producers": [{"id": 0, "topic": topic, "keys": "none"}],
        "subscriptions": [
            {"name": "s-0", "start": "latest", "consumers": 2, "consumer_from": 0, "consumer_count": 2}
        ],
        "schedule": {"arrival": "uniform", "rate_msgs_s": 2000.0, "stop_s": 3.0},
        "phases": [{"name": "measure", "from_s": 0.0}],
        "batch": {"bytes": 65536, "linger_ms": 1.0, "in_flight": 5},
        "acks": "all",
        "idempotence": False,
        "compression": "none",
        "payload": {"size_bytes": 100, "random_ratio": 0.0, "pool": 4},
        "interval_ms": 1000,
        "lease_s": 10.0,
    } | changes


def create(worker: Worker, running: server.RunningNats, topic: str) -> None:
    plan = running.topic_plan()
    worker.post(
        "/admin/create-topics",
        {
            "system": running.connection,
            "topics": [
                {
                    "name": topic,
                    "partitions": 4,
                    "replication_factor": plan.replication_factor,
                    "configs": dict(plan.configs),
                }
            ],
            "timeout_s": 30,
        },
    )


@pytest.mark.server
@pytest.mark.timeout(1200)
def test_what_the_gauge_produces_the_official_client_reads(
    worker: Worker, running: server.RunningNats
) -> None:
    topic = "written-by-the-gauge"
    create(worker, running, topic)
    keyed = [{"id": 0, "topic": topic, "keys": "keyed", "key_count": 10}]
    result = worker.trial(body(running, topic, producers=keyed, idempotence=True), 4.5)
    audit = result["audit"]
    assert audit["sent"] == audit["acked"] == 6000
    assert audit["subscriptions"][0] | {"examples": []} == audit["subscriptions"][0] | {
        "received": 6000,
        "unique": 6000,
        "lost": 0,
        "duplicated": 0,
        "reordered": 0,
        "corrupted": 0,
        "balanced": True,
        "examples": [],
    }

    async def read() -> list[Any]:
        client = await nats.connect(running.connection["bootstrap"][0])
        stream = client.jetstream()
        info = await stream.stream_info(topic)
        assert info.config.num_replicas == 1
        assert info.config.metadata is not None
        assert (info.config.metadata or {})["streamgauge.partitions"] == "4"
        pull = await stream.pull_subscribe(
            "",
            stream=topic,
            config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE),
        )
        found: list[Any] = []
        with contextlib.suppress(nats.errors.TimeoutError):
            while len(found) < info.state.messages:
                found += await pull.fetch(500, timeout=5)
        await client.close()
        return found

    messages = asyncio.run(read())
    probes = [message for message in messages if len(message.data) == 32]
    load = [message for message in messages if len(message.data) == 100]
    assert len(probes) == 4
    assert len(load) == 6000
    assert all(message.data[:4] == b"SGm1" for message in load)
    assert {message.headers["Key"] for message in load} == {str(key) for key in range(10)}
    assert len({message.headers["Nats-Msg-Id"] for message in load}) == 6000
    by_key = {message.headers["Key"]: message.subject for message in load}
    assert all(by_key[message.headers["Key"]] == message.subject for message in load)
    sequences = [int.from_bytes(message.data[16:24], "little") for message in load]
    assert sequences == list(range(6000))


@pytest.mark.server
@pytest.mark.timeout(1200)
def test_what_the_official_client_writes_the_gauge_receives(
    worker: Worker, running: server.RunningNats
) -> None:
    topic = "written-by-others"
    create(worker, running, topic)

    async def write() -> None:
        client = await nats.connect(running.connection["bootstrap"][0])
        stream = client.jetstream()
        for number in range(300):
            headers = {"Key": str(number)} if number % 2 else None
            await stream.publish(f"{topic}.{number % 4}", b"x" * (number * 10), headers=headers)
        await client.close()

    asyncio.run(write())
    subscription = {
        "name": "s-0",
        "start": "earliest",
        "consumers": 2,
        "consumer_from": 0,
        "consumer_count": 2,
    }
    result = worker.trial(body(running, topic, subscriptions=[subscription]), 4.5)
    audit = result["audit"]["subscriptions"][0]
    assert (audit["unexpected"], audit["unique"], audit["lost"]) == (300, 6000, 0)
    assert audit["balanced"]
