"""Toy: a system for streamgauge, one server of NATS JetStream. Where it says nats-server, put your own, and in `protocol` its client."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from streamgauge.model.feature import Feature, StartTime
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
from streamgauge.systems.base.parts import Part
from streamgauge.systems.support import processes
from streamgauge.systems.support.cache import Cache
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.levels import Level


class Toy(System):
    """Runs Toy."""

    name: ClassVar[str] = "toy"
    title: ClassVar[str] = "Toy"
    protocol: ClassVar[str] = "nats"
    default_version: ClassVar[str] = "1.0"
    page: ClassVar[str] = "https://example.org/toy"
    obtained: ClassVar[str] = "with NATS"
    option_keys: ClassVar[frozenset[str]] = frozenset()
    start_time: ClassVar[StartTime] = StartTime(one_node_s=1.0, nodes_s=1.0)
    levels: ClassVar[frozenset[Level]] = frozenset({"L4"})
    cannot: ClassVar[Mapping[Feature, str]] = {
        Feature.ATTACHING: "its server is attached to as nats",
        Feature.POWER_CUT: "it syncs every two minutes",
        Feature.TLS: "it speaks plain text",
        Feature.CREDENTIALS: "whoever reaches it is served",
        Feature.PLACES: "it listens on loopback alone",
        Feature.NODES: "it has one node",
        Feature.NODE_LOSS: "it has no other node",
        Feature.LEADERS: "its one node leads everything",
    }

    def check(self, request: SystemRequest) -> None:
        if request.connect:
            raise SystemInputError(f"connect: {self.cannot[Feature.ATTACHING]}")
        if request.nodes != 1:
            raise SystemInputError(f"nodes {request.nodes}: {self.cannot[Feature.NODES]}")
        if request.version not in (None, self.default_version):
            raise SystemInputError(f"version {request.version}: there is only {self.default_version}")
        if request.level not in (None, "L4"):
            raise SystemInputError(f"durability {request.level}: there is L4 alone, without an fsync")

    def installed(self, version: str | None = None) -> str | None:  # noqa: ARG002
        kept = Cache().find("nats", "2.15.2")  # Where streamgauge keeps the server of NATS.
        return str(kept.path / "nats-server") if kept else shutil.which("nats-server")

    def missing(self) -> str | None:
        return None if self.installed() else "there is no nats-server: streamgauge systems install nats"

    def install(self, version: str | None, progress: Progress) -> None:  # noqa: ARG002
        if self.missing():
            raise SystemFailure(self.missing())

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        self.check(request)
        self.install(request.version, progress)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (port,) = processes.free_ports(1)
        command = [str(self.installed()), "--addr", "127.0.0.1", "--port", str(port)]
        command += ["--jetstream", "--store_dir", str(directory / "data")]
        progress("starting Toy")
        process = processes.start("Toy", command, directory / "toy.log")
        running = RunningToy(process, directory / "data", port)
        try:
            processes.await_started(
                running.waits_for, [process], 30.0, lambda one: processes.log_tail(one.log)
            )
        except BaseException:
            running.wipe()
            raise
        return running

    def attach(self, request: SystemRequest) -> RunningSystem:
        raise SystemInputError(f"connect {request.connect}: {self.cannot[Feature.ATTACHING]}")


class RunningToy(RunningSystem):
    """A server that answers."""

    def __init__(self, process: processes.ManagedProcess, data: Path, port: int) -> None:
        self.name, self.version, self.nodes = Toy.name, Toy.default_version, 1
        self.level, self.attached, self.stopped = "L4", False, False
        self.process, self.port, self.data = process, port, data

    @property
    def connection(self) -> dict[str, Any]:
        return {"protocol": Toy.protocol, "bootstrap": [f"127.0.0.1:{self.port}"], "options": {}}

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(1, {})

    def processes(self) -> list[SystemProcess]:
        return [SystemProcess("toy", self.process.pid)]

    def parts(self) -> Sequence[Part]:
        return (Part("node-1", self.process, self.waits_for, (self.data,)),)

    def waits_for(self) -> str | None:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as client:
                return None if client.recv(4) == b"INFO" else "Toy to speak NATS's protocol"
        except OSError as error:
            return f"Toy to answer ({error})"

    def failure(self) -> str | None:
        ending = None if self.stopped else self.process.unasked_ending()
        return f"Toy {ending}: {processes.log_tail(self.process.log)}" if ending else None

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        found = describe(topics)["topics"]
        settings = {topic: found[topic]["settings"]["storage"] for topic in topics}
        wrong = [f"topic {topic} is in {kept}" for topic, kept in settings.items() if kept != "file"]
        return ReadBack(None if wrong else "L4", settings, tuple(wrong))

    def configuration(self) -> dict[str, Any]:
        return {"command": list(self.process.command)}

    def collect_logs(self, into: Path) -> None:
        processes.copy_tail(self.process.log, into / self.process.log.name)

    def stop(self) -> None:
        self.stopped = True
        processes.stop([self.process])

    def wipe(self) -> None:
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
