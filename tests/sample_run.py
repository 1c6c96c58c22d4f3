"""A run directory with synthetic figures of plausible shape and known truth, written exactly as the lab
writes one.

Used by the tests of analysis, report and export. Histograms are encoded here by an encoder of the tests' own,
so that the decoder is checked against something that it does not share code with (and against the
hdrhistogram package in test_histograms.py).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet
from streamgauge.analysis.trial import analyse
from streamgauge.model.result import Durability, Manifest, OnOff, Phase, TrialResult
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_columns import INTERVAL_COLUMNS, RESOURCE_COLUMNS
from streamgauge.model.result_machine import Lane
from streamgauge.store.context import TrialContext
from streamgauge.store.parquet import read_rows
from streamgauge.vocabulary.levels import Level

Samples = npt.NDArray[np.int64]
QUIET_METRICS = ("publish", "service", "send_delay", "end_to_end")
STARTED_UNIX_MS = 1_790_000_000_000


def leb128_zigzag(numbers: Samples) -> bytes:
    """Numbers as the V2 encoding writes them."""
    encoded = np.where(numbers >= 0, 2 * numbers, -2 * numbers - 1)[:, None] >> 7 * np.arange(10)
    is_there = np.column_stack([np.ones(len(numbers), dtype=bool), encoded[:, 1:-1] > 0])
    further = 0x80 * (encoded[:, 1:] > 0)
    return bytes((encoded[:, :-1] & 0x7F | further)[is_there].astype(np.uint8))


def encode(samples: Samples) -> bytes:
    """HdrHistogram V2 compressed with 3 digits, 1 ns to 1 h, of samples in ns."""
    values = np.asarray(samples, dtype=np.int64)
    bucket = np.maximum(np.frexp(values)[1].astype(np.int64) - 11, 0)
    indices = ((bucket + 1) << 10) + (values >> bucket) - 1024
    all_counts = np.bincount(indices)
    found = np.flatnonzero(all_counts)
    counts = all_counts[found]
    # What is empty before a place is told as a negative number.
    empty = found - np.concatenate([[0], found[:-1] + 1]) if len(found) else found
    told = np.column_stack([-empty, counts])
    body = leb128_zigzag(told[np.column_stack([empty > 0, counts > 0])])
    plain = struct.pack(">iiiiqqd", 0x1C849313, len(body), 0, 3, 1, 3_600_000_000_000, 1.0) + body
    packed = zlib.compress(plain)
    return struct.pack(">ii", 0x1C849314, len(packed)) + packed


@dataclass
class Shape:
    """How a synthetic system behaves."""

    system: str = "kafka"
    title: str = "Apache Kafka"
    version: str = "4.3.1"
    nodes: int = 1
    level: Level = "L4"
    publish_ms: float = 0.9
    spread: float = 0.35
    """Sigma of the log-normal body."""
    tail_share: float = 0.01
    tail_ms: float = 6.0
    slow_every_s: int = 0
    """Every so many seconds the tail is three times as heavy (a collector, a flush)."""
    stall_at_s: float | None = None
    """For 0.8 s nothing is acknowledged."""
    system_cpu: float = 0.7
    written_per_byte: float = 1.1
    lost: int = 0
    send_delay_ms: float = 0.02
    tls: OnOff = "off"
    settings: dict[str, Any] = field(
        default_factory=lambda: {
            "topic.flush.messages": "9223372036854775807",
            "topic.min.insync.replicas": "1",
            "node.1.num.io.threads": "8",
            "node.1.num.network.threads": "3",
            "node.1.log.flush.interval.ms": None,
        }
    )


KAFKA = Shape(slow_every_s=7)
KAFKA_SYNC = Shape(
    level="L3",
    publish_ms=2.6,
    spread=0.5,
    tail_share=0.03,
    tail_ms=14.0,
    system_cpu=0.9,
    written_per_byte=1.9,
)
LOG = Shape(
    system="gauge-log",
    title="Reference log",
    version="0.1.0",
    publish_ms=0.28,
    spread=0.25,
    tail_share=0.003,
    tail_ms=1.6,
    system_cpu=0.12,
    written_per_byte=1.02,
)


def workload(rate: float | None = 50_000, seconds: int = 30, **changes: Any) -> WorkloadResult:
    """The default workload of `bench`."""
    values: dict[str, Any] = {
        "name": "1-topic-16-partitions-100b",
        "topics": 1,
        "partitions_per_topic": 16,
        "message_size_bytes": 100,
        "producers_per_topic": 1,
        "subscriptions_per_topic": 1,
        "consumers_per_subscription": 1,
        "rate_msgs_s": rate,
        "arrival": "uniform" if rate else "closed",
        "keys": "none",
        "warmup_s": 5.0,
        "duration_s": float(seconds),
        "batch_bytes": 1 << 20,
        "linger_ms": 1.0,
        "in_flight": 5,
        "compression": "none",
        "payload_random_ratio": 0.0,
    }
    return WorkloadResult(**(values | changes))


def probe(when: str, factor: float = 1.0) -> dict[str, Any]:
    """What `gauge probe --short --json` prints."""
    return {
        "version": 1,
        "short": True,
        "when": when,
        "host": {
            "hostname": "bench-1",
            "kernel": "Linux 6.1.0",
            "cpu_model": "Synthetic CPU @ 2.60GHz",
            "cores": 2,
            "memory_bytes": 24 << 30,
        },
        "disk": {
            "dir": "/data",
            "o_direct": True,
            "write_mb_s": 1500.0 * factor,
            "read_mb_s": 2100.0 * factor,
            "fsync_ms": {"p50": 0.19, "p90": 0.3, "p99": 0.68, "p99_9": 2.1, "max": 4.0, "count": 4000},
            "fsync_per_s": 4700.0,
        },
        "network": {
            "loopback_mb_s": 1750.0 * factor,
            "round_trip_us": {"p50": 6.1, "p99": 19.0, "max": 88.0, "count": 9999},
        },
        "cpu": {"memcpy_mb_s": 9800.0, "crc32c_mb_s": 15200.0},
        "wakeup_us": {
            "fifo": {"p50": 61.0, "p99": 138.0, "p99_9": 240.0, "count": 4000},
            "normal": {"p50": 80.0, "p99": 610.0, "p99_9": 2000.0, "count": 4000},
        },
        "clock": {"resolution_ns": 1, "read_ns": 16.2},
        "notes": [],
    }


def write_table(path: Path, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Parquet with exactly the published columns."""
    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "binary": pa.binary(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def _latencies(
    shape: Shape, second: int, count: int, random: np.random.Generator
) -> tuple[Samples, Samples, Samples, Samples]:
    """publish, service, send_delay and end-to-end of one second's messages, ns."""
    body = shape.publish_ms * np.exp(random.normal(0.0, shape.spread, count))
    share = shape.tail_share * (3 if shape.slow_every_s and second % shape.slow_every_s == 3 else 1)
    slow = random.random(count) < share
    body[slow] += random.exponential(shape.tail_ms, int(slow.sum()))
    body *= random.normal(1.0, 0.015)
    if shape.stall_at_s is not None and second == int(shape.stall_at_s):
        due = np.arange(count) / count
        body += np.where(due < 0.8, (0.8 - due) * 1000.0, 0.0)
    delay = shape.send_delay_ms * np.exp(random.normal(0.0, 0.4, count))
    through = body + 0.15 + random.exponential(0.12, count)
    ns = [
        np.maximum(values * 1e6, 1).astype(np.int64)
        for values in (body + delay, body, delay, through + delay)
    ]
    return ns[0], ns[1], ns[2], ns[3]


def _interval_rows(
    shape: Shape, asked: WorkloadResult, random: np.random.Generator
) -> tuple[list[dict[str, Any]], int]:
    rate = asked.rate_msgs_s or 640_000.0
    warmup, until = int(asked.warmup_s), int(asked.warmup_s + asked.duration_s)
    rows: list[dict[str, Any]] = []
    sent = 0
    size = asked.message_size_bytes
    for second in range(until):
        count = int(rate) if asked.arrival != "poisson" else int(random.poisson(rate))
        # A tenth of the samples at the highest rates: shapes are what matters, and the counters agree with
        # them.
        publish, service, delay, through = _latencies(shape, second, count, random)
        key = {"worker": "worker-1", "interval": second, "start_s": float(second), "duration_s": 1.0}
        phase = "warm-up" if second < warmup else "measure"
        lag = int(rate * float(np.median(through)) / 1e9)
        rows.append(
            key
            | {
                "role": "worker",
                "sent_msgs": count,
                "sent_bytes": count * size,
                "acked_msgs": count,
                "acked_bytes": count * size,
                "failed_msgs": 0,
                "retries": 0,
                "errors": "{}",
                "waiting_msgs": lag,
                "requests": 900,
                "batches": 900,
                "cpu_s": 0.08 * count / 50_000 + random.normal(0, 0.002),
                "rss_bytes": 41_000_000 + second * 1000,
                "backpressured_s": 0.0,
            }
        )
        rows.append(
            key
            | {
                "role": "producer",
                "phase": phase,
                "publish": encode(publish),
                "service": encode(service),
                "send_delay": encode(delay),
                "overflow": 0,
                "negative": 0,
                "min_ns": int(publish.min()),
                "max_ns": int(publish.max()),
            }
        )
        for index in range(asked.subscriptions_per_topic):
            name = f"s-{index}"
            rows.append(
                key
                | {
                    "role": "consumer",
                    "subscription": name,
                    "received_msgs": count,
                    "received_bytes": count * size,
                    "fetches": 800,
                    "backlog_msgs": max(0, int(random.normal(lag / 2 + 20, 8))),
                }
            )
            rows.append(
                key
                | {
                    "role": "consumer",
                    "subscription": name,
                    "phase": phase,
                    "end_to_end": encode(through),
                    "overflow": 0,
                    "negative": 0,
                    "min_ns": int(through.min()),
                    "max_ns": int(through.max()),
                }
            )
        sent += count
    return rows, sent


def _resource_rows(shape: Shape, asked: WorkloadResult, random: np.random.Generator) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    rate = asked.rate_msgs_s or 640_000.0
    for second in range(int(asked.warmup_s + asked.duration_s)):
        key = {"interval": second, "start_s": float(second), "duration_s": 1.0}
        warm = 1.0 + 0.8 * np.exp(-second / 2.0)
        per_node = max(0.01, shape.system_cpu * warm * random.normal(1, 0.05)) / shape.nodes
        written = int(
            rate * asked.message_size_bytes * shape.written_per_byte * max(0.0, random.normal(1, 0.25))
        )
        for node in range(1, shape.nodes + 1):
            rows.append(
                key
                | {
                    "scope": "system",
                    "process": f"{shape.system}-{node}",
                    "cpu_s": per_node,
                    "rss_bytes": 420_000_000 + second * 2_000_000,
                    "disk_write_bytes": written,
                    "disk_read_bytes": 0,
                }
            )
        worker, others, lab = 0.08 * rate / 50_000, abs(random.normal(0.05, 0.02)), 0.015
        rows.append(
            key | {"scope": "worker", "process": "worker-1", "cpu_s": worker, "rss_bytes": 41_000_000}
        )
        rows.append(key | {"scope": "lab", "cpu_s": lab, "rss_bytes": 120_000_000})
        rows.append(key | {"scope": "others", "cpu_s": others})
        total = min(2.0, worker + others + lab + per_node * shape.nodes)
        rows.append(key | {"scope": "host", "cpu_s": total, "steal_s": 0.004})
    return rows


def finish_answer(asked: WorkloadResult, sent: int, lost: int = 0) -> dict[str, Any]:
    """The worker's /finish answer for a trial in which `lost` messages vanished in the middle."""
    subscription = {
        "received": sent - lost,
        "unique": sent - lost,
        "lost": lost,
        "lost_prefix": 0,
        "lost_middle": lost,
        "lost_tail": 0,
        "duplicated": 0,
        "reordered": 0,
        "corrupted": 0,
        "unexpected": 0,
        "unknown": 0,
        "recovered": 0,
        "censored": 0,
        "balanced": True,
        "imbalance": None,
        "examples": [f"producer 0: sequences 100-{99 + lost} lost (middle)"] if lost else [],
    }
    return {
        "state": "finished",
        "drained": True,
        "audit": {
            "enabled": asked.message_size_bytes >= 32,
            "sent": sent,
            "acked": sent,
            "failed": 0,
            "censored": 0,
            "subscriptions": [
                {"name": f"s-{index}"} | subscription for index in range(asked.subscriptions_per_topic)
            ],
            "balanced": True,
            "imbalance": None,
        },
    }


@dataclass
class SampleTrial:
    """What the runner would hand over, and where the tables are."""

    context: TrialContext
    directory: Path

    def result(self, **changes: Any) -> TrialResult:
        """The result, with changes to what the runner knew."""
        return analyse(self.context.model_copy(update=changes), self.directory)


def disturbed_sample(
    sample: SampleTrial,
    directory: Path,
    quiet_s: float,
    told: Callable[[int], Mapping[str, Any]],
    **histograms: bytes,
) -> SampleTrial:
    """A sample on a machine of which so much of each second was quiet; `told`: what a worker tells of the disturbance of an interval. All of its messages are
    of quiet time. `histograms`: in the place of those of a metric."""
    rows = read_rows(sample.directory / "intervals.parquet", INTERVAL_COLUMNS)
    for row in rows:
        if row["role"] == "worker":
            disturbance = json.dumps(told(row["interval"]))
            row |= {"quiet_s": quiet_s, "disturbed_s": 1.0 - quiet_s, "disturbance": disturbance}
        row |= {metric: found for metric, found in histograms.items() if row[metric] is not None}
        row |= {f"{metric}_quiet": row[metric] for metric in QUIET_METRICS if row[metric] is not None}
    directory.mkdir(parents=True)
    write_table(directory / "intervals.parquet", rows, INTERVAL_COLUMNS)
    (directory / "resources.parquet").write_bytes((sample.directory / "resources.parquet").read_bytes())
    return SampleTrial(sample.context, directory)


def sample_trial(
    directory: Path, shape: Shape, asked: WorkloadResult, trial: int = 1, repeat: int = 1
) -> SampleTrial:
    """Writes the trial's Parquet files."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1000 + trial)
    rows, sent = _interval_rows(shape, asked, random)
    write_table(directory / "intervals.parquet", rows, INTERVAL_COLUMNS)
    write_table(directory / "resources.parquet", _resource_rows(shape, asked, random), RESOURCE_COLUMNS)
    until = asked.warmup_s + asked.duration_s
    started = STARTED_UNIX_MS + trial * 60_000
    context = TrialContext(
        run_id="20260921-141320-sample",
        trial=trial,
        repeat=repeat,
        started_unix_ms=started,
        ended_unix_ms=started + int(until * 1000) + 14_000,
        status="complete",
        failure=None,
        system=shape.system,
        system_title=shape.title,
        system_version=shape.version,
        client="native kafka",
        nodes=shape.nodes,
        attached=False,
        tls=shape.tls,
        durability=Durability(asked=shape.level, declared=shape.level, settings=shape.settings),
        workload=asked,
        seed=42 + trial,
        phases=[
            Phase(name="provision", from_s=0.0, wall_s=6.1),
            Phase(name="warm-up", from_s=0.0, until_s=asked.warmup_s, wall_s=asked.warmup_s),
            Phase(name="measure", from_s=asked.warmup_s, until_s=until, wall_s=asked.duration_s),
            Phase(name="drain", from_s=until, wall_s=0.2),
            Phase(name="wipe", from_s=until, wall_s=0.4),
        ],
        measure_from_s=asked.warmup_s,
        measure_until_s=until,
        finish=finish_answer(asked, sent, shape.lost),
        probes=[probe("before"), probe("after", 0.96)],
        lanes=[
            Lane(
                worker="worker-1",
                name="producer-0",
                role="producer",
                scheduling="fifo:10",
                cpu_s=until * 0.05,
            ),
            Lane(
                worker="worker-1",
                name="consumer-0",
                role="consumer",
                scheduling="nice:-5",
                cpu_s=until * 0.03,
            ),
        ],
        cannot=[],
        cores=2,
    )
    return SampleTrial(context, directory)


def write_run(
    run: Path,
    shapes: Sequence[Shape] = (LOG, KAFKA),
    asked: WorkloadResult | None = None,
    repeats: int = 1,
    status: str = "complete",
) -> list[TrialResult]:
    """A whole run directory: manifest, trials, Parquet files."""
    asked = asked or workload()
    results: list[TrialResult] = []
    trials: list[str] = []
    for repeat in range(1, repeats + 1):
        for shape in shapes:
            number = len(trials) + 1
            relative = f"trials/{number:03d}"
            result = sample_trial(run / relative, shape, asked, number, repeat).result()
            (run / relative / "result.json").write_text(result.model_dump_json(indent=1))
            trials.append(relative)
            results.append(result)
    manifest = Manifest.model_validate(
        {
            "run_id": results[0].run_id,
            "streamgauge_version": "0.1.0",
            "command": [
                "streamgauge",
                "run",
                asked.name,
                "--system",
                ",".join(shape.system for shape in shapes),
            ],
            "started_unix_ms": STARTED_UNIX_MS,
            "ended_unix_ms": results[-1].ended_unix_ms,
            "status": status,
            "seed": 42,
            "systems": [
                {
                    "name": shape.system,
                    "version": shape.version,
                    "nodes": shape.nodes,
                    "level": shape.level,
                    "configuration": {
                        "server.properties": "num.io.threads=8\n",
                        "jvm_flags": ["-Xms1g", "-Xmx1g"],
                    },
                    "settings": shape.settings,
                }
                for shape in shapes
            ],
            "workloads": [asked.model_dump()],
            "host": probe("before")["host"],
            "probes": [probe("before"), probe("after", 0.96)],
            "trials": trials,
            "notes": [],
        }
    )
    (run / "manifest.json").write_text(json.dumps(manifest.model_dump(), indent=1))
    return results
