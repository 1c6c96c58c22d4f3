"""Who used CPU, memory and disk in each interval (columns: model/result.py, RESOURCE_COLUMNS).

A thread of its own samples at the boundaries of the trial's intervals. What the host spent and none of the
named processes did is charged to `others`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

Sink = Callable[[list[dict[str, Any]]], None]


@dataclass(frozen=True)
class Watched:
    """A process whose use is charged to a scope."""

    scope: str
    """system, worker or lab."""
    name: str | None
    pid: int


@dataclass(frozen=True)
class _Reading:
    cpu_s: float
    rss_bytes: int
    read_bytes: int | None
    write_bytes: int | None


class ResourceSampler:
    """Samples until it is stopped. `start_s` is CLOCK_MONOTONIC at the schedule's start."""

    def __init__(self, start_s: float, interval_s: float, watched: Sequence[Watched], sink: Sink) -> None:
        self._start_s = start_s
        self._interval_s = interval_s
        self._sink = sink
        self._processes: dict[Watched, psutil.Process] = {}
        self.watch([*watched, Watched("lab", None, os.getpid())])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resources", daemon=True)

    def watch(self, more: Sequence[Watched]) -> None:
        """Adds processes; those that are watched already stay as they are."""
        for one in more:
            if one not in self._processes:
                with contextlib.suppress(psutil.Error):
                    # Replaced whole: the sampling thread may be walking through it.
                    self._processes = {**self._processes, one: psutil.Process(one.pid)}

    def start(self) -> None:
        """Begins; the first interval is the one that begins at the schedule's start."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; an interval that is not over is left out."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        index = max(0, int((time.monotonic() - self._start_s) / self._interval_s + 1.0))
        if not self._sleep_until(index):
            return
        before_s, before = time.monotonic(), self._read()
        while self._sleep_until(index + 1):
            now_s, now = time.monotonic(), self._read()
            # A lab that was held up for longer charges the whole stretch to the last interval of it, with its
            # true duration, rather than inventing what happened in each.
            passed = max(index + 1, int((now_s - self._start_s) / self._interval_s + 1e-3))
            duration_s = (passed - index) * self._interval_s
            scale = duration_s / max(now_s - before_s, 1e-9)
            self._sink(self._rows(passed - 1, index * self._interval_s, duration_s, before, now, scale))
            index, before_s, before = passed, now_s, now

    def _sleep_until(self, index: int) -> bool:
        return not self._stop.wait(max(0.0, self._start_s + index * self._interval_s - time.monotonic()))

    def _read(self) -> dict[Watched, _Reading]:
        readings: dict[Watched, _Reading] = {}
        for one, process in self._processes.items():
            with contextlib.suppress(psutil.Error), process.oneshot():
                spent = process.cpu_times()
                read_bytes = write_bytes = None
                with contextlib.suppress(psutil.Error, AttributeError):
                    counters = process.io_counters()
                    read_bytes, write_bytes = counters.read_bytes, counters.write_bytes
                readings[one] = _Reading(
                    spent.user + spent.system, process.memory_info().rss, read_bytes, write_bytes
                )
        readings[_HOST], readings[_STEAL] = _read_host()
        return readings

    def _rows(
        self,
        index: int,
        start_s: float,
        duration_s: float,
        before: dict[Watched, _Reading],
        now: dict[Watched, _Reading],
        scale: float,
    ) -> list[dict[str, Any]]:
        key = {"interval": index, "start_s": start_s, "duration_s": duration_s}
        rows: list[dict[str, Any]] = []
        named_s = 0.0
        for one, reading in now.items():
            if one in (_HOST, _STEAL) or one not in before:
                continue
            cpu_s = max(0.0, reading.cpu_s - before[one].cpu_s) * scale
            named_s += cpu_s
            rows.append(
                {
                    **key,
                    "scope": one.scope,
                    "process": one.name,
                    "cpu_s": round(cpu_s, 6),
                    "rss_bytes": reading.rss_bytes,
                    "disk_write_bytes": _difference(reading.write_bytes, before[one].write_bytes),
                    "disk_read_bytes": _difference(reading.read_bytes, before[one].read_bytes),
                }
            )
        host_s = max(0.0, now[_HOST].cpu_s - before[_HOST].cpu_s) * scale
        steal_s = max(0.0, now[_STEAL].cpu_s - before[_STEAL].cpu_s) * scale
        rows.append({**key, "scope": "others", "cpu_s": round(max(0.0, host_s - named_s), 6)})
        rows.append(
            {
                **key,
                "scope": "host",
                "cpu_s": round(host_s, 6),
                "steal_s": round(steal_s, 6),
                "disk_write_bytes": _difference(now[_HOST].write_bytes, before[_HOST].write_bytes),
                "disk_read_bytes": _difference(now[_HOST].read_bytes, before[_HOST].read_bytes),
            }
        )
        return rows


_HOST = Watched("host", None, 0)
_STEAL = Watched("host", "steal", 0)


def _read_host() -> tuple[_Reading, _Reading]:
    """CPU and disk of the whole host, and the CPU that the hypervisor took."""
    times = psutil.cpu_times()
    steal_s = float(getattr(times, "steal", 0.0))
    # Linux counts guest time within user time already.
    busy_s = sum(float(getattr(times, name, 0.0)) for name in ("user", "nice", "system", "irq", "softirq"))
    read_bytes = write_bytes = None
    with contextlib.suppress(Exception):
        disks = psutil.disk_io_counters()
        if disks is not None:
            read_bytes, write_bytes = disks.read_bytes, disks.write_bytes
    return _Reading(busy_s, 0, read_bytes, write_bytes), _Reading(steal_s, 0, None, None)


def _difference(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(0, now - before)
