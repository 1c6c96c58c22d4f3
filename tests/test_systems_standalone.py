"""A system that is kept up without a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems import standalone
from streamgauge.systems.base.attached import attached_sources
from streamgauge.systems.registry import systems
from streamgauge.systems.support.cache import cache_root
from streamgauge.systems.support.guard import identity
from streamgauge.systems.support.kafka_broker import describe
from streamgauge.vocabulary.errors import SystemInputError
from systems_support import eventually


def quiet(_line: str) -> None:
    """Progress that nobody watches."""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, so that a system that the user keeps up is not touched; installations are shared."""
    shared = cache_root() / "installed"
    shared.mkdir(parents=True, exist_ok=True)
    own = tmp_path / "cache"
    own.mkdir()
    (own / "installed").symlink_to(shared)
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(own))
    return own


@pytest.mark.usefixtures("own_cache")
def test_what_was_never_up_is_down() -> None:
    assert standalone.status("kafka").state == "down"
    assert standalone.logs("kafka") == []
    assert standalone.down("kafka", quiet) is False
    assert {one.name for one in standalone.statuses()} >= {"kafka"}


@pytest.mark.usefixtures("own_cache")
def test_bad_requests_are_refused() -> None:
    with pytest.raises(SystemInputError, match=r"no system 'kafak'; did you mean 'kafka'\?"):
        standalone.up("kafak", SystemRequest(), quiet)
    with pytest.raises(SystemInputError, match="there is nothing to start"):
        standalone.up("kafka", SystemRequest(connect=("127.0.0.1:9092",)), quiet)
    with pytest.raises(SystemInputError, match="durability L1 cannot be had"):
        standalone.up("kafka", SystemRequest(level="L1"), quiet)
    assert standalone.status("kafka").state == "down"


def write_state(cache: Path, pid: int, start: str) -> None:
    directory = cache / "standalone" / "kafka"
    directory.mkdir(parents=True)
    state = {
        "name": "kafka",
        "state": "up",
        "supervisor": [pid, start],
        "processes": {"node-1": [pid, start]},
    }
    (directory / "state.json").write_text(json.dumps(state))


def test_a_pid_that_was_given_to_another_program_is_left_alone(own_cache: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        write_state(own_cache, bystander.pid, "1")
        assert standalone.status("kafka").state == "failed"
        assert standalone.down("kafka", quiet) is False
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_processes_that_outlived_everything_are_ended_by_pid_and_start_time(own_cache: Path) -> None:
    left = subprocess.Popen(["sleep", "60"], start_new_session=True)
    directory = own_cache / "standalone" / "kafka"
    directory.mkdir(parents=True)
    state = {
        "name": "kafka",
        "state": "up",
        "supervisor": None,
        "processes": {"n": [left.pid, identity(left.pid)]},
    }
    (directory / "state.json").write_text(json.dumps(state))
    assert standalone.down("kafka", quiet) is True
    assert left.wait(10) == -signal.SIGKILL


@pytest.mark.jvm
@pytest.mark.usefixtures("own_cache")
def test_it_survives_the_command_and_goes_when_told() -> None:
    script = (
        "from streamgauge.systems import standalone\n"
        "from streamgauge.systems.base import SystemRequest\n"
        "standalone.up('kafka', SystemRequest(options={'heap': '512m'}), print)\n"
    )
    command = subprocess.run(
        [sys.executable, "-c", script],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert command.returncode == 0, command.stderr
    assert "starting Kafka" in command.stdout
    now = standalone.status("kafka")
    assert (now.state, now.nodes, now.level) == ("up", 1, "L4")
    assert describe(now.connection["bootstrap"][0]).brokers == 1
    (source,) = attached_sources(systems()["kafka"].own_metrics, now.metrics)
    assert source.read()
    with pytest.raises(SystemInputError, match="kafka is up already"):
        standalone.up("kafka", SystemRequest(), quiet)
    (pid, start) = now.processes["node-1"]
    assert identity(pid) == start
    assert {path.name for path in standalone.logs("kafka")} >= {"supervisor.log", "server.log"}
    assert standalone.down("kafka", quiet) is True
    assert identity(pid) is None
    assert standalone.status("kafka").state == "down"
    assert not (now.directory / "system" / "node-1" / "data").exists()
    assert (now.directory / "system" / "node-1" / "logs" / "server.log").exists()


@pytest.mark.jvm
@pytest.mark.usefixtures("own_cache")
def test_a_crash_is_told() -> None:
    up = standalone.up("kafka", SystemRequest(options={"heap": "512m"}), quiet)
    os.kill(up.processes["node-1"][0], signal.SIGKILL)
    assert eventually(lambda: standalone.status("kafka").state == "failed")
    assert "Kafka node 1" in standalone.status("kafka").message
    assert up.supervisor is not None
    pid, start = up.supervisor
    assert eventually(lambda: identity(pid) != start)
    standalone.down("kafka", quiet)
    assert standalone.status("kafka").state == "down"
