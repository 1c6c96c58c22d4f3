"""What the machine can do, and how much of it a trial used.

Limits are medians over the probes of a run (before and after). Shares are taken over the measured phase and
only for what the trial's own machine carried: a cluster that runs elsewhere has limits that were not probed
here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from streamgauge.model.result_machine import Cpu, Limits, Share

NEAR_LIMIT_SHARE = 0.7
"""From here on a limit may explain a figure; below it for all limits, the bottleneck is unexplained."""

BINDING = ("cpu", "disk_write", "disk_read", "network")
"""Shares that are limits of the machine; the others are their parts."""


def limits(probes: Sequence[Mapping[str, Any]]) -> Limits:
    """Medians of `gauge probe --json` objects; None for what no probe measured."""
    wakeup_key = (
        "fifo" if any(number(probe, "wakeup_us", "fifo", "p99") is not None for probe in probes) else "normal"
    )
    cores = _median(probes, "host", "cores")
    return Limits(
        disk_write_mb_s=_median(probes, "disk", "write_mb_s"),
        disk_read_mb_s=_median(probes, "disk", "read_mb_s"),
        fsync_ms_p50=_median(probes, "disk", "fsync_ms", "p50"),
        fsync_ms_p99=_median(probes, "disk", "fsync_ms", "p99"),
        loopback_mb_s=_median(probes, "network", "loopback_mb_s"),
        round_trip_us_p50=_median(probes, "network", "round_trip_us", "p50"),
        memcpy_mb_s=_median(probes, "cpu", "memcpy_mb_s"),
        crc32c_mb_s=_median(probes, "cpu", "crc32c_mb_s"),
        wakeup_us_p99=_median(probes, "wakeup_us", wakeup_key, "p99"),
        cores=None if cores is None else int(cores),
    )


def shares(
    machine: Limits,
    cpu: Cpu,
    *,
    payload_mb_s: float,
    system_disk_write_mb_s: float | None,
    system_disk_read_mb_s: float | None,
    host_cpu_s: float | None,
    attached: bool,
    cluster_here: bool = False,
) -> list[Share]:
    """Every share that can be told, largest first; `payload_mb_s` is published plus consumed."""
    found = [_cpu_share(cpu, host_cpu_s, cluster_here=cluster_here)]
    if cpu.workers_share is not None:
        found.append(_part("worker_cpu", cpu.workers_share, "the generator", cpu.cores))
    if cpu.system_share is not None:
        found.append(_part("system_cpu", cpu.system_share, "the system under test", cpu.cores))
    if not attached:
        found.append(
            _rate_share(
                "network",
                payload_mb_s,
                machine.loopback_mb_s,
                "published and consumed payload over loopback, without protocol overhead and replication",
            )
        )
        found.append(
            _rate_share(
                "disk_write",
                system_disk_write_mb_s,
                machine.disk_write_mb_s,
                "bytes written by the system's processes, against sequential O_DIRECT writes",
            )
        )
        found.append(
            _rate_share(
                "disk_read",
                system_disk_read_mb_s,
                machine.disk_read_mb_s,
                "bytes that the system's processes read from the disk, against sequential O_DIRECT reads",
            )
        )
    return sorted((share for share in found if share is not None), key=lambda share: -share.value)


def most_used(found: Sequence[Share]) -> Share | None:
    """The machine's limit that was used most; parts of a limit do not compete with it."""
    return max(
        (share for share in found if share.name in BINDING), key=lambda share: share.value, default=None
    )


def _cpu_share(cpu: Cpu, host_cpu_s: float | None, *, cluster_here: bool) -> Share | None:
    if cpu.duration_s <= 0:
        return None
    available = cpu.cores * cpu.duration_s
    parts = (cpu.workers_s or 0.0) + (cpu.system_s or 0.0) + (cpu.others_s or 0.0)
    # The host's own account is sampled and can miss what is short: the whole is never less than its parts.
    used = max(parts, host_cpu_s or 0.0)
    return Share(
        name="cpu",
        value=used / available,
        explanation=(
            f"{used / cpu.duration_s:.2f} of {cpu.cores} cores were busy, with everything "
            "that ran on the machine" + _who(cpu, cluster_here=cluster_here)
        ),
    )


def _who(cpu: Cpu, *, cluster_here: bool) -> str:
    """Who used it; without this a machine that others keep busy would look like a system at its end."""
    parts = [
        ("the system", cpu.system_s),
        ("the generator", cpu.workers_s),
        ("others, the cluster among them," if cluster_here else "others", cpu.others_s),
    ]
    known = [f"{who} {seconds / cpu.duration_s:.2f}" for who, seconds in parts if seconds is not None]
    return f" ({', '.join(known)})"


def _part(name: str, value: float, who: str, cores: int) -> Share:
    return Share(
        name=name, value=value, explanation=f"{value * cores:.2f} of {cores} cores were used by {who}"
    )


def _rate_share(name: str, used: float | None, limit: float | None, what: str) -> Share | None:
    if used is None or not limit:
        return None
    return Share(name=name, value=used / limit, explanation=f"{used:,.1f} of {limit:,.0f} MB/s: {what}")


def _median(probes: Sequence[Mapping[str, Any]], *path: str) -> float | None:
    found = [value for value in (number(probe, *path) for probe in probes) if value is not None]
    return statistics.median(found) if found else None


def number(probe: Mapping[str, Any], *path: str) -> float | None:
    """A figure of a probe; None where it has none."""
    value: Any = probe
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
