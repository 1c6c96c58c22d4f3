"""What Kafka's settings mean for durability: planned before the start, and read back from the live system.

Durability in Kafka has three sources: how many copies an acknowledgement waits for (`acks=all` waits for all
in-sync replicas, and `min.insync.replicas` bounds their number from below), how many copies there are at all
(the replication factor), and whether each append is fsynced before it counts (`flush.messages=1`). `level_of`
is that theory as code; planning and reading back both use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamgauge.systems.base import ReadBack, TopicPlan
from streamgauge.systems.kafka.settings import Options, whole_number
from streamgauge.vocabulary.errors import SystemInputError
from streamgauge.vocabulary.levels import Level, level_with

Acks = Literal["all", "leader", "none"]

FLUSH_NEVER = 2**63 - 1
"""Kafka's default of flush.messages: no append is ever fsynced because of its number of messages."""

RECORDED_BROKER_KEYS = (
    "auto.create.topics.enable",
    "compression.type",
    "default.replication.factor",
    "group.initial.rebalance.delay.ms",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "offsets.topic.num.partitions",
    "queued.max.requests",
    "replica.fetch.max.bytes",
    "replica.lag.time.max.ms",
    "socket.receive.buffer.bytes",
    "socket.request.max.bytes",
    "socket.send.buffer.bytes",
    "unclean.leader.election.enable",
)
RECORDED_TOPIC_KEYS = (
    "cleanup.policy",
    "compression.type",
    "flush.messages",
    "flush.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "unclean.leader.election.enable",
)


# ---------------------------------------------------------------------- durability


def level_of(replication_factor: int, insync_min: int, flush_messages: int, acks: Acks) -> Level:
    """The durability level that settings amount to.

    Replicated: the acknowledgement waits for a majority of the copies, whatever fails. Fsynced: every append
    is flushed before it counts; a follower's fetch confirms only what it has appended, and thus flushed, so
    this holds for all copies.
    """
    copies = min(insync_min, replication_factor) if acks == "all" else (1 if acks == "leader" else 0)
    replicated = replication_factor >= 2 and 2 * copies > replication_factor
    return level_with(replicated=replicated, fsynced=flush_messages == 1 and copies >= 1)


def level_told(settings: Mapping[str, Any]) -> Level | None:
    """The level of settings that `compare` has made; None where the topics of a workload are not alike, or one of them is not told."""
    numbers = [
        whole_number(settings.get(f"topic.{key}"))
        for key in ("replication_factor", "min.insync.replicas", "flush.messages")
    ]
    factor, insync_min, flush = numbers
    acks = settings.get("acks")
    if factor is None or insync_min is None or flush is None or acks not in ("all", "leader", "none"):
        return None
    return level_of(factor, insync_min, flush, acks)


def levels_for(nodes: int) -> tuple[Level, ...]:
    """The levels that a cluster of so many nodes can give."""
    return ("L1", "L2", "L3", "L4") if nodes >= 2 else ("L3", "L4")


def default_level(nodes: int) -> Level:
    """The level when none is asked for: replicated where that exists, not fsynced - Kafka as its own
    documentation recommends it.
    """
    return "L2" if nodes >= 2 else "L4"


def acks_for(level: Level, nodes: int) -> Acks:
    """What the client waits for. With a single copy `all` and the leader's word are the same, and `all` is
    what clients ask for by default.
    """
    return "all" if nodes == 1 or level in ("L1", "L2") else "leader"


def refuse_level(level: Level, nodes: int, where: str) -> SystemInputError:
    """The error for a level that so many nodes cannot give."""
    return SystemInputError(
        f"{where}durability {level} cannot be had from Kafka on one node: L1 and L2 acknowledge a message "
        "when a majority of several "
        "copies has it, and one node keeps one copy. On one node there are L3 (fsync before the "
        "acknowledgement) and L4 (no fsync); "
        f"{'start three nodes (--nodes 3)' if nodes == 1 else 'attach a cluster of three'} for L1 and L2"
    )


@dataclass(frozen=True)
class Plan:
    """How durable, and with which topic settings."""

    level: Level
    acks: Acks
    topic: TopicPlan

    def topic_as_json(self) -> dict[str, Any]:
        """How topics are created, for the manifest."""
        return {"replication_factor": self.topic.replication_factor, "configs": dict(self.topic.configs)}


def plan(level: Level | None, nodes: int, options: Options, where: str) -> Plan:
    """Chooses level, acks and topic settings for a cluster of `nodes`.

    Settings of the system file that amount to another level than the one asked for are an error; without a
    level asked for, the level is what they amount to. Raises SystemInputError.
    """
    if level is not None and level not in levels_for(nodes):
        raise refuse_level(level, nodes, where)
    aim = level or default_level(nodes)
    replication_factor = min(nodes, 3)
    acks = acks_for(aim, nodes)
    configs: dict[str, str] = {}
    if acks == "all" and replication_factor > 1:
        configs["min.insync.replicas"] = str(replication_factor // 2 + 1)
    if aim in ("L1", "L3"):
        configs |= {"flush.messages": "1", "flush.ms": "0"}
    configs |= options.topic
    insync_min = whole_number(
        configs.get("min.insync.replicas", options.broker.get("min.insync.replicas", "1"))
    )
    flush = whole_number(
        configs.get("flush.messages", options.broker.get("log.flush.interval.messages", str(FLUSH_NEVER)))
    )
    if insync_min is None or flush is None:
        raise SystemInputError(f"{where}min.insync.replicas and flush.messages must be whole numbers")
    actual = level_of(replication_factor, insync_min, flush, acks)
    if level is not None and actual != level:
        raise SystemInputError(
            f"{where}durability {level} was asked for, but the settings of the system file amount to "
            f"{actual} "
            f"(replication factor {replication_factor}, min.insync.replicas {insync_min}, acks {acks}, "
            f"flush.messages {flush}); "
            "remove min.insync.replicas, flush.messages and log.flush.interval.messages from it, or ask for "
            f"{actual}"
        )
    return Plan(actual, acks, TopicPlan(replication_factor, configs))


# ---------------------------------------------------------------------- reading back


@dataclass(frozen=True)
class Expectation:
    """What the live system should say of itself."""

    version: str
    nodes: int
    plan: Plan
    level_asked: Level | None
    """None: whatever is read back is right."""
    broker: Mapping[str, str]
    """Broker settings that were asked for; empty for an attached cluster."""


def compare(description: Mapping[str, Any], topics: Sequence[str], expected: Expectation) -> ReadBack:
    """Judges what the worker's `describe` tells (docs/worker-api.md) against what was asked."""
    settings: dict[str, Any] = {}
    mismatches: list[str] = []
    _compare_nodes(description, expected, settings, mismatches)
    level = _compare_topics(description, topics, expected, settings, mismatches)
    settings["acks"] = expected.plan.acks
    return ReadBack.judged("Kafka", level, expected.level_asked, settings, mismatches)


def _compare_nodes(
    description: Mapping[str, Any], expected: Expectation, settings: dict[str, Any], mismatches: list[str]
) -> None:
    nodes = description.get("nodes") or []
    settings["nodes"] = len(nodes)
    if len(nodes) != expected.nodes:
        mismatches.append(f"{expected.nodes} Kafka nodes were expected, but {len(nodes)} answer")
    by_node: Mapping[str, Mapping[str, Any]] = description.get("node_settings") or {}
    for node in nodes:
        name = str(node["id"])
        read = by_node.get(name) or {}
        if not read:
            if expected.broker:
                mismatches.append(f"the settings of Kafka node {name} could not be read back")
            continue
        for key in sorted({*RECORDED_BROKER_KEYS, *expected.broker}):
            if key in read:
                settings[f"node.{name}.{key}"] = read[key]
        for key, asked in expected.broker.items():
            fault = _fault(asked, read.get(key), key, expected.version)
            if fault is not None:
                mismatches.append(f"broker setting {key} on Kafka node {name} {fault}")


def _compare_topics(
    description: Mapping[str, Any],
    topics: Sequence[str],
    expected: Expectation,
    settings: dict[str, Any],
    mismatches: list[str],
) -> Level | None:
    """The weakest level of all topics; None when one of them cannot be told."""
    by_topic: Mapping[str, Mapping[str, Any]] = description.get("topics") or {}
    levels: list[Level | None] = []
    for topic in topics:
        found = by_topic.get(topic)
        if found is None:
            mismatches.append(f"topic {topic} is not there")
            levels.append(None)
            continue
        read: Mapping[str, Any] = found.get("settings") or {}
        factor = whole_number(found.get("replication_factor"))
        values = {"replication_factor": factor} | {
            key: read[key]
            for key in sorted({*RECORDED_TOPIC_KEYS, *expected.plan.topic.configs})
            if key in read
        }
        for key, value in values.items():
            # The topics of a workload are alike; one that is not is recorded under its own name.
            name = f"topic.{key}"
            settings[name if settings.get(name, value) == value else f"topic.{topic}.{key}"] = value
        if factor != expected.plan.topic.replication_factor:
            mismatches.append(
                f"topic {topic} has replication factor {factor} instead of "
                f"{expected.plan.topic.replication_factor}"
            )
        for key, asked in expected.plan.topic.configs.items():
            fault = _fault(asked, read.get(key), key, expected.version)
            if fault is not None:
                mismatches.append(f"setting {key} of topic {topic} {fault}")
        insync_min, flush = (
            whole_number(read.get("min.insync.replicas")),
            whole_number(read.get("flush.messages")),
        )
        if factor is None or insync_min is None or flush is None:
            levels.append(None)
        else:
            levels.append(level_of(factor, insync_min, flush, expected.plan.acks))
    known = [level for level in levels if level is not None]
    if not levels or len(known) != len(levels):
        return None
    # Two topics of L2 and L3 have nothing in common but L4.
    return level_with(
        replicated=all(level in ("L1", "L2") for level in known),
        fsynced=all(level in ("L1", "L3") for level in known),
    )


def _fault(asked: str, read: object, key: str, version: str) -> str | None:
    """What is wrong with one setting, as the rest of a sentence; None when it is as asked."""
    if read is None:
        if re.search(r"password|secret|jaas|\.key$|keystore", key):
            return None  # Kafka never tells secrets.
        return (
            f"was set to {asked}, but Kafka {version} does not report a value: it does not know this setting "
            "and ignored it"
        )
    if _same(asked, str(read)):
        return None
    return f"is {read} instead of {asked}"


def _same(asked: str, read: str) -> bool:
    """Equal as text, as a number, as a truth value or as a list."""
    if asked.strip().lower() == read.strip().lower() and asked.strip().lower() in ("true", "false"):
        return True
    try:
        return float(asked) == float(read) if whole_number(asked) is None else int(asked) == int(read)
    except ValueError:
        return [part.strip() for part in asked.split(",")] == [part.strip() for part in read.split(",")]
