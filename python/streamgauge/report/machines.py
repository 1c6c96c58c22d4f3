"""The machines of several runs beside each other: what differs in them is said before anything that was measured on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamgauge.analysis.sides import Side
from streamgauge.model.result_machine import Limits
from streamgauge.vocabulary.format import significant, size

HOST: dict[str, tuple[str, Callable[[Any], str]]] = {
    "cpu_model": ("CPU", str),
    "cores": ("cores", str),
    "memory_bytes": ("memory", size),
    "kernel": ("kernel", str),
}
LIMITS: dict[str, str] = {
    "disk_write_mb_s": "disk write, MB/s",
    "disk_read_mb_s": "disk read, MB/s",
    "fsync_ms_p50": "append + fsync p50, ms",
    "fsync_ms_p99": "append + fsync p99, ms",
    "loopback_mb_s": "loopback, MB/s",
    "round_trip_us_p50": "loopback round trip p50, \u00b5s",
    "memcpy_mb_s": "memory copy, MB/s",
    "wakeup_us_p99": "late wake-up p99, \u00b5s",
}
UNKNOWN = "not known"


def apart(sides: Sequence[Side]) -> str:
    """In what the machines differ, in a sentence; empty where they are alike, as far as is known."""
    hosts = list(dict.fromkeys(_of(side) for side in sides))
    if len(hosts) < 2:
        return ""
    told = []
    for at, (title, _) in enumerate(HOST.values()):
        values = list(dict.fromkeys(host[at] for host in hosts))
        if len(values) > 1:
            told.append(f"{title}: {' and '.join(values)}")
    return f"Measured on machines that differ, so that a difference may be the machine's: {'; '.join(told)}."


def rows(sides: Sequence[Side]) -> list[tuple[str, ...]]:
    """What a machine is and can do, a value for each side; what nobody knows is left out."""
    found = [(title, *(_of(side)[at] for side in sides)) for at, (title, _) in enumerate(HOST.values())]
    limits = [side.cells[0].first.limits for side in sides]
    found += [(title, *(_limit(one, name) for one in limits)) for name, title in LIMITS.items()]
    return [row for row in found if set(row[1:]) != {UNKNOWN}]


def _of(side: Side) -> tuple[str, ...]:
    host: Mapping[str, Any] = {} if side.manifest is None else side.manifest.host
    return tuple(show(host[key]) if host.get(key) else UNKNOWN for key, (_, show) in HOST.items())


def _limit(limits: Limits, name: str) -> str:
    value = getattr(limits, name)
    return UNKNOWN if value is None else significant(value)
