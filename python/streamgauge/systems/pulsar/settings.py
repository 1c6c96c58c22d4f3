"""What Pulsar is told: options of a system file, durability levels, configuration files and JVM flags.

Two things decide how durable a message is in Pulsar, and `level_of` is that theory as code; planning and reading back
both use it.

- *Replication.* An entry is written to `write quorum` bookies and acknowledged when `ack quorum` of them have it. A
  quorum of two or more is a copy that survives one node; with one the others follow behind the acknowledgement.
- *Journal.* A bookie acknowledges when its journal has the entry: fsynced (`journalSyncData`), only written to the page
  cache, or not at all (`journalWriteData: false`), when the entry is in memory until the ledger's next flush.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, cast

from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base import boundary
from streamgauge.systems.base.options import (
    byte_count,
    extra_jvm_flags,
    known,
    mapping,
    ports,
    size_mib,
    text,
    version_numbers,
)
from streamgauge.systems.support import java
from streamgauge.systems.support.memory import MemoryNeed
from streamgauge.vocabulary.errors import SystemInputError
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level, level_with

Journal = Literal["sync", "async_journal", "async_bypass"]
DEPLOYMENTS = ("co-located", "tiered")
"""Brokers on the machines of the bookies, or on machines of their own."""
VERSION_MIN = (2, 10)
"""Bookies find their metadata through Pulsar's own driver (`metadata-store:`) since 2.10 (PIP-45)."""
NAMESPACE = "streamgauge/trial"
"""Tenant and namespace of the topics on clusters that the lab starts."""
CLUSTER = "streamgauge"
OPTION_KEYS = frozenset(
    {
        "journal",
        "deployment",
        "profile",
        "memory",
        "jvm_flags",
        "ports",
        "broker",
        "bookie",
        "client",
        "admin",
        "bookies",
    }
)
CLIENT_KEYS = frozenset({"subscription_type", "receive_bytes", "namespace", "token"})
SUBSCRIPTION_TYPES = ("exclusive", "failover", "shared", "key_shared")

JOURNAL_KEYS = ("journalWriteData", "journalSyncData")
"""What an acknowledgement means; the others are about when."""
JOURNALS: Mapping[Journal, Mapping[str, str]] = MappingProxyType(
    {
        "sync": {"journalWriteData": "true", "journalSyncData": "true", "journalMaxGroupWaitMSec": "1"},
        "async_journal": {
            "journalWriteData": "true",
            "journalSyncData": "false",
            "journalMaxGroupWaitMSec": "1",
            "journalPageCacheFlushIntervalMSec": "1000",
        },
        "async_bypass": {"journalWriteData": "false", "journalSyncData": "false"},
    }
)
"""The journal variants of the 2020 StreamNative study, by its names."""


@dataclass(frozen=True)
class Profile:
    """Settings of a published study under one name."""

    broker: Mapping[str, str]
    client: Mapping[str, Any]


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        # The study's two other tunings are of the Java client: how many batches pass before it changes the partition
        # (ours changes with every batch), and a receiver queue of 5,000,000 messages, 4 GiB of the study's 1 KiB ones.
        "streamnative-2020": Profile(
            broker={
                "managedLedgerNewEntriesCheckDelayInMillis": "0",
                "bookkeeperNumberOfChannelsPerBookie": "64",
            },
            client={"receive_bytes": 1 << 32},
        ),
    }
)

MEMORY_MIB: Mapping[str, int] = MappingProxyType(
    {"zookeeper": 128, "bookie": 256, "bookie_direct": 512, "broker": 512, "broker_direct": 512}
)
"""Heaps, and direct memory beside them, of each process."""
MEMORY_MIB_MIN = 64
BESIDE_MIB: Mapping[str, int] = MappingProxyType({"zookeeper": 80, "bookie": 250, "broker": 250})
"""What a process needs besides (code, threads, RocksDB), measured fresh."""

RESERVED_BROKER_KEYS = frozenset(
    {
        "metadataStoreUrl",
        "configurationMetadataStoreUrl",
        "bookkeeperMetadataServiceUri",
        "clusterName",
        "advertisedAddress",
        "bindAddress",
        "brokerServicePort",
        "brokerServicePortTls",
        "webServicePort",
        "webServicePortTls",
        "tlsCertificateFilePath",
        "tlsKeyFilePath",
        "managedLedgerDefaultEnsembleSize",
        "managedLedgerDefaultWriteQuorum",
        "managedLedgerDefaultAckQuorum",
    }
)
RESERVED_BOOKIE_KEYS = frozenset(
    {
        "metadataServiceUri",
        "zkServers",
        "advertisedAddress",
        "bookiePort",
        "httpServerPort",
        "journalDirectory",
        "journalDirectories",
        "ledgerDirectories",
        "indexDirectories",
        "journalWriteData",
        "journalSyncData",
    }
)
BROKER_ALLOWED = boundary.Allowed(
    numbers=re.compile(
        r"(managedLedger|managedCursor|bookkeeperClient|bookkeeperNumber|dispatch|max|num|backlogQuota|loadBalancer|subscription"
        r"|activeConsumer|delayedDelivery|acknowledgment|brokerDeduplication|brokerDelete|brokerPublisher|topicPublisher"
        r"|ttlDuration|defaultRetention|defaultNumber|defaultNumPartitions|preciseDispatcher|preciseTimeBasedBacklog"
        r"|keepAlive|replicat|cursor|enableBusyWait)\w*",
        re.ASCII,
    ),
    words=frozenset(
        {
            "backlogQuotaDefaultRetentionPolicy",
            "managedLedgerCursorInfoCompressionType",
            "managedLedgerDigestType",
            "managedLedgerInfoCompressionType",
        }
    ),
)
"""Classes (interceptors, authentication, protocol handlers), functions, listeners and directories are not among them."""
BOOKIE_ALLOWED = boundary.Allowed(
    numbers=re.compile(
        r"(journal|dbStorage_|num|flush|write|read|gc|minorCompaction|majorCompaction|compaction|entryLog|logSizeLimit"
        r"|skipList|sortedLedger|openFile|pageSize|pageLimit|max|min|server(Tcp|Num)|disk|rereplication|auditor|openLedger)\w*",
        re.ASCII,
    )
)


# ---------------------------------------------------------------------- options of a system file


@dataclass(frozen=True)
class Options:
    """The options of a system file, checked."""

    journal: Journal | None = None
    """None: what the level needs."""
    deployment: str | None = None
    """One of DEPLOYMENTS; None: whichever it is."""
    profile: str | None = None
    memory_mib: Mapping[str, int] = field(default_factory=lambda: dict(MEMORY_MIB))
    jvm_flags: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    """Ports of the brokers for clients, one per node; empty: free ones."""
    broker: Mapping[str, str] = field(default_factory=dict)
    bookie: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    """Options of the client, as they are (docs/systems/pulsar.md)."""
    admin: tuple[str, ...] = ()
    """Web addresses of a cluster that already runs; empty: port 8080 where clients connect."""
    bookies: tuple[str, ...] = ()
    """HTTP addresses of its bookies, of which their settings are read back; empty: what their journals do is not known."""

    def memory_need(self, nodes: int) -> MemoryNeed:
        """What the whole system takes."""
        memory = self.memory_mib
        node = memory["bookie"] + memory["bookie_direct"] + BESIDE_MIB["bookie"]
        node += memory["broker"] + memory["broker_direct"] + BESIDE_MIB["broker"]
        return MemoryNeed(
            f"{plural(nodes, 'node')} of Pulsar",
            nodes * node + memory["zookeeper"] + BESIDE_MIB["zookeeper"],
            "set smaller sizes under memory in the system file",
        )


def parse_version(version: str, where: str) -> tuple[int, int]:
    """Major and minor number. Raises SystemInputError for what is no version, or too old."""
    line = version_numbers(version, where, "Pulsar", "4.0.8")[:2]
    if line < VERSION_MIN:
        raise SystemInputError(
            f"{where}Pulsar {version} is not supported; expected 2.10.0 or later. To measure an older one, start it "
            "yourself and use --connect host:port"
        )
    return line


def parse_options(request: SystemRequest) -> Options:
    """Checks the options of a request. Raises SystemInputError that names the key and what was expected."""
    where, given = where_of(request), request.options
    known(given, OPTION_KEYS, f"{where}unknown key '{{}}' for Pulsar")
    journal, deployment, profile = (
        _choice(given.get(key), key, allowed, where)
        for key, allowed in (("journal", JOURNALS), ("deployment", DEPLOYMENTS), ("profile", PROFILES))
    )
    studied = PROFILES[profile] if profile is not None else Profile({}, {})
    return Options(
        journal=cast("Journal | None", journal),
        deployment=deployment,
        profile=profile,
        memory_mib=_memory(given.get("memory"), where),
        jvm_flags=extra_jvm_flags(
            given.get("jvm_flags"),
            where,
            r"-Xm[xs]|-XX:MaxDirectMemorySize",
            "sets memory; use the key memory instead",
        ),
        ports=ports(given.get("ports"), request.nodes, where),
        broker={**studied.broker, **_settings(given.get("broker"), "broker", RESERVED_BROKER_KEYS, where)},
        bookie=_settings(given.get("bookie"), "bookie", RESERVED_BOOKIE_KEYS, where),
        client={**studied.client, **_client(given.get("client"), where)},
        admin=_addresses(given.get("admin"), "admin", "the brokers' web addresses", where),
        bookies=_addresses(given.get("bookies"), "bookies", "the bookies' HTTP addresses", where),
    )


def untrusted(request: SystemRequest) -> Iterator[Untrusted]:
    """What is done for a trusted file alone."""
    yield from boundary.jvm_flags(request.options.get("jvm_flags"))
    yield from boundary.settings("broker", request.options.get("broker"), BROKER_ALLOWED)
    yield from boundary.settings("bookie", request.options.get("bookie"), BOOKIE_ALLOWED)


def _choice(value: Any, key: str, allowed: Iterable[str], where: str) -> str | None:
    names = list(allowed)
    if value is not None and value not in names:
        raise SystemInputError(f"{where}{key}: expected one of {', '.join(names)}, found {value!r}")
    return cast("str | None", value)


def _memory(value: object, where: str) -> dict[str, int]:
    given = mapping(value, "memory", where)
    known(given, tuple(MEMORY_MIB), f"{where}memory: unknown key '{{}}'")
    memory = dict(MEMORY_MIB)
    for key, size in given.items():
        mib = size_mib(size)
        if mib is None or mib < MEMORY_MIB_MIN:
            raise SystemInputError(
                f"{where}memory.{key} '{size}': expected a size of at least {MEMORY_MIB_MIN}m such as 512m or 1g"
            )
        memory[key] = mib
    return memory


def _settings(value: object, key: str, reserved: frozenset[str], where: str) -> dict[str, str]:
    settings = {}
    for name, setting in mapping(value, key, where).items():
        if name in reserved:
            raise SystemInputError(
                f"{where}{key}.{name} cannot be set: the lab sets it for the nodes and the durability level "
                "(keys nodes, durability, journal, ports)"
            )
        if not re.fullmatch(r"[A-Za-z0-9._-]+", str(name)):
            raise SystemInputError(f"{where}{key}: '{name}' is no name of a setting")
        if not isinstance(setting, (bool, str, int, float)) or "\n" in str(setting):
            raise SystemInputError(
                f"{where}{key}.{name}: expected a text of one line, a number, true or false"
            )
        settings[str(name)] = text(setting)
    return settings


def _client(value: object, where: str) -> dict[str, Any]:
    client = dict(mapping(value, "client", where))
    known(client, CLIENT_KEYS, f"{where}client: unknown key '{{}}'")
    kind = client.get("subscription_type", "exclusive")
    if kind not in SUBSCRIPTION_TYPES:
        raise SystemInputError(
            f"{where}client.subscription_type: expected one of {', '.join(SUBSCRIPTION_TYPES)}, found {kind!r}"
        )
    byte_count(client.get("receive_bytes", 1 << 20), 1 << 16, 1 << 32, f"{where}client.receive_bytes")
    namespace = client.get("namespace", NAMESPACE)
    if not re.fullmatch(r"[-=:.\w]+/[-=:.\w]+", str(namespace), re.ASCII):
        raise SystemInputError(f"{where}client.namespace: expected tenant/namespace, found {namespace!r}")
    return client


def _addresses(value: object, key: str, what: str, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    addresses = [value] if isinstance(value, str) else value
    if not isinstance(addresses, Sequence) or not all(
        isinstance(address, str) and re.fullmatch(r"[^\s/]+:\d{1,5}", address) for address in addresses
    ):
        raise SystemInputError(f"{where}{key}: expected {what} as host:port, found {value!r}")
    return tuple(addresses)


# ---------------------------------------------------------------------- durability


@dataclass(frozen=True)
class Plan:
    """How durable, and by which means."""

    level: Level
    journal: Journal
    ensemble: int
    write_quorum: int
    ack_quorum: int


def level_of(ack_quorum: int, is_synced: bool) -> Level:
    """The level that settings amount to."""
    return level_with(replicated=ack_quorum >= 2, fsynced=is_synced)


def plan(level: Level | None, nodes: int, options: Options, where: str) -> Plan:
    """What a level needs. Without one: Pulsar's own default, a journal that is fsynced, on as many bookies as there are.

    Raises SystemInputError for a level that cannot be had, and says which can.
    """
    wants_sync = options.journal in (None, "sync") if level is None else level in ("L1", "L3")
    level = level or level_of(2 if nodes >= 3 else 1, wants_sync)
    if level in ("L1", "L2") and nodes < 3:
        raise SystemInputError(
            f"{where}durability {level} cannot be had from Pulsar on {plural(nodes, 'node')}: it means that two of three bookies "
            "have a message before it is acknowledged. On one node there are L3 (fsynced journal) and L4 (journal in the "
            "page cache, or none); start three nodes (--nodes 3) for L1 and L2"
        )
    journal: Journal = options.journal or ("sync" if wants_sync else "async_journal")
    if (journal == "sync") != wants_sync:
        fitting = "sync" if wants_sync else "async_journal or async_bypass"
        raise SystemInputError(
            f"{where}journal {journal} does not give durability {level}, which needs {fitting}; leave journal out, or ask "
            "for another level"
        )
    copies = 3 if nodes >= 3 else 1
    return Plan(level, journal, copies, copies, 2 if level in ("L1", "L2") else 1)


# ---------------------------------------------------------------------- files and flags


@dataclass(frozen=True)
class NodePorts:
    """The ports of one node's bookie and broker."""

    broker: int
    web: int
    bookie: int
    bookie_http: int
    host: str = "127.0.0.1"
    """The node's address for clients."""
    inside: str = "127.0.0.1"
    """Its address for the other nodes and the lab."""
    broker_tls: int | None = None
    web_tls: int | None = None
    """With TLS: where clients connect. Brokers reach each other at the other two, in plain text, on loopback alone."""

    @property
    def is_plain_closed(self) -> bool:
        """Whether there are no listeners in plain text: those of a broker are all at one address, which others reach."""
        return self.broker_tls is not None and self.host != self.inside


def zookeeper_settings(port: int, data: str, host: str) -> dict[str, str]:
    """The single ZooKeeper: it keeps the cluster's metadata, and no message passes through it."""
    return {
        "tickTime": "2000",
        "dataDir": data,
        "clientPort": str(port),
        "clientPortAddress": host,
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr, ruok, dump",
    }


def bookie_settings(
    plan: Plan, options: Options, zookeeper: str, ports: NodePorts, data: str
) -> dict[str, str]:
    """What differs from the distribution's bookkeeper.conf."""
    direct_mib = options.memory_mib["bookie_direct"]
    return {
        "metadataServiceUri": f"metadata-store:zk:{zookeeper}",
        "advertisedAddress": ports.inside,
        "allowLoopback": "true",
        # With any name the bookie listens at its own address, and without one on every interface.
        "listeningInterface": "lo",
        "bookiePort": str(ports.bookie),
        "journalDirectory": f"{data}/journal",
        "ledgerDirectories": f"{data}/ledgers",
        "indexDirectories": f"{data}/ledgers",
        # Settings and metrics are read there.
        "httpServerEnabled": "true",
        "httpServerHost": ports.inside,
        "httpServerPort": str(ports.bookie_http),
        "prometheusStatsHttpEnable": "false",
        # The distribution leaves caches to a quarter of the direct memory each; these leave room for Netty.
        "dbStorage_writeCacheMaxSizeMb": str(max(16, direct_mib // 4)),
        "dbStorage_readAheadCacheMaxSizeMb": str(max(16, direct_mib // 8)),
        # All nodes share one disk: a threshold of 95 % would make them read-only together.
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.98",
        # No old journals: data is wiped after the trial.
        "journalMaxBackups": "0",
        **JOURNALS[plan.journal],
        **options.bookie,
    }


def broker_settings(plan: Plan, options: Options, zookeeper: str, ports: NodePorts) -> dict[str, str]:
    """What differs from the distribution's broker.conf."""
    return {
        "clusterName": CLUSTER,
        "metadataStoreUrl": f"zk:{zookeeper}",
        "configurationMetadataStoreUrl": f"zk:{zookeeper}",
        "bindAddress": ports.host,
        "advertisedAddress": ports.host,
        "brokerServicePort": str(ports.broker),
        "webServicePort": str(ports.web),
        "managedLedgerDefaultEnsembleSize": str(plan.ensemble),
        "managedLedgerDefaultWriteQuorum": str(plan.write_quorum),
        "managedLedgerDefaultAckQuorum": str(plan.ack_quorum),
        # Topics are created by the worker; one that springs up by itself would not be partitioned.
        "allowAutoTopicCreation": "false",
        # Bookies on one machine are one rack to the placement policy.
        "bookkeeperClientRackawarePolicyEnabled": "false",
        "bookkeeperClientMinNumRacksPerWriteQuorum": "1",
        # A topic that moves in the middle of a trial measures the load balancer, which is another experiment.
        "loadBalancerAutoBundleSplitEnabled": "false",
        "loadBalancerSheddingEnabled": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "backlogQuotaDefaultLimitGB": "-1",
        "webSocketServiceEnabled": "false",
        "functionsWorkerEnabled": "false",
        "topicLevelPoliciesEnabled": "false",
        "systemTopicEnabled": "false",
        "managedLedgerCacheSizeMB": str(max(32, options.memory_mib["broker_direct"] // 5)),
        **options.broker,
    }


def overlaid(shipped: str, settings: Mapping[str, str]) -> str:
    """A shipped configuration file with these settings in place of its own; new ones at the end."""
    left = dict(settings)
    lines = []
    for line in shipped.splitlines():
        key = line.partition("=")[0].strip()
        if key in settings and not line.lstrip().startswith("#"):
            # The first place gets the value; a second one would win over it.
            if key in left:
                lines.append(f"{key}={left.pop(key)}")
            continue
        lines.append(line)
    return "\n".join([*lines, *(f"{key}={value}" for key, value in left.items())]) + "\n"


LOG4J2_TEXT = """\
status = error
appender.server.type = RollingFile
appender.server.name = server
appender.server.fileName = ${sys:gauge.logs.dir}/server.log
appender.server.filePattern = ${sys:gauge.logs.dir}/server.log.%i
appender.server.layout.type = PatternLayout
appender.server.layout.pattern = [%d] %p %m (%c)%n%ex{short}
appender.server.policies.type = Policies
appender.server.policies.size.type = SizeBasedTriggeringPolicy
appender.server.policies.size.size = 50MB
appender.server.strategy.type = DefaultRolloverStrategy
appender.server.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.server.ref = server
"""


def jvm_flags(heap_mib: int, direct_mib: int | None, extra: Sequence[str]) -> list[str]:
    """Flags of a process's JVM, run in its own directory: those that Pulsar's start script needs to run at all, and a
    collector for small heaps.
    """
    direct = [f"-XX:MaxDirectMemorySize={direct_mib}m"] if direct_mib is not None else []
    opened = [
        "java.base/java.io",
        "java.base/java.lang",
        "java.base/java.net",
        "java.base/java.nio",
        "java.base/java.util.zip",
        "java.base/jdk.internal.misc",
        "java.base/jdk.internal.platform",
        "java.management/sun.management",
        "jdk.management/com.sun.management.internal",
    ]
    driver = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
    return [
        # With G1: the distribution's scripts choose ZGC, whose threads want cores and memory that small heaps on few cores lack.
        *java.flags(heap_mib),
        *direct,
        "-XX:MaxGCPauseMillis=10",
        "-XX:+ParallelRefProcEnabled",
        "-XX:+DisableExplicitGC",
        "-Djava.net.preferIPv4Stack=true",
        "-Djute.maxbuffer=10485760",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.leakDetection.level=disabled",
        "-Dpulsar.allocator.exit_on_oom=true",
        "-Dlog4j2.is.webapp=false",
        # The log goes on while the process stops.
        "-Dlog4j.shutdownHookEnabled=false",
        f"-Dbookkeeper.metadata.bookie.drivers={driver}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={driver}ClientDriver",
        *(part for name in opened for part in ("--add-opens", f"{name}=ALL-UNNAMED")),
        *extra,
    ]
