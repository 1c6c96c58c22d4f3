"""A process that tells when a CPU was not to be had: a line "from to" for each time, in seconds of the monotonic clock.

A process of its own, for what a test computes would keep a thread of its interpreter from looking.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

STEP_S = 0.001
LATE_S = 0.0005


def watch(cpu: int) -> None:
    """Neither what the tests run nor what runs beside them keeps this thread from its CPU: the host does, the kernel, and who has real-time priority."""
    os.sched_setaffinity(0, {cpu})
    # Where it may not be, the lab's load workers may not either, and all that runs delays both.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    due_s = time.monotonic() + STEP_S
    while True:
        time.sleep(max(due_s - time.monotonic(), 0.0))
        now_s = time.monotonic()
        if now_s - due_s > LATE_S:
            os.write(1, f"{due_s} {now_s}\n".encode())
        due_s = now_s + STEP_S


if __name__ == "__main__":
    for one in os.sched_getaffinity(0):
        threading.Thread(target=watch, args=(one,), daemon=True).start()
    sys.stdin.read()
