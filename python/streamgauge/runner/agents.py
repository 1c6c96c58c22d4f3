"""What the agents of a cluster's machines tell, once per interval, in the form in which the lab keeps its own machine's resources (RESOURCE_COLUMNS).

Totals become what was used between two samples that follow each other; a sample that is missing is a gap of two intervals. Each agent has a thread of
its own. When a sample was taken is told by the agent's clock, of which it is known how far it is ahead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from streamgauge.fleet.agents import Agent, reach
from streamgauge.fleet.hosts import Host
from streamgauge.model.messages import HostProcess, HostSample
from streamgauge.model.result_hosts import ProbedDisk
from streamgauge.runner.syncs import synced
from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused
from streamgauge.vocabulary.format import plural

Sink = Callable[[list[dict[str, Any]]], None]
THREADS_EVERY = 5
"""As for the lab's own machine (runner/resources.py)."""
BUSIEST = 3


def probe_disks(
    hosts: Sequence[Host], write_bytes: int | None, fsync_s: int | None, progress: Callable[[str], None]
) -> list[ProbedDisk]:
    """Every disk of every machine, one machine after the other: what they share is not to be measured twice at once. `write_bytes`: as much is written to
    each, and some seconds' worth without; `fsync_s`: for so long each is synced. Raises FleetFailure."""
    agents = reach(hosts, ())
    try:
        found = []
        for agent in agents:
            progress(f"probing the disks of {agent.name}")
            found += agent.probe_disks(write_bytes, fsync_s)
        return found
    finally:
        for agent in agents:
            agent.client.close()


class AgentSampler:
    """Samples all agents until it is stopped. `start_s` is CLOCK_MONOTONIC at the schedule's start."""

    def __init__(self, start_s: float, interval_s: float, agents: Sequence[Agent], sink: Sink) -> None:
        self._lock, self._sink = threading.Lock(), sink
        self._readers = [_Reader(start_s, interval_s, agent, self._keep) for agent in agents]

    def start(self) -> None:
        """Begins."""
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Ends, and closes the connections. Idempotent."""
        for reader in self._readers:
            reader.stop()

    def gaps(self) -> list[str]:
        """A sentence for each agent that did not always answer."""
        return [told for reader in self._readers if (told := reader.gaps()) is not None]

    def _keep(self, rows: list[dict[str, Any]]) -> None:
        with self._lock:
            self._sink(rows)


class _Reader(Background):
    def __init__(self, start_s: float, interval_s: float, agent: Agent, keep: Sink) -> None:
        super().__init__(f"agent {agent.name}", 2.0)
        self._start_s, self._interval_s = start_s, interval_s
        self._agent, self._keep = agent, keep
        self._before: tuple[int, HostSample] | None = None
        self._threads_before: tuple[int, HostSample] | None = None
        self._asked = self._missed = 0
        self._reason = ""

    def stop(self) -> None:
        super().stop()
        self._agent.client.close()

    def gaps(self) -> str | None:
        if not self._missed:
            return None
        return f"agent {self._agent.name} was not heard at {self._missed} of {plural(self._asked, 'moment')}: {self._reason}"

    def _run(self) -> None:
        index = max(0, int((time.monotonic() - self._start_s) / self._interval_s + 1.0))
        while not self._stop.wait(max(0.0, self._start_s + index * self._interval_s - time.monotonic())):
            self._look(index)
            index = max(index + 1, int((time.monotonic() - self._start_s) / self._interval_s + 0.5))

    def _look(self, index: int) -> None:
        self._asked += 1
        try:
            sample = self._agent.sample()
        except (WorkerLost, WorkerRefused) as error:
            if not self._stop.is_set():
                self._missed, self._reason = self._missed + 1, str(error)
            self._before = None
            return
        # Which boundary it is of, by the agent's own clock: the answer may have been long under way.
        at_s = (sample.monotonic_ns - self._agent.ahead_ns) / 1e9 - self._start_s
        index = round(at_s / self._interval_s)
        before, self._before = self._before, (index, sample)
        if before is not None and index - before[0] == 1 and index >= 1:
            rows = rows_of(self._agent.name, index - 1, self._interval_s, before[1], sample)
            if self._threads_before is not None and index - self._threads_before[0] >= THREADS_EVERY:
                rows += _threads(self._agent.name, index, self._interval_s, self._threads_before, sample)
                self._threads_before = (index, sample)
            self._keep(rows)
        if self._threads_before is None:
            self._threads_before = (index, sample)


def rows_of(
    host: str, interval: int, interval_s: float, before: HostSample, now: HostSample
) -> list[dict[str, Any]]:
    """What a machine used in an interval: the host, its disks and interfaces, and the processes that were asked for."""
    passed_s = (now.monotonic_ns - before.monotonic_ns) / 1e9
    if passed_s <= 0:
        return []
    scale = interval_s / passed_s
    key = {"interval": interval, "start_s": interval * interval_s, "duration_s": interval_s, "host": host}

    def used(later: float | None, earlier: float | None) -> float | None:
        return None if later is None or earlier is None else round(max(0.0, later - earlier) * scale, 6)

    def count(later: int | None, earlier: int | None) -> int | None:
        return None if later is None or earlier is None else max(0, later - earlier)

    rows: list[dict[str, Any]] = []
    named_s = 0.0
    earlier_processes = {one.pid: one for one in before.host.processes}
    for process in now.host.processes:
        earlier = earlier_processes.get(process.pid)
        if earlier is None:
            continue
        cpu_s = used(process.cpu_s, earlier.cpu_s) or 0.0
        named_s += cpu_s
        rows.append(
            {
                **key,
                "scope": "system",
                "process": _name(host, process),
                "cpu_s": cpu_s,
                "run_delay_s": used(process.run_delay_s, earlier.run_delay_s),
                "rss_bytes": process.rss_bytes,
                "disk_write_bytes": count(process.write_bytes, earlier.write_bytes),
                "disk_read_bytes": count(process.read_bytes, earlier.read_bytes),
                **synced(process.syncs, earlier.syncs, scale),
            }
        )
    earlier_disks = {one.name: one for one in before.host.disks}
    disks: list[dict[str, Any]] = []
    for disk in now.host.disks:
        was = earlier_disks.get(disk.name)
        if was is not None:
            disks.append(
                {
                    **key,
                    "scope": "disk",
                    "process": disk.name,
                    "disk_write_bytes": count(disk.write_bytes, was.write_bytes),
                    "disk_read_bytes": count(disk.read_bytes, was.read_bytes),
                    "flushes": count(disk.flushes, was.flushes),
                    "flush_s": used(disk.flush_s, was.flush_s),
                    "disk_busy_s": used(disk.busy_s, was.busy_s),
                    "disk_queue_s": used(disk.queue_s, was.queue_s),
                    "disk_ops": count(disk.reads + disk.writes, was.reads + was.writes),
                    "disk_op_s": used(disk.read_s + disk.write_s, was.read_s + was.write_s),
                }
            )
    earlier_interfaces = {one.name: one for one in before.host.interfaces}
    rows += disks
    for interface in now.host.interfaces:
        known = earlier_interfaces.get(interface.name)
        if known is not None:
            rows.append(
                {
                    **key,
                    "scope": "interface",
                    "process": interface.name,
                    "net_received_bytes": count(interface.received_bytes, known.received_bytes),
                    "net_sent_bytes": count(interface.sent_bytes, known.sent_bytes),
                }
            )
    # Busy is what was neither idle nor stolen, as for the lab's own machine.
    idle_s = used(now.host.cpu.idle_s, before.host.cpu.idle_s) or 0.0
    steal_s = used(now.host.cpu.steal_s, before.host.cpu.steal_s) or 0.0
    host_s = max(named_s, now.cores * interval_s - idle_s - steal_s)
    earlier_pressure, pressure = before.host.pressure, now.host.pressure
    rows.append({**key, "scope": "others", "cpu_s": round(max(0.0, host_s - named_s), 6)})
    rows.append(
        {
            **key,
            "scope": "host",
            "cpu_s": round(host_s, 6),
            "steal_s": steal_s,
            **{
                column: sum(int(row[column] or 0) for row in disks)
                for column in ("disk_write_bytes", "disk_read_bytes", "flushes")
            },
            "flush_s": round(sum(float(row["flush_s"] or 0.0) for row in disks), 6),
            "disk_busy_s": max((float(row["disk_busy_s"] or 0.0) for row in disks), default=None),
            "pressure_cpu_s": used(pressure.cpu_s, earlier_pressure.cpu_s),
            "pressure_io_s": used(pressure.io_s, earlier_pressure.io_s),
            "pressure_memory_s": used(pressure.memory_s, earlier_pressure.memory_s),
            "retransmits": count(now.host.tcp_retransmits, before.host.tcp_retransmits),
            "memory_available_bytes": now.host.memory.available_bytes,
            "page_cache_bytes": now.host.memory.page_cache_bytes,
            "disturbed_s": None if now.disturbance is None else now.disturbance.disturbed_s,
        }
    )
    return rows


def _threads(
    host: str, index: int, interval_s: float, before: tuple[int, HostSample], now: HostSample
) -> list[dict[str, Any]]:
    """The busiest threads since the last look; one row each, for all the intervals since."""
    earlier = {
        (process.pid, thread.id): thread.cpu_s
        for process in before[1].host.processes
        for thread in process.threads
    }
    key = {
        "interval": index - 1,
        "start_s": before[0] * interval_s,
        "duration_s": (index - before[0]) * interval_s,
        "host": host,
        "scope": "thread",
    }
    rows: list[dict[str, Any]] = []
    for process in now.host.processes:
        spent = [
            (thread.cpu_s - earlier[process.pid, thread.id], f"{thread.name} ({thread.id})")
            for thread in process.threads
            if (process.pid, thread.id) in earlier
        ]
        rows += [
            {**key, "process": f"{_name(host, process)}/{name}", "cpu_s": round(cpu_s, 6)}
            for cpu_s, name in sorted(spent, reverse=True)[:BUSIEST]
        ]
    return rows


def _name(host: str, process: HostProcess) -> str:
    return f"{host} {process.name} ({process.pid})"
