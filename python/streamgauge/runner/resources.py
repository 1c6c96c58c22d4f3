"""Who used CPU, memory and disk in each interval (columns: model/result_columns.py, RESOURCE_COLUMNS).

A thread of its own samples at the boundaries of the trial's intervals. What the host spent and none of the
named processes did is charged to `others`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from streamgauge.model.messages import SyncsTold
from streamgauge.runner.disk_stats import DiskReading, disk_name, read_disk
from streamgauge.runner.syncs import Syncs, synced
from streamgauge.runner.thread_stats import busiest, read_threads
from streamgauge.vocabulary.background import Background

THREADS_EVERY = 5
"""Intervals between two looks at the threads: a JVM has hundreds, and each look reads a file of each."""

IDLE = "idle"
"""The scope of what keeps CPUs awake that have nothing to do (runner/awake.py): its time is not use but idleness, and in no row."""

Sink = Callable[[list[dict[str, Any]]], None]


@dataclass(frozen=True)
class Watched:
    """A process whose use is charged to a scope."""

    scope: str
    """system, worker, lab or IDLE."""
    name: str | None
    pid: int


@dataclass(frozen=True)
class _Reading:
    cpu_s: float
    rss_bytes: int
    read_bytes: int | None
    write_bytes: int | None
    syncs: SyncsTold | None = None


class ResourceSampler(Background):
    """Samples until it is stopped: whole intervals, from the one on that begins at the schedule's start. `start_s` is CLOCK_MONOTONIC
    there.
    """

    def __init__(
        self,
        start_s: float,
        interval_s: float,
        watched: Sequence[Watched],
        sink: Sink,
        data: Path | None = None,
        syncs: Syncs | None = None,
    ) -> None:
        """`data`: a directory on the disk whose flushes are to be counted. `syncs`: tells those of processes; it is ended with this."""
        super().__init__("resources", 2.0)
        self._disk = None if data is None else disk_name(data)
        self._disk_before: DiskReading | None = None
        self._syncs = syncs
        self._threads: dict[Watched, dict[int, tuple[str, float]]] = {}
        self._threads_index = 0
        self._start_s = start_s
        self._interval_s = interval_s
        self._sink = sink
        self._processes: dict[Watched, psutil.Process] = {}
        self.watch([*watched, Watched("lab", None, os.getpid())])

    def watch(self, more: Sequence[Watched]) -> None:
        """Adds processes; those that are watched already stay as they are."""
        for one in more:
            if one not in self._processes:
                with contextlib.suppress(psutil.Error):
                    # Replaced whole: the sampling thread may be walking through it.
                    self._processes = {**self._processes, one: psutil.Process(one.pid)}

    def stop(self) -> None:
        super().stop()
        if self._syncs is not None:
            self._syncs.end()

    def _run(self) -> None:
        index = max(0, int((time.monotonic() - self._start_s) / self._interval_s + 1.0))
        if not self._sleep_until(index):
            return
        before_s, before = time.monotonic(), self._read()
        self._disk_before = None if self._disk is None else read_disk(self._disk)
        self._threads_index = index
        self._threads = self._read_threads()
        while self._sleep_until(index + 1):
            now_s, now = time.monotonic(), self._read()
            # A lab that was held up for longer charges the whole stretch to the last interval of it, with its
            # true duration, rather than inventing what happened in each.
            passed = max(index + 1, int((now_s - self._start_s) / self._interval_s + 1e-3))
            duration_s = (passed - index) * self._interval_s
            scale = duration_s / max(now_s - before_s, 1e-9)
            rows = self._rows(passed - 1, index * self._interval_s, duration_s, before, now, scale)
            if passed - self._threads_index >= THREADS_EVERY:
                rows += self._thread_rows(passed)
            self._sink(rows)
            index, before_s, before = passed, now_s, now

    def _read_threads(self) -> dict[Watched, dict[int, tuple[str, float]]]:
        return {one: read_threads(one.pid) for one in self._processes if one.scope == "system"}

    def _thread_rows(self, passed: int) -> list[dict[str, Any]]:
        """The busiest threads since the last look; one row each, for all the intervals since."""
        now = self._read_threads()
        start_s = self._threads_index * self._interval_s
        duration_s = (passed - self._threads_index) * self._interval_s
        key = {"interval": passed - 1, "start_s": start_s, "duration_s": duration_s, "scope": "thread"}
        rows = [
            {**key, "process": f"{one.name}/{name}", "cpu_s": round(cpu_s, 6)}
            for one, threads in now.items()
            for name, cpu_s in busiest(self._threads.get(one, {}), threads)
        ]
        self._threads, self._threads_index = now, passed
        return rows

    def _disk_row(self) -> dict[str, Any]:
        """What the disk did since the last look."""
        if self._disk is None:
            return {}
        before, now = self._disk_before, read_disk(self._disk)
        self._disk_before = now
        if before is None or now is None:
            return {}
        return {
            "flushes": max(0, now.flushes - before.flushes),
            "flush_s": round(max(0.0, now.flush_s - before.flush_s), 6),
            "disk_busy_s": round(max(0.0, now.busy_s - before.busy_s), 6),
        }

    def _sleep_until(self, index: int) -> bool:
        return not self._stop.wait(max(0.0, self._start_s + index * self._interval_s - time.monotonic()))

    def _read(self) -> dict[Watched, _Reading]:
        readings: dict[Watched, _Reading] = {}
        totals = None if self._syncs is None else self._syncs.totals()
        for one, process in self._processes.items():
            with contextlib.suppress(psutil.Error), process.oneshot():
                spent = process.cpu_times()
                read_bytes = write_bytes = None
                with contextlib.suppress(psutil.Error, AttributeError):
                    counters = process.io_counters()
                    read_bytes, write_bytes = counters.read_bytes, counters.write_bytes
                syncs = None if totals is None else totals.get(one.pid, SyncsTold())
                readings[one] = _Reading(
                    spent.user + spent.system, process.memory_info().rss, read_bytes, write_bytes, syncs
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
        named_s = awake_s = 0.0
        for one, reading in now.items():
            if one in (_HOST, _STEAL) or one not in before:
                continue
            cpu_s = max(0.0, reading.cpu_s - before[one].cpu_s) * scale
            if one.scope == IDLE:
                awake_s += cpu_s
                continue
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
                    **(synced(reading.syncs, before[one].syncs, scale) if one.scope == "system" else {}),
                }
            )
        # Intervals and counters end at slightly different moments: the whole is never less than its parts.
        host_s = max(named_s, (now[_HOST].cpu_s - before[_HOST].cpu_s) * scale - awake_s)
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
                **self._disk_row(),
            }
        )
        return rows


_HOST = Watched("host", None, 0)
_STEAL = Watched("host", "steal", 0)


def _read_host() -> tuple[_Reading, _Reading]:
    """CPU and disk of the whole host, and the CPU that the hypervisor took."""
    times = psutil.cpu_times()
    steal_s = float(getattr(times, "steal", 0.0))
    # Busy is what was neither idle nor stolen. Idle time is measured; the kernel's busy times are guessed from what runs at each timer
    # tick (CONFIG_TICK_CPU_ACCOUNTING), and miss threads that wake up with a timer and sleep again before the next tick.
    idle_s = float(times.idle) + float(getattr(times, "iowait", 0.0))
    # Sandboxes that tell no idle time leave what the named processes used.
    busy_s = 0.0 if not idle_s else (psutil.cpu_count() or 1) * time.monotonic() - idle_s - steal_s
    read_bytes = write_bytes = None
    with contextlib.suppress(Exception):
        disks = psutil.disk_io_counters()
        if disks is not None:
            read_bytes, write_bytes = disks.read_bytes, disks.write_bytes
    return _Reading(busy_s, 0, read_bytes, write_bytes), _Reading(steal_s, 0, None, None)


def _difference(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(0, now - before)
