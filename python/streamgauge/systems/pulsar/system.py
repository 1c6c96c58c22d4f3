"""Apache Pulsar as a system under test: started on loopback with its bookies and ZooKeeper, or a cluster that already
runs.

The distribution comes from Maven into the cache. Around this module, each with one purpose: settings.py (options,
levels, files, JVM flags), durability.py (settings read back), deployment.py (where brokers are), launch.py and cluster.py (processes), admin.py and
bookies.py (what their web services tell).
"""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.system_request import SystemRequest, where_of
from streamgauge.model.untrusted import Untrusted
from streamgauge.systems.base import Describe, Progress, ReadBack, RunningSystem, TopicPlan
from streamgauge.systems.base.attached import AttachedSystem
from streamgauge.systems.base.boundary import require_trust
from streamgauge.systems.base.options import check_attached, check_nodes, refuse_both
from streamgauge.systems.base.own_metrics import OwnMetrics
from streamgauge.systems.pulsar import bookies, settings
from streamgauge.systems.pulsar.cluster import start_cluster
from streamgauge.systems.pulsar.durability import Expectation, compare, level_told
from streamgauge.systems.pulsar.launch import Launch
from streamgauge.systems.pulsar.metrics import METRICS
from streamgauge.systems.support import maven, released
from streamgauge.systems.support.cache import Installation
from streamgauge.systems.support.java import Java, find_java
from streamgauge.systems.support.java_system import JavaSystem
from streamgauge.systems.support.network import ON_LOOPBACK
from streamgauge.systems.support.processes import check_free
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.levels import Level

KEPT = ("lib", "conf", "LICENSE", "NOTICE")
"""What is kept of the distribution: the shell scripts, examples and functions' runtimes are not used."""


def artifact(version: str) -> maven.Artifact:
    """The distribution: brokers, bookies and ZooKeeper in one archive."""
    return maven.Artifact("org.apache.pulsar", "pulsar-server-distribution", version, "tar.gz", "bin")


class Pulsar(JavaSystem[Launch]):
    """Gets and runs Apache Pulsar."""

    name: ClassVar[str] = "pulsar"
    title: ClassVar[str] = "Apache Pulsar"
    protocol: ClassVar[str] = "pulsar"
    default_version: ClassVar[str] = "4.0.8"
    option_keys: ClassVar[frozenset[str]] = settings.OPTION_KEYS
    small_segments: ClassVar[Mapping[str, Any]] = {
        "broker": {
            "managedLedgerMaxEntriesPerLedger": "1000",
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        },
        "bookie": {"journalMaxSizeMB": "4", "journalPreAllocSizeMB": "4"},
    }
    page: ClassVar[str] = "docs/systems/pulsar.md"
    obtained: ClassVar[str] = "a Maven artifact with its bookies and ZooKeeper; needs a JDK"
    start_time: ClassVar[StartTime] = StartTime(one_node_s=15.0, nodes_s=40.0)
    cannot: ClassVar[Mapping[Feature, str]] = {
        Feature.NODE_LOSS: "a ledger needs as many bookies as it has copies: with one of three gone no new one can be begun"
    }
    omb_drivers: ClassVar[frozenset[str]] = frozenset({"pulsar"})
    omb_workers: ClassVar[str | None] = None
    mechanisms: ClassVar[frozenset[str]] = frozenset({"token", "external"})
    own_metrics: ClassVar[OwnMetrics | None] = METRICS

    @classmethod
    def told_level(cls, settings: Mapping[str, Any]) -> Level | None:
        """See System."""
        return level_told(settings)

    def check(self, request: SystemRequest) -> None:
        where = where_of(request)
        options = settings.parse_options(request)
        if request.connect:
            self._check_attached(request, options, where)
            return
        require_trust(request, self.untrusted(request))
        settings.parse_version(request.version or self.default_version, where)
        check_nodes(request, "Pulsar")
        if options.admin or options.bookies:
            key = "admin" if options.admin else "bookies"
            raise SystemInputError(f"{where}{key} names parts of a cluster that already runs (connect)")
        if options.deployment == "tiered":
            raise SystemInputError(
                f"{where}deployment tiered is for a cluster that already runs (connect): the lab starts a broker beside each bookie"
            )
        settings.plan(request.level, request.nodes, options, where)
        options.memory_need(request.nodes).check(where)
        check_free(options.ports, where)

    def untrusted(self, request: SystemRequest) -> Iterator[Untrusted]:
        return settings.untrusted(request)

    @staticmethod
    def _check_attached(request: SystemRequest, options: settings.Options, where: str) -> None:
        for address in request.connect:
            if not re.fullmatch(r"[^\s/]+:\d{1,5}", address):
                raise SystemInputError(
                    f"{where}'{address}' is no address of a Pulsar broker; expected host:port such as 127.0.0.1:6650"
                )
        for key, asked in (("durability", request.level), ("journal", options.journal)):
            if asked is not None and not options.bookies:
                raise SystemInputError(
                    f"{where}{key} {asked}: the journals of bookies are not visible to clients, so it cannot be asked of a running cluster; name "
                    f"the bookies' HTTP addresses (bookies: [host:8000, ...], with httpServerEnabled=true in their settings), or leave {key} out: "
                    "the quorums are read back"
                )
        check_attached(request, ("memory", "jvm_flags", "ports", "broker", "bookie", "profile"))
        refuse_both(request, options.client, ("token",), "client.")

    def installation(self, version: str, java: Java, progress: Progress) -> Installation:
        settings.parse_version(version, "")
        title = f"Pulsar {version}"
        log = self.cache.root / "logs" / f"{self.name}-{version}.log"

        def fetch(into: Path) -> Mapping[str, Any]:
            source = maven.copy_one(title, artifact(version), into, java, log, progress)
            checksum = released.check_archive(title, the_archive(into))
            progress(f"unpacking {title}")
            unpack(into)
            return {**source, "archive_sha256": checksum}

        return self.obtain(version, title, fetch, progress)

    def launch(self, request: SystemRequest, directory: Path, progress: Progress) -> Launch:
        version = request.version or self.default_version
        options = settings.parse_options(request)
        java = find_java()
        return Launch(
            version=version,
            nodes=request.nodes,
            options=options,
            plan=settings.plan(request.level, request.nodes, options, where_of(request)),
            directory=directory.absolute(),
            java=java,
            installation=self.installation(version, java, progress),
            volume=request.volume,
            placement=request.placement or ON_LOOPBACK,
            tls=request.tls,
            guarded=request.guarded,
            has_metrics=request.has_metrics,
        )

    def start_cluster(self, launch: Launch, progress: Progress) -> RunningSystem:
        return start_cluster(launch, progress)

    def attach(self, request: SystemRequest) -> RunningSystem:
        self.check(request)
        return AttachedPulsar(request, settings.parse_options(request))


def the_archive(directory: Path) -> Path:
    """The archive that Maven put into a directory. Raises SystemFailure."""
    archives = list(directory.glob("*.tar.gz"))
    if len(archives) != 1:
        raise SystemFailure(f"Maven was asked for one archive, and {len(archives)} came")
    return archives[0]


def unpack(directory: Path) -> None:
    """Replaces the archive in a directory by what is needed of it. Raises SystemFailure for one that is broken."""
    packed = the_archive(directory)
    try:
        with tarfile.open(packed) as archive:
            for member in archive:
                # The archive has one directory at its top, which says nothing.
                name = member.name.partition("/")[2]
                if name.split("/")[0] in KEPT:
                    member.name = name
                    archive.extract(member, directory, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise SystemFailure(f"Pulsar's archive {packed.name} cannot be unpacked: {error}") from error
    packed.unlink()
    if not (directory / "lib").is_dir() or not (directory / "conf" / "broker.conf").is_file():
        shutil.rmtree(directory / "lib", ignore_errors=True)
        raise SystemFailure(
            "Pulsar's archive has no lib and conf/broker.conf: it is not its server distribution"
        )


class AttachedPulsar(AttachedSystem):
    """A cluster that was running already. Its version is not visible to clients."""

    def __init__(self, request: SystemRequest, options: settings.Options) -> None:
        admin = {"admin": list(options.admin)} if options.admin else {}
        super().__init__(
            Pulsar, request, len(request.connect), level=request.level, options={**options.client, **admin}
        )
        self._bookies = {f"bookie-{place}": one for place, one in enumerate(options.bookies, start=1)}
        self._journal, self._deployment = options.journal, options.deployment

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(1, {})

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        read, trouble = bookies.read(
            {name: address.rpartition(":")[::2] for name, address in self._bookies.items()}
        )
        journal = settings.JOURNALS[self._journal] if self._journal is not None else {}
        asked = {key: journal[key] for key in settings.JOURNAL_KEYS if key in journal}
        expected = Expectation(
            self.nodes, self.level, None, dict.fromkeys(self._bookies, asked), self._deployment
        )
        found = compare(describe(topics), read, topics, expected)
        return ReadBack(found.level, found.settings, (*trouble, *found.mismatches))

    def configuration(self) -> dict[str, Any]:
        shown = {key: value for key, value in self._options.items() if key != "token"}
        found = {**super().configuration(), "client": shown}
        return {**found, "bookies": dict(self._bookies)} if self._bookies else found
