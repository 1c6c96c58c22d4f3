"""What Kafka is told, what its settings mean, and what cannot be asked of it."""

from __future__ import annotations

import copy
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.kafka import durability, settings
from streamgauge.systems.kafka.cluster import new_cluster_id
from streamgauge.systems.kafka.system import Kafka, artifacts
from streamgauge.systems.registry import systems
from streamgauge.systems.support.jvm_logs import explain
from streamgauge.systems.support.kafka_broker import parse_address
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.levels import Level

NEVER = durability.FLUSH_NEVER


@pytest.mark.parametrize(
    ("factor", "insync_min", "flush", "acks", "level"),
    [
        (3, 2, 1, "all", "L1"),
        (3, 2, NEVER, "all", "L2"),
        (3, 3, NEVER, "all", "L2"),
        (2, 2, NEVER, "all", "L2"),
        # All in-sync replicas may be the leader alone: nothing but min.insync.replicas promises a second copy.
        (3, 1, NEVER, "all", "L4"),
        (3, 1, 1, "all", "L3"),
        (3, 2, 1, "leader", "L3"),
        (3, 2, NEVER, "leader", "L4"),
        (1, 1, 1, "all", "L3"),
        (1, 1, NEVER, "all", "L4"),
        # Kafka lets min.insync.replicas exceed the number of copies; it then accepts no write at all.
        (1, 2, NEVER, "all", "L4"),
        # Flushed some time later is not flushed before the acknowledgement.
        (1, 1, 2, "all", "L4"),
        # Without an acknowledgement there is nothing that it could wait for.
        (3, 2, 1, "none", "L4"),
    ],
)
def test_settings_amount_to_a_level(
    factor: int, insync_min: int, flush: int, acks: durability.Acks, level: Level
) -> None:
    assert durability.level_of(factor, insync_min, flush, acks) == level


@pytest.mark.parametrize(
    ("nodes", "level", "acks", "factor", "configs"),
    [
        (3, "L1", "all", 3, {"min.insync.replicas": "2", "flush.messages": "1", "flush.ms": "0"}),
        (3, "L2", "all", 3, {"min.insync.replicas": "2"}),
        (3, "L3", "leader", 3, {"flush.messages": "1", "flush.ms": "0"}),
        (3, "L4", "leader", 3, {}),
        (1, "L3", "all", 1, {"flush.messages": "1", "flush.ms": "0"}),
        (1, "L4", "all", 1, {}),
    ],
)
def test_every_level_is_planned_as_documented(
    nodes: int, level: Level, acks: str, factor: int, configs: dict[str, str]
) -> None:
    plan = durability.plan(level, nodes, settings.Options(), "")
    assert (plan.level, plan.acks, plan.topic.replication_factor) == (level, acks, factor)
    assert plan.topic.configs == configs


@pytest.mark.parametrize(("nodes", "level"), [(1, "L4"), (2, "L2"), (3, "L2"), (5, "L2")])
def test_the_level_when_none_is_asked_for(nodes: int, level: Level) -> None:
    assert durability.plan(None, nodes, settings.Options(), "").level == level


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_one_node_refuses_replicated_levels_and_says_which_exist(level: Level) -> None:
    with pytest.raises(SystemInputError) as failure:
        Kafka().check(SystemRequest(level=level, source="k.yaml"))
    message = str(failure.value)
    assert message.startswith(f"k.yaml: durability {level} cannot be had from Kafka on one node: ")
    assert "On one node there are L3" in message
    assert "--nodes 3" in message


def test_settings_that_contradict_the_level_are_refused() -> None:
    request = SystemRequest(level="L4", options={"topic": {"flush.messages": 1}})
    with pytest.raises(SystemInputError, match=r"durability L4 was asked for, but .* amount to L3"):
        Kafka().check(request)
    request = SystemRequest(level="L2", nodes=3, options={"broker": {"log.flush.interval.messages": 1}})
    with pytest.raises(SystemInputError, match=r"durability L2 was asked for, but .* amount to L1"):
        Kafka().check(request)


def test_without_a_level_asked_for_the_settings_decide() -> None:
    options = settings.parse_options(SystemRequest(options={"topic": {"flush.messages": 1}}))
    assert durability.plan(None, 1, options, "").level == "L3"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (SystemRequest(options={"heep": "1g"}), "unknown key 'heep' for Kafka; did you mean 'heap'?"),
        (SystemRequest(options={"zzz": 1}), "known keys: broker, client, heap, jvm_flags, ports, topic"),
        (
            SystemRequest(options={"client": {"fetch.max": 1}}),
            "client: unknown key 'fetch.max'; did you mean 'fetch.max.bytes'?",
        ),
        (SystemRequest(options={"client": {"fetch.max.bytes": 1}}), "from 65536 to 67108864, found 1"),
        (SystemRequest(options={"client": 3}), "client: expected keys and values, found 3"),
        (SystemRequest(options={"heap": "10"}), "heap '10': expected a size in MiB or GiB"),
        (SystemRequest(options={"heap": "64m"}), "heap '64m' is too small"),
        (SystemRequest(options={"heap": "4000g"}), "set a smaller heap"),
        (SystemRequest(options={"jvm_flags": "-Xss1m"}), "jvm_flags: expected a list"),
        (SystemRequest(options={"jvm_flags": ["Xss1m"]}), "'Xss1m' is no JVM flag"),
        (SystemRequest(options={"jvm_flags": ["-Xmx2g"]}), "use the key heap instead"),
        (SystemRequest(options={"ports": 70000}), "'70000' is no port"),
        (SystemRequest(options={"ports": [1, 2]}), "expected 1 different ports"),
        (SystemRequest(options={"broker": ["a"]}), "broker: expected settings"),
        (SystemRequest(options={"broker": {"listeners": "x"}}), "broker.listeners cannot be set: "),
        (SystemRequest(options={"broker": {"log.dirs": "/x"}}), "broker.log.dirs cannot be set: "),
        (
            SystemRequest(options={"broker": {"a": None}}),
            "broker.a: expected a text, a number, true or false",
        ),
        (SystemRequest(options={"broker": {"a\nb": 1}}), "is no name of a Kafka setting"),
        (
            SystemRequest(options={"topic": {"replication.factor": 2}}),
            "topic.replication.factor cannot be set",
        ),
        (SystemRequest(options={"topic": {"flush.messages": "one"}}), "must be whole numbers"),
        (SystemRequest(nodes=2), "nodes 2: the lab runs Kafka on 1 or 3 nodes"),
        (SystemRequest(version="four"), "'four' is no Kafka version; expected three numbers such as 4.3.1"),
        (SystemRequest(version="2.5.1"), "Kafka 2.5.1 is older than what the lab starts: 2.6 and later"),
        (SystemRequest(version="2.6.0", tls=True), "Kafka 2.6.0 is started without TLS"),
        (SystemRequest(connect=("localhost",)), "'localhost' is no address of a Kafka broker"),
        (
            SystemRequest(connect=("a:1",), options={"heap": "1g"}),
            "heap cannot be set for a system that already runs",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_starts(request_: SystemRequest, expected: str) -> None:
    with pytest.raises(SystemInputError) as failure:
        Kafka().check(request_)
    assert expected in str(failure.value)


def test_a_port_in_use_is_refused_with_its_holder() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(SystemInputError, match=rf"port {port} is in use by .*\(pid \d+\)"):
            Kafka().check(SystemRequest(options={"ports": port}))


def test_what_can_be_had_is_accepted() -> None:
    options = {
        "heap": "768MiB",
        "jvm_flags": ["-XX:MaxGCPauseMillis=10"],
        "broker": {"num.io.threads": 4, "log.preallocate": True, "some.list": ["a", "b"]},
        "topic": {"segment.bytes": 1048576},
    }
    request = SystemRequest(nodes=3, level="L1", options=options, trusted=True)
    Kafka().check(request)
    parsed = settings.parse_options(request)
    assert parsed.heap_mib == 768
    assert parsed.broker == {"num.io.threads": "4", "log.preallocate": "true", "some.list": "a,b"}


def test_default_heaps() -> None:
    large, small = 64 * 2**30, 8 * 2**30
    options = settings.Options()
    assert [options.heap_for(1, small), options.heap_for(3, small), options.heap_for(3, large)] == [
        1024,
        768,
        1024,
    ]


def test_the_settings_of_a_node() -> None:
    node = settings.node_settings(
        2,
        settings.Listeners(
            [f"127.0.0.1:{port}" for port in (9001, 9002, 9003)],
            [f"127.0.0.1:{port}" for port in (9011, 9012, 9013)],
        ),
        "/data",
    )
    assert node["process.roles"] == "broker,controller"
    assert node["node.id"] == "2"
    assert node["controller.quorum.voters"] == "1@127.0.0.1:9011,2@127.0.0.1:9012,3@127.0.0.1:9013"
    assert node["listeners"] == "PLAINTEXT://127.0.0.1:9002,CONTROLLER://127.0.0.1:9012"
    assert node["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9002"


@pytest.mark.parametrize(("nodes", "factor", "insync_min"), [(1, "1", "1"), (3, "3", "2")])
def test_internal_topics_fit_the_number_of_nodes(nodes: int, factor: str, insync_min: str) -> None:
    cluster = settings.cluster_settings(nodes, (4, 3), settings.Options())
    assert {value for key, value in cluster.items() if key.endswith("replication.factor")} == {factor}
    assert {value for key, value in cluster.items() if key.endswith((".min.isr", "insync.replicas"))} == {
        insync_min
    }
    assert not any(
        key.startswith("share.") for key in settings.cluster_settings(nodes, (3, 9), settings.Options())
    )


def test_settings_of_the_system_file_win() -> None:
    options = settings.Options(broker={"group.initial.rebalance.delay.ms": "3000"})
    assert settings.cluster_settings(1, (4, 3), options)["group.initial.rebalance.delay.ms"] == "3000"


def test_property_files_are_escaped() -> None:
    text = settings.properties_text({"a": "C:\\x", "b": " two\nlines", "c": "ü\U0001f600"}, "heading")
    assert text == "# heading\na=C:\\\\x\nb=\\ two\\nlines\nc=\\u00fc\\ud83d\\ude00\n"


def test_the_logging_backend_follows_the_version() -> None:
    assert "log4j-slf4j-impl" in str(artifacts("4.3.1")[2])
    assert "slf4j-reload4j" in str(artifacts("3.9.1")[2])
    assert settings.logging_file((3, 9)).name == "log4j.properties"
    assert settings.logging_file((4, 0)).name == "log4j2.properties"


def test_cluster_ids_are_sixteen_bytes_and_no_option() -> None:
    ids = {new_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_addresses() -> None:
    assert parse_address("kafka.example.org:9092", "") == ("kafka.example.org", 9092)
    assert parse_address("[::1]:9092", "") == ("::1", 9092)
    for wrong in ("host", "host:", ":1", "host:0", "host:65536", "http://host:1", "a b:1"):
        with pytest.raises(SystemInputError, match="expected host:port"):
            parse_address(wrong, "")


def test_a_cluster_that_does_not_answer() -> None:
    with pytest.raises(SystemFailure, match=r"cannot attach to Kafka: 127\.0\.0\.1:1 cannot be reached"):
        Kafka().attach(SystemRequest(connect=("127.0.0.1:1",)))


def test_the_registry_knows_kafka() -> None:
    assert systems()["kafka"].title == "Apache Kafka"


# ---------------------------------------------------------------------- reading back

DESCRIPTION: dict[str, Any] = {
    "nodes": [{"id": 1, "host": "127.0.0.1", "port": 9092}],
    "node_settings": {"1": {"num.io.threads": "4", "num.network.threads": "3", "secret.password": None}},
    "topics": {
        "t": {
            "partitions": 16,
            "replication_factor": 1,
            "settings": {"flush.messages": "1", "flush.ms": "0", "min.insync.replicas": "1"},
        }
    },
}


def expectation(
    level: Level | None = "L3", broker: Mapping[str, str] | None = None
) -> durability.Expectation:
    plan = durability.plan(level, 1, settings.Options(), "")
    return durability.Expectation("4.3.1", 1, plan, level, broker or {})


def test_what_is_as_asked_has_no_mismatch() -> None:
    found = durability.compare(DESCRIPTION, ["t"], expectation(broker={"num.io.threads": "4"}))
    assert (found.level, found.mismatches) == ("L3", ())
    assert found.settings["node.1.num.io.threads"] == "4"
    assert found.settings["topic.flush.messages"] == "1"
    assert found.settings["acks"] == "all"
    assert "node.1.secret.password" not in found.settings


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"num.io.threads": "8"}, "broker setting num.io.threads on Kafka node 1 is 4 instead of 8"),
        (
            {"num.io.treads": "8"},
            "broker setting num.io.treads on Kafka node 1 was set to 8, but Kafka 4.3.1 does not",
        ),
    ],
)
def test_a_broker_setting_that_is_not_as_asked(broker: Mapping[str, str], expected: str) -> None:
    found = durability.compare(DESCRIPTION, ["t"], expectation(broker=broker))
    assert len(found.mismatches) == 1
    assert found.mismatches[0].startswith(expected)


def test_a_secret_is_not_missed() -> None:
    assert (
        durability.compare(DESCRIPTION, ["t"], expectation(broker={"secret.password": "x"})).mismatches == ()
    )


def test_a_topic_without_its_flush_setting_is_another_level() -> None:
    changed = copy.deepcopy(DESCRIPTION)
    changed["topics"]["t"]["settings"]["flush.messages"] = str(NEVER)
    found = durability.compare(changed, ["t"], expectation())
    assert found.level == "L4"
    assert found.mismatches == (
        f"setting flush.messages of topic t is {NEVER} instead of 1",
        "durability L3 was asked for, but the settings read back from Kafka amount to L4",
    )


def test_without_a_level_asked_for_any_is_right() -> None:
    plan = durability.plan(None, 1, settings.Options(), "")
    expected = durability.Expectation("4.3.x", 1, plan, None, {})
    found = durability.compare(DESCRIPTION, ["t"], expected)
    assert (found.level, found.mismatches) == ("L3", ())


def test_missing_topics_nodes_and_copies_are_told() -> None:
    changed = copy.deepcopy(DESCRIPTION)
    changed["nodes"] = []
    changed["topics"]["t"]["replication_factor"] = 2
    found = durability.compare(changed, ["t", "gone"], expectation())
    assert found.level is None
    assert set(found.mismatches) >= {
        "1 Kafka nodes were expected, but 0 answer",
        "topic t has replication factor 2 instead of 1",
        "topic gone is not there",
    }


def test_two_topics_have_the_weaker_level() -> None:
    changed = copy.deepcopy(DESCRIPTION)
    changed["topics"]["u"] = copy.deepcopy(changed["topics"]["t"])
    changed["topics"]["u"]["settings"]["flush.messages"] = "7"
    found = durability.compare(changed, ["t", "u"], expectation())
    assert found.level == "L4"
    assert found.settings["topic.flush.messages"] == "1"
    assert found.settings["topic.u.flush.messages"] == "7"


@pytest.mark.parametrize(
    ("asked", "read", "same"),
    [
        ("4", "4", True),
        ("04", "4", True),
        ("0.5", "0.50", True),
        ("TRUE", "true", True),
        ("a, b", "a,b", True),
        ("9223372036854775807", "9223372036854775806", False),
        ("lz4", "zstd", False),
    ],
)
def test_equal_values_in_other_words(asked: str, read: str, same: bool) -> None:
    assert durability._same(asked, read) is same


# ---------------------------------------------------------------------- reasons in logs


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "server.log",
            "[2026-01-01 00:00:00,000] INFO fine (kafka.Kafka)\n"
            "[2026-01-01 00:00:00,001] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)\n"
            "org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:1.\n"
            "\tat kafka.x\n"
            "Caused by: java.net.BindException: Address already in use\n"
            "\tat java.y\n",
            "Exiting Kafka due to fatal exception: BindException: Address already in use",
        ),
        (
            "console.log",
            "Error: Could not create the Java Virtual Machine.\n",
            "Error: Could not create the Java Virtual Machine.",
        ),
        (
            "console.log",
            "Terminating due to java.lang.OutOfMemoryError: Java heap space\n",
            "OutOfMemoryError",
        ),
        ("server.log", "[2026-01-01 00:00:00,000] INFO all is well (kafka)\n", "the last lines are:\n[2026"),
    ],
)
def test_the_reason_is_found_in_the_logs(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).write_text(text)
    assert expected in explain(tmp_path)
    assert str(tmp_path) in explain(tmp_path)


def test_empty_logs_are_said_to_be_empty(tmp_path: Path) -> None:
    assert explain(tmp_path) == f"its logs in {tmp_path} are empty"


def test_a_node_before_kraft_stands_on_the_zookeeper_of_the_first() -> None:
    listeners = settings.Listeners(["127.0.0.1:1", "127.0.0.1:2"], ["127.0.0.1:8", "127.0.0.1:9"])
    found = settings.zookeeper_settings(2, listeners, "/data")
    assert found == {
        "broker.id": "2",
        "zookeeper.connect": "127.0.0.1:8",
        "listeners": "PLAINTEXT://127.0.0.1:2",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:2",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        "log.dirs": "/data",
    }
    text = settings.zookeeper_text("127.0.0.1:8", "/zookeeper")
    assert "clientPort=8\nclientPortAddress=127.0.0.1\nadmin.enableServer=false" in text
