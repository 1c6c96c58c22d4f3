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

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["L1", "L2", "L3", "L4"]
OnOff = Literal["on", "off"]
Headline = Literal["publish", "service"]
"""What stands for the latency of publishing: publish latency, and service time where it is not told (`TrialResult.untold`)."""
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
    "scope": "string",  # system | worker | lab | others | host | thread (of the system: the busiest of each process, every 5 intervals)
    "process": "string",  # name of the process for scopes system and worker; null otherwise
    "cpu_s": "float64",  # user + system CPU spent in the interval; host: all cores together, steal excluded
    "steal_s": "float64",  # host only
    "rss_bytes": "int64",
    "disk_write_bytes": "int64",
    "disk_read_bytes": "int64",
    # host only: the disk under the system's data, as the kernel counts it (/proc/diskstats).
    "flushes": "int64",  # of its write cache: what an fsync waits for
    "flush_s": "float64",  # time that they took, summed
    "disk_busy_s": "float64",  # time with anything under way
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
    missing: str | None = None
    """Why there is none, where the workers that made the load keep no books."""
    subscriptions: list[SubscriptionAudit] = Field(default_factory=list)


class Validity(Model):
    """May the figures be believed? One sentence per reason; warnings do not invalidate."""

    valid: bool
    reasons: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    disturbed: bool = False
    """Invalid, and the generator alone is to blame: what else the machine did was in its way."""


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
    workers_s: float | None
    """None where the workers are not ours and not on this machine."""
    system_s: float | None = None
    others_s: float | None = None
    steal_s: float | None = None
    workers_us_per_msg: float | None = None
    """Worker CPU per message sent; producing and all consuming together."""
    system_us_per_msg: float | None = None
    workers_share: float | None
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


class Thread(Model):
    """One thread of the system in the measured phase."""

    process: str
    name: str
    core_share: float
    """Of one core: 1 is all that a thread can use."""


class Lane(Model):
    """One thread of a worker and the scheduling it got."""

    worker: str
    name: str
    role: str
    scheduling: str
    cpu_s: float


class SearchAsked(Model):
    """How the maximum sustainable rate was to be looked for."""

    first_msgs_s: float
    width_percent: float
    probe_s: float
    publish_ms_p99_max: float | None = None
    within_s: float | None = None
    """After this time the search ends with the bracket that it has, as soon as it has one."""


class BacklogAsked(Model):
    """The backlog that was to be built and read."""

    size_bytes: int
    """Payload, over all subscriptions that do not read it meanwhile."""
    reader: Literal["same", "extra"]
    """same: the subscriptions are paused and then read it; extra: they go on, and a further one reads from the
    earliest message."""
    producing: bool = True
    """Whether producing goes on while it is read."""
    drain_share: float
    """It counts as read when this share of it is."""
    within_s: float
    after_s: float


FaultAction = Literal[
    "kill",
    "stop",
    "cont",
    "restart",
    "power-cut",
    "fsync-delay",
    "disk-full",
    "disk-free",
    "cut-network",
    "heal",
]


class FaultAsked(Model):
    """A fault that is made on purpose."""

    action: FaultAction
    target: str | None = None
    """A node's number, a part's name, "leader", "followers" or "all"; None: whatever is broken."""
    at_s: float
    """After the measured phase began."""
    amount_s: float | None = None
    """The delay of fsync-delay."""


class Fault(Model):
    """A fault that was made, and what followed. Times are on the schedule's axis."""

    asked: FaultAsked
    parts: list[str] = Field(default_factory=list)
    """What it hit."""
    from_s: float
    """When it began to be made."""
    done_s: float
    """When it was made: for kill, when the processes were gone; for restart, when they had been started."""
    ready_s: float | None = None
    """restart only: when all of them served again; None when they did not."""
    gap_s: float | None = None
    """The longest time without an acknowledgement that touches the time from this fault to the next."""
    rate_back_s: float | None = None
    """From this fault until acknowledgements came at the rate of before again, before the next one; None when
    they did not, or when nothing was known of the time before."""


class Faults(Model):
    """A trial with faults: how long the system was not available, and what its latencies were around them."""

    faults: list[Fault]
    resolution_s: float
    """Gaps and times are known to about this."""
    unavailable_s: float
    """The longest time without any acknowledgement from the first fault on."""
    recovered_s: float | None = None
    """From the first fault until the rate of before was back for good; None when it was not."""
    caught_up_s: float | None = None
    """From the first fault until everything that was due had been acknowledged as promptly as before; None when
    it had not, and for a load without a schedule."""
    phases: list[PhaseFigures] = Field(default_factory=list)
    """before, during (until caught up, or recovered), after: by the acknowledgements seen in whole intervals."""


class Probe(Model):
    """One rate that the search for the maximum tried, and what was seen."""

    rate_msgs_s: float
    seconds: float
    """Measured time; it grows while the growth of the backlog cannot be told from noise."""
    passed: bool
    by_generator: bool = False
    """It failed because of the generator: this says nothing about the system."""
    reasons: list[str] = Field(default_factory=list)
    """Why it did not pass."""
    achieved_share: float
    """Acknowledged rate over target rate."""
    growth_share: float
    """Slope of what was due and had not been received by the slowest subscription, as a share of the rate."""
    growth_share_low: float
    growth_share_high: float
    """95 % bounds of the slope, one-sided each."""
    growth_share_max: float = 0.001
    """What was allowed (docs/method.md)."""
    outstanding_msgs: int
    """Due and not received by the slowest subscription, at the end."""
    publish_ms_p99: float | None = None
    send_delay_ms_p99: float | None = None
    backpressured_share: float = 0.0
    """Share of the time for which producers were held back, the mean over producers."""
    workers_share: float = 0.0
    """CPU of the worker as a share of all cores."""
    busiest_lane_share: float = 0.0
    """CPU of the busiest thread of the worker as a share of a core."""
    steal_share: float = 0.0
    """Share of all cores' time that the host of the lab's machine took away."""
    failed_msgs: int = 0
    errors: dict[str, int] = Field(default_factory=dict)


class Search(Model):
    """The search for the maximum sustainable rate: its bracket and every probe as evidence."""

    low_msgs_s: float | None = None
    """The highest rate that passed; the soak ran at it. None when none did."""
    high_msgs_s: float | None = None
    """The lowest rate that failed because of the system; None when none did."""
    width_percent: float | None = None
    bound: Literal["system", "generator", "range", "none"]
    """What ended it: the system did not sustain more; the generator could not send more; there was nothing more to
    try; or no rate was sustained."""
    explanation: str
    probes: list[Probe] = Field(default_factory=list)
    soak: Probe | None = None
    """The measured window, judged like a probe."""


class MessageSizes(Model):
    """Sizes that differ from message to message."""

    text: str
    min_bytes: int
    mean_bytes: float
    max_bytes: int
    sizes: int
    """So many sizes stand for the distribution; messages take them in turn."""


class RateStep(Model):
    """A planned change of the rate: from `at_s` on the schedule's axis, over `over_s` (0: at once)."""

    at_s: float
    rate_msgs_s: float
    over_s: float = 0.0


class WorkloadResult(Model):
    """What was asked of the generator, after defaults; sizes in bytes, times in seconds."""

    name: str
    file: str | None = None
    topics: int
    partitions_per_topic: int
    message_size_bytes: int
    """The mean where sizes differ (`message_sizes`)."""
    producers_per_topic: int
    """0: topics that exist are read, and nothing is produced."""
    subscriptions_per_topic: int
    consumers_per_subscription: int
    rate_msgs_s: float | None
    """Target over all producers; None: as fast as the batch policy lets through (closed loop), or to be found."""
    arrival: Literal["uniform", "poisson", "burst", "closed"]
    keys: Literal["none", "round_robin", "keyed", "zipf"]
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
    search: SearchAsked | None = None
    """Set where the rate was to be found; `rate_msgs_s` is then None."""
    backlog: BacklogAsked | None = None
    message_sizes: MessageSizes | None = None
    steps: list[RateStep] = Field(default_factory=list)
    """Planned changes of the rate."""
    faults: list[FaultAsked] = Field(default_factory=list)
    extra: dict[str, Any] = Field(default_factory=dict)

    @property
    def consumes_only(self) -> bool:
        """Whether topics are read that exist, and nothing is produced."""
        return self.producers_per_topic == 0

    @property
    def rate_changes(self) -> bool:
        """Whether the rate changes on the way."""
        return bool(self.extra.get("ramp_to_msgs_s") or self.steps)

    @property
    def asked(self) -> dict[str, Any]:
        """What makes two workloads the same, whatever file they came from and wherever the search for their rate began."""
        return self.model_dump(mode="json", exclude={"file": True, "search": {"first_msgs_s"}})


class SubscriptionFigures(Model):
    """One subscription in the measured phase."""

    name: str
    role: Literal["tailing", "catching up"]
    consume_rate_msgs_s: float
    consume_rate_mb_s: float
    backlog_msgs_max: int
    end_to_end_ms: Latency


class WarmUpResult(Model):
    """A warm-up that was to end as soon as the load was steady."""

    limit_s: float
    """It ends then, steady or not."""
    lasted_s: float
    steady: bool
    explanation: str = ""
    """Why it was not steady at its end."""


class PhaseFigures(Model):
    """One phase of load, by the messages that were due in it (latencies) and by what was seen in it (rates)."""

    name: str
    from_s: float
    until_s: float
    publish_rate_msgs_s: float
    publish_rate_mb_s: float
    achieved_share: float | None = None
    publish_ms: Latency
    service_ms: Latency | None = None
    """Where it stands for publish latency (`TrialResult.untold`)."""
    send_delay_ms: Latency
    end_to_end_by_subscription_ms: dict[str, Latency] = Field(default_factory=dict)
    consume_rate_by_subscription_msgs_s: dict[str, float] = Field(default_factory=dict)


class Drain(Model):
    """How one subscription read its backlog. Times are on the schedule's axis."""

    subscription: str
    resumed_s: float
    backlog_msgs: int
    """When it was resumed."""
    backlog_bytes: int
    caught_up_s: float | None = None
    chase_s: float | None = None
    """From resumed to caught up; None when it did not catch up within its time."""
    read_msgs: int = 0
    """Received until it had caught up (or until the end), what came in meanwhile included."""
    mean_msgs_s: float | None = None
    mean_mb_s: float | None = None
    max_msgs_s: float | None = None
    """In the best whole second; None when reading took less than one."""
    max_mb_s: float | None = None


class CatchUp(Model):
    """A backlog that was built and read while producing went on."""

    reader: Literal["same", "extra"]
    size_bytes: int
    """Asked for, over all subscriptions that read it."""
    built_bytes: int
    built: bool
    """Whether it reached its size within its time."""
    build_s: float
    cache_dropped: bool
    """Whether the machine's page cache was dropped before it was read."""
    caught_up: bool
    chase_s: float | None = None
    """Until the last subscription had caught up."""
    drains: list[Drain] = Field(default_factory=list)
    phases: list[PhaseFigures] = Field(default_factory=list)
    """measure (before), build backlog, catch-up, after."""


class Pattern(Model):
    """What a series does over the measured phase: its level changes, or something comes back (docs/method.md)."""

    kind: Literal["change", "period"]
    series: str
    """publish_rate (messages per second), publish_ms_p50, publish_ms_p99, publish_ms_max (or service_ms_...)."""
    at_s: float | None = None
    """Of a change: where, on the schedule's axis."""
    before: float | None = None
    after: float | None = None
    """Of a change: medians of the stretches before and after it."""
    period_s: float | None = None
    swing: float | None = None
    """Of a period: the highest part of it over the lowest one."""
    share: float | None = None
    """Of a period: share of the variation that it explains."""


class Limit(Model):
    """Something that may be what keeps a figure from being better, and how near it was."""

    name: Literal[
        "cpu", "thread", "disk_write", "disk_read", "fsync", "network", "client_window", "generator"
    ]
    share: float
    """Of the limit: 1 is all of it."""
    evidence: str
    """One sentence with the figures."""


class Bottleneck(Model):
    """Which limit binds a maximum."""

    applies: bool
    """Whether the system was at its most: a closed loop, a rate that was searched for, or one that was not achieved."""
    binding: str | None = None
    """Name of the limit that binds; None where nothing is near its limit, or the system was not at its most."""
    explanation: str
    limits: list[Limit] = Field(default_factory=list)
    """All that are known, the nearest first."""


class Coincidence(Model):
    """What happened in the intervals that hold a tail, compared with all intervals."""

    event: str
    lift: float
    """How much more often slow messages lie in intervals with the event than chance would have it; 1: as often."""
    intervals: int
    """With the event."""
    share: float
    """Of the slow messages, in such intervals."""
    chance: float
    """How probable as much is when the event has nothing to do with it (the series shifted against each other)."""
    explanation: str


class Tail(Model):
    """The slowest messages, and what coincided with them."""

    metric: Headline = "publish"
    above_ms: float
    """p99.9: what is slower than this is the tail."""
    msgs: int
    intervals: int
    """That hold any of it."""
    coincidences: list[Coincidence] = Field(default_factory=list)
    """Only those that chance does not explain; the largest lift first."""
    looked_at: list[str] = Field(default_factory=list)
    """All events that were looked for and that happened."""
    explanation: str


class SystemMetric(Model):
    """A figure that a system counts or measures itself, such as the latency of a bookie's journal. It says what happened inside, and
    nothing of the latencies and rates in this result comes from it."""

    name: str
    """Process and metric, with its unit: "bookie-1.journal_sync_ms_p99"."""
    before: float | None = None
    """When the load began."""
    after: float
    """When it had ended. What only counts up grew by the difference."""


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
    tls: OnOff = "off"
    """Whether clients spoke TLS with the system. Between the nodes of one that streamgauge started everything is in plain text."""
    authentication: str | None = None
    """The mechanism by which clients said who they are, where a system file names one."""
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

    subscriptions: list[SubscriptionFigures] = Field(default_factory=list)
    search: Search | None = None
    """How the rate was found, where it was to be found."""
    catch_up: CatchUp | None = None
    warm_up: WarmUpResult | None = None
    """How the warm-up ended, where it had no fixed length."""
    faults: Faults | None = None
    """The faults that were made on purpose, where there were any."""

    publish_rate_msgs_s: float
    publish_rate_mb_s: float
    consume_rate_msgs_s: float
    consume_rate_mb_s: float
    target_rate_msgs_s: float | None = None
    achieved_share: float | None = None
    """Acknowledged rate over target rate within the measured phase."""
    backlog_msgs_max: int
    waiting_msgs_max: int | None
    errors: dict[str, int] = Field(default_factory=dict)
    """Kind -> count, over the whole trial."""
    failed_msgs: int = 0
    retries: int | None = 0

    audit: Audit
    validity: Validity
    steadiness: Steadiness
    cpu: Cpu
    processes: list[Process] = Field(default_factory=list)
    system_metrics: list[SystemMetric] = Field(default_factory=list)
    """What the system says of itself; empty where it has nothing of the kind."""
    limits: Limits
    share_of_limit: Share | None = None
    """The limit that was used most."""
    shares: list[Share] = Field(default_factory=list)
    patterns: list[Pattern] = Field(default_factory=list)
    """What the series do over the measured phase."""
    bottleneck: Bottleneck | None = None
    """Which limit binds; None for results of before this was looked at."""
    tail: Tail | None = None
    """What coincided with the slowest messages; None where nothing could be told."""
    threads: list[Thread] = Field(default_factory=list)
    """The system's busiest threads; empty where they were not seen."""
    write_amplification: float | None = None
    """Bytes that the system's processes wrote to disk per byte published, over the measured phase."""
    lanes: list[Lane] = Field(default_factory=list)
    cannot: list[str] = Field(default_factory=list)
    """What of the workload the protocol could not do."""
    untold: dict[str, str] = Field(default_factory=dict)
    """Figures that the workers could not tell, by their names here, and why: they are absent, and not 0."""
    worker_rss_bytes_max: int | None = 0
    end_to_end_bound_ms: float | None = None
    """How wrong an end-to-end latency can be because it was measured between two clocks; None with one clock."""

    @property
    def headline(self) -> Headline:
        """What stands for the latency of publishing."""
        return headline(self.untold)

    @property
    def headline_ms(self) -> Latency:
        """The figures of it."""
        return self.publish_ms if self.headline == "publish" else self.service_ms


def headline(untold: Mapping[str, str]) -> Headline:
    """What stands for the latency of publishing where these figures are not told."""
    return "service" if "publish_ms" in untold else "publish"


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
