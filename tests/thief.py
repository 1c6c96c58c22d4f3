"""A program that takes a CPU at real-time priority for a while, again and again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

THIEF = """
import os, random, sys, time
every_s, low_s, high_s = map(float, sys.argv[1:4])
cpus = sorted(os.sched_getaffinity(0))
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
random.seed(0)
due_s = time.monotonic()
mine = cpus
if sys.argv[4] == "all":
    # One process for each CPU, with the same numbers: they take and leave them together.
    mine = cpus[:1]
    for cpu in cpus[1:]:
        if os.fork() == 0:
            mine = [cpu]
            break
if mine[0] == cpus[0]:
    print("ready", flush=True)
while True:
    due_s += every_s * random.uniform(0.5, 1.5)
    until_s = due_s + random.uniform(low_s, high_s)
    cpu = random.choice(cpus)
    time.sleep(max(0.0, due_s - time.monotonic()))
    os.sched_setaffinity(0, {cpu if len(mine) > 1 else mine[0]})
    while time.monotonic() < until_s:
        pass
"""


@contextlib.contextmanager
def thief(
    every_s: float, low_s: float, high_s: float, takes: Literal["one", "all"] = "one"
) -> Iterator[None]:
    """Every so many seconds (half to one and a half of it) it takes a CPU, for between so many seconds. The scheduler moves what it can to
    another CPU that is idle; from a thief of all at once, as a hypervisor is one, nothing can be moved away.
    """
    command = [sys.executable, "-c", THIEF, str(every_s), str(low_s), str(high_s), takes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "no right to real-time priority"
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
