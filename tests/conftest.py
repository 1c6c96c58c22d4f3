"""What several test modules ask for."""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import costs
import pytest
import quiet
from compiled import pytest_xdist_setupnodes as pytest_xdist_setupnodes
from costs import pytest_runtest_makereport as pytest_runtest_makereport
from costs import pytest_runtest_setup as pytest_runtest_setup
from lanes import pytest_collection_modifyitems as pytest_collection_modifyitems
from lanes import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from quiet import Witness, note_disturbance
from room import pytest_configure_node as pytest_configure_node
from room import pytest_runtest_protocol as pytest_runtest_protocol
from skips import pytest_configure as pytest_configure
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.rabbitmq.system import RabbitMq
from streamgauge.systems.support.java import COMPILED_QUICKLY
from streamgauge.vocabulary.errors import FleetFailure
from streamgauge.vocabulary.gauge_binary import find_gauge


def pytest_collection_finish() -> None:
    """What was loaded until here stays: three thousand tests are not looked through for garbage again while they run."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What a run has to say beyond its tests."""
    quiet.tell(terminalreporter)
    costs.tell(terminalreporter)


@pytest.fixture(scope="session")
def real_gauge() -> Path:
    """The gauge as it is."""
    try:
        return find_gauge()
    except FleetFailure as failure:
        pytest.fail(f"{failure}; run the tests with make test")


@pytest.fixture(scope="session")
def gauge(real_gauge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gauge, which probes the machine once for all: a run does that twice, for 3 s each, and most tests are not about it."""
    directory = tmp_path_factory.mktemp("gauge")
    command = [str(real_gauge), "probe", "--short", "--json", "--dir", str(directory)]
    found = subprocess.run(command, capture_output=True, check=True, timeout=60)
    (directory / "probe.json").write_bytes(found.stdout)
    path = directory / "gauge"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = probe ]; then exec cat {shlex.quote(str(directory / "probe.json"))}; fi\n'
        f'exec {shlex.quote(str(real_gauge))} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def one_probe(gauge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for what finds its gauge itself."""
    monkeypatch.setenv("GAUGE", str(gauge))


@pytest.fixture(scope="session", autouse=True)
def quick_jvm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Java without its optimising compiler, for every JVM that a test starts. No test asserts what that compiler gains after minutes, and its
    work is half of what a start costs: 18 s of CPU for Pulsar, and 5.5 s without it. A JVM's command line remains what the lab wrote.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return
    real = Path(java).resolve()
    wrapper = tmp_path_factory.mktemp("jdk") / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/bash\nexport JAVA_TOOL_OPTIONS={COMPILED_QUICKLY}\nexec -a "$0" {shlex.quote(str(real))} "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    # What belongs to it, such as the archive of its classes, is found from where it lies.
    (wrapper.parent.parent / "lib").symlink_to(real.parent.parent / "lib")
    os.environ["JAVA_HOME"] = str(wrapper.parent.parent)


@pytest.fixture
def disturbance(request: pytest.FixtureRequest) -> Iterator[Callable[[], str | None]]:
    """Tells what has disturbed the machine since the test began, if anything has; a test that asks asserts less then, and is named in the
    summary."""
    witness = Witness()

    def ask() -> str | None:
        found = witness.disturbance()
        if found is not None:
            note_disturbance(request, found)
        return found

    yield ask
    witness.end()


@pytest.fixture(scope="session")
def rabbitmq_streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    """A RabbitMQ node with the stream plugin, for all tests that need no more than a node."""
    directory = tmp_path_factory.mktemp("rabbitmq") / "data"
    running = RabbitMq().start(SystemRequest(options={"queue": "stream"}), directory, print)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def rabbitmq(rabbitmq_streams: RunningSystem) -> RunningSystem:
    """The same node over AMQP, with classic queues and persistent messages."""
    addresses = rabbitmq_streams.connection["options"]["amqp"]
    options = {"queue": "classic", "persistent": True}
    return RabbitMq().attach(SystemRequest(connect=tuple(addresses), options=options))
