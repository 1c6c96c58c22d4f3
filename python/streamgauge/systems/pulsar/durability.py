"""Settings read back from a live Pulsar, and what they mean for durability."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.systems.base import ReadBack
from streamgauge.systems.pulsar.deployment import deployment_of
from streamgauge.systems.pulsar.settings import Plan, level_of
from streamgauge.vocabulary.levels import Level

BROKER_KEYS = (
    "managedLedgerDefaultEnsembleSize",
    "managedLedgerDefaultWriteQuorum",
    "managedLedgerDefaultAckQuorum",
    "managedLedgerNewEntriesCheckDelayInMillis",
    "managedLedgerCacheSizeMB",
    "managedLedgerMaxEntriesPerLedger",
    "bookkeeperNumberOfChannelsPerBookie",
    "bookkeeperUseV2WireProtocol",
    "maxMessageSize",
    "dispatcherMaxReadBatchSize",
    "loadManagerClassName",
    "loadBalancerAutoBundleSplitEnabled",
    "loadBalancerSheddingEnabled",
    "brokerDeduplicationEnabled",
)
"""Settings of brokers that are recorded besides those that were set."""
BOOKIE_KEYS = (
    "journalWriteData",
    "journalSyncData",
    "journalMaxGroupWaitMSec",
    "journalPageCacheFlushIntervalMSec",
    "journalAdaptiveGroupWrites",
    "journalBufferedWritesThreshold",
    "journalFlushWhenQueueEmpty",
    "journalRemoveFromPageCache",
    "ledgerStorageClass",
    "flushInterval",
    "dbStorage_writeCacheMaxSizeMb",
    "dbStorage_readAheadCacheMaxSizeMb",
    "numJournalCallbackThreads",
    "numAddWorkerThreads",
)
"""Settings of bookies that are recorded besides those that were set."""
PLACE_KEYS = ("journalDirectories", "ledgerDirectories")
"""Of bookies of a cluster that the lab has not started: where they are tells one array of disks from two disks. Its own are in the run's directory."""
UNCHECKED = frozenset(
    {
        # Where things are, not how they behave.
        "prometheusStatsHttpEnable",
        "metadataServiceUri",
        "metadataStoreUrl",
        "configurationMetadataStoreUrl",
        "journalDirectory",
        "ledgerDirectories",
        "indexDirectories",
    }
)


@dataclass(frozen=True)
class Expectation:
    """What the live system should say of itself."""

    nodes: int
    """Brokers, of a cluster that the lab started."""
    level: Level | None
    """None: whatever is read back is right."""
    plan: Plan | None
    """None: an attached cluster."""
    settings: Mapping[str, Mapping[str, str]]
    """Process -> settings that were set."""
    deployment: str | None = None
    """None: whichever it is."""


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # Brokers print some settings as Java does: Optional[6650].
    found = re.fullmatch(r"Optional\[(.*)\]", str(value))
    return found.group(1) if found else str(value)


def _same(found: str, asked: str) -> bool:
    """Brokers print some whole numbers with a fraction: -1.0."""
    try:
        return float(found) == float(asked)
    except ValueError:
        return found == asked


def is_synced(bookie: Mapping[str, Any]) -> bool:
    """Whether a bookie's journal is fsynced before it acknowledges (both are its defaults)."""
    return (
        _text(bookie.get("journalWriteData", True)) == "true"
        and _text(bookie.get("journalSyncData", True)) == "true"
    )


def level_told(settings: Mapping[str, Any]) -> Level | None:
    """The level of settings that `compare` has made."""
    bookies: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        node, _, key = name.partition(".")
        if node.startswith("bookie-"):
            bookies.setdefault(node, {})[key] = value
    read = {key: settings.get(f"namespace.{key}") for key in ("bookkeeperEnsemble", "bookkeeperAckQuorum")}
    return _level(read, bookies.values())


def _level(persistence: Mapping[str, Any], bookies: Collection[Mapping[str, Any]]) -> Level | None:
    """None where the quorums are not told, or fewer bookies than hold a ledger."""
    ensemble, quorum = (str(persistence.get(key)) for key in ("bookkeeperEnsemble", "bookkeeperAckQuorum"))
    if not quorum.isdigit() or not bookies or (ensemble.isdigit() and len(bookies) < int(ensemble)):
        return None
    return level_of(int(quorum), all(is_synced(bookie) for bookie in bookies))


def compare(
    description: Mapping[str, Any],
    bookies: Mapping[str, Mapping[str, Any]],
    topics: Sequence[str],
    expected: Expectation,
) -> ReadBack:
    """Judges what the worker's `describe` (docs/worker-api.md) and the bookies tell against what was asked. Without the
    bookies' settings (an attached cluster) the level cannot be told.
    """
    settings: dict[str, Any] = {"nodes": expected.nodes}
    mismatches: list[str] = []
    brokers: Mapping[str, Mapping[str, Any]] = description.get("node_settings") or {}
    if expected.plan is not None and len(brokers) != expected.nodes:
        mismatches.append(f"{expected.nodes} Pulsar brokers were expected, but {len(brokers)} answer")
    by_port = {_text(read.get("brokerServicePort")): read for read in brokers.values()}
    for name, asked in expected.settings.items():
        if name.startswith("broker-"):
            found = by_port.get(asked["brokerServicePort"], {})
            _judge(name, asked, found, BROKER_KEYS, settings, mismatches)
        elif name.startswith("bookie-") and name in bookies:
            recorded = BOOKIE_KEYS if expected.plan is not None else (*BOOKIE_KEYS, *PLACE_KEYS)
            _judge(name, asked, bookies[name], recorded, settings, mismatches)
    if expected.plan is None:
        for node, read in brokers.items():
            settings |= {f"broker-{node}.{key}": read[key] for key in BROKER_KEYS if key in read}
    deployment = deployment_of(description)
    if deployment is not None:
        settings["deployment"] = deployment
    if expected.deployment not in (None, deployment):
        told = f"is {deployment}" if deployment else "is not told by its brokers' and bookies' addresses"
        mismatches.append(f"deployment {expected.deployment} was asked for, and that of the cluster {told}")
    levels = {
        _judge_topic(topic, description, brokers, bookies, expected, settings, mismatches) for topic in topics
    }
    level = levels.pop() if len(levels) == 1 else None
    if level is None and expected.level is not None and not mismatches:
        mismatches.append(
            f"durability {expected.level} cannot be told: a ledger is on {settings.get('namespace.bookkeeperEnsemble')} bookies, "
            f"and {len(bookies)} told their settings"
        )
    return ReadBack.judged("Pulsar and its bookies", level, expected.level, settings, mismatches)


def _judge(
    name: str,
    asked: Mapping[str, str],
    found: Mapping[str, Any],
    recorded: Sequence[str],
    settings: dict[str, Any],
    mismatches: list[str],
) -> None:
    for key in sorted({*recorded, *asked} - UNCHECKED):
        if key in found:
            settings[f"{name}.{key}"] = _text(found[key])
    for key, value in asked.items():
        if key in UNCHECKED or key not in found:
            continue
        if not _same(_text(found[key]), value):
            mismatches.append(f"setting {key} of {name} is {_text(found[key])} instead of {value}")
    absent = [
        key
        for key in ("journalSyncData", "managedLedgerDefaultAckQuorum")
        if key in asked and key not in found
    ]
    mismatches.extend(f"{name} does not tell its setting {key}" for key in absent)


def _judge_topic(
    topic: str,
    description: Mapping[str, Any],
    brokers: Mapping[str, Mapping[str, Any]],
    bookies: Mapping[str, Mapping[str, Any]],
    expected: Expectation,
    settings: dict[str, Any],
    mismatches: list[str],
) -> Level | None:
    entry = (description.get("topics") or {}).get(topic)
    if entry is None:
        mismatches.append(f"topic {topic} is not there")
        return None
    read: Mapping[str, Any] = entry.get("settings") or {}
    if not read and brokers:
        # A namespace without persistence of its own has the brokers' defaults.
        first = next(iter(brokers.values()))
        read = {
            "bookkeeperEnsemble": first.get("managedLedgerDefaultEnsembleSize"),
            "bookkeeperWriteQuorum": first.get("managedLedgerDefaultWriteQuorum"),
            "bookkeeperAckQuorum": first.get("managedLedgerDefaultAckQuorum"),
        }
    for key in ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"):
        settings[f"namespace.{key}"] = read.get(key)
    if expected.plan is not None:
        plan = expected.plan
        for key, asked in (
            ("bookkeeperEnsemble", plan.ensemble),
            ("bookkeeperWriteQuorum", plan.write_quorum),
            ("bookkeeperAckQuorum", plan.ack_quorum),
        ):
            if _text(read.get(key)) != str(asked):
                mismatches.append(f"{key} of topic {topic} is {read.get(key)} instead of {asked}")
    return _level(read, bookies.values())
