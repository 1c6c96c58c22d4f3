"""What kind of machine something was measured on, in a few words: results of one class may be looked at beside each other, those of two say first what the
machine does.

Derived from what a run recorded of its host and from its probes, here and nowhere else. Sizes are rounded so that machines of one kind have one name: memory to
powers of two, the disk to how long a flush takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from streamgauge.analysis.limits import limits, number
from streamgauge.vocabulary.format import plural

FLUSHES = (
    (0.1, "flushes below 0.1 ms"),
    (5.0, "flushes below 5 ms"),
    (math.inf, "flushes of 5 ms and more"),
)
"""Median of an append with fsync, in ms -> the class of the disk: write caches that survive a loss of power, SSDs, disks that turn or are far
away. They are coarse, because a shared disk differs by several times from probe to probe."""
VIRTUAL = re.compile(
    r"qemu|kvm|virtual|firecracker|-fc-|\baws\b|-aws|-azure|-gcp|-cloud|microsoft|xen", re.IGNORECASE
)
"""In the names of kernels and CPUs: the machine is one of several on a host."""
UNKNOWN = "not known"
_NOISE = re.compile(r"\((?:R|TM|C)\)|\bCPU\b|\bProcessor\b|\d+-Core\b|@.*$|\bwith .*$", re.IGNORECASE)


def machine_class(host: Mapping[str, Any], probes: Sequence[Mapping[str, Any]]) -> str:
    """Such as "2 cores, Intel Xeon, 24 GiB, flushes below 5 ms, virtual"."""
    parts = []
    cores, memory = number({"host": host}, "host", "cores"), number({"host": host}, "host", "memory_bytes")
    if cores:
        parts.append(plural(int(cores), "core"))
    model = " ".join(_NOISE.sub(" ", str(host.get("cpu_model") or "")).split())
    if model:
        parts.append(model[:40])
    if memory:
        parts.append(f"{_rounded(memory / (1 << 30)):g} GiB")
    flush_ms = limits(probes).fsync_ms_p50
    if flush_ms is not None:
        parts.append(next(name for most, name in FLUSHES if flush_ms < most))
    if VIRTUAL.search(f"{host.get('kernel', '')} {host.get('cpu_model', '')}"):
        parts.append("virtual")
    return ", ".join(parts) or UNKNOWN


def _rounded(gib: float) -> float:
    """To half a power of two: what a kernel keeps for itself makes no class."""
    step = 2.0 ** (math.floor(math.log2(max(gib, 0.25))) - 1)
    return math.ceil(gib / step - 0.25) * step
