"""A real Kafka: as configured, found again, and gone without a trace. Needs a JDK, and Maven the first time."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.kafka.cluster import RunningKafka
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.kept import KeptSystem
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import SystemFailure
from systems_support import admin_of, create_topic, describer

pytestmark = pytest.mark.jvm

OPTIONS = {
    "heap": "512m",
    "jvm_flags": ["-XX:MaxGCPauseMillis=15"],
    "broker": {"num.io.threads": 5, "num.io.treads": 9},
    "topic": {"segment.bytes": 2097152},
}


def quiet(_line: str) -> None:
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    """One node for several facts: starting takes seconds."""
    directory = tmp_path_factory.mktemp("kafka") / "with space:and colon"
    running = Kafka().start(SystemRequest(level="L3", options=OPTIONS), directory, quiet)
    yield running
    running.stop()
    running.wipe()


def test_settings_are_as_configured_and_unknown_ones_are_found_out(one_node: RunningSystem) -> None:
    create_topic(one_node, "facts", partitions=2)
    found = one_node.read_back(describer(one_node), ["facts"])
    assert found.level == one_node.level == "L3"
    assert found.settings["node.1.num.io.threads"] == "5"
    assert found.settings["topic.flush.messages"] == "1"
    assert found.settings["topic.segment.bytes"] == "2097152"
    # Kafka accepts a misspelt setting without a word.
    assert len(found.mismatches) == 1
    assert "num.io.treads on Kafka node 1 was set to 9" in found.mismatches[0]


def test_the_process_runs_with_the_flags_that_are_reported(one_node: RunningSystem) -> None:
    (node,) = one_node.processes()
    command = Path(f"/proc/{node.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    assert command == one_node.configuration()["commands"]["node-1"]
    assert {"-Xmx512m", "-XX:MaxGCPauseMillis=15", "-XX:+UseG1GC"} <= set(command)
    [archive] = [one.partition("=")[2] for one in command if one.startswith("-XX:SharedArchiveFile=")]
    # The JVM says nothing of one that does not fit it, and goes on without.
    assert archive in Path(f"/proc/{node.pid}/maps").read_text()
    assert one_node.failure() is None


def test_a_kept_cluster_serves_topics_of_another_level(tmp_path: Path) -> None:
    """Its level is one of its topics and clients, so that a study needs no start of its own for each."""
    kept = KeptSystem.of(Kafka(), tmp_path / "block")
    try:
        found: dict[str, tuple[int, str]] = {}
        for level in ("L4", "L3", "L4"):
            running = kept.start(
                SystemRequest(level=level, options={"heap": "512m"}), tmp_path / level, quiet
            )
            topic = f"{level}-{len(found)}"
            create_topic(running, topic)
            told = running.read_back(describer(running), [topic])
            assert (told.level, running.level, told.mismatches) == (level, level, ())
            found[topic] = (running.processes()[0].pid, told.settings["topic.flush.messages"])
        assert len({pid for pid, _ in found.values()}) == 1
        assert found["L3-1"][1] == "1"
        assert found["L4-0"][1] == found["L4-2"][1] != "1"
    finally:
        kept.end()


def test_attaching_finds_nodes_version_and_level(one_node: RunningSystem) -> None:
    create_topic(one_node, "attached")
    attached = Kafka().attach(SystemRequest(connect=("127.0.0.1:1", *one_node.connection["bootstrap"])))
    assert (attached.attached, attached.nodes, attached.version) == (True, 1, "4.3.x")
    assert attached.read_back(describer(one_node), ["attached"]).level == "L3"
    attached.stop()
    attached.wipe()
    assert one_node.failure() is None
    assert "attached" in admin_of(one_node).list_topics(timeout=30).topics


def test_logs_are_collected(one_node: RunningSystem, tmp_path: Path) -> None:
    one_node.collect_logs(tmp_path)
    assert "Kafka Server started" in (tmp_path / "node-1" / "server.log").read_text()
    assert "Using G1" in (tmp_path / "node-1" / "gc.log").read_text()


def test_a_taken_port_is_the_reason_of_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        # The port is taken between the check and the start.
        monkeypatch.setattr(processes, "port_holder", lambda _port: None)
        with pytest.raises(
            SystemFailure, match=r"Kafka node 1 exited with status 1 .*Address already in use"
        ) as failure:
            Kafka().start(SystemRequest(options={"ports": taken}), tmp_path / "kafka", quiet)
    assert str(tmp_path / "kafka" / "node-1" / "logs") in str(failure.value)


def test_a_bad_setting_is_the_reason_of_a_failed_start(tmp_path: Path) -> None:
    request = SystemRequest(options={"broker": {"num.network.threads": -5}})
    with pytest.raises(SystemFailure, match=r"Invalid value -5 for configuration num\.network\.threads"):
        Kafka().start(request, tmp_path / "kafka", quiet)


def test_a_jvm_that_cannot_begin_is_the_reason_of_a_failed_start(tmp_path: Path) -> None:
    request = SystemRequest(options={"jvm_flags": ["-XX:NoSuchFlag=1"]}, trusted=True)
    with pytest.raises(SystemFailure, match=r"Unrecognized VM option 'NoSuchFlag=1'"):
        Kafka().start(request, tmp_path / "kafka", quiet)


def test_another_attempt_when_a_chosen_port_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        free, first = processes.free_ports, [taken]

        def first_the_taken_one(count: int, avoid: Iterable[int] = ()) -> list[int]:
            ports = [*first, *free(count, avoid=avoid)][:count]
            first.clear()
            return ports

        monkeypatch.setattr(processes, "free_ports", first_the_taken_one)
        said: list[str] = []
        running = Kafka().start(SystemRequest(), tmp_path / "kafka", said.append)
    try:
        assert isinstance(running, RunningKafka)
        assert taken not in running.layout.client_ports
        assert any("trying other ports" in line for line in said)
    finally:
        running.stop()
