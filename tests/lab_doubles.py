"""A system and a `gauge` for tests of the lab: real processes that do nothing of note, so that they can be
killed, stopped and left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

from streamgauge.fleet.children import start_child, stop_child
from streamgauge.model.feature import Feature, StartTime
from streamgauge.model.security import secured, told
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems import names, registry
from streamgauge.systems.base import (
    Describe,
    Progress,
    ReadBack,
    RunningSystem,
    System,
    SystemProcess,
    TopicPlan,
)
from streamgauge.systems.support import processes
from streamgauge.systems.support.certificates import Certificates, for_nodes, forget, security_of
from streamgauge.systems.support.network import ON_LOOPBACK
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.waiting import wait_until

BROKER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"ok")
    connection.close()
"""


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Ports that no other test is given meanwhile, while a server that takes over old ports (SO_REUSEADDR, as all do) can listen on them."""
    with contextlib.ExitStack() as held:
        ports = processes.free_ports(count)
        for port in ports:
            holder = held.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", port))
        yield ports


def await_port(log: Path, within_s: float = 60.0) -> int:
    """The port that the broker says it listens on."""

    def missing() -> str | None:
        return None if log.read_text("utf-8").endswith("\n") else "its port"

    awaited = wait_until(missing, within_s, poll_s=0.02)
    if awaited is not None:
        raise SystemFailure(f"double did not come up: {awaited}")
    return int(log.read_text("utf-8").split()[1])


def write_gauge(directory: Path) -> Path:
    """An executable that is tests/gauge_double.py."""
    path = directory / "gauge"
    script = Path(__file__).with_name("gauge_double.py")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


class RunningDouble(RunningSystem):
    def __init__(self, request: SystemRequest, child: subprocess.Popen[bytes] | None, address: str) -> None:
        self.name, self.version, self.nodes = "double", "1", request.nodes
        self.level, self.attached = request.level, child is None
        self._child, self._address = child, address
        self._goes_on = bool(request.options.get("goes_on", False))
        self._directory: Path | None = None
        self._security = request.security
        self._certificates: Certificates | None = None

    @property
    def connection(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"protocol": "double", "bootstrap": [self._address], "options": {}}
        return secured(plain, security_of(self._certificates) or self._security)

    def topic_plan(self) -> TopicPlan:
        return TopicPlan(1, {})

    def processes(self) -> list[SystemProcess]:
        return [] if self._child is None else [SystemProcess("double", self._child.pid)]

    def failure(self) -> str | None:
        if self._child is None or self._child.poll() is None:
            return None
        return f"double ended with status {self._child.returncode}"

    def goes_on(self) -> bool:
        return self._goes_on

    def read_back(self, describe: Describe, topics: Sequence[str]) -> ReadBack:
        assert set(describe(topics)["topics"]) == set(topics)
        return ReadBack(self.level or "L4", {"topic.flush": "never"}, ())

    def configuration(self) -> dict[str, Any]:
        return {"port": self._address, "security": told(self._security)}

    def collect_logs(self, into: Path) -> None:
        (into / "double.log").write_text("the double's log\n", encoding="utf-8")

    def stop(self) -> None:
        if self._child is not None:
            stop_child(self._child, 5.0)

    def wipe(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory / "log", ignore_errors=True)
        forget(self._certificates)


class DoubleSystem(System):
    """One node of a broker that says "ok". Option `fault`: `no start` or `bad port`."""

    name: ClassVar[str] = "double"
    title: ClassVar[str] = "Double"
    protocol: ClassVar[str] = "double"
    default_version: ClassVar[str] = "1"
    option_keys: ClassVar[frozenset[str]] = frozenset({"fault", "goes_on", "start_s"})
    page: ClassVar[str] = "docs/testing.md"
    obtained: ClassVar[str] = "a script"
    start_time: ClassVar[StartTime] = StartTime(one_node_s=1.0, nodes_s=1.0)
    cannot: ClassVar[Mapping[Feature, str]] = dict.fromkeys(set(Feature) - {Feature.TLS}, "it is a double")
    mechanisms: ClassVar[frozenset[str]] = frozenset({"plain"})

    def check(self, request: SystemRequest) -> None:
        if request.level in ("L1", "L2") and request.nodes < 3:
            raise SystemInputError(
                f"durability {request.level} needs 3 nodes; with 1 node there are L3 and L4"
            )

    def installed(self, version: str | None = None) -> str | None:
        return f"/opt/double-{version or '1'}"

    def missing(self) -> str | None:
        return os.environ.get("DOUBLE_MISSING")

    def install(self, version: str | None, progress: Progress) -> None:
        progress(f"double {version} is there")

    def start(self, request: SystemRequest, directory: Path, progress: Progress) -> RunningSystem:
        assert not list(directory.iterdir()), "the directory is empty"
        progress("starting double")
        (directory / "log").mkdir()
        if request.options.get("fault") == "bad port":
            raise SystemInputError("port 1 is in use")
        child = start_child([sys.executable, "-c", BROKER], directory / "double.log")
        try:
            time.sleep(float(request.options.get("start_s", 0.0)))
            if request.options.get("fault") == "no start":
                raise SystemFailure("double did not come up: out of luck")
            port = await_port(directory / "double.log")
        except BaseException:
            stop_child(child, 1.0)
            raise
        running = RunningDouble(request, child, f"127.0.0.1:{port}")
        running._directory = directory
        running._certificates = for_nodes(request.tls, directory, ON_LOOPBACK, request.nodes)
        return running

    def attach(self, request: SystemRequest) -> RunningSystem:
        return RunningDouble(request, None, request.connect[0])


def install_double() -> None:
    """Makes the double the only system there is."""
    names.declared = lambda: [EntryPoint("double", "lab_doubles:DoubleSystem", names.GROUP)]
    registry.systems.cache_clear()


def main() -> None:
    """The `streamgauge` program with the double as its only system."""
    install_double()
    from streamgauge.cli.app import main as program

    program()


if __name__ == "__main__":
    main()
