"""Whether the machine was quiet while a test measured something: seen by a witness that is not the lab.

Tests of the lane `quiet` assert either the figure, or, when the witness saw a disturbance, what holds on any machine. The summary names those
that met one, so that a machine that is never quiet does not pass for one that proved everything.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
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
AWAY_SHARE = 0.005
"""Of the time within WITHIN_S, in which one CPU or another did not run a real-time thread: half of what the lab calls disturbed, because what comes behind such
times is disturbed as well."""
WATCH = Path(__file__).with_name("cpu_watch.py")


def cpu_ticks() -> list[int]:
    """Of all cores since boot, as proc_stat(5) has them: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(one) for one in Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]]


def cpu_times() -> tuple[float, float, float]:
    """Ticks of all cores: busy, stolen by other machines on this host, all."""
    fields = cpu_ticks()
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
        self._seen = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by end()
        self._watch_cpus = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WATCH)], stdin=subprocess.PIPE, stdout=self._seen
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def _late_s(self) -> float:
        asked_s = time.monotonic()
        time.sleep(0.005)
        return time.monotonic() - asked_s - 0.005

    def _watch(self) -> None:
        while not self._over.is_set():
            self._latest_s = max(self._latest_s, self._late_s())

    def _away(self) -> list[tuple[float, float]]:
        """When one CPU or another was not to be had: from, to (s)."""
        self._seen.seek(0)
        lines = self._seen.read().decode("ascii").splitlines()
        return joined(
            sorted((float(since), float(until)) for since, until in (line.split() for line in lines))
        )

    def end(self) -> None:
        """Stops watching."""
        self._over.set()
        self._watch_cpus.communicate()
        self._seen.close()

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
        away_s = most_within(self._away(), WITHIN_S)
        if away_s > AWAY_SHARE * WITHIN_S:
            return f"a CPU did not run a real-time thread for {away_s * 1000:.0f} ms within {WITHIN_S:g} s"
        return None


def joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that begin in order, without their overlaps."""
    found: list[tuple[float, float]] = []
    for since, until in spans:
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((since, until))
    return found


def most_within(spans: list[tuple[float, float]], seconds: float) -> float:
    """Of spans that do not overlap: what lies within the while that has most of it, a span that reaches into it in full."""
    most, within, first = 0.0, 0.0, 0
    for since, until in spans:
        within += until - since
        while spans[first][1] < until - seconds:
            within -= spans[first][1] - spans[first][0]
            first += 1
        most = max(most, within)
    return most


def note_disturbance(request: pytest.FixtureRequest, found: str) -> None:
    """For the summary."""
    request.node.user_properties.append(("disturbance", found))


def tell(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the tests that met a disturbed machine and asserted less for it."""
    for report in terminalreporter.getreports("passed"):
        for name, found in getattr(report, "user_properties", ()):
            if name == "disturbance" and report.when == "call":
                terminalreporter.line(f"not quiet: {report.nodeid}: {found}")
