"""Whether the machine was quiet while a test measured something: seen by a witness that is not the lab.

Tests of the lane `quiet` assert either the figure, or, when the witness saw a disturbance, what holds on any machine. The summary names those
that met one, so that a machine that is never quiet does not pass for one that proved everything.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from pathlib import Path

import pytest

LOOK_S = 1.0
WAIT_S = 20.0
"""So long a neighbour may take to go away."""
BUSY_SHARE = 0.2
"""Of all cores, while this suite does nothing. A busy loop on one of two cores is 0.5; what the system does by itself is below 0.05."""
STEAL_SHARE = 0.02
LATE_S = 0.05
"""A thread that asks to be woken comes so late only when the cores are taken: 2,000 times what it takes on a quiet machine."""
WITHIN_S = 2.0
"""As long as the shortest measurement that a test makes."""
STALL_S = 0.001
STALLED_SHARE = 0.01
"""Of the time within WITHIN_S, in which a CPU did not run a real-time thread for more than STALL_S: as much as makes the p99 of a generator's lateness longer
than what it may be."""


def cpu_times() -> tuple[float, float, float]:
    """Ticks of all cores: busy, stolen by other machines on this host, all."""
    fields = [int(one) for one in Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], fields[7], sum(fields)


def busy_share(seconds: float) -> float:
    """How much of the cores was in use over a while."""
    busy, _, total = cpu_times()
    time.sleep(seconds)
    busy_then, _, total_then = cpu_times()
    return (busy_then - busy) / max(total_then - total, 1)


class Witness:
    """Looks at the machine before, during and after a test."""

    def __init__(self) -> None:
        """Waits for quiet, within its bound, and begins to watch."""
        deadline_s = time.monotonic() + WAIT_S
        self._before = busy_share(LOOK_S)
        while self._before > BUSY_SHARE and time.monotonic() < deadline_s:
            self._before = busy_share(LOOK_S)
        self._over = threading.Event()
        self._times = cpu_times()
        self._latest_s = 0.0
        self._stalled_s = 0.0
        threading.Thread(target=self._watch, daemon=True).start()
        for cpu in os.sched_getaffinity(0):
            threading.Thread(target=self._watch_cpu, args=(cpu,), daemon=True).start()

    def _late_s(self) -> float:
        asked_s = time.monotonic()
        time.sleep(0.005)
        return time.monotonic() - asked_s - 0.005

    def _watch(self) -> None:
        while not self._over.is_set():
            self._latest_s = max(self._latest_s, self._late_s())

    def _watch_cpu(self, cpu: int) -> None:
        """Neither what the tests run nor what runs beside them keeps this thread from its CPU: the host does, and the kernel."""
        os.sched_setaffinity(0, {cpu})
        # Where it may not be, the lab's load workers may not either, and all that runs delays both.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        stalls: deque[tuple[float, float]] = deque()
        while not self._over.is_set():
            late_s, now_s = self._late_s(), time.monotonic()
            if late_s > STALL_S:
                stalls.append((now_s, late_s))
            while stalls and stalls[0][0] < now_s - WITHIN_S:
                stalls.popleft()
            self._stalled_s = max(self._stalled_s, sum(stalled_s for _, stalled_s in stalls))

    def end(self) -> None:
        """Stops watching."""
        self._over.set()

    def disturbance(self) -> str | None:
        """What disturbed the machine since the test began; None if nothing did."""
        _, stolen, total = (now - then for now, then in zip(cpu_times(), self._times, strict=True))
        after = busy_share(LOOK_S)
        if max(self._before, after) > BUSY_SHARE:
            return f"{max(self._before, after):.0%} of the cores were in use beside the test"
        if stolen / max(total, 1) > STEAL_SHARE:
            return f"{stolen / max(total, 1):.1%} of the cores' time was stolen"
        if self._latest_s > LATE_S:
            return f"a thread that waited for nothing was woken {self._latest_s * 1000:.0f} ms late"
        if self._stalled_s > STALLED_SHARE * WITHIN_S:
            return f"a CPU did not run a real-time thread for {self._stalled_s * 1000:.0f} ms within {WITHIN_S:g} s"
        return None


def note_disturbance(request: pytest.FixtureRequest, found: str) -> None:
    """For the summary."""
    request.node.user_properties.append(("disturbance", found))


def tell(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the tests that met a disturbed machine and asserted less for it."""
    for report in terminalreporter.getreports("passed"):
        for name, found in getattr(report, "user_properties", ()):
            if name == "disturbance" and report.when == "call":
                terminalreporter.line(f"not quiet: {report.nodeid}: {found}")
