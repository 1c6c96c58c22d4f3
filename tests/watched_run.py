"""A run as observers are told of it, without one: intervals as workers give them, resources as the sampler does."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
from streamgauge.analysis.intervals import Intervals, read_resources
from streamgauge.runner.observer import Observer, Snapshot, TrialStart
from streamgauge.vocabulary.histograms import encode, recorded

RATE = 1000


def latency(metric: str, values_ns: list[int], phase: str, subscription: str | None = None) -> dict[str, Any]:
    counts = np.ones(len(values_ns), dtype=np.int64)
    histogram = encode(recorded(np.array(values_ns, dtype=np.int64), counts))
    return {
        "phase": phase,
        "metric": metric,
        "subscription": subscription,
        "count": len(values_ns),
        "overflow": 0,
        "negative": 0,
        "min_ns": min(values_ns),
        "max_ns": max(values_ns),
        "p50_ns": sorted(values_ns)[len(values_ns) // 2],
        "p99_ns": max(values_ns),
        "histogram": base64.b64encode(histogram).decode(),
    }


def interval(index: int, phase: str, values_ns: list[int], *, unacked: int = 0) -> dict[str, Any]:
    publish = {**latency("publish", values_ns, phase), "unacked_msgs": unacked}
    return {
        "worker": "worker-0",
        "index": index,
        "start_s": float(index),
        "duration_s": 1.0,
        "sent_msgs": RATE,
        "sent_bytes": 100 * RATE,
        "acked_msgs": RATE - 1,
        "acked_bytes": 100 * (RATE - 1),
        "failed_msgs": 1,
        "errors": {"TIMED_OUT": 1},
        "waiting_msgs": 7,
        "cpu_s": 0.25,
        "subscriptions": [
            {
                "name": 'a "b"\\',
                "received_msgs": RATE - 2,
                "received_bytes": 100 * (RATE - 2),
                "backlog_msgs": 5,
            }
        ],
        "disturbance": {"quiet_s": 0.9, "disturbed_s": 0.1},
        "latencies": [
            publish,
            latency("send_delay", values_ns, phase),
            latency("receive_delay", values_ns, phase, 'a "b"\\'),
            latency("end_to_end", values_ns, phase, 'a "b"\\'),
        ],
    }


def resources(index: int) -> list[dict[str, Any]]:
    key = {"interval": index, "start_s": float(index), "duration_s": 1.0}
    return [
        {
            **key,
            "scope": "system",
            "process": "broker",
            "cpu_s": 0.5,
            "rss_bytes": 10_000_000,
            "disk_write_bytes": 4096,
        },
        {**key, "scope": "lab", "cpu_s": 0.01},
        {**key, "scope": "others", "cpu_s": 0.1},
        {**key, "scope": "host", "cpu_s": 0.86, "steal_s": 0.02},
    ]


def snapshot(index: int, phase: str) -> Snapshot:
    return Snapshot(
        elapsed_s=index + 1.0,
        total_s=10.0,
        phase=phase,
        target_msgs_s=float(RATE),
        sent_msgs_s=float(RATE),
        acked_msgs_s=RATE - 1.0,
        acked_mb_s=0.1,
        received_msgs_s=RATE - 2.0,
        publish_ms_p50=1.0,
        publish_ms_p99=2.0,
        end_to_end_ms_p50=1.0,
        end_to_end_ms_p99=2.0,
        backlog_msgs=5,
        waiting_msgs=7,
        failed_msgs=1,
        errors={"TIMED_OUT": 1},
    )


def start(number: int = 1, trials: int = 2, workload: str = "w", rate: float | None = RATE) -> TrialStart:
    return TrialStart(number, trials, 1, "kafka", workload, "1,000 msg/s", "Apache Kafka", rate)


def begin(observer: Observer, directory: Path, trial: TrialStart | None = None) -> None:
    observer.run_started(directory, 2)
    observer.phase_started("probe before", 60.0)
    observer.remaining(40.0)
    observer.trial_started(trial or start())


def second(observer: Observer, index: int, phase: str, values_ns: list[int], *, unacked: int = 0) -> None:
    """One second, the resources a moment before the interval."""
    observer.sampled(resources(index))
    observer.recorded([interval(index, phase, values_ns, unacked=unacked)])
    observer.interval(snapshot(index, phase))


def read_rows(directory: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of intervals and of resources of a trial that is over."""
    return Intervals.read(directory).rows, read_resources(directory)


def intervals_of(rows: list[dict[str, Any]]) -> Intervals:
    return Intervals(rows)
