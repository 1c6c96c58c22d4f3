"""What a bookie says of itself over its HTTP service: the settings it runs with, and what its journal and ledgers did.

Source: BookKeeper's "HTTP API" (`/api/v1/config/server_config`) and its metrics in Prometheus' text format (`/metrics`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from streamgauge.systems.pulsar.admin import Web
from streamgauge.systems.support import processes

METRICS: Mapping[str, str] = {
    "bookie_journal_JOURNAL_QUEUE_SIZE": "journal_queue_entries",
    "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE": "journal_sync_queue",
    "bookie_journal_JOURNAL_ADD_ENTRY": "journal_add_entry",
    "bookie_journal_JOURNAL_QUEUE_LATENCY": "journal_queue",
    "bookie_journal_JOURNAL_SYNC": "journal_sync",
    "bookie_journal_JOURNAL_FLUSH_LATENCY": "journal_flush",
    "bookie_journal_JOURNAL_WRITE_BYTES": "journal_write_bytes",
    "bookie_flush": "ledger_flush",
    "bookie_write_cache_size": "write_cache_bytes",
    "bookie_WRITE_BYTES": "write_bytes",
}
"""Metrics that are kept, and what the lab calls them. Latencies are in ms; counts grow from the bookie's start."""
METRICS_TIMEOUT_S = 5.0
QUANTILES = ("0.5", "0.99", "0.999", "1.0")
LATENCIES = frozenset({"journal_add_entry", "journal_queue", "journal_sync", "journal_flush", "ledger_flush"})

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def configuration(port: int, host: str = processes.LOOPBACK) -> Mapping[str, Any]:
    """Settings of the running bookie. Raises httpx.HTTPError or ValueError."""
    answer = Web(port, host).get("/api/v1/config/server_config").json()
    if not isinstance(answer, Mapping):
        raise ValueError(f"expected settings, got {type(answer).__name__}")
    return answer


def metrics(port: int, host: str = processes.LOOPBACK) -> Mapping[str, float]:
    """Journal and ledger metrics by the lab's names; empty when the bookie does not answer."""
    try:
        text = Web(port, host, timeout_s=METRICS_TIMEOUT_S).get("/metrics").text
    except httpx.HTTPError:
        return {}
    return select(text)


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        try:
            value = float(found.group(3))
        except ValueError:
            continue
        yield found.group(1), dict(_LABEL.findall(found.group(2) or "")), value


def select(text: str) -> dict[str, float]:
    """The metrics that are kept, from Prometheus' text format.

    Quantiles become `NAME_ms_p99`, sums and counts `NAME_ms_sum` and `NAME_count`; those of failed operations have
    `failed_` in front, where there are any. Values that are not numbers (no sample yet) are left out.
    """
    kept: dict[str, float] = {}
    for name, labels, value in _samples(text):
        base, part = name, ""
        for suffix in ("_count", "_sum", "_total"):
            if name.endswith(suffix) and name.removesuffix(suffix) in METRICS:
                base, part = name.removesuffix(suffix), suffix
        ours = METRICS.get(base)
        if ours is None or not math.isfinite(value):
            continue
        if labels.get("success") == "false":
            if value == 0:
                continue
            ours = f"failed_{ours}"
        unit = "_ms" if ours.removeprefix("failed_") in LATENCIES else ""
        if part == "_sum":
            key = f"{ours}{unit}_sum"
        elif part:
            key = f"{ours}{part}"
        elif labels.get("quantile") in QUANTILES:
            key = f"{ours}{unit}_{_percentile(labels['quantile'])}"
        elif "quantile" in labels:
            continue
        else:
            key = ours
        # Several journals or threads have a sample each: sizes and counts add up, of quantiles the worst counts.
        known = kept.get(key)
        if known is None:
            kept[key] = value
        else:
            kept[key] = max(known, value) if "quantile" in labels else known + value
    return kept


def _percentile(quantile: str) -> str:
    if quantile == "1.0":
        return "max"
    return f"p{float(quantile) * 100:g}"
