"""The result of a trial and the manifest of a run, as written to disk.

A run is a directory that explains itself:

    manifest.json                   Manifest
    trials/001/result.json          TrialResult; its JSON schema is docs/result.schema.json
    trials/001/intervals.parquet    one row per interval, worker and role (INTERVAL_COLUMNS)
    trials/001/resources.parquet    one row per interval and scope (RESOURCE_COLUMNS)
    trials/001/trial.json           what the runner knew: with the tables, the result can be computed again
    trials/001/events.jsonl         what happened when (phases, faults, errors), one JSON object per line
    trials/001/logs/                the system's and the workers' logs
    report.html

Units are the last word of a name: `_ms`, `_s`, `_msgs`, `_msgs_s`, `_mb_s` (MB is 10^6 bytes), `_bytes`. Percentiles are named p50 ... p99_99.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["L1", "L2", "L3", "L4"]
RESULT_FORMAT = 1

INTERVAL_COLUMNS: dict[str, str] = {
    # Key.
    "worker": "string",  # worker's name
    "interval": "int32",  # index from the trial's start
    "start_s": "float64",  # on the schedule's axis
    "duration_s": "float64",
    "role": "string",  # worker (counters), producer (publish, service, ... histograms), consumer (end-to-end)
    "phase": "string",  # null for role worker: the phase in which the messages were intended
    "subscription": "string",  # for consumer rows
    # role worker: counters of what was seen in the interval, summed over subscriptions where they are per subscription.
    "sent_msgs": "int64",
    "sent_bytes": "int64",
    "acked_msgs": "int64",
    "acked_bytes": "int64",
    "failed_msgs": "int64",
    "retries": "int64",
    "errors": "string",  # JSON object: kind -> count
    "waiting_msgs": "int64",  # level at the end of the interval
    "requests": "int64",
    "batches": "int64",
    "cpu_s": "float64",  # of the worker's process
    "rss_bytes": "int64",
    "backpressured_s": "float64",
    # role consumer, one row per subscription with phase null for these counters; and per phase with the histogram.
    "received_msgs": "int64",
    "received_bytes": "int64",
    "fetches": "int64",
    "backlog_msgs": "int64",  # level at the end of the interval
    # Histograms: HdrHistogram V2 deflate, raw bytes, ns; null where the row has none.
    "publish": "binary",
    "service": "binary",
    "send_delay": "binary",
    "backpressure": "binary",
    "end_to_end": "binary",
    "overflow": "int64",  # samples beyond 1 h, not in the histograms, summed over the row's metrics
    "negative": "int64",  # samples below 0, not in the histograms
    # Extremes of the row's headline metric (publish; end_to_end for role consumer) as the worker saw them, beyond the range included.
    "min_ns": "int64",
    "max_ns": "int64",
}

RESOURCE_COLUMNS: dict[str, str] = {
    "interval": "int32",  # same index and axis as the intervals
    "start_s": "float64",
    "duration_s": "float64",
    "scope": "string",  # system | worker | lab | others | host
    "process": "string",  # name of the process for scopes system and worker; null otherwise
    "cpu_s": "float64",  # user + system CPU spent in the interval; host: all cores together, steal excluded
    "steal_s": "float64",  # host only
    "rss_bytes": "int64",
    "disk_write_bytes": "int64",
    "disk_read_bytes": "int64",
}


class Model(BaseModel):
    """Base of everything written to disk: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class Latency(Model):
    """A latency distribution in ms over the messages that were intended in the measured phase (docs/method.md)."""

    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    p99_99: float | None = None
    max: float | None = None
    count: int = 0
    overflow: int = 0
    """Samples above 1 h; counted in `count`, included in max, in no percentile."""
    negative: int = 0
    """Samples below zero (clocks of two hosts); counted in `count`, included in min."""


class SubscriptionAudit(Model):
    """The audit of one subscription, as the worker judged it (docs/worker-api.md)."""

    name: str
    received: int
    unique: int
    lost: int
    lost_prefix: int
    lost_middle: int
    lost_tail: int
    duplicated: int
    reordered: int
    corrupted: int
    unexpected: int
    unknown: int
    recovered: int
    censored: int
    balanced: bool
    imbalance: str | None = None
    examples: list[str] = Field(default_factory=list)


class Audit(Model):
    """Is it the same data? Over the whole trial, warm-up included; sums over subscriptions, with each one listed.

    sent = acked + failed + censored; per subscription received = unique + duplicated + corrupted + unexpected.
    """

    enabled: bool
    sent: int = 0
    acked: int = 0
    failed: int = 0
    received: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0
    unexpected: int = 0
    unknown: int = 0
    recovered: int = 0
    censored: int = 0
    balanced: bool = True
    imbalance: str | None = None
    clean: bool = True
    """Nothing lost, duplicated, reordered, corrupted, unexpected, unknown or censored, and the books balance."""
    subscriptions: list[SubscriptionAudit] = Field(default_factory=list)


class Validity(Model):
    """May the figures be believed? One sentence per reason; warnings do not invalidate."""

    valid: bool
    reasons: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class Steadiness(Model):
    """How the 1 s series behaved within the measured phase."""

    label: Literal["steady", "drifting", "cyclic", "unsteady", "too short"]
    explanation: str
    slopes_percent_per_interval: dict[str, float] = Field(default_factory=dict)
    """Theil-Sen slope of each series (publish_rate, publish_p50, publish_p99, cpu) in percent of its level per interval."""


class Phase(Model):
    """One phase of a trial on two axes."""

    name: str
    from_s: float
    until_s: float | None = None
    wall_s: float | None = None
    """How long the phase took by the lab's clock (provision, settle, wipe have no place on the schedule's axis)."""


class Durability(Model):
    """Level asked for, level that the settings read back amount to, level measured (if an experiment did)."""

    asked: Level | None = None
    declared: Level | None = None
    measured: Level | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    mismatches: list[str] = Field(default_factory=list)


class Cpu(Model):
    """CPU seconds spent in the measured phase."""

    cores: int
    duration_s: float
    workers_s: float
    system_s: float | None = None
    others_s: float | None = None
    steal_s: float | None = None
    workers_us_per_msg: float | None = None
    """Worker CPU per message sent; producing and all consuming together."""
    system_us_per_msg: float | None = None
    workers_share: float
    """Share of all cores."""
    system_share: float | None = None
    others_share: float | None = None


class Limits(Model):
    """What the machine can do, by the probe before and after the run (short version). None where it was not measured."""

    disk_write_mb_s: float | None = None
    disk_read_mb_s: float | None = None
    fsync_ms_p50: float | None = None
    fsync_ms_p99: float | None = None
    loopback_mb_s: float | None = None
    round_trip_us_p50: float | None = None
    memcpy_mb_s: float | None = None
    crc32c_mb_s: float | None = None
    wakeup_us_p99: float | None = None
    cores: int | None = None


class Share(Model):
    """How much of one limit was used in the measured phase."""

    name: str
    """cpu, disk_write, network, worker_cpu, system_cpu, ..."""
    value: float
    """0-1 (may exceed 1 when a probe was low)."""
    explanation: str


class Process(Model):
    """One process of the system in the measured phase."""

    name: str
    cpu_s: float
    cpu_share: float
    rss_bytes_max: int
    disk_write_bytes: int
    disk_read_bytes: int


class Lane(Model):
    """One thread of a worker and the scheduling it got."""

    worker: str
    name: str
    role: str
    scheduling: str
    cpu_s: float


class WorkloadResult(Model):
    """What was asked of the generator, after defaults; sizes in bytes, times in seconds."""

    name: str
    file: str | None = None
    topics: int
    partitions_per_topic: int
    message_size_bytes: int
    producers_per_topic: int
    subscriptions_per_topic: int
    consumers_per_subscription: int
    rate_msgs_s: float | None
    """Target over all producers; None: as fast as the batch policy lets through (closed loop)."""
    arrival: Literal["uniform", "poisson", "burst", "closed"]
    keys: Literal["none", "round_robin", "keyed"]
    key_count: int | None = None
    warmup_s: float
    duration_s: float
    batch_bytes: int
    linger_ms: float
    in_flight: int
    buffer_bytes: int = 64 << 20
    """What waits or travels at most, over all producers; beyond it the schedule is held back."""
    compression: str
    payload_random_ratio: float
    payload_file: str | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class TrialResult(Model):
    """One trial: one workload on one system, once."""

    format: int = RESULT_FORMAT
    run_id: str
    trial: int
    repeat: int
    started_unix_ms: int
    ended_unix_ms: int
    status: Literal["complete", "interrupted", "failed"]
    """interrupted: stopped by the user; failed: a system or worker failed. What was measured until then is here all the same."""
    failure: str | None = None

    system: str
    system_title: str
    system_version: str
    client: str
    """"native kafka", "official java", ..."""
    nodes: int
    attached: bool
    durability: Durability
    workload: WorkloadResult
    seed: int
    phases: list[Phase]

    publish_ms: Latency
    end_to_end_ms: Latency
    service_ms: Latency
    send_delay_ms: Latency
    backpressure_ms: Latency
    end_to_end_by_subscription_ms: dict[str, Latency] = Field(default_factory=dict)

    publish_rate_msgs_s: float
    publish_rate_mb_s: float
    consume_rate_msgs_s: float
    consume_rate_mb_s: float
    target_rate_msgs_s: float | None = None
    achieved_share: float | None = None
    """Acknowledged rate over target rate within the measured phase."""
    backlog_msgs_max: int
    waiting_msgs_max: int
    errors: dict[str, int] = Field(default_factory=dict)
    """Kind -> count, over the whole trial."""
    failed_msgs: int = 0
    retries: int = 0

    audit: Audit
    validity: Validity
    steadiness: Steadiness
    cpu: Cpu
    processes: list[Process] = Field(default_factory=list)
    limits: Limits
    share_of_limit: Share | None = None
    """The limit that was used most."""
    shares: list[Share] = Field(default_factory=list)
    write_amplification: float | None = None
    """Bytes that the system's processes wrote to disk per byte published, over the measured phase."""
    lanes: list[Lane] = Field(default_factory=list)
    cannot: list[str] = Field(default_factory=list)
    """What of the workload the protocol could not do."""
    worker_rss_bytes_max: int = 0


class Manifest(Model):
    """What a run was asked to do, and on what."""

    format: int = RESULT_FORMAT
    run_id: str
    streamgauge_version: str
    command: list[str]
    started_unix_ms: int
    ended_unix_ms: int | None = None
    status: Literal["running", "complete", "interrupted", "failed"]
    seed: int
    systems: list[dict[str, Any]]
    """Per system: name, version, nodes, level, configuration() as written, settings read back."""
    workloads: list[dict[str, Any]]
    host: dict[str, Any]
    """The probe's `host` object."""
    probes: list[dict[str, Any]] = Field(default_factory=list)
    """`gauge probe --short --json` before and after, each with `when`: "before" | "after"."""
    trials: list[str] = Field(default_factory=list)
    """Relative paths of the trials' directories, in the order in which they ran."""
    notes: list[str] = Field(default_factory=list)
