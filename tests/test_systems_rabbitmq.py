"""RabbitMQ as a system: what is decided without a server, and one short trial against a real one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import lab_support
import pytest
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.rabbitmq import settings
from streamgauge.systems.rabbitmq.nodes import Launch, compare, emptied
from streamgauge.systems.rabbitmq.system import RabbitMq, installed_version
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import SystemInputError
from streamgauge.vocabulary.levels import Level

needs_server = pytest.mark.skipif(installed_version() is None, reason="rabbitmq-server is not installed")


def plan(level: Level | None, nodes: int, **options: Any) -> settings.Plan:
    """The plan for a request with these options."""
    request = SystemRequest(nodes=nodes, level=level, options=options)
    return settings.plan(level, nodes, settings.parse_options(request), "")


@pytest.mark.parametrize(
    ("level", "nodes", "options", "queue", "persistent", "wal_fsync"),
    [
        (None, 1, {}, "classic", False, True),
        ("L4", 1, {}, "classic", False, True),
        ("L3", 1, {}, "classic", True, True),
        ("L3", 1, {"queue": "quorum"}, "quorum", True, True),
        ("L4", 1, {"queue": "quorum"}, "quorum", True, False),
        (None, 3, {}, "quorum", True, True),
        ("L1", 3, {}, "quorum", True, True),
        ("L2", 3, {}, "quorum", True, False),
        ("L1", 3, {"queue": "mirrored"}, "mirrored", True, True),
        ("L2", 3, {"queue": "mirrored"}, "mirrored", False, True),
        ("L3", 3, {}, "classic", True, True),
        (None, 1, {"queue": "stream"}, "stream", True, True),
        ("L4", 1, {"queue": "stream", "protocol": "amqp"}, "stream", True, True),
        (None, 3, {"queue": "stream"}, "stream", True, True),
        ("L2", 3, {"queue": "stream"}, "stream", True, True),
    ],
)
def test_each_level_has_its_means(
    level: Level | None, nodes: int, options: dict[str, Any], queue: str, persistent: bool, wal_fsync: bool
) -> None:
    found = plan(level, nodes, **options)
    assert (found.queue, found.persistent, found.wal_fsync) == (queue, persistent, wal_fsync)
    assert level in (None, found.level)


@pytest.mark.parametrize(
    ("level", "nodes", "options"),
    [
        ("L1", 1, {}),
        ("L2", 1, {}),
        ("L1", 3, {"queue": "classic"}),
        ("L3", 1, {"persistent": False}),
        (None, 1, {"queue": "mirrored"}),
        ("L4", 3, {"queue": "quorum"}),
        ("L1", 3, {"queue": "stream"}),
        ("L3", 1, {"queue": "stream"}),
    ],
)
def test_what_cannot_be_had_is_refused(level: Level | None, nodes: int, options: dict[str, Any]) -> None:
    with pytest.raises(SystemInputError, match=r"RabbitMQ|mirrored"):
        plan(level, nodes, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queues": "quorum"}, "unknown key 'queues' for RabbitMQ; did you mean 'queue'"),
        ({"queue": "log"}, "expected one of classic, mirrored, quorum, stream"),
        ({"protocol": "mqtt"}, "expected one of amqp, stream"),
        ({"queue": "quorum", "protocol": "stream"}, "stream is for streams only"),
        ({"queue": "stream", "persistent": True}, "a stream writes every message to its log"),
        ({"queue": "stream", "prefetch_msgs": 10}, "prefetch_msgs has no meaning with protocol: stream"),
        ({"credits": 10}, "credits has no meaning with protocol: amqp"),
        ({"stream_ports": [1]}, "stream_ports has no meaning with protocol: amqp"),
        ({"queue": "stream", "credits": 0}, "credits: expected a whole number from 1"),
        ({"queue": "stream", "stream_ports": [1, 2]}, "stream_ports: expected 1 different ports"),
        (
            {"queue": "stream", "protocol": "amqp", "consumer_acks": "automatic"},
            "only with manual acknowledgements",
        ),
        ({"memory_mb": "much"}, "memory_mb: expected a whole number"),
        ({"ports": [1, 2]}, "ports: expected 1 different ports, one per node"),
        ({"consumer_acks": "never"}, "expected manual or automatic"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SystemInputError, match=words):
        settings.parse_options(SystemRequest(options=options))


def test_a_level_is_not_asked_of_a_broker_that_runs() -> None:
    with pytest.raises(SystemInputError, match="AMQP does not tell"):
        RabbitMq().check(SystemRequest(level="L3", connect=("127.0.0.1:5672",)))


def read_back(queues: list[dict[str, Any]], wal_sync: str, level: Level) -> Any:
    """What `compare` says of these queues on three nodes."""
    request = SystemRequest(nodes=3, level=level)
    options = settings.parse_options(request)
    launch = Launch(
        version="3.10.8",
        nodes=3,
        options=options,
        plan=settings.plan(level, 3, options, ""),
        directory=Path("/nowhere"),
    )
    nodes = {f"gauge{node}@localhost": {"ra.wal_sync_method": wal_sync} for node in (1, 2, 3)}
    return compare(queues, nodes, {"topics": {"t": {}}}, ["t"], launch)


def test_settings_read_back_are_compared() -> None:
    quorum = {"name": "t.0", "type": "rabbit_quorum_queue", "members": ["a", "b", "c"], "durable": True}
    found = read_back([quorum], "datasync", "L1")
    assert (found.level, found.mismatches) == ("L1", ())
    found = read_back([quorum], "none", "L1")
    assert found.level == "L2"
    assert "amount to L2" in found.mismatches[0]
    found = read_back([{"name": "t.0", "type": "rabbit_classic_queue"}], "datasync", "L1")
    assert found.level == "L3"
    assert "classic with 1 copy instead of quorum with 3" in found.mismatches[0]
    assert "topic t is not there" in read_back([], "datasync", "L1").mismatches


@pytest.mark.parametrize(
    ("members", "is_emptied"),
    [
        ([("follower", 0, 0)], True),
        ([("follower", 0, 0), ("follower", 0, 0)], True),
        ([("leader", 7, 1)], False),
        ([("follower", 7, 1)], False),
        ([("follower", 0, 0), ("follower", 7, 1)], False),
        ([("noproc", None, None)], False),
        ([], False),
    ],
)
def test_a_queue_whose_members_have_all_begun_anew_has_lost_its_content(
    members: list[tuple[str, int | None, int | None]], is_emptied: bool
) -> None:
    listed = [
        {"Node Name": f"n{at}@localhost", "Raft State": state, "Log Index": index, "Term": term}
        for at, (state, index, term) in enumerate(members)
    ]
    told = emptied("t.0", listed)
    assert (told is not None) == is_emptied
    if told is not None:
        assert told.startswith("rabbitmq-queues quorum_status t.0: n0@localhost is follower")
        assert told.endswith("log index 0, term 0")


def test_a_stream_is_judged_by_its_copies() -> None:
    request = SystemRequest(nodes=3, options={"queue": "stream"})
    options = settings.parse_options(request)
    found = settings.plan(None, 3, options, "")
    launch = Launch(version="3.10.8", nodes=3, options=options, plan=found, directory=Path("/nowhere"))
    nodes = {f"gauge{node}@localhost": {"ra.wal_sync_method": "datasync"} for node in (1, 2, 3)}
    stream = {"name": "t-0", "type": "stream", "members": ["a", "b", "c"]}
    description: dict[str, Any] = {"topics": {"t": {}}}
    read = compare([stream], nodes, description, ["t"], launch)
    assert (read.level, read.mismatches) == ("L2", ())
    read = compare([stream | {"members": ["a"]}], nodes, description, ["t"], launch)
    assert "stream with 1 copy instead of stream with 3" in read.mismatches[0]


def test_the_stream_plugin_is_there_for_its_clients_alone() -> None:
    for options, plugins in (
        ({"queue": "stream"}, "[rabbitmq_stream].\n"),
        ({"queue": "stream", "protocol": "amqp"}, "[].\n"),
    ):
        assert settings.plugins_file(plan(None, 1, **options), has_metrics=False) == plugins
        told = settings.plugins_file(plan(None, 1, **options), has_metrics=True)
        assert told == plugins.replace("[", "[rabbitmq_prometheus,").replace(",]", "]")
    text = settings.configuration_file(5672, ["gauge1@localhost"], settings.Options(), 5552)
    assert "stream.listeners.tcp.1 = 127.0.0.1:5552\n" in text
    assert "stream.advertised_port = 5552\n" in text


@pytest.mark.server
@needs_server
@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"queue": "quorum"}, "L3"),
        ({"queue": "stream"}, "L4"),
        ({"queue": "stream", "protocol": "amqp"}, "L4"),
    ],
    ids=["quorum", "stream", "stream over AMQP"],
)
@pytest.mark.usefixtures("one_probe")
def test_a_short_trial_is_valid_and_its_audit_clean(
    tmp_path: Path, options: dict[str, str], level: str
) -> None:
    system = tmp_path / "rabbit.yaml"
    system.write_text(json.dumps({"name": "rabbit", "system": "rabbitmq"} | options), encoding="utf-8")
    command = [*lab_support.COMMAND, "run", "1-topic-16-partitions-100b", "--system", str(system)]
    command += ["--durability", level]
    command += [
        "--rate",
        "2000",
        "--duration",
        "3s",
        "--warmup",
        "1s",
        "--quiet-limit",
        "1",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    results = list(tmp_path.rglob("result.json"))
    assert results, done.stdout + done.stderr
    result = json.loads(results[0].read_text())
    assert result["durability"]["declared"] == level, done.stdout + done.stderr
    assert result["durability"]["mismatches"] == []
    audit = result["audit"]
    assert audit["sent"] == audit["acked"] == audit["received"] > 0
    assert (audit["lost"], audit["duplicated"], audit["corrupted"]) == (0, 0, 0)


@pytest.mark.server
@needs_server
def test_a_slow_port_mapper_is_waited_for_and_no_other_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes bring one of their own where none answers yet: the lab's then ended without a word, and theirs stayed for ever."""
    slow = tmp_path / "bin" / "epmd"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nsleep 3\nexec {shutil.which("epmd")} "$@"\n', encoding="ascii")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    said: list[str] = []
    running = RabbitMq().start(SystemRequest(), tmp_path / "data", said.append)
    try:
        assert not [one for one in said if "trying other ports" in one]
        mapper = running.layout.epmd_port  # type: ignore[attr-defined]
    finally:
        running.stop()
    assert processes.port_holder(mapper) is None


@pytest.mark.server
@needs_server
def test_a_port_mapper_whose_port_is_taken_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = processes.free_ports
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        choices = iter([lambda *a, **k: [*choose(*a, **k)[:-1], port]])
        monkeypatch.setattr(processes, "free_ports", lambda *a, **k: next(choices, choose)(*a, **k))
        said: list[str] = []
        running = RabbitMq().start(SystemRequest(), tmp_path / "data", said.append)
        running.stop()
    assert [
        one for one in said if f"its port {port} is in use by python" in one and "trying other ports" in one
    ], said
