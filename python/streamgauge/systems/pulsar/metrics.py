"""What Pulsar's brokers and bookies tell of themselves in Prometheus' text format (`/metrics/` of a broker's web service, `/metrics` of a
bookie's HTTP service). Sums of latencies grow with every operation; quantiles are those of a minute, which is no use second by second.

Source: "Pulsar metrics" and "BookKeeper metrics" of their documentations.
"""

from __future__ import annotations

from typing import Literal

from streamgauge.model.own_metric import OwnMetric
from streamgauge.systems.support.prometheus import Pick, PrometheusMetrics


def _time(
    name: str, title: str, explains: str, series: str, role: Literal["cause", "sign"] = "cause"
) -> list[Pick]:
    """The time of an operation, which a bookie tells in ms."""
    metric = OwnMetric(
        name=name, title=title, unit="ms", kind="counter", explains=explains, role=role, per=f"{name}_count"
    )
    return [Pick(metric, (f"{series}_sum",)), _count(f"{name}_count", f"{series}_count")]


def _count(name: str, series: str) -> Pick:
    """Operations, which times are divided by."""
    metric = OwnMetric(name=name, title="operations", unit="ops", kind="counter", explains="-", role="count")
    return Pick(metric, (series,))


METRICS = PrometheusMetrics(
    [
        *_time(
            "journal_sync_ms",
            "time of a sync of the journal",
            "a bookie acknowledges an entry when its journal is on the disk",
            "bookie_journal_JOURNAL_SYNC",
        ),
        *_time(
            "journal_flush_ms",
            "time of a write of the journal",
            "the page cache does not take more: the disk is behind",
            "bookie_journal_JOURNAL_FLUSH_LATENCY",
        ),
        *_time(
            "journal_queue_ms",
            "time that an entry waited for the journal",
            "the journal is behind",
            "bookie_journal_JOURNAL_QUEUE_LATENCY",
            "sign",
        ),
        Pick(
            OwnMetric(
                name="journal_queue",
                title="entries that wait for the journal",
                unit="entries",
                kind="gauge",
                explains="the journal is slower than what comes in",
                role="sign",
            ),
            ("bookie_journal_JOURNAL_QUEUE_SIZE",),
        ),
        *_time(
            "journal_add_ms",
            "time from an entry's arrival at the journal to its acknowledgement",
            "queue, write and sync together",
            "bookie_journal_JOURNAL_ADD_ENTRY",
            "sign",
        ),
        Pick(
            OwnMetric(
                name="journal_sync_queue",
                title="writes of the journal that wait for a sync",
                unit="writes",
                kind="gauge",
                explains="syncs are slower than what is written",
                role="sign",
            ),
            ("bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE",),
        ),
        *_time(
            "add_blocked_ms",
            "time that an add was blocked",
            "too many are under way in the bookie",
            "bookkeeper_server_ADD_ENTRY_BLOCKED_WAIT",
            "sign",
        ),
        *_time(
            "ledger_flush_ms",
            "time of a flush of the ledgers",
            "the write cache goes to the same disk as the journal",
            "bookie_flush",
        ),
        Pick(
            OwnMetric(
                name="write_cache_mb",
                title="write cache of the bookies",
                unit="MB",
                kind="gauge",
                explains="when it is full, adds wait for a flush",
                role="sign",
            ),
            ("bookie_write_cache_size",),
            scale=1e-6,
        ),
        Pick(
            OwnMetric(
                name="compactions",
                title="compactions of the bookies",
                unit="compactions",
                kind="counter",
                explains="they read and write whole entry logs",
            ),
            (
                "bookie_MAJOR_COMPACTION_TOTAL",
                "bookie_MINOR_COMPACTION_TOTAL",
                "bookie_ENTRY_LOCATION_COMPACTION_TOTAL",
            ),
        ),
        Pick(
            OwnMetric(
                name="read_cache_misses",
                title="reads that missed the bookies' cache",
                unit="reads",
                kind="counter",
                explains="they go to the disk of the ledgers",
            ),
            ("bookie_read_cache_misses",),
        ),
        Pick(
            OwnMetric(
                name="gc_ms",
                title="collections of the JVMs",
                unit="ms",
                kind="counter",
                explains="a collection stops all threads of a process",
            ),
            ("jvm_gc_collection_seconds_sum",),
            scale=1e3,
        ),
        *_time(
            "publish_ms",
            "time that a broker took for a message",
            "its bookies included",
            "pulsar_broker_publish_latency",
            "sign",
        ),
        Pick(
            OwnMetric(
                name="throttled_connections",
                title="connections that are throttled",
                unit="connections",
                kind="gauge",
                explains="brokers do not read from producers: too much is under way",
            ),
            ("pulsar_broker_throttled_connections",),
        ),
        Pick(
            OwnMetric(
                name="metadata_queue",
                title="requests that wait for the metadata store",
                unit="requests",
                kind="gauge",
                explains="new ledgers and cursors wait for it",
                role="sign",
            ),
            ("pulsar_batch_metadata_store_executor_queue_size",),
        ),
    ]
)
