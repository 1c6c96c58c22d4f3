"""Programs that disturb on purpose, each until it is killed or what it disturbs has ended. What they are for: disturbed.py.

stall PID EVERY LENGTH       stops a process for so many seconds, every so many on average; prints how long it was each time
seek PID EVERY WAIT LENGTH   the same, and after WAIT takes a CPU at real-time priority for LENGTH: a thief that strikes only while the server stalls
sleep TID EVERY LENGTH       stops one thread alone (ptrace), as if it slept: a fault of the generator
hog                          spins at normal priority
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Callable

PTRACE_CONT, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 0x4206, 0x4207
WALL = 0x40000000


def wait(every_s: float) -> None:
    """Waits, for so long on average."""
    time.sleep(random.expovariate(1 / every_s))


def stall(pid: int, every_s: float, length_s: float) -> None:
    """Above normal priority, so that the stalls are as long as asked; it never takes a CPU for more than an instant."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print("ready", flush=True)
    while True:
        wait(every_s)
        began_s = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(length_s)
        os.kill(pid, signal.SIGCONT)
        print(time.monotonic() - began_s, flush=True)


def seek(pid: int, every_s: float, wait_s: float, length_s: float) -> None:
    """The thief."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    print("ready", flush=True)
    while True:
        wait(every_s)
        began_s = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(wait_s)
        os.sched_setaffinity(0, {random.choice(cpus)})
        until_s = time.monotonic() + length_s
        while time.monotonic() < until_s:
            pass
        os.kill(pid, signal.SIGCONT)
        os.sched_setaffinity(0, cpus)
        print(time.monotonic() - began_s, flush=True)


def sleep(tid: int, every_s: float, length_s: float) -> None:
    """Of the thread alone: all others of its process go on, probes included."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes, libc.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    if libc.ptrace(PTRACE_SEIZE, tid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print("ready", flush=True)
    while True:
        wait(every_s)
        if libc.ptrace(PTRACE_INTERRUPT, tid, 0, 0) or not os.WIFSTOPPED(os.waitpid(tid, WALL)[1]):
            # The thread has ended.
            return
        time.sleep(length_s)
        libc.ptrace(PTRACE_CONT, tid, 0, 0)


def hog() -> None:
    """A busy loop."""
    print("ready", flush=True)
    while True:
        pass


def main() -> None:
    what, *numbers = sys.argv[1:]
    if what == "hog":
        hog()
    process, *seconds = numbers
    acts: dict[str, Callable[..., None]] = {"stall": stall, "seek": seek, "sleep": sleep}
    with contextlib.suppress(ProcessLookupError):
        acts[what](int(process), *map(float, seconds))


if __name__ == "__main__":
    main()
