"""The answers of the worker API (docs/worker-api.md) as the lab reads them.

Fields that a newer worker adds are ignored; fields that must be there are checked here, so that nothing
behind this border meets a half-filled answer.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from streamgauge.model.result_base import Headline

INDEX_MAX = (1 << 31) - 1
WINDOWS_MAX = 100
"""Of an interval; a worker lists no more than 50."""
SECONDS_MAX = 1e8
"""Three years: no trial is longer."""
OLDER_MS = (0.5, 1.0, 2.0, 5.0)
"""Ages of the oldest message under way that a worker tells apart."""
AGES_MAX = 16
Index = Annotated[int, Field(ge=0, le=INDEX_MAX)]
Moment = Annotated[float, Field(ge=-SECONDS_MAX, le=SECONDS_MAX, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=-(1 << 53), le=1 << 53)]
"""What a double holds exactly, so that sums stay within 64 bits. A backlog may be below 0 for a moment."""
Span = Annotated[float, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]


class Message(BaseModel):
    """Base of everything received: tolerant of additions."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Info(Message):
    """GET /v1/info."""

    api: int
    version: str
    hostname: str
    pid: int
    cores: int
    protocols: list[str]
    monotonic_ns: int = 0


class HostCpu(Message):
    """Seconds of all cores together, since the machine started."""

    idle_s: float
    busy_s: float
    steal_s: float


class HostMemory(Message):
    """Bytes."""

    total_bytes: int
    available_bytes: int
    page_cache_bytes: int
    dirty_bytes: int


class HostPressure(Message):
    """Seconds for which something waited (PSI, "some"); None where the kernel does not tell."""

    cpu_s: float | None = None
    io_s: float | None = None
    memory_s: float | None = None


class HostDisk(Message):
    """Totals of a whole disk."""

    name: Annotated[str, Field(max_length=64)]
    reads: int
    read_bytes: int
    read_s: float
    writes: int
    write_bytes: int
    write_s: float
    flushes: int
    flush_s: float
    busy_s: float
    queue_s: float


class HostInterface(Message):
    """Totals of a network interface."""

    name: Annotated[str, Field(max_length=64)]
    received_bytes: int
    sent_bytes: int


class HostThread(Message):
    """One of a process's busiest threads."""

    name: Annotated[str, Field(max_length=64)]
    id: int
    cpu_s: float


class SyncsTold(Message):
    """A process's calls of fsync and fdatasync since somebody looks."""

    calls: Count = 0
    wait_s: Span = 0.0
    wait_s2: Span = 0.0
    """Squares of the times."""


class HostProcess(Message):
    """Totals of a process that was asked for."""

    name: Annotated[str, Field(max_length=64)]
    pid: int
    cpu_s: float
    run_delay_s: float
    rss_bytes: int
    read_bytes: int | None = None
    write_bytes: int | None = None
    syncs: SyncsTold | None = None
    threads: Annotated[list[HostThread], Field(max_length=64)] = Field(default_factory=list)


class HostTold(Message):
    """What the kernel of an agent's machine counts."""

    cpu: HostCpu
    memory: HostMemory
    pressure: HostPressure
    disks: Annotated[list[HostDisk], Field(max_length=64)]
    interfaces: Annotated[list[HostInterface], Field(max_length=64)]
    tcp_retransmits: int | None = None
    processes: Annotated[list[HostProcess], Field(max_length=64)]


class HostDisturbance(Message):
    """What the probes of an agent's machine saw since the sample before."""

    disturbed_s: float | None = None


class HostSample(Message):
    """GET /v1/host of an agent."""

    monotonic_ns: int
    cores: Annotated[int, Field(ge=1, le=1 << 20)]
    host: HostTold
    disturbance: HostDisturbance | None = None


class Readiness(Message):
    """How many partitions have a consumer, and how many were proven by a probe message."""

    partitions: int = 0
    assigned: int = 0
    proven: int = 0


class LaneStatus(Message):
    """One thread of the worker."""

    name: str
    role: str
    scheduling: str
    cpu_s: float = 0.0
    worker: str | None = None
    """Whose it is, where there are several workers."""


class ProbesStatus(Message):
    """How a worker looks for disturbance."""

    cpus: list[Index] = Field(default_factory=list)
    is_on: bool = False
    why_not: str | None = None
    """Why it does not, and what to grant: a sentence."""
    scheduling: str | None = None
    period_ms: Span | None = None
    """How often they wake up. None: a worker of before, once in a millisecond."""
    cpu_s: Span = 0.0
    cpu_share: Span = 0.0
    """Of one CPU each."""


class TrialStatus(Message):
    """GET /v1/trials/{id}."""

    id: str
    state: str
    error: str | None = None
    readiness: Readiness = Readiness()
    start_ns: int | None = None
    start_unix_ns: int | None = None
    elapsed_s: float | None = None
    next_interval: int = 0
    audit_enabled: bool = True
    client: str = ""
    cannot: list[str] = Field(default_factory=list)
    untold: dict[str, str] = Field(default_factory=dict)
    """Figures that workers which are not ours cannot tell, by their names in result.json, and why."""
    lanes: list[LaneStatus] = Field(default_factory=list)
    probes: ProbesStatus | None = None
    """How the worker looks for disturbance; None before it is ready, or where it does not."""

    @property
    def ended(self) -> bool:
        """Whether the trial is over, one way or another."""
        return self.state in ("finished", "failed", "aborted")


class LatencyPart(Message):
    """The part of a distribution that is of quiet time, or was censored."""

    count: Count = 0
    overflow: Count = 0
    negative: Count = 0
    histogram: str = ""


class LatencyEntry(Message):
    """One histogram of an interval, and its parts where probes were at work."""

    phase: str
    metric: str
    subscription: str | None = None
    count: Count = 0
    overflow: Count = 0
    negative: Count = 0
    min_ns: Count | None = None
    max_ns: Count | None = None
    p50_ns: Count | None = None
    p99_ns: Count | None = None
    histogram: str = ""
    unacked_msgs: Count = 0
    """Of publish: messages that ended without an acknowledgement."""
    quiet: LatencyPart | None = None
    censored: LatencyPart | None = None
    left_out: Count | None = None


class CpuWindow(Message):
    """A CPU was not to be had. Times on the schedule's axis."""

    cpu: Index
    from_s: Moment
    to_s: Moment
    late_s: Span
    recovered_s: Moment
    cause: str
    steal_s: Span = 0.0
    waited_s: Span = 0.0
    softirq_s: Span = 0.0


class Unlisted(Message):
    """The windows of an interval that are not listed."""

    windows: Count = 0
    length_s: Span = 0.0


class Begins(Message):
    """How old the oldest message under way was, over quiet time and where disturbed spans began: counts, by the ages of `OLDER_MS`."""

    quiet_samples: Count = 0
    quiet_older: list[Count] = Field(default_factory=lambda: [0] * len(OLDER_MS), max_length=AGES_MAX)
    begins: Count = 0
    begins_older: list[Count] = Field(default_factory=lambda: [0] * len(OLDER_MS), max_length=AGES_MAX)
    begins_older_s: list[Span] | None = Field(default=None, max_length=AGES_MAX)
    """How long those spans were; None: not told, as by workers of before."""


class Disturbance(Message):
    """How disturbed an interval was. Without probes only the steal account is known."""

    quiet_s: Span | None = None
    disturbed_s: Span | None = None
    quiet_sent_msgs: Count | None = None
    quiet_acked_msgs: Count | None = None
    quiet_received_msgs: list[Count] | None = None
    undecided_msgs: Count | None = None
    windows: list[CpuWindow] = Field(default_factory=list, max_length=WINDOWS_MAX)
    unlisted: Unlisted = Unlisted()
    attraction: Begins = Begins()
    steal_s: list[Span] = Field(default_factory=list)
    """Of each CPU that is watched."""
    stretches_s: Span | None = None
    """For how long probes waited for the kernel's work for programs of lower priority and for real-time threads of the system, over all CPUs; None: not told
    from windows."""
    probes_cpu_s: Span = 0.0


class SubscriptionCounters(Message):
    """What one subscription received in an interval."""

    name: str
    received_msgs: Count = 0
    received_bytes: Count = 0
    fetches: Count | None = 0
    backlog_msgs: Count = 0


class Interval(Message):
    """One complete interval. Our workers tell everything; what others cannot tell is None, and not 0."""

    index: Index
    start_s: Moment
    duration_s: Span
    sent_msgs: Count = 0
    sent_bytes: Count = 0
    acked_msgs: Count = 0
    acked_bytes: Count = 0
    failed_msgs: Count = 0
    retries: Count | None = 0
    errors: dict[str, Count] = Field(default_factory=dict)
    waiting_msgs: Count | None = 0
    requests: Count | None = 0
    batches: Count | None = 0
    wakeups: Count | None = None
    """How often lanes had nothing to do and waited. A worker that tells it counts what is due and would only wait in its batch as handed over when it
    was due; one of before counted that as send delay."""
    subscriptions: list[SubscriptionCounters] = Field(default_factory=list)
    cpu_s: float | None = 0.0
    lanes_cpu_s: list[float] = Field(default_factory=list)
    rss_bytes: Count | None = 0
    joined_lanes: Count = 0
    """Lanes whose part of this interval is told together with that of others: they could not hand over in time."""
    backpressured_s: float | None = 0.0
    disturbance: Disturbance | None = None
    latencies: list[LatencyEntry] = Field(default_factory=list)

    def latency(self, metric: str) -> LatencyEntry | None:
        """The entry of a metric with the most samples: at a phase's boundary an interval has several."""
        entries = [entry for entry in self.latencies if entry.metric == metric]
        return max(entries, key=lambda entry: entry.count, default=None)

    @property
    def headline(self) -> Headline:
        """What stands for the latency of publishing: publish latency, and service time where workers do not tell it."""
        return "service" if self.latency("publish") is None and self.latency("service") else "publish"


class Counters(Message):
    """GET /v1/trials/{id}/counters: totals so far, and levels of now."""

    acked_msgs: int = 0
    acked_bytes: int = 0
    waiting_msgs: int = 0
    batches: int = 0
    subscriptions: list[SubscriptionCounters] = Field(default_factory=list)


class PhaseBegin(Message):
    """The answer to POST /v1/trials/{id}/phases: where the phase begins on the schedule's axis."""

    name: str
    from_s: float


class ClockPort(Message):
    """The answer to POST /v1/clock."""

    port: int


class ClockSamples(Message):
    """GET /v1/clock: exchanges as (peer, t1, t2, t3, t4)."""

    next: int
    samples: list[tuple[int, int, int, int, int]]


class IntervalsPage(Message):
    """GET /v1/trials/{id}/intervals. The rows stay as they came, because they are stored as they came."""

    next: int
    intervals: list[dict[str, Any]]
    shown: list[dict[str, Any]] | None = None
    """Of several workers: one per interval, added up for those who watch."""
