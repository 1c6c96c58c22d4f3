"""What the durability experiments found, as `durability.json` of their run (docs/durability.md).

Units are the last word of a name, as in results of trials.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from streamgauge.model.power_cut import LostMessage, Place, PowerCut
from streamgauge.model.result import Durability
from streamgauge.model.result_base import Model, UnixMs
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level

DURABILITY_FORMAT = 1

Scope = Literal["one", "majority", "all"]
Kind = Literal["power cut", "failed sync", "kill", "stop"]
Experiment = Literal["dose", "accounting", "cuts"]
EXPERIMENTS: tuple[Experiment, ...] = ("dose", "accounting", "cuts")
FLOWING_S = 1.0
"""Acknowledgements flow when one came within this time."""
READ_EARLY_SHARE_MAX = 0.1
"""So many messages may have been read early, per message of the last second before a cut, for it to tell something."""


class Dose(Model):
    """Publish latency while every sync on some disks took longer, of all rounds together."""

    parts: list[str]
    """The disks that were slowed; none for the load that the others are compared with."""
    delay_ms: float
    publish_ms_p10: float | None = None
    publish_ms_p50: float | None = None
    publish_ms_p99: float | None = None
    acked_msgs: int = 0


class Slope(Model):
    """How the publish p10 follows the delay of the syncs on some disks: what else a machine does makes messages later and none earlier, so that
    the earliest show best what they waited for."""

    nodes: list[str]
    parts: list[str]
    slope: float
    """ms of publish p10 per ms of delay: about 1 when an acknowledgement waits for one such sync, 0 when for none. The median of the rounds."""
    slopes: list[float] = Field(default_factory=list)
    """That of each round, which are alike unless something else takes the machine's time."""
    waits: bool | None
    """None when it does not tell: latencies were longer than the delay, and did not follow it in each round."""


class Stop(Model):
    """Whether acknowledgements went on while some nodes were stopped (SIGSTOP)."""

    nodes: list[str]
    parts: list[str]
    stopped_s: float
    gap_s: float
    """The longest time without an acknowledgement meanwhile."""
    waits: bool


class DoseResponse(Model):
    """For which disks, and for which nodes, an acknowledgement waits."""

    leader: str | None = None
    """The node that led the load's partition, before and after; None when the system has none, or it moved."""
    doses: list[Dose] = Field(default_factory=list)
    slopes: list[Slope] = Field(default_factory=list)
    disks: int | None = None
    """On how many nodes' disks a message is when it is acknowledged, at least; None when it was not found out."""
    disks_told: str = ""
    stops: list[Stop] = Field(default_factory=list)
    copies: int | None = None
    """How many nodes have a message when it is acknowledged, at least; None when it was not found out."""
    copies_told: str = ""

    @property
    def percentile(self) -> str:
        """That of the publish latencies which the slopes are of. Results of before there were rounds have slopes of the p50."""
        return "p10" if any(dose.publish_ms_p10 is not None for dose in self.doses) else "p50"


class Account(Model):
    """What reached one part's disk while a steady load was acknowledged."""

    part: str
    seconds: float
    acked_msgs: int
    """Over all parts: what the producer was acknowledged in this time."""
    acked_bytes: int
    batches: int
    writes: int
    bytes_written: int
    syncs: int
    bytes_synced: int
    unsynced_bytes: int
    """At the end, when everything had been acknowledged."""
    syncs_s: float
    bytes_per_sync: float | None = None
    sync_ms_mean: float | None = None
    write_amplification: float | None = None
    """Bytes written to this disk per payload byte."""


class Pace(Model):
    """Publish latencies of the steady load that was accounted for, second by second."""

    rate_msgs_s: float
    sync_delay_ms: float
    """What a sync took on top."""
    acked_share: float
    """Messages acknowledged per message that was due."""
    publish_ms_p50: list[float] = Field(default_factory=list)
    """Of each whole second."""
    publish_ms_p99: list[float] = Field(default_factory=list)


class LostRange(Model):
    """Acknowledged messages that were not there any more."""

    producer: int
    first: int
    """Sequence of the first."""
    msgs: int
    from_s: float
    """When the first was due, on the schedule's axis."""
    until_s: float
    place: str


class Cut(Model):
    """One time that something was taken down, and what was there afterwards. Times are on the schedule's axis."""

    number: int
    kind: Kind
    scope: Scope
    parts: list[str]
    at_s: float
    """When the processes were stopped and the power was cut."""
    serving_s: float | None = None
    """When all of them served again; None when they did not."""
    acks_back_s: float | None = None
    """When the first message was acknowledged after that; None when none was."""
    unavailable_s: float | None = None
    """The longest time without an acknowledgement."""
    failure: str | None = None
    """Why the system did not come back."""
    refused: list[str] = Field(default_factory=list)
    """Its own words on why it did not: lines of its log, or how it ended; where it came back without what it held (no `failure`), what it says of that.
    Empty: it said nothing that tells."""
    complaints: list[str] = Field(default_factory=list)
    """It acknowledges again, and its own check of itself does not pass: its words."""
    power: PowerCut | None = None
    """What the cut left and took; None for kills and stops, and in files of versions that did not say."""
    place: Place | None = None
    """The operation at which it came; None: at a moment."""
    place_reached: bool = True
    """False: that operation did not come in time, and the cut came at a moment."""
    topics_made: int = 0
    """Topics that were created, most of them deleted again, while the load ran."""
    syncs_failed: int = 0
    replay_of: int | None = None
    """The cut that this one repeats, with its seeds."""
    lost_messages: list[LostMessage] = Field(default_factory=list)
    """Where some of the lost messages had been."""
    read_early: int = 0
    """Messages that the reader had been sent before. Whether they were lost is hidden; the cut tells of the others."""
    acked_before: int | None = None
    """Messages acknowledged in the last `FLOWING_S` before it; None in files of versions that did not look."""
    dropped_bytes: int = 0
    """Written and not synced, on the disks whose power was cut."""
    written_bytes: int | None = None
    """Written to these disks, synced or not, from the load's beginning to the cut; None as above."""
    sent: int = 0
    acked: int = 0
    received: int = 0
    lost: int = 0
    lost_prefix: int = 0
    lost_middle: int = 0
    lost_tail: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0
    unexpected: int = 0
    unknown: int = 0
    recovered: int = 0
    censored: int = 0
    balanced: bool = False
    imbalance: str | None = None
    lost_ranges: list[LostRange] = Field(default_factory=list)
    window_ms: float | None = None
    """Between the times at which the first and the last lost message were due; None when none was lost."""
    acks: list[tuple[float, int]] = Field(default_factory=list)
    """(time, acknowledged so far), thinned out."""

    @property
    def inconclusive(self) -> str | None:
        """Why it cannot be said what such a cut loses, as the rest of a sentence; None when it can.

        A loss is one whatever preceded it. That nothing was lost tells something only when acknowledgements flowed
        up to the cut, and when a power cut hit disks to which the load was being written: it dropped what had not
        been synced, or nothing was pending on them.
        """
        if self.refused:
            return None
        if self.failure is not None:
            return f"it did not come back, and its log does not say why: {self.failure}"
        if not self.balanced or self.censored:
            return self.imbalance or f"not read: {plural(self.censored, 'message')}"
        if self.lost:
            return None
        if not self.acked_before:
            return f"no message was acknowledged in the {FLOWING_S:g} s before it"
        if self.read_early > READ_EARLY_SHARE_MAX * self.acked_before:
            return f"sent to the reader before: {plural(self.read_early, 'message')}"
        if self.kind == "failed sync" and not self.syncs_failed:
            return "no sync failed: there was none that had something to lose"
        if self.kind == "power cut" and not self.dropped_bytes and not self.written_bytes:
            return "nothing had been written to the disks that were cut"
        return None

    @property
    def conclusive(self) -> bool:
        """Whether it can be said what was lost."""
        return self.inconclusive is None


class CutSummary(Model):
    """All cuts of a kind and scope."""

    kind: Kind
    scope: Scope
    cuts: int
    conclusive: int
    with_loss: int
    refused: int = 0
    """After so many the system did not come back, and said why."""
    strict_names: int = 0
    """So many kept names as POSIX promises them and no more; they are not counted above, but for `cuts`."""
    strict_names_with_loss: int = 0
    """Of these, lost something or did not come back."""
    acked: int
    lost: int
    lost_max: int
    window_ms_max: float | None = None
    duplicated: int
    reordered: int
    corrupted: int
    serving_s_median: float | None = None
    """From the cut until all served again."""
    unavailable_s_median: float | None = None
    unavailable_s_max: float | None = None
    loss_probability_max: float | None = None
    """95 % bound of the probability that a cut loses anything (3/n), where none did."""
    inconclusive: str | None = None
    """Why the first of those that told nothing did not."""


class Finding(Model):
    """A durability level, measured."""

    declared: Level | None = None
    measured: Level | None = None
    """None when the experiments do not tell."""
    agrees: bool | None = None
    sentences: list[str] = Field(default_factory=list)
    """The evidence, and what it means for an operator."""
    against: list[str] = Field(default_factory=list)
    """What was found against it beside the level: that it does not come back, takes failed syncs for good, or relies on names that no
    directory sync kept."""


class Conditions(Model):
    """How the disks behaved and the load was."""

    metadata: str
    write_back: str | None = None
    sync_delay_ms: float
    """During cuts: what a sync takes on top, as on a disk of its own."""
    rate_msgs_s: float
    message_size_bytes: int
    partitions: int
    small_segments: dict[str, Any] = Field(default_factory=dict)
    """Settings with which the load fills and rolls segments, ledgers or journals; none: as the system has them."""


class DurabilityResult(Model):
    """One system with one set of settings through the experiments."""

    format: int = DURABILITY_FORMAT
    run_id: str
    name: str
    system: str
    system_title: str
    system_version: str
    nodes: int
    parts: list[str] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)
    started_unix_ms: UnixMs
    ended_unix_ms: UnixMs | None = None
    status: Literal["running", "complete", "interrupted", "failed"] = "running"
    failure: str | None = None
    seed: int
    experiments: list[Experiment]
    durability: Durability
    conditions: Conditions
    response: DoseResponse | None = None
    accounts: list[Account] = Field(default_factory=list)
    pace: Pace | None = None
    cuts: list[Cut] = Field(default_factory=list)
    summaries: list[CutSummary] = Field(default_factory=list)
    finding: Finding = Finding()
    notes: list[str] = Field(default_factory=list)


class StudyAsked(Model):
    """The study that a run goes through, written before anything starts."""

    name: str
    title: str
    file: str
    """Where it was read, for messages."""
    text: str
    """The study's file as it was read."""
    quick: bool
    seed: int
    cuts: int
    experiments: list[Experiment]
    cells: list[str]
    """In the order in which they are measured."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Cell -> why it is not measured."""
    seal: str | None = None
    """Of the lab that wrote it (store/plan_file.py)."""


class DurabilityReport(Model):
    """`durability.json`: every system of the run."""

    format: int = DURABILITY_FORMAT
    study: StudyAsked | None = None
    """None in a run that is no study."""
    results: list[DurabilityResult] = Field(default_factory=list)
