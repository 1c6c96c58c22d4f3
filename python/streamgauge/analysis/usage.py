"""What a trial took of the machine in the measured window: CPU and disk, charged to their owners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from streamgauge.analysis.intervals import Row, total, total_s
from streamgauge.analysis.measured import Counted, Measured
from streamgauge.analysis.untold import told
from streamgauge.model.result_machine import Cpu, Process

BYTES_PER_MB = 1e6


def cpu_of(measured: Measured) -> Cpu:
    """CPU seconds, charged to workers, system and others."""
    raw, used, counted = measured.raw, measured.used, measured.counted
    counters = measured.counters()
    workers_s = total_s(counters, "cpu_s") if told(counters, "cpu_s") else None
    # What runs elsewhere is known from agents alone.
    system_s = None if raw.attached and not raw.hosts else scope_cpu(used, "system")
    others = [value for value in (scope_cpu(used, "others"), scope_cpu(used, "lab")) if value is not None]
    others_s = sum(others) if others else None
    hosts = [row for row in used if row["scope"] == "host" and row["steal_s"] is not None]
    available_s = raw.cores * counted.duration_s

    def share(seconds: float | None) -> float | None:
        return None if seconds is None or available_s <= 0 else seconds / available_s

    def us_per_msg(seconds: float | None) -> float | None:
        return None if seconds is None or not counted.sent_msgs else 1e6 * seconds / counted.sent_msgs

    return Cpu(
        cores=raw.cores,
        duration_s=counted.duration_s,
        workers_s=workers_s,
        system_s=system_s,
        others_s=others_s,
        steal_s=total_s(hosts, "steal_s") if hosts else None,
        workers_us_per_msg=us_per_msg(workers_s),
        system_us_per_msg=us_per_msg(system_s),
        wakeups_per_s=counted.per_second(total(counters, "wakeups"))
        if counters and told(counters, "wakeups")
        else None,
        workers_share=None if workers_s is None else share(workers_s) or 0.0,
        system_share=None
        if system_s is None or available_s <= 0
        else system_s / (measured.system_cores * counted.duration_s),
        others_share=share(others_s),
    )


def scope_cpu(used: Sequence[Row], scope: str) -> float | None:
    """CPU seconds of a scope (`RESOURCE_COLUMNS`); None where it was not seen."""
    rows = [row for row in used if row["scope"] == scope and row["cpu_s"] is not None]
    return total_s(rows, "cpu_s") if rows else None


def processes_of(measured: Measured) -> list[Process]:
    """What each process of the system took."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in measured.used:
        if row["scope"] == "system":
            groups[str(row["process"])].append(row)
    available_s = measured.system_cores * measured.counted.duration_s
    return [
        Process(
            name=name,
            cpu_s=total_s(rows, "cpu_s"),
            cpu_share=total_s(rows, "cpu_s") / available_s if available_s > 0 else 0.0,
            rss_bytes_max=max(int(row["rss_bytes"] or 0) for row in rows),
            disk_write_bytes=total(rows, "disk_write_bytes"),
            disk_read_bytes=total(rows, "disk_read_bytes"),
            **_syncs([row for row in rows if row["syncs"] is not None]),
        )
        for name, rows in sorted(groups.items())
    ]


def _syncs(rows: Sequence[Row]) -> dict[str, float | None]:
    """Of the intervals in which they were seen."""
    syncs, seconds = total(rows, "syncs"), total_s(rows, "duration_s")
    return {
        "syncs_per_s": syncs / seconds if seconds > 0 else None,
        "sync_ms": 1e3 * total_s(rows, "sync_s") / syncs if syncs else None,
    }


def disk_mb_s(processes: Sequence[Process], column: str, counted: Counted) -> float | None:
    """MB/s of all processes; None where none was seen."""
    if not processes:
        return None
    written: int = sum(getattr(process, column) for process in processes)
    return counted.per_second(written) / BYTES_PER_MB


def write_amplification(processes: Sequence[Process], counted: Counted) -> float | None:
    """Bytes written to disk per byte published; None where nothing was seen."""
    if not processes or not counted.acked_bytes:
        return None
    return sum(process.disk_write_bytes for process in processes) / counted.acked_bytes


def worker_shares(measured: Measured) -> dict[str, float]:
    """Worker -> its share of all cores."""
    cpu: dict[str, float] = defaultdict(float)
    duration: dict[str, float] = defaultdict(float)
    for row in measured.counters():
        if row["cpu_s"] is not None:
            cpu[row["worker"]] += float(row["cpu_s"])
            duration[row["worker"]] += float(row["duration_s"])
    cores = measured.raw.cores
    return {worker: cpu[worker] / (cores * duration[worker]) for worker in cpu if duration[worker] > 0}
