"""Pulsar as a system: what is decided without a server, and one short trial against a real one."""

from __future__ import annotations

import dataclasses
import io
import json
import socket
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from http_answers import answering
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import ReadBack
from streamgauge.systems.pulsar import cluster as pulsar_cluster
from streamgauge.systems.pulsar import settings
from streamgauge.systems.pulsar.deployment import addresses_of, deployment_of
from streamgauge.systems.pulsar.durability import Expectation, compare
from streamgauge.systems.pulsar.system import Pulsar, artifact, unpack
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.levels import Level


def plan(level: Level | None, nodes: int, **options: Any) -> settings.Plan:
    """The plan for a request with these options."""
    request = SystemRequest(nodes=nodes, level=level, options=options)
    return settings.plan(level, nodes, settings.parse_options(request), "")


# ---------------------------------------------------------------------- levels


@pytest.mark.parametrize(
    ("level", "nodes", "options", "expected"),
    [
        (None, 1, {}, ("L3", "sync", 1, 1)),
        (None, 3, {}, ("L1", "sync", 3, 2)),
        (None, 3, {"journal": "async_bypass"}, ("L2", "async_bypass", 3, 2)),
        ("L1", 3, {}, ("L1", "sync", 3, 2)),
        ("L2", 3, {}, ("L2", "async_journal", 3, 2)),
        ("L3", 3, {"journal": "sync"}, ("L3", "sync", 3, 1)),
        ("L4", 3, {"journal": "async_bypass"}, ("L4", "async_bypass", 3, 1)),
        ("L4", 1, {}, ("L4", "async_journal", 1, 1)),
    ],
)
def test_each_level_has_its_means(
    level: Level | None, nodes: int, options: dict[str, Any], expected: tuple[str, str, int, int]
) -> None:
    found = plan(level, nodes, **options)
    assert (found.level, found.journal, found.write_quorum, found.ack_quorum) == expected
    assert settings.level_of(found.ack_quorum, found.journal == "sync") == found.level


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (SystemRequest(level="L1"), "start three nodes"),
        (SystemRequest(level="L2"), "On one node there are L3"),
        (SystemRequest(nodes=2), "1 or 3 nodes"),
        (SystemRequest(version="4"), "three numbers such as 4.0.8"),
        (SystemRequest(version="2.6.0"), "2.10.0 or later"),
        (SystemRequest(level="L3", options={"journal": "async_journal"}), "which needs sync"),
        (
            SystemRequest(nodes=3, level="L2", options={"journal": "sync"}),
            "needs async_journal or async_bypass",
        ),
        (SystemRequest(options={"journal": "fast"}), "expected one of sync, async_journal, async_bypass"),
        (SystemRequest(options={"profile": "mine"}), "expected one of streamnative-2020"),
        (SystemRequest(options={"brokers": {}}), "did you mean 'broker'"),
        (SystemRequest(options={"broker": {"clusterName": "x"}}), "broker.clusterName cannot be set"),
        (
            SystemRequest(options={"bookie": {"journalSyncData": False}}),
            "bookie.journalSyncData cannot be set",
        ),
        (SystemRequest(options={"memory": {"broker": "1"}}), "memory.broker '1'"),
        (SystemRequest(options={"memory": {"brokers": "1g"}}), "did you mean 'broker'"),
        (SystemRequest(options={"memory": {"broker": "900g"}}), "set smaller sizes under memory"),
        (SystemRequest(options={"jvm_flags": ["-Xmx1g"]}), "use the key memory instead"),
        (SystemRequest(options={"client": {"subscription_type": "queue"}}), "exclusive, failover, shared"),
        (SystemRequest(options={"client": {"receive_bytes": 1}}), "65536 to 4294967296"),
        (SystemRequest(options={"client": {"namespace": "trial"}}), "expected tenant/namespace"),
        (SystemRequest(options={"admin": ["127.0.0.1:8080"]}), "a cluster that already runs"),
        (SystemRequest(options={"deployment": "apart"}), "expected one of co-located, tiered, found 'apart'"),
        (SystemRequest(options={"deployment": "tiered"}), "the lab starts a broker beside each bookie"),
        (SystemRequest(options={"ports": [1, 2]}), "expected 1 different ports"),
        (SystemRequest(connect=("here",)), "expected host:port"),
        (SystemRequest(connect=("a:6650",), level="L1"), "cannot be asked of a running cluster"),
        (
            SystemRequest(connect=("a:6650",), options={"journal": "sync"}),
            "journal sync: .* name the bookies",
        ),
        (
            SystemRequest(connect=("a:6650",), options={"bookies": "a"}),
            "bookies' HTTP addresses as host:port",
        ),
        (SystemRequest(options={"bookies": ["127.0.0.1:8000"]}), "bookies names parts of a cluster"),
        (SystemRequest(connect=("a:6650",), options={"admin": "a"}), "web addresses as host:port"),
    ],
)
def test_what_cannot_be_had_is_refused(request_: SystemRequest, words: str) -> None:
    with pytest.raises(SystemInputError, match=words):
        Pulsar().check(request_)


# ---------------------------------------------------------------------- files


def test_a_shipped_file_keeps_what_is_not_set() -> None:
    shipped = "# journalSyncData=never\na=1\njournalSyncData=true\nb=2\njournalSyncData=true\n"
    text = settings.overlaid(shipped, {"journalSyncData": "false", "bookiePort": "7"})
    assert text == "# journalSyncData=never\na=1\njournalSyncData=false\nb=2\nbookiePort=7\n"


@pytest.mark.parametrize("journal", ["sync", "async_journal", "async_bypass"])
def test_journal_variants_are_those_of_the_study(journal: settings.Journal) -> None:
    level: Level = "L3" if journal == "sync" else "L4"
    ports = settings.NodePorts(1, 2, 3, 4)
    written = settings.bookie_settings(
        plan(level, 1, journal=journal), settings.Options(), "127.0.0.1:9", ports, "/d"
    )
    assert written["journalSyncData"] == ("true" if journal == "sync" else "false")
    assert written["journalWriteData"] == ("false" if journal == "async_bypass" else "true")
    # With /ledgers at its end a bookie finds no cluster.
    assert written["metadataServiceUri"] == "metadata-store:zk:127.0.0.1:9"


def test_a_profile_is_the_study_s_tuning_and_a_file_may_change_it() -> None:
    options = settings.parse_options(SystemRequest(options={"profile": "streamnative-2020"}))
    assert options.broker["managedLedgerNewEntriesCheckDelayInMillis"] == "0"
    assert options.broker["bookkeeperNumberOfChannelsPerBookie"] == "64"
    assert options.client["receive_bytes"] == 1 << 32
    changed = {"profile": "streamnative-2020", "broker": {"bookkeeperNumberOfChannelsPerBookie": 8}}
    options = settings.parse_options(SystemRequest(options=changed))
    assert options.broker["bookkeeperNumberOfChannelsPerBookie"] == "8"


def test_the_distribution_is_an_archive_and_only_what_is_used_is_kept(tmp_path: Path) -> None:
    assert str(artifact("4.0.8")) == "org.apache.pulsar:pulsar-server-distribution:4.0.8:tar.gz:bin"
    with tarfile.open(tmp_path / "x-bin.tar.gz", "w:gz") as archive:
        for name in ("p/lib/a.jar", "p/conf/broker.conf", "p/LICENSE", "p/bin/pulsar", "p/examples/x"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    unpack(tmp_path)
    kept = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert kept == ["LICENSE", "conf/broker.conf", "lib/a.jar"]
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    with pytest.raises(SystemFailure, match="cannot be unpacked"):
        unpack(tmp_path)


# ---------------------------------------------------------------------- reading back


def read_back(
    level: Level, *, bookie: dict[str, Any] | None = None, ack_quorum: int = 2, brokers: int = 3
) -> Any:
    """What `compare` says of three nodes that were asked for a level."""
    asked = plan(level, 3)
    nodes = range(1, 4)
    ports = {node: settings.NodePorts(node, 10 + node, 20 + node, 30 + node) for node in nodes}
    options = settings.Options()
    written = {
        f"broker-{node}": settings.broker_settings(asked, options, "127.0.0.1:9", ports[node])
        for node in nodes
    }
    written |= {
        f"bookie-{node}": settings.bookie_settings(asked, options, "127.0.0.1:9", ports[node], "/d")
        for node in nodes
    }
    persistence = {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "bookkeeperAckQuorum": ack_quorum,
    }
    description = {
        "node_settings": {
            # As a broker prints its ports, and numbers that may have a fraction.
            str(node): {**written[f"broker-{node}"], "brokerServicePort": f"Optional[{node}]"}
            | {"webServicePort": f"Optional[{10 + node}]", "backlogQuotaDefaultLimitGB": "-1.0"}
            for node in list(nodes)[:brokers]
        },
        "topics": {"t": {"partitions": 1, "settings": persistence}},
    }
    bookies = {f"bookie-{node}": {**written[f"bookie-{node}"], **(bookie or {})} for node in nodes}
    return compare(description, bookies, ["t"], Expectation(3, level, asked, written))


@pytest.mark.parametrize(("level", "ack_quorum"), [("L1", 2), ("L2", 2), ("L3", 1), ("L4", 1)])
def test_settings_as_asked_amount_to_the_level(level: Level, ack_quorum: int) -> None:
    found = read_back(level, ack_quorum=ack_quorum)
    assert (found.level, found.mismatches) == (level, ())
    assert found.settings["namespace.bookkeeperAckQuorum"] == ack_quorum
    assert found.settings["bookie-2.journalWriteData"] == "true"


def test_settings_that_differ_are_told() -> None:
    found = read_back("L1", bookie={"journalSyncData": "false"})
    assert found.level == "L2"
    assert "setting journalSyncData of bookie-1 is false instead of true" in found.mismatches
    assert "amount to L2" in found.mismatches[-1]
    found = read_back("L1", ack_quorum=1)
    assert "bookkeeperAckQuorum of topic t is 1 instead of 2" in found.mismatches
    found = read_back("L1", brokers=2)
    assert "3 Pulsar brokers were expected, but 2 answer" in found.mismatches
    assert "broker-3 does not tell its setting managedLedgerDefaultAckQuorum" in found.mismatches


def test_an_attached_cluster_tells_its_quorums_and_no_level() -> None:
    brokers = {"1": {"managedLedgerDefaultAckQuorum": "2", "managedLedgerDefaultWriteQuorum": "2"}}
    description = {"node_settings": brokers, "topics": {"t": {"partitions": 1, "settings": None}}}
    found = compare(description, {}, ["t"], Expectation(1, None, None, {}))
    assert (found.level, found.mismatches) == (None, ())
    assert found.settings["namespace.bookkeeperAckQuorum"] == "2"


KNOWN = {"a": "10.0.0.1", "b": "10.0.0.2", "x": "10.0.0.9"}
"""Names that are found."""


@pytest.mark.parametrize(
    ("brokers", "bookies", "told"),
    [
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181"], "co-located"),
        (["10.0.0.9"], ["10.0.0.1:3181"], "tiered"),
        # As the distribution has it: brokers by their hosts' names, bookies by addresses.
        (["a", "b"], ["10.0.0.1:3181", "10.0.0.2:3181"], "co-located"),
        (["x"], ["10.0.0.1:3181"], "tiered"),
        (["a", "x"], ["10.0.0.1:3181"], None),
        (["unknown"], ["10.0.0.1:3181"], None),
        (["unknown"], ["unknown:3181"], "co-located"),
        (["x"], ["unknown:3181"], None),
        (["10.0.0.1"], ["bookie-0"], None),
        (["10.0.0.1"], None, None),
        ([], ["10.0.0.1:3181"], None),
    ],
)
def test_whether_brokers_have_machines_of_their_own_is_read_back(
    brokers: list[str], bookies: list[str] | None, told: str | None
) -> None:
    description: dict[str, Any] = {
        "nodes": [{"id": at, "host": host, "port": 8080} for at, host in enumerate(brokers, start=1)],
        "storage_nodes": bookies,
        "topics": {},
    }

    def look_up(host: str) -> frozenset[str]:
        return addresses_of(host) if host[0].isdigit() else frozenset({KNOWN[host]} if host in KNOWN else ())

    assert deployment_of(description, look_up) == told


def test_names_that_mean_this_machine_say_nothing_of_another_ones() -> None:
    assert addresses_of("127.0.0.2") == {"127.0.0.2"}
    assert addresses_of("[::1]") == {"::1"}
    assert addresses_of("localhost") == frozenset()
    assert addresses_of("no-such-host.invalid") == frozenset()


@pytest.mark.parametrize("asked", [None, *settings.DEPLOYMENTS])
def test_a_deployment_that_is_another_one_is_a_mismatch(asked: str | None) -> None:
    nodes = [{"id": 1, "host": "127.0.0.2", "port": 8080}]
    description: dict[str, Any] = {"nodes": nodes, "storage_nodes": ["127.0.0.1:3181"], "topics": {}}
    found = compare(description, {}, [], Expectation(1, None, None, {}, asked))
    assert found.settings["deployment"] == "tiered"
    told = () if asked != "co-located" else (
        "deployment co-located was asked for, and that of the cluster is tiered",
    )  # fmt: skip
    assert found.mismatches == told


def test_where_attached_bookies_keep_what_they_are_given_is_recorded() -> None:
    """One array of disks and two disks have other directories."""
    with bookie_that_tells({"journalDirectories": "/mnt/data/journal", "secretKey": "x"}) as bookie:
        request = SystemRequest(connect=("a:6650",), options={"bookies": [bookie]})
        found = Pulsar().attach(request).read_back(lambda _topics: DESCRIBED, ["t"])
    assert found.settings["bookie-1.journalDirectories"] == "/mnt/data/journal"


@contextmanager
def bookie_that_tells(told: Mapping[str, Any]) -> Iterator[str]:
    """Where a bookie answers for its settings."""
    with answering({"/api/v1/config/server_config": json.dumps(told).encode()}) as address:
        yield address


DESCRIBED = {
    "node_settings": {"a:8080": {"managedLedgerCacheSizeMB": "64"}},
    "topics": {
        "t": {
            "partitions": 1,
            "settings": {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2},
        }
    },
}


def test_the_bookies_of_an_attached_cluster_tell_its_level() -> None:
    """Whoever forgot to reconfigure the journals is found out."""
    with (
        bookie_that_tells({"journalSyncData": "true"}) as synced,
        bookie_that_tells({"journalSyncData": "false", "journalWriteData": "true"}) as unsynced,
    ):

        def read_back(*bookies: str, level: Level | None, **options: str) -> ReadBack:
            request = SystemRequest(
                connect=("a:6650",), level=level, options={"bookies": list(bookies), **options}
            )
            return Pulsar().attach(request).read_back(lambda _topics: DESCRIBED, ["t"])

        found = read_back(synced, synced, level="L1", journal="sync")
        assert (found.level, found.mismatches) == ("L1", ())
        assert found.settings["bookie-2.journalSyncData"] == "true"
        assert found.settings["broker-a:8080.managedLedgerCacheSizeMB"] == "64"
        assert Pulsar.told_level(found.settings) == "L1"
        forgotten = read_back(synced, synced, level="L2", journal="async_bypass")
        assert forgotten.level == "L1"
        assert "setting journalSyncData of bookie-1 is true instead of false" in forgotten.mismatches
        assert "amount to L1" in forgotten.mismatches[-1]
        assert read_back(synced, unsynced, level=None).level == "L2", "one that does not sync is enough"
        few = read_back(synced, level="L1")
        assert few.level is None
        assert few.mismatches, "of two bookies that hold a ledger one was named"
        gone = read_back(synced, "127.0.0.1:1", level=None)
        assert gone.level is None
        assert "the settings of bookie-2 (127.0.0.1:1) could not be read back" in gone.mismatches[0]


# ---------------------------------------------------------------------- processes


def test_a_bookie_that_gave_up_its_place_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "bookie-1" / "logs" / "server.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "org.apache.pulsar.metadata.api.MetadataStoreException$LockBusyException: Resource at /ledgers/available/127.0.0.1:1 is already locked\n"
    )
    launch = SimpleNamespace(version="1", nodes=1, plan=SimpleNamespace(level="L3"), directory=tmp_path)
    held = b"ephemeral nodes dump:\nSessions with Ephemerals (1):\n0x1:\n\t/ledgers/available/127.0.0.1:1\n"
    told_next = [held, b"ephemeral nodes dump:\n\t/ledgers/available/127.0.0.1:12\n"]
    zookeeper = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in told_next:
            connection, _ = zookeeper.accept()
            with connection:
                assert connection.recv(4) == b"dump"
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    layout = SimpleNamespace(zookeeper_host="127.0.0.1", zookeeper=zookeeper.getsockname()[1])
    running = pulsar_cluster.RunningPulsar(launch=launch, layout=layout, started=[])  # type: ignore[arg-type]
    process = processes.start("Pulsar bookie-1", ["sleep", "60"], tmp_path / "console.log")
    try:
        part = running._part(process)
        assert part.before_restart is not None
        part.before_restart()
        first = process.pid
        # What it said before it was started last is of another life.
        assert running._insist("bookie-1", process) is None
        log.write_text(log.read_text() + log.read_text())
        assert running._insist("bookie-1", process) is None, "logs are not read at every look"
        running._looked_s.clear()
        told = running._insist("bookie-1", process)
        assert told == "bookie-1's registration of before to end, with its session of ZooKeeper (30 s)"
        assert process.pid == first, "it would find its place taken again"
        running._looked_s.clear()
        told = running._insist("bookie-1", process)
        assert told == "bookie-1 to be started again: its registration of before was still there"
        assert process.running()
        assert process.pid != first
        running._looked_s.clear()
        assert running._insist("bookie-1", process) is None, "once for each time that it gave up"
    finally:
        processes.kill([process])
        zookeeper.close()


def test_nodes_are_told_their_addresses() -> None:
    ports = settings.NodePorts(1, 2, 3, 4, "198.18.7.2", "198.18.7.2")
    asked = plan("L3", 1)
    bookie = settings.bookie_settings(asked, settings.Options(), "198.18.7.254:9", ports, "/d")
    broker = settings.broker_settings(asked, settings.Options(), "198.18.7.254:9", ports)
    assert bookie["advertisedAddress"] == broker["advertisedAddress"] == broker["bindAddress"] == "198.18.7.2"
    assert bookie["metadataServiceUri"] == "metadata-store:zk:198.18.7.254:9"
    assert broker["metadataStoreUrl"] == "zk:198.18.7.254:9"
    assert settings.zookeeper_settings(9, "/d", "198.18.7.254")["clientPortAddress"] == "198.18.7.254"


def test_what_clients_do_not_need_stays_on_loopback() -> None:
    ports = settings.NodePorts(1, 2, 3, 4, "198.18.7.2")
    asked = plan("L3", 1)
    bookie = settings.bookie_settings(asked, settings.Options(), "127.0.0.1:9", ports, "/d")
    assert bookie["advertisedAddress"] == bookie["httpServerHost"] == "127.0.0.1"
    # Without the name of any interface a bookie listens on all of them.
    assert bookie["listeningInterface"]
    broker = settings.broker_settings(asked, settings.Options(), "127.0.0.1:9", ports)
    assert (broker["bindAddress"], broker["metadataStoreUrl"]) == ("198.18.7.2", "zk:127.0.0.1:9")
    assert not ports.is_plain_closed
    assert dataclasses.replace(ports, broker_tls=5, web_tls=6).is_plain_closed
    assert not dataclasses.replace(ports, host="127.0.0.1", broker_tls=5, web_tls=6).is_plain_closed
