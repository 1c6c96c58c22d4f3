"""Child processes of the lab: started in a group of their own, logged to a file, ended with the lab whatever
happens to it.

A process starts behind a gate: a shell waits for one line on its standard input before it becomes the
command. The lab enters the process with the guard (guard.py) first and opens the gate then, so there is no
moment at which a killed lab leaves a process behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from streamgauge.systems.support.guard import identity
from streamgauge.vocabulary.errors import SystemFailure, SystemInputError
from streamgauge.vocabulary.waiting import wait_until

LOOPBACK = "127.0.0.1"
STOP_WAIT_S = 30.0
"""How long processes get between SIGTERM and SIGKILL."""
KILL_WAIT_S = 10.0
"""How long to wait for the kernel to reap after SIGKILL (a process in uninterruptible I/O takes its time)."""
STAND_WAIT_S = 10.0
"""How long to wait for a process that got SIGSTOP to stand still."""
STAND_POLL_S = 0.002
POLL_S = 0.05
FILES_MAX = 1 << 20
"""Limit of open files asked for: brokers hold several per partition, and some programs walk the whole range
at start.
"""
TAIL_LINES = 12
TAIL_BYTES = 256 * 1024
LOG_BYTES_MAX = 10_000_000
"""At most so much of a log is kept with a run."""

_GATE = 'read -r go && [ "$go" = go ] || exit 1; ulimit -n "$1" 2>/dev/null; shift; exec "$@" </dev/null'


@dataclass
class ManagedProcess:
    """A child in its own process group."""

    name: str
    """What a person calls it, for instance "kafka node 1"."""
    command: tuple[str, ...]
    log: Path
    """Standard output and error go here."""
    _popen: subprocess.Popen[bytes] = field(repr=False)
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    directory: Path | None = field(default=None, repr=False)
    down_on_purpose: bool = False
    """An experiment has killed it: that it is gone is no failure."""

    @property
    def pid(self) -> int:
        """The process's id, which is its group's too."""
        return self._popen.pid

    def exit_status(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._popen.poll()

    def running(self) -> bool:
        """True until it has ended (a stopped process still runs)."""
        return self.exit_status() is None

    def wait(self, deadline_s: float) -> bool:
        """Waits until it ends, at most until `deadline_s` on the monotonic clock; True when it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(0.0, deadline_s - time.monotonic()))
        return not self.running()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to its whole group."""
        _signal_group(self, number)

    def await_standing(self) -> None:
        """Waits until nothing of its group, which got SIGSTOP, runs. Raises SystemFailure when something still does after 10 s."""
        await_standing(self.name, _members(self.pid))

    def respawn(self, command: Sequence[str] | None = None) -> None:
        """Starts it once more, with the same command unless another is given. Raises SystemFailure."""
        kill([self])  # Its descendants may outlive it.
        self.command = tuple(command) if command is not None else self.command
        self._popen = _spawn(self.name, self.command, self.log, self.environment, self.directory)
        _open_gate(self)
        self.down_on_purpose = False

    def unasked_ending(self) -> str | None:
        """As `ending`; None too when an experiment has ended it."""
        return None if self.down_on_purpose else self.ending()

    def ending(self) -> str | None:
        """How it ended, as the rest of a sentence ("was killed by SIGKILL"); None while it runs."""
        status = self.exit_status()
        if status is None:
            return None
        if status >= 0:
            return f"exited with status {status}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"


def await_standing(name: str, pids: Iterable[int]) -> None:
    """Waits until processes that got SIGSTOP have stopped.

    The kernel gives the signal to one thread of a process, and the others stop when that one has had a CPU: on a busy machine they go on, and
    acknowledge, for tens of milliseconds after kill(2) has returned (tests/test_systems_processes.py). Raises SystemFailure after 10 s.
    """
    left = set(pids)

    def missing() -> str | None:
        left.difference_update([pid for pid in left if _stands(pid)])
        return f"{name} to stand still after SIGSTOP" if left else None

    late = wait_until(missing, STAND_WAIT_S, STAND_POLL_S)
    if late is not None:
        raise SystemFailure(late)


def _stands(pid: int) -> bool:
    """Whether no thread of a process runs its program until it gets SIGCONT; true when it has gone. One that waits for a disk stops before
    it is back in its program, once another has stopped (proc_pid_stat(5)).
    """
    states = [line[0] for line in _stats(Path(f"/proc/{pid}/task"))]
    return all(state in "TtDZX" for state in states) and (
        not states or any(state in "TtZX" for state in states)
    )


def _members(group: int) -> list[int]:
    """The processes of a group."""
    return [int(line[-1]) for line in _stats(Path("/proc")) if int(line[2]) == group]


def _stats(directory: Path) -> Iterator[list[str]]:
    """Of each process or thread in `directory`: state, parent, group, ... as in proc_pid_stat(5), and last its id."""
    for entry in directory.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            # The name before the state may have spaces and parentheses in it.
            yield [*entry.read_text(errors="replace").rpartition(")")[2].split(), entry.parent.name]


def most_run(nodes: Sequence[ManagedProcess]) -> bool:
    """Whether a majority of the nodes of a cluster runs."""
    return 2 * sum(node.running() for node in nodes) > len(nodes)


def first_failure(nodes: Iterable[ManagedProcess], why: Callable[[ManagedProcess], str]) -> str | None:
    """One sentence on the first node that ended unasked, with `why` it did; None when none has."""
    for node in nodes:
        ending = node.unasked_ending()
        if ending is not None:
            return f"{node.name} (pid {node.pid}) {ending}: {why(node)}"
    return None


def first_answer(
    nodes: Sequence[ManagedProcess], ask: Callable[[int], str | None], silences: tuple[type[Exception], ...]
) -> str | None:
    """What the first running node knows. `ask` gets its number, from 1; what it raises of `silences` (stopped, cut off,
    starting) means that another one may know.
    """
    for number, node in enumerate(nodes, start=1):
        if not node.running():
            continue
        with contextlib.suppress(*silences):
            found = ask(number)
            if found is not None:
                return found
    return None


class _Guard:
    """The lab's side of guard.py; started with the first process, restarted if somebody killed it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._groups: dict[int, str] = {}

    def add(self, pid: int, process_identity: str) -> None:
        with self._lock:
            self._groups[pid] = process_identity
            self._tell(f"add {pid} {process_identity}\n")

    def remove(self, pid: int) -> None:
        with self._lock:
            if self._groups.pop(pid, None) is not None:
                self._tell(f"remove {pid}\n")

    def _tell(self, line: str) -> None:
        if self._popen is not None and self._popen.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._write(self._popen, line)
                return
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # A Ctrl-C on the terminal must not reach it.
            cwd="/",
        )
        for pid, process_identity in self._groups.items():
            self._write(self._popen, f"add {pid} {process_identity}\n")

    @staticmethod
    def _write(popen: subprocess.Popen[bytes], line: str) -> None:
        assert popen.stdin is not None, "the guard is started with a pipe"
        popen.stdin.write(line.encode())
        popen.stdin.flush()


_guard = _Guard()


def start(
    name: str,
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> ManagedProcess:
    """Starts a command in its own session and group; its output is appended to `log`.

    Raises SystemFailure when the process cannot be created. A command that cannot be executed ends with
    status 126 or 127 and the reason in its log.
    """
    popen = _spawn(name, command, log, environment, directory)
    process = ManagedProcess(name, tuple(command), log, popen, environment, directory)
    _open_gate(process)
    return process


def _spawn(
    name: str,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None,
    directory: Path | None,
) -> subprocess.Popen[bytes]:
    """The shell that waits at the gate."""
    log.parent.mkdir(parents=True, exist_ok=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files_max = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                ["/bin/sh", "-c", _GATE, "sh", str(files_max), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment) if environment is not None else None,
                cwd=directory,
                start_new_session=True,
            )
    except OSError as error:
        raise SystemFailure(f"cannot start {name} ({command[0]}): {error}") from error


def _open_gate(process: ManagedProcess) -> None:
    """Enters a process with the guard and lets it become its command."""
    popen = process._popen
    assert popen.stdin is not None, "started with a pipe"
    process_identity = identity(popen.pid)
    try:
        if process_identity is not None:
            _guard.add(popen.pid, process_identity)
        with contextlib.suppress(BrokenPipeError):  # It died already; the caller's wait says so.
            popen.stdin.write(b"go\n")
            popen.stdin.close()
    except BaseException:
        kill([process])
        raise


def stop(processes: Sequence[ManagedProcess], wait_s: float = STOP_WAIT_S) -> list[str]:
    """SIGTERM to all groups at once, a generous wait, SIGKILL for the rest. Idempotent; never raises for a
    dead process.

    Returns the names of those that had to be killed.
    """
    for process in processes:
        if process.running():
            _signal_group(process, signal.SIGTERM)
            # A process that an experiment has stopped would never see the SIGTERM.
            _signal_group(process, signal.SIGCONT)
    wait_until(lambda: next((f"{one.name} to end" for one in processes if one.running()), None), wait_s)
    late = [process.name for process in processes if process.running()]
    kill(processes)
    return late


def kill(processes: Sequence[ManagedProcess]) -> None:
    """SIGKILL to all groups - descendants too, even when the leader has gone - and reaps. Idempotent."""
    for process in processes:
        _signal_group(process, signal.SIGKILL)
    deadline = time.monotonic() + KILL_WAIT_S
    for process in processes:
        if process.wait(deadline):
            _guard.remove(process.pid)


def let_go(process: ManagedProcess) -> None:
    """Of a command that has ended: what it left running goes on, also when the lab ends."""
    _guard.remove(process.pid)


def _signal_group(process: ManagedProcess, signal_number: signal.Signals) -> None:
    """Signals the group. A reaped leader's pid stays reserved only while its group has members, so a
    stranger's group is told by its leader.
    """
    if not process.running() and identity(process.pid) is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal_number)


def await_started(
    waiting_for: Callable[[], str | None],
    processes: Iterable[ManagedProcess],
    timeout_s: float,
    explain: Callable[[ManagedProcess], str],
    poll_s: float = POLL_S,
) -> None:
    """Waits until `waiting_for` returns None; it returns what is still missing otherwise ("node 2 to
    answer").

    Raises SystemFailure as soon as one of the processes ends, or after `timeout_s`. `explain` gives a
    process's reason from its log.
    """
    watched = list(processes)

    def missing() -> str | None:
        for process in watched:
            ending = process.ending()
            if ending is not None:
                raise SystemFailure(f"{process.name} {ending} while starting: {explain(process)}")
        return waiting_for()

    late = wait_until(missing, timeout_s, poll_s)
    if late is not None:
        explanations = "\n".join(f"{process.name}: {explain(process)}" for process in watched)
        raise SystemFailure(f"{late}\n{explanations}")


def log_tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log; empty when there is none."""
    try:
        with path.open("rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - TAIL_BYTES))
            text = handle.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def copy_tail(source: Path, target: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Copies a log, or its last `bytes_max` bytes from the start of a line on; nothing when it has gone."""
    try:
        with source.open("rb") as reading:
            size = reading.seek(0, os.SEEK_END)
            reading.seek(max(0, size - bytes_max))
            if size > bytes_max:
                reading.readline()
            content = reading.read(bytes_max)
    except FileNotFoundError:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


# ---------------------------------------------------------------------- ports


def free_ports(count: int, avoid: Iterable[int] = ()) -> list[int]:
    """Distinct loopback ports on which nothing listens.

    They lie outside the range from which the kernel takes source ports: while a broker is down, a load
    generator's connection could otherwise take its port, or connect to itself. Another program may still take
    one before it is used, so that a start must cope with a port in use.
    """
    unwanted = set(avoid)
    low, high = _source_ports()
    candidates = [port for port in (*range(15000, low), *range(high + 1, 65000)) if port not in unwanted]
    random.shuffle(candidates)
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in candidates:
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with contextlib.suppress(OSError):
                probe.bind((LOOPBACK, port))
                ports.append(port)
        while len(ports) < count:  # The kernel's range leaves no room: take what it gives.
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.bind((LOOPBACK, 0))
            ports.append(int(probe.getsockname()[1]))
    return ports


def port_holder(port: int) -> str | None:
    """None when a server can listen on the loopback port; else who holds it ("java (pid 123)"), or "another
    process".
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT is free for listening.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
            return None
        except PermissionError:
            return "the system (ports below 1024 need root)"
        except OSError:
            pass
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another process"


def check_free(chosen: Iterable[int], where: str) -> None:
    """Raises SystemInputError for a port that somebody listens on."""
    for port in chosen:
        holder = port_holder(port)
        if holder is not None:
            raise SystemInputError(
                f"{where}ports: port {port} is in use by {holder}; stop it, choose another port, or leave ports out to "
                "get free ones"
            )


def _source_ports() -> tuple[int, int]:
    """The kernel's range of source ports (ip(7), ip_local_port_range)."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 49152, 65535  # RFC 6335, section 6: the dynamic ports.
