"""Child processes end with the lab, whatever happens to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest
from lab_doubles import held_ports
from streamgauge.systems.support import processes
from streamgauge.systems.support.guard import identity, kill_group
from streamgauge.vocabulary.errors import SystemFailure
from systems_support import eventually


def shell(tmp_path: Path, script: str, name: str = "child") -> processes.ManagedProcess:
    return processes.start(name, ["/bin/sh", "-c", script], tmp_path / f"{name}.log")


def test_output_goes_to_the_log_and_the_status_is_told(tmp_path: Path) -> None:
    child = shell(tmp_path, "echo out; echo err >&2; exit 7")
    assert child.wait(time.monotonic() + 10)
    assert (child.exit_status(), child.ending()) == (7, "exited with status 7")
    assert child.log.read_text() == "out\nerr\n"
    processes.stop([child])


def test_it_leads_a_group_and_a_session_of_its_own(tmp_path: Path) -> None:
    child = shell(tmp_path, "exec sleep 60")
    assert os.getpgid(child.pid) == child.pid
    assert os.getsid(child.pid) == child.pid
    processes.stop([child])
    assert child.ending() == "was killed by SIGTERM"


def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    child = processes.start("child", ["/no/such/program"], tmp_path / "log")
    with pytest.raises(
        SystemFailure, match=r"child exited with status 127 while starting: .*/no/such/program"
    ):
        processes.await_started(
            lambda: "ever", [child], 10.0, lambda process: processes.log_tail(process.log)
        )
    processes.stop([child])


def test_stop_is_patient_then_kills_and_is_idempotent(tmp_path: Path) -> None:
    child = shell(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    assert eventually(lambda: child.log.read_text() == "ready\n")
    assert processes.stop([child], wait_s=0.3) == ["child"]
    assert child.ending() == "was killed by SIGKILL"
    assert processes.stop([child]) == []


def test_stop_ends_a_process_that_was_stopped(tmp_path: Path) -> None:
    child = shell(tmp_path, "exec sleep 60")
    os.kill(child.pid, signal.SIGSTOP)
    assert processes.stop([child], wait_s=10) == []
    assert child.ending() == "was killed by SIGTERM"


TWO_THREADS = """
import mmap, os, sys, threading, time

seen = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)

def work():
    while True:
        seen[:8] = time.monotonic_ns().to_bytes(8, "little")
        time.sleep(0.0002)

def spin():
    while True:
        pass

for _ in range(2 * (os.cpu_count() or 1)):
    if os.fork() == 0:
        spin()
threading.Thread(target=work, daemon=True).start()
# The thread that the signal is given to has a CPU last.
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
time.sleep(600)
"""


def has_moved(file: Path, since: bytes) -> bool:
    return file.read_bytes() != since


def test_what_is_paused_does_nothing_any_more(tmp_path: Path) -> None:
    """A broker whose threads go on for 100 ms after they were stopped acknowledges what an experiment holds against it."""
    seen = tmp_path / "seen"
    seen.write_bytes(bytes(8))
    busy = processes.start("busy", [sys.executable, "-c", TWO_THREADS, str(seen)], tmp_path / "log")
    try:
        assert eventually(lambda: seen.read_bytes() != bytes(8))
        for _ in range(10):
            busy.signal(signal.SIGSTOP)
            busy.await_standing()
            returned_ns = time.monotonic_ns()
            assert busy.running()
            time.sleep(0.2)
            assert int.from_bytes(seen.read_bytes(), "little") <= returned_ns
            busy.signal(signal.SIGCONT)
            assert eventually(partial(has_moved, seen, seen.read_bytes()))
    finally:
        processes.kill([busy])


def test_stop_ends_grandchildren_of_a_leader_that_has_gone(tmp_path: Path) -> None:
    child = shell(tmp_path, "sleep 60 & echo $!; exit 0")
    assert child.wait(time.monotonic() + 10)
    grandchild = int(child.log.read_text())
    assert identity(grandchild) is not None
    processes.stop([child])
    assert eventually(lambda: identity(grandchild) is None)


def test_waiting_ends_with_what_is_missing(tmp_path: Path) -> None:
    child = shell(tmp_path, "echo working; exec sleep 60")
    assert eventually(lambda: child.log.read_text() != "")
    with pytest.raises(SystemFailure, match=r"waited 0.2 s for it to answer\nchild: working"):
        processes.await_started(
            lambda: "it to answer", [child], 0.2, lambda process: processes.log_tail(process.log)
        )
    processes.stop([child])


LAB = """
import sys, time
from pathlib import Path
from threading import Thread
from streamgauge.systems.support import processes

children = []
def start():
    for index in range(2):
        command = ["/bin/sh", "-c", "trap '' TERM; sleep 60 & echo $!; while :; do sleep 1; done"]
        children.append(processes.start("child", command, Path(sys.argv[1]) / f"{index}.log"))
thread = Thread(target=start)  # It ends long before the lab does, and its children must not end with it.
thread.start()
thread.join()
while not all((Path(sys.argv[1]) / f"{index}.log").read_text() for index in range(2)):
    time.sleep(0.01)  # Who ends before its children have begun shows nothing.
print(*[child.pid for child in children], flush=True)
{end}
"""


def run_lab(tmp_path: Path, end: str) -> tuple[subprocess.Popen[str], list[int]]:
    lab = subprocess.Popen(
        [sys.executable, "-c", LAB.replace("{end}", textwrap.dedent(end)), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert lab.stdout is not None
    pids = [int(word) for word in lab.stdout.readline().split()]
    assert len(pids) == 2
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    pids += [int(log.read_text()) for log in logs]
    return lab, pids


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_survives_a_killed_lab(tmp_path: Path, signal_number: signal.Signals) -> None:
    lab, pids = run_lab(tmp_path, "time.sleep(60)")
    assert all(identity(pid) is not None for pid in pids)
    lab.send_signal(signal_number)
    lab.communicate(timeout=10)
    assert eventually(lambda: all(identity(pid) is None for pid in pids))


def test_nothing_survives_a_lab_that_fails(tmp_path: Path) -> None:
    lab, pids = run_lab(tmp_path, "raise RuntimeError('a fault in the lab')")
    lab.communicate(timeout=10)
    assert eventually(lambda: all(identity(pid) is None for pid in pids))


def test_a_guard_that_was_killed_is_replaced(tmp_path: Path) -> None:
    end = """
    import os, signal
    guard = processes._guard._popen
    guard.kill()
    guard.wait()
    children.append(processes.start("child", ["sleep", "60"], Path(sys.argv[1]) / "2.log"))
    print(children[-1].pid, flush=True)
    time.sleep(60)
    """
    lab, pids = run_lab(tmp_path, end)
    assert lab.stdout is not None
    pids.append(int(lab.stdout.readline()))
    lab.kill()
    lab.communicate(timeout=10)
    assert eventually(lambda: all(identity(pid) is None for pid in pids))


def test_a_pid_that_was_given_to_another_process_is_left_alone(tmp_path: Path) -> None:
    child = shell(tmp_path, "exec sleep 60")
    kill_group(child.pid, "an earlier start time")
    assert not child.wait(time.monotonic() + 0.3)
    processes.stop([child])


def test_free_ports_are_free_distinct_and_no_source_ports() -> None:
    ports = processes.free_ports(20)
    low, high = processes._source_ports()
    assert len(set(ports)) == 20
    assert all(processes.port_holder(port) is None for port in ports)
    assert all(not low <= port <= high for port in ports)


def test_a_held_port_is_given_to_nobody_but_the_server_it_is_held_for() -> None:
    with held_ports(1) as (port,):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((processes.LOOPBACK, port))  # As free_ports looks for one.
        assert processes.port_holder(port) is None
        with socket.create_server((processes.LOOPBACK, port)):
            assert processes.port_holder(port) is not None


def test_the_holder_of_a_port_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert f"(pid {os.getpid()})" in (processes.port_holder(port) or "")
    assert processes.port_holder(port) is None


def test_the_tail_of_a_log_is_copied_from_the_start_of_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first line\nsecond line\nthird line\n")
    processes.copy_tail(log, tmp_path / "copies" / "log", bytes_max=15)
    assert (tmp_path / "copies" / "log").read_text() == "third line\n"
    processes.copy_tail(log, tmp_path / "whole")
    assert (tmp_path / "whole").read_text() == log.read_text()
    processes.copy_tail(tmp_path / "gone", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
