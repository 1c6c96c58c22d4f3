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

The parts of a result are in modules of their own: result_asked (the workload), result_machine (CPU, processes, limits), result_special (search, faults,
backlog, warm-up), result_reasons (bottleneck, tail, patterns); the tables' columns are in result_columns.

Units are the last word of a name: `_ms`, `_s`, `_msgs`, `_msgs_s`, `_mb_s` (MB is 10^6 bytes), `_bytes`. Percentiles are named p50 ... p99_99.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from streamgauge.model.own_metric import OwnMetricFigures
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_base import Headline, Latency, Model, UnixMs
from streamgauge.model.result_hosts import HostFigures, ProbedDisk
from streamgauge.model.result_machine import Cpu, Lane, Limits, Process, Share, SystemMetric, Thread
from streamgauge.model.result_profile import Profiled
from streamgauge.model.result_quiet import Bounded, QuietLatency, QuietTime, Word
from streamgauge.model.result_reasons import Bottleneck, Pattern, Tail
from streamgauge.model.result_special import CatchUp, Faults, Search, WarmUpResult
from streamgauge.model.result_told import Host, ProbeOfMachine
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level

OnOff = Literal["on", "off"]
RESULT_FORMAT = 1


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

    @property
    def shows_lost(self) -> int:
        """Acknowledged messages that were never received, as far as the books can show it: those of a worker that was lost with them may hold the receipts
        of all that seems to be missing."""
        return self.lost if self.enabled and self.balanced else 0


class Validity(Model):
    """May the figures be believed? One sentence per reason; warnings do not invalidate."""

    word: Word | None = None
    """valid; disturbed: the figures of quiet time stand; bounds only: no figure stands, its bounds do; invalid. None in results of before quiet time was
    looked at: use `called`."""
    conclusion: str = ""
    """What may be concluded, a sentence or two."""
    valid: bool
    """Whether figures stand: those as they came, or those of quiet time."""
    reasons: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    disturbed: bool = False
    """No figure stands because of what else the machine did: it is worth being done again."""

    @property
    def why(self) -> str:
        """Why no figure stands: the first reason, or what the bounds tell where there is none."""
        return self.reasons[0] if self.reasons else self.conclusion

    @property
    def called(self) -> Word:
        """The word; where it contradicts `valid`, as only a result can that others wrote, that counts."""
        if self.word is None or self.valid != self.word.stands:
            return Word.valid if self.valid else Word.invalid
        return self.word

    @property
    def is_invalid(self) -> bool:
        """Whether nothing can be concluded from it."""
        return self.called is Word.invalid

    @property
    def bounds_only(self) -> bool:
        """Whether no figure stands, and bounds do."""
        return self.called == Word.bounds_only

    @property
    def not_as_it_came(self) -> bool:
        """Whether something else stands than the figures as they came: those of quiet time, or bounds."""
        return self.called in (Word.disturbed, Word.bounds_only)


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


class SubscriptionFigures(Model):
    """One subscription in the measured phase."""

    name: str
    role: Literal["tailing", "catching up"]
    consume_rate_msgs_s: float
    consume_rate_mb_s: float
    backlog_msgs_max: int
    end_to_end_ms: Latency


class TrialResult(Model):
    """One trial: one workload on one system, once."""

    format: int = RESULT_FORMAT
    run_id: str
    trial: int
    repeat: int
    started_unix_ms: UnixMs
    ended_unix_ms: UnixMs
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
    ack_delay_ms: Latency = Latency()
    """How long acknowledgements may have waited for the generator to read them, at the most; empty in results of before."""
    receive_delay_ms: Latency = Latency()
    """The same of messages."""
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
    quiet: QuietTime | None = None
    """How disturbed the machine was, and the figures of quiet time; None for results of before, and where workers do not tell."""
    cpu: Cpu
    processes: list[Process] = Field(default_factory=list)
    system_metrics: list[SystemMetric] = Field(default_factory=list)
    """What the system says of itself; empty where it has nothing of the kind."""
    own_metrics: list[OwnMetricFigures] = Field(default_factory=list)
    own_metrics_spared: list[str] = Field(default_factory=list)
    """Processes that were not asked for them while they were measured, because an answer takes long: a sentence each."""
    """What the system's processes told of themselves, once per second (metrics.parquet); empty where they were not asked."""
    cluster_hosts: list[HostFigures] = Field(default_factory=list)
    """The cluster's machines that had agents; empty without."""
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
    profiled: Profiled | None = None
    """Where the processes spent their time; None where they were not profiled."""
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
        """The figures of it that stand."""
        return self.standing_ms(f"{self.headline}_ms")

    def standing_ms(self, name: str) -> Latency:
        """What stands of a latency (`publish_ms`): the figures of quiet time where there are such; those as they came where next to nothing was
        disturbed, and in results of before quiet time was looked at. The fields of that name have all messages as they came."""
        return standing(getattr(self, name), getattr(self.quiet, name, None), self.validity.called)

    def bounded(self, name: str, percentile: str) -> Bounded | None:
        """A percentile of a latency (`publish_ms`) with what is known of its interval: of quiet time, or of messages without an end, among which it may
        lie. None where nothing is known."""
        quiet: QuietLatency | None = getattr(self.quiet, name, None)
        figure = None if quiet is None else quiet.figure(percentile)
        if figure is not None and (
            figure.value is not None or figure.at_least > 0 or figure.at_most is not None
        ):
            return figure
        came: Latency = getattr(self, name)
        least = came.at_least.get(percentile)
        if least is None:
            return figure
        return Bounded(at_least=least, why=f"{plural(came.unanswered, 'message')} never came to an end")

    def standing_rate(self, name: str) -> float:
        """What stands of a rate (`publish_rate_msgs_s`, `consume_rate_mb_s`): that of quiet time where the system sets it and the trial was disturbed."""
        came: float = getattr(self, name)
        msgs_s: float = getattr(self, name.replace("_mb_s", "_msgs_s"))
        quiet: Bounded | None = getattr(self.quiet, name.replace("_mb_s", "_msgs_s"), None)
        if self.validity.called != Word.disturbed or quiet is None or quiet.value is None or not msgs_s:
            return came
        return came * quiet.value / msgs_s


def standing(came: Latency, quiet: QuietLatency | None, word: Word) -> Latency:
    """See `TrialResult.standing_ms`."""
    if quiet is None or word == "invalid":
        return came
    figures = {name: figure.value for name, figure in quiet.figures().items()}
    if word == "valid":
        figures = {name: getattr(came, name) if value is None else value for name, value in figures.items()}
    else:
        figures["max"] = None
    return came.model_copy(update=figures)


def headline(untold: Mapping[str, str]) -> Headline:
    """What stands for the latency of publishing where these figures are not told."""
    return "service" if "publish_ms" in untold else "publish"


class Manifest(Model):
    """What a run was asked to do, and on what."""

    format: int = RESULT_FORMAT
    run_id: str
    streamgauge_version: str
    command: list[str]
    started_unix_ms: UnixMs
    ended_unix_ms: UnixMs | None = None
    status: Literal["running", "complete", "interrupted", "failed"]
    seed: int
    systems: list[dict[str, Any]]
    """Per system: name, version, nodes, level, configuration() as written, settings read back."""
    workloads: list[dict[str, Any]]
    host: Host
    """The probe's `host` object."""
    probes: list[ProbeOfMachine] = Field(default_factory=list)
    """`gauge probe --short --json` before and after, each with `when`: "before" | "after"; of a study also "after round 2", and each with the number of its
    `next_trial`."""
    disks: list[ProbedDisk] = Field(default_factory=list)
    """Every disk of every machine that was asked for, before the load (`study --probe-hosts`)."""
    trials: list[str] = Field(default_factory=list)
    """Relative paths of the trials' directories, in the order in which they ran."""
    notes: list[str] = Field(default_factory=list)
