"""The reference log as a system under test: `gauge log`, a child process that is ready in milliseconds.

It is the embedded default (no JVM, no download) and the yardstick: what this machine gives to a broker that does
as little as possible. See docs/reference-log.md. It speaks Kafka's protocol, so the Kafka client drives it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.security import Mechanism, Security, secured, told
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import (
    Describe,
    Progress,
    ReadBack,
    RunningSystem,
    System,
    SystemProcess,
    TopicPlan,
)
from streamgauge.systems.base.attached import attached_sources
from streamgauge.systems.base.own_metrics import MetricSource, OwnMetrics
from streamgauge.systems.base.parts import Part
from streamgauge.systems.gauge_log.metrics import METRICS
from streamgauge.systems.support import kafka_broker, processes
from streamgauge.systems.support.certificates import USER, Certificates, for_nodes, forget, security_of
from streamgauge.systems.support.network import ON_LOOPBACK
from streamgauge.vocabulary.errors import FleetFailure, SystemFailure, SystemInputError
from streamgauge.vocabulary.gauge_binary import find_gauge, ready_address
from streamgauge.vocabulary.levels import Level
from streamgauge.vocabulary.version import version

PART = "node-1"
START_TIMEOUT_S = 60.0
"""Far above the usual milliseconds: recovery of a large journal on a busy disk is the slow case."""
DURABILITY_SETTING = "streamgauge.durability"
LEVELS: dict[Level, Literal["fsync", "async"]] = {"L3": "fsync", "L4": "async"}
OPTIONS: dict[str, tuple[str, str]] = {
    "memory_mib": ("--memory", "a whole number of MiB"),
    "segment_mib": ("--segment-mib", "a whole number of MiB"),
    "retention_mib": ("--retention-mib", "a whole number of MiB"),
    "retention_s": ("--retention-s", "a whole number of seconds"),
    "threads": ("--threads", "a whole number of threads"),
    "limit_mb_s": ("--limit-mb-s", "a number of MB per second"),
    "commit_delay_us": ("--commit-delay-us", "a whole number of microseconds"),
}
"""Key of a system file -> option of `gauge log`, and what it expects."""


FAULT = "fault"
FAULTS = ("early-ack", "ack-at-any-sync", "ignore-failed-sync", "refuse-torn-tail", "forget-directory-sync")
"""Promises that it breaks on purpose (key `fault`), for tests of experiments that must find it out."""


def flags(options: Mapping[str, Any], where: str) -> list[str]:
    """The options of a system file as flags of `gauge log`. Raises SystemInputError."""
    given: list[str] = []
    for key, value in options.items():
        if key == FAULT:
            if value not in FAULTS:
                raise SystemInputError(
                    f"{where}{key}: {value!r} is not usable; expected {' or '.join(FAULTS)}"
                )
            given += ["--fault", str(value)]
            continue
        flag, expected = OPTIONS[key]
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits = whole or (key == "limit_mb_s" and isinstance(value, float))
        if not fits or value <= 0:
            raise SystemInputError(f"{where}{key}: {value!r} is not usable; expected {expected}, above 0")
        given += [flag, str(value)]
    return given


def level_of(request: SystemRequest, where: str) -> Level:
    """The level to run at. Raises SystemInputError for one that a single node cannot give."""
    level: Level = request.level or "L4"
    if level not in LEVELS:
        raise SystemInputError(
            f"{where}durability {level} cannot be had from the reference log: it keeps one copy on one node. It "
            "gives L3 (fsync before the acknowledgement) and L4 (no fsync)"
        )
    return level


class GaugeLog(System):
    """Runs the reference log."""

    name: ClassVar[str] = "gauge-log"
    title: ClassVar[str] = "Reference log"
    protocol: ClassVar[str] = "kafka"
    default_version: ClassVar[str] = version()
    option_keys: ClassVar[frozenset[str]] = frozenset({*OPTIONS, FAULT})
    page: ClassVar[str] = "docs/reference-log.md"
    obtained: ClassVar[str] = "comes with streamgauge; the default, and the yardstick for the others"
    start_time: ClassVar[StartTime] = StartTime(one_node_s=1.0, nodes_s=1.0)
    small_segments: ClassVar[Mapping[str, Any]] = {"segment_mib": 16}
    omb_workers: ClassVar[str | None] = None  # OMB's Kafka driver speaks to it.
    mechanisms: ClassVar[frozenset[str]] = kafka_broker.MECHANISMS
    own_metrics: ClassVar[OwnMetrics | None] = METRICS
    cannot: ClassVar[Mapping[Feature, str]] = {
        Feature.NODES: "it is a yardstick for one machine: one node, one copy of a message",
        Feature.NODE_LOSS: "it has one node",
    }

    @classmethod
    def told_level(cls, settings: Mapping[str, Any]) -> Level | None:
        """See System."""
        found = {value for key, value in settings.items() if key.endswith(f".{DURABILITY_SETTING}")}
        return next((level for level, name in LEVELS.items() if found == {name}), None)

    def check(self, request: SystemRequest) -> None:
        where = f"{request.source}: " if request.source else ""
        level_of(request, where)
        if request.version not in (None, self.default_version):
            raise SystemInputError(
                f"{where}gauge-log@{request.version}: the reference log comes with streamgauge, and this is version "
                f"{self.default_version}; leave the version out"
            )
        if request.nodes != 1:
            raise SystemInputError(
                f"{where}nodes {request.nodes}: the reference log is a yardstick for one machine and has one node"
            )
        given = flags(request.options, where)
        if request.connect:
            if given:
                raise SystemInputError(
                    f"{where}{', '.join(request.options)}: cannot be set for a log that already runs (connect)"
                )
            for address in request.connect:
                kafka_broker.parse_address(address, where)

    def installed(self, version: str | None = None) -> str | None:
        if version not in (None, self.default_version):
            return None
        try:
            return str(find_gauge())
        except FleetFailure:
            return None

    def missing(self) -> str | None:
        try:
            find_gauge()
        except FleetFailure as failure:
            return str(failure)
        return None

    def install(self, version: str | None, progress: Progress) -> None:
        self.check(SystemRequest(version=version))
        missing = self.missing()
        if missing:
            raise SystemFailure(missing)
        progress("the reference log comes with streamgauge")

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        self.check(request)
        level = level_of(request, "")
        try:
            gauge = find_gauge()
        except FleetFailure as failure:
            raise SystemFailure(str(failure)) from None
        progress(f"starting the reference log ({LEVELS[level]})")
        data = directory / "data"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if request.volume is not None:
            request.volume(PART, data)
        # A port outside of the kernel's range of source ports: a client could take it while the log is down.
        port, told_port = processes.free_ports(2)
        placement = request.placement or ON_LOOPBACK
        command = [str(gauge), "log", "--listen", f"{placement.host(1)}:{port}", "--data", str(data)]
        # Metrics are shown to whoever asks: on loopback alone.
        told_at = (
            f"{processes.LOOPBACK}:{told_port}" if request.has_metrics and placement is ON_LOOPBACK else None
        )
        if told_at is not None:
            command += ["--metrics", told_at]
        login: Mechanism | None = "scram-sha-256" if request.guarded else None
        certificates = for_nodes(request.tls, directory, placement, request.nodes, login)
        if certificates is not None:
            command += ["--certificate", str(certificates.certificate), "--key", str(certificates.key)]
        if certificates is not None and certificates.login is not None:
            users = certificates.private_file("users", f"{USER}:{certificates.login.secret}\n")
            command += ["--users", str(users)]
        elif request.placement is not None:
            # The network was made for it, or was said to have no one else on it (run --insecure).
            command.append("--insecure")
        command += [
            "--durability",
            LEVELS[level],
            "--auto-create-partitions",
            "0",
            *flags(request.options, ""),
        ]
        process = processes.start("reference log", placement.command(1, command), directory / "gauge-log.log")
        try:
            processes.await_started(
                lambda: None if ready_address(process.log) else "the reference log to be ready",
                [process],
                START_TIMEOUT_S,
                lambda started: processes.log_tail(started.log) or "it said nothing",
                poll_s=0.01,
            )
        except BaseException:
            processes.kill([process])
            forget(certificates)
            raise
        address = ready_address(process.log)
        assert address is not None, "the wait above ends when there is one"
        sources = () if told_at is None else (METRICS.source(PART, f"http://{told_at}/metrics"),)
        return RunningGaugeLog(
            level, (address,), data, process, certificates, security_of(certificates), sources
        )

    def attach(self, request: SystemRequest) -> RunningSystem:
        self.check(request)
        sources = attached_sources(METRICS, request.metrics)
        return RunningGaugeLog(
            request.level, request.connect, None, None, security=request.security, sources=sources
        )


@dataclass
class RunningGaugeLog(RunningSystem):
    """A reference log that answers: started by the lab, or attached (`process` and `data` are None)."""

    level: Level | None
    addresses: tuple[str, ...]
    data: Path | None
    process: processes.ManagedProcess | None
    certificates: Certificates | None = field(default=None, repr=False)
    security: Security | None = None
    sources: Sequence[MetricSource] = ()
    _stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.name = GaugeLog.name
        self.version = GaugeLog.default_version
        self.nodes = 1
        self.attached = self.process is None

    @property
    def connection(self) -> dict[str, Any]:
        plain = {"protocol": GaugeLog.protocol, "bootstrap": list(self.addresses), "options": {}}
        return secured(plain, self.security)

    def topic_plan(self) -> TopicPlan:
        # Durability is a setting of the whole log: its journal is shared by all partitions.
        return TopicPlan(replication_factor=1, configs={})

    def processes(self) -> list[SystemProcess]:
        return [] if self.process is None else [SystemProcess("gauge-log", self.process.pid)]

    def metric_sources(self) -> Sequence[MetricSource]:
        return self.sources

    knows_leaders = True

    def leader(self, topic: str) -> str | None:  # noqa: ARG002
        return PART

    def parts(self) -> Sequence[Part]:
        if self.process is None or self.data is None:
            return ()
        return (Part(PART, self.process, self._waits_for, (self.data,)),)

    def _waits_for(self) -> str | None:
        try:
            kafka_broker.describe(self.addresses[0], self.security)
        except kafka_broker.NotDescribed as error:
            return f"the reference log to answer ({error})"
        return None

    def failure(self) -> str | None:
        ending = None if self.process is None or self._stopped else self.process.unasked_ending()
        if ending is None or self.process is None:
            return None
        said = processes.log_tail(self.process.log, 3)
        return f"the reference log (pid {self.process.pid}) {ending}" + (f": {said}" if said else "")

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        description = describe(topics)
        nodes: Mapping[str, Mapping[str, Any]] = description.get("node_settings") or {}
        settings = {
            f"node.{node}.{key}": value
            for node, read in sorted(nodes.items())
            for key, value in sorted(read.items())
        }
        settings["acks"] = self.acks
        durabilities = {read.get(DURABILITY_SETTING) for read in nodes.values()}
        levels: list[Level] = [level for level, name in LEVELS.items() if durabilities == {name}]
        mismatches = []
        if not levels:
            mismatches.append(
                f"the log does not report {DURABILITY_SETTING} as fsync or async: it is no reference log"
            )
        elif self.level is not None and levels[0] != self.level:
            mismatches.append(
                f"durability {self.level} was asked for, but the log reports {LEVELS[levels[0]]}, which is {levels[0]}"
            )
        return ReadBack(levels[0] if levels else None, settings, tuple(mismatches))

    def configuration(self) -> dict[str, Any]:
        if self.process is None:
            return {
                "version": self.version,
                "connect": list(self.addresses),
                "security": told(self.security),
            }
        return {
            "version": self.version,
            "level": self.level,
            "tls": self.certificates is not None,
            "command": list(self.process.command),
        }

    def collect_logs(self, into: Path) -> None:
        if self.process is not None:
            processes.copy_tail(self.process.log, into / self.process.log.name)

    def stop(self) -> None:
        self._stopped = True
        if self.process is not None:
            processes.stop([self.process])

    def wipe(self) -> None:
        self.stop()
        if self.data is not None:
            shutil.rmtree(self.data, ignore_errors=True)
        forget(self.certificates)
