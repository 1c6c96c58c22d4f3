"""Networks of nodes that can be cut, with real namespaces where this machine allows them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamgauge.systems.support import network, privileges
from streamgauge.systems.support.network import ON_LOOPBACK, Namespaces
from streamgauge.vocabulary.errors import SystemFailure

needs_namespaces = pytest.mark.skipif(network.missing() is not None, reason=str(network.missing()))

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 7000))
while True:
    connection, _ = server.accept()
    while data := connection.recv(100):
        connection.sendall(data)
"""
HOLD_ONE = """
import sys, time
from streamgauge.systems.support.network import Namespaces
from streamgauge.systems.support import processes
network = Namespaces(1)
network.start()
process = processes.start("sleeper", network.command(1, ["sleep", "300"]), __import__("pathlib").Path(sys.argv[1]))
print(network.host(1), process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def two() -> Iterator[Namespaces]:
    found = Namespaces(2)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def has_device(pid: int) -> bool:
    """Whether there is the end of a network that a process has made."""
    return Path(f"/sys/class/net/sg{pid}").exists()


def answers(connection: socket.socket, within_s: float) -> bool:
    connection.settimeout(within_s)
    try:
        connection.sendall(b"x")
        return connection.recv(1) == b"x"
    except TimeoutError:
        return False


def test_nodes_on_loopback_are_started_as_they_are() -> None:
    assert ON_LOOPBACK.host(3) == "127.0.0.1"
    assert ON_LOOPBACK.command(1, ["sleep", "1"]) == ["sleep", "1"]


@needs_namespaces
def test_a_node_that_is_cut_is_silent_and_comes_back(two: Namespaces) -> None:
    server = subprocess.Popen(two.command(1, [sys.executable, "-c", ECHO, two.host(1)]))
    try:
        deadline_s = time.monotonic() + 20
        while True:
            try:
                connection = socket.create_connection((two.host(1), 7000), timeout=1)
                break
            except OSError:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
        assert answers(connection, 5.0)
        two.cut([1])
        assert not answers(connection, 0.5)
        two.heal([1])
        # TCP sends again by itself: nothing was lost that was on its way.
        connection.settimeout(20)
        assert connection.recv(1) == b"x"
        assert answers(connection, 5.0)
    finally:
        server.kill()
        server.wait()


@needs_namespaces
def test_nodes_reach_each_other_until_one_is_cut(two: Namespaces) -> None:
    ping = [
        sys.executable,
        "-c",
        "import socket,sys; socket.create_connection((sys.argv[1], 7000), timeout=1)",
    ]
    server = subprocess.Popen(two.command(1, [sys.executable, "-c", ECHO, two.host(1)]))
    try:
        deadline_s = time.monotonic() + 20
        command = two.command(2, [*ping, two.host(1)])
        while subprocess.run(command, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline_s
        two.cut([2])
        assert subprocess.run(command, capture_output=True, check=False).returncode
        assert not subprocess.run([*ping, two.host(1)], capture_output=True, check=False).returncode
    finally:
        server.kill()
        server.wait()


@needs_namespaces
def test_nothing_is_left_after_stop() -> None:
    found = Namespaces(1)
    found.start()
    assert has_device(os.getpid())
    pids = [holder.pid for holder in found._holders.values()]
    found.stop()
    found.stop()
    assert not has_device(os.getpid())
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@needs_namespaces
def test_nothing_is_left_of_a_lab_that_was_killed(tmp_path: Path) -> None:
    lab = subprocess.Popen(
        [sys.executable, "-c", HOLD_ONE, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert lab.stdout is not None
    _, pid = lab.stdout.readline().split()
    assert has_device(lab.pid)
    lab.kill()
    lab.wait()
    deadline_s = time.monotonic() + 20
    while (has_device(lab.pid) or Path(f"/proc/{pid}").exists()) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not has_device(lab.pid)
    assert not Path(f"/proc/{pid}").exists()


@needs_namespaces
def test_what_cannot_be_changed_is_told(two: Namespaces) -> None:
    with pytest.raises(SystemFailure, match=r"link set port9 nomaster.*Cannot find device"):
        two.cut([9])


def test_what_is_missing_is_told() -> None:
    asked = "from streamgauge.systems.support import network, powercut; print(network.missing()); print(powercut.missing())"
    if os.geteuid() != 0:
        assert "run it as root" in (network.missing() or "")
        return
    if subprocess.run(["setpriv", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no setpriv (util-linux) to drop capabilities with")
    bare = ["setpriv", "--bounding-set", "-sys_admin,-net_admin", "--inh-caps", "-sys_admin,-net_admin"]
    done = subprocess.run([*bare, sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    if all(network._found(program) for program in network.PROGRAMS):
        assert told[0] == (
            "network namespaces need the capabilities SYS_ADMIN and NET_ADMIN: start the container with --cap-add SYS_ADMIN "
            "--cap-add NET_ADMIN"
        )
    assert "SYS_ADMIN" in told[1] or "/dev/fuse" in told[1]


def test_a_program_that_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "SEARCHED", "/nowhere")
    assert network.missing() == "there is no program 'ip' (apt-get install iproute2)"


def test_a_network_is_chosen_that_is_not_in_use() -> None:
    taken = "".join(f"inet 198.18.{number}.254/24 dev sg1\n" for number in range(256) if number != 77)
    assert network._free_subnet(taken) == "198.18.77"
    with pytest.raises(SystemFailure, match="are taken"):
        network._free_subnet(taken + "198.18.77.0/24 dev sg9\n")
    assert privileges.has(privileges.SYS_ADMIN[1]) in (True, False)
