"""A program that takes a CPU at real-time priority for a while, again and again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

THIEF = """
import os, random, sys, time
every_s, low_s, high_s = map(float, sys.argv[1:4])
cpus = sorted(os.sched_getaffinity(0))
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("ready", flush=True)
while True:
    time.sleep(every_s * random.uniform(0.5, 1.5))
    os.sched_setaffinity(0, {random.choice(cpus)})
    until_s = time.monotonic() + random.uniform(low_s, high_s)
    while time.monotonic() < until_s:
        pass
"""


@contextlib.contextmanager
def thief(every_s: float, low_s: float, high_s: float) -> Iterator[None]:
    """Every so many seconds (half to one and a half of it) it takes a CPU, for between so many seconds."""
    command = [sys.executable, "-c", THIEF, str(every_s), str(low_s), str(high_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "no right to real-time priority"
            yield
        finally:
            process.kill()
