"""OMB's period statistics as intervals of the worker API (docs/worker-api.md).

OMB counts what was acknowledged and what failed, so "sent" is their sum; what waits for an answer it does not count. Its histograms hold whole
microseconds (5 significant digits): they are recorded anew in our layout, each sample at the middle of its bucket, so that they add up with others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamgauge.fleet.omb.client import OmbPeriod
from streamgauge.model.percentiles import NS_PER_MS, Beyond, latency
from streamgauge.vocabulary.errors import WorkerLost
from streamgauge.vocabulary.histograms import OURS, Histogram, HistogramError, decode, encode, recorded

NS_PER_US = 1000
CLAMP_US = 60_000_000
"""OMB writes down 60 s for whatever took longer (publish and delay)."""
SEND_ERROR = "SEND_ERROR"
"""OMB counts errors without saying of which kind they are."""
METRICS = (
    ("publish_latency", "service"),
    ("publish_delay_latency", "send_delay"),
    ("end_to_end_latency", "end_to_end"),
)

Row = dict[str, Any]


@dataclass
class Reader:
    """What one worker has received since the start."""

    received_msgs: int = 0
    timed_msgs: int = 0
    """With an end-to-end sample."""
    untimed_msgs: int = 0
    """Without one, as far as the rows say so."""


@dataclass
class Totals:
    """What came since the start, over all workers."""

    acked_msgs: int = 0
    acked_bytes: int = 0
    failed_msgs: int = 0
    received_msgs: int = 0
    received_bytes: int = 0
    served_msgs: int = 0
    """Acknowledged, as the histograms have them."""
    readers: dict[str, Reader] = field(default_factory=dict)
    """By worker."""
    clamped: int = 0
    """Samples of 60 s, which may have been longer."""

    @property
    def untimed_msgs(self) -> int:
        """Received without an end-to-end sample."""
        return sum(reader.untimed_msgs for reader in self.readers.values())


@dataclass
class Usage:
    """What a worker's process has used, where it is on this machine."""

    cpu_s: float | None = None
    rss_bytes: int | None = None


@dataclass
class Told:
    """One worker's answer at the end of an interval."""

    worker: str
    period: OmbPeriod
    consumes: bool
    usage: Usage = field(default_factory=Usage)


def interval_rows(
    index: int,
    start_s: float,
    duration_s: float,
    phase: str,
    subscriptions: Sequence[str],
    answers: Sequence[Told],
    totals: Totals,
) -> tuple[list[Row], Row]:
    """A row for each worker, and one that adds them up for those who watch. Adds to `totals`.

    Raises WorkerLost for an answer that cannot be read.
    """
    name = together(subscriptions)
    rows = []
    for told in answers:
        key = {"index": index, "start_s": start_s, "duration_s": duration_s, "worker": told.worker}
        rows.append({**key, **_counters(told), "latencies": _latencies(told, phase, name, totals)})
    for told in answers:
        _add(totals, told.period)
    first = True
    for row, told in zip(rows, answers, strict=True):
        if told.consumes and subscriptions:
            # Levels are added up over workers: it stands on one row.
            backlog = behind_msgs(totals.acked_msgs, totals.received_msgs, len(subscriptions)) if first else 0
            first = False
            row["subscriptions"] = [
                {
                    "name": name,
                    "received_msgs": told.period.messages_received,
                    "received_bytes": told.period.bytes_received,
                    "fetches": None,
                    "backlog_msgs": backlog,
                }
            ]
    return rows, _summary(rows)


def together(subscriptions: Sequence[str]) -> str:
    """What the subscriptions are called in the figures: OMB does not tell them apart."""
    return "+".join(subscriptions) if len(subscriptions) <= 3 else f"{len(subscriptions)} subscriptions"


def behind_msgs(acked: int, received: int, copies: int) -> int:
    """How far a subscription is behind: the mean over all of them."""
    return max((acked * copies - received) // copies, 0) if copies else 0


def ours(payload: str, told: Told) -> tuple[Histogram, int, int]:
    """One of OMB's histograms in our layout; the samples beyond its range; those of 60 s or more."""
    try:
        theirs = decode(base64.b64decode(payload, validate=True))
    except (HistogramError, binascii.Error) as error:
        raise WorkerLost(
            f"OMB worker {told.worker} answered with a histogram that cannot be read: {error}"
        ) from None
    widths = theirs.layout.widths(theirs.indices)
    lowest = theirs.layout.lower_ends(theirs.indices)
    values = (lowest + (widths >> 1)) * NS_PER_US
    inside = values <= OURS.highest
    clamped = int(theirs.counts[lowest + widths > CLAMP_US].sum())
    kept = recorded(values[inside].astype(np.int64), theirs.counts[inside])
    return kept, theirs.count - kept.count, clamped


def _counters(told: Told) -> Row:
    period = told.period
    failed = period.message_send_errors
    return {
        "sent_msgs": period.messages_sent + failed,
        "sent_bytes": period.bytes_sent,
        "acked_msgs": period.messages_sent,
        "acked_bytes": period.bytes_sent,
        "failed_msgs": failed,
        "retries": None,
        "errors": {SEND_ERROR: failed} if failed else {},
        "waiting_msgs": None,
        "requests": None,
        "batches": None,
        "wakeups": None,
        "subscriptions": [],
        "cpu_s": told.usage.cpu_s,
        "lanes_cpu_s": [],
        "rss_bytes": told.usage.rss_bytes,
        "backpressured_s": None,
    }


def _latencies(told: Told, phase: str, name: str, totals: Totals) -> list[Row]:
    entries = []
    for attribute, metric in METRICS:
        histogram, overflow, clamped = ours(getattr(told.period, attribute), told)
        untimed = 0
        if metric == "end_to_end":
            reader = totals.readers.setdefault(told.worker, Reader())
            untimed = _untimed(told.period.messages_received, histogram.count + overflow, reader)
        else:
            totals.clamped += clamped
        if metric == "service":
            totals.served_msgs += histogram.count + overflow
        if not histogram.count and not overflow and not untimed:
            continue
        figures = latency(histogram, Beyond(overflow=overflow, negative=untimed))
        entries.append(
            {
                "phase": phase,
                "metric": metric,
                "subscription": name if metric == "end_to_end" else None,
                "count": histogram.count,
                "overflow": overflow,
                # Samples that OMB threw away are smaller than all others: percentiles must count them.
                "negative": untimed,
                "min_ns": None if untimed or histogram.min is None else int(histogram.min),
                "max_ns": None if overflow or histogram.max is None else int(histogram.max),
                "p50_ns": None if figures.p50 is None else round(figures.p50 * NS_PER_MS),
                "p99_ns": None if figures.p99 is None else round(figures.p99 * NS_PER_MS),
                "histogram": base64.b64encode(encode(histogram)).decode("ascii") if histogram.count else "",
            }
        )
    return entries


def _untimed(received: int, timed: int, reader: Reader) -> int:
    """Messages that were received without a sample. Counters and histograms are not read at one instant: what was received before this
    interval and has no sample at its end has none, and is given out once."""
    reader.timed_msgs += timed
    missing = max(reader.received_msgs - reader.timed_msgs - reader.untimed_msgs, 0)
    reader.untimed_msgs += missing
    reader.received_msgs += received
    return missing


def _add(totals: Totals, period: OmbPeriod) -> None:
    totals.acked_msgs += period.messages_sent
    totals.acked_bytes += period.bytes_sent
    totals.failed_msgs += period.message_send_errors
    totals.received_msgs += period.messages_received
    totals.received_bytes += period.bytes_received


def _summary(rows: Sequence[Row]) -> Row:
    summed: Row = {
        **{key: rows[0][key] for key in ("index", "start_s", "duration_s")},
        **dict.fromkeys(("retries", "waiting_msgs", "requests", "batches", "wakeups", "backpressured_s")),
    }
    for key in ("sent_msgs", "sent_bytes", "acked_msgs", "acked_bytes", "failed_msgs"):
        summed[key] = sum(row[key] for row in rows)
    for key in ("cpu_s", "rss_bytes"):
        known = [row[key] for row in rows if row[key] is not None]
        summed[key] = sum(known) if known else None
    summed["errors"] = {SEND_ERROR: summed["failed_msgs"]} if summed["failed_msgs"] else {}
    received: dict[str, Row] = {}
    for one in (one for row in rows for one in row["subscriptions"]):
        mine = received.setdefault(
            one["name"], {**one, "received_msgs": 0, "received_bytes": 0, "backlog_msgs": 0}
        )
        for key in ("received_msgs", "received_bytes", "backlog_msgs"):
            mine[key] += one[key]
    summed["subscriptions"] = list(received.values())
    summed["latencies"] = [entry for row in rows for entry in row["latencies"]]
    return summed


def totals_row(totals: Totals, subscriptions: Sequence[str]) -> Mapping[str, Any]:
    """The counters of an interval, over the whole trial."""
    return {
        "sent_msgs": totals.acked_msgs + totals.failed_msgs,
        "sent_bytes": totals.acked_bytes,
        "acked_msgs": totals.acked_msgs,
        "acked_bytes": totals.acked_bytes,
        "failed_msgs": totals.failed_msgs,
        "errors": {SEND_ERROR: totals.failed_msgs} if totals.failed_msgs else {},
        "subscriptions": [
            {
                "name": together(subscriptions),
                "received_msgs": totals.received_msgs,
                "received_bytes": totals.received_bytes,
                "backlog_msgs": behind_msgs(totals.acked_msgs, totals.received_msgs, len(subscriptions)),
            }
        ]
        if subscriptions
        else [],
    }
