"""May a trial's figures be believed? One sentence per reason; and hints that do not invalidate.

A trial is *invalid* when the generator and not the system set a figure, or when the figures do not describe
what was declared. What the system did wrong (lost, corrupted or unexpected messages) is a finding about the
system: the trial stays valid and is *not clean*, which every report shows as loudly as invalidity. Books that
do not balance are our own fault, and invalidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamgauge.analysis.lanes import LaneUse
from streamgauge.analysis.lateness import Lateness, allowed_ms, hidden_ms
from streamgauge.analysis.limits import NEAR_LIMIT_SHARE
from streamgauge.analysis.quiet_check import Attraction
from streamgauge.analysis.quiet_measured import Quiet
from streamgauge.analysis.quiet_verdict import OwnLateness, Verdict, own_lateness, verdict
from streamgauge.analysis.shortage import Shortage, allowance_msgs, needed_shares, shortage, target_msgs
from streamgauge.model.result import Audit, Durability, Steadiness, Validity
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_base import Headline, Latency
from streamgauge.model.result_machine import Cpu, Lane, Share
from streamgauge.model.result_quiet import Begin, Word
from streamgauge.model.result_special import Probe, Search
from streamgauge.vocabulary.bounds import (
    ACHIEVED_SHARE_MIN,
    LANE_BUSY_SHARE_MAX,
    OWN_SHARE_MAX,
    OWN_SHARE_SAID,
    SERVICE_DELAY_MS_FLOOR,
    WORKERS_SHARE_MAX,
)
from streamgauge.vocabulary.format import plural, trimmed

STEAL_SHARE_MAX = 0.02
OTHERS_SHARE_MAX = 0.10
CAUGHT_UP_SHARE_MIN = 1.02
ATTRACTION_UNKNOWN = Attraction(Begin.independent)
JUDGED_BY: dict[str, str | None] = {"send_delay": None, "ack_delay": None, "receive_delay": "end_to_end"}
"""In what the generator may be late, and the metric that contains it; None: the headline."""
BACKPRESSURE_IN_IT = " Back-pressure is in it: these workers do not tell the two apart."


@dataclass(frozen=True)
class Evidence:
    """What the judgement rests on."""

    status: str
    failure: str | None
    fatal: list[str]
    notes: list[str]
    workload: WorkloadResult
    publish: Latency
    """Publish latency, or what stands for it."""
    end_to_end: Latency
    delays: Mapping[str, Latency]
    """What the generator adds to them, by JUDGED_BY."""
    lateness: Lateness
    quiet: Quiet | None
    """How disturbed the trial was; None where the workers do not tell."""
    acked_msgs: int
    """Acknowledged within the measured window."""
    received_msgs: int
    """Received within it."""
    window_s: float
    failed_msgs: int
    retries: int | None
    errors: dict[str, int]
    worker_cpu_shares: dict[str, float]
    """Worker -> share of its cores in the window."""
    lanes: list[Lane]
    lane_use: list[LaneUse]
    """How busy each lane was in the window."""
    audit: Audit
    audit_expected: bool
    books: list[str]
    """One sentence for each sum over the intervals that does not agree with the audit."""
    durability: Durability
    steadiness: Steadiness
    cpu: Cpu
    nodes: int
    attached: bool
    share_of_limit: Share | None
    """The limit of the machine that was used most."""
    cluster_here: bool = False
    has_agents: bool = False
    """Whether agents told of the cluster's machines."""
    """Attached, to a cluster on this machine: what it uses counts as that of others."""
    joined_intervals: int = 0
    """Intervals of the window that hold what was seen in several."""
    binding: str | None = None
    """The limit that binds, of whatever kind (analysis/bottleneck.py)."""
    cannot: list[str] = field(default_factory=list)
    search: Search | None = None
    headline: Headline = "publish"
    """What `publish` is."""
    has_faults: bool = False
    """The system was broken on purpose: what it failed to do then is the finding, and no fault of the trial."""


def judge(evidence: Evidence) -> Validity:
    """Every reason and every warning, in the order of METHOD: what broke, the generator, the books, the
    system's settings.
    """
    lateness = [one for metric in JUDGED_BY if (one := _own_lateness(evidence, metric)) is not None]
    of_generator, short = _generator(evidence, lateness), _shortage(evidence)
    is_excused = short is not None and short.is_explained and not of_generator
    too_little = [] if short is None or is_excused else [short.reason]
    reasons = [
        *_broken(evidence),
        *of_generator,
        *too_little,
        *_soak(evidence),
        *_books(evidence),
        *evidence.durability.mismatches,
        *_level(evidence),
    ]
    reasons = list(dict.fromkeys(reasons))
    found = _verdict(evidence, reasons, _held_up(evidence, lateness, short))
    late = [one.sentence for one in lateness if one.own is False and one.machine_share]
    return Validity(
        word=found.word,
        conclusion=found.sentence,
        valid=found.word.stands,
        reasons=reasons,
        warnings=list(dict.fromkeys([*_warnings(evidence), *_own_share(evidence, lateness), *late])),
        # Who is late has sent less within the window, too.
        disturbed=found.word is Word.bounds_only
        or (bool(of_generator) and set(reasons) <= {*of_generator, *too_little}),
    )


def _judged_by(evidence: Evidence, metric: str) -> str:
    """The metric of which a delay of the generator is a part."""
    return JUDGED_BY[metric] or evidence.headline


def _judged_p99_ms(evidence: Evidence, metric: str) -> float | None:
    """Its p99 as far as it is known, of quiet time where that was watched."""
    judged, quiet = _judged_by(evidence, metric), evidence.quiet
    if quiet is not None and quiet.found.watched and "p99" in quiet.told.get(judged, {}):
        told = quiet.told[judged]["p99"]
        return told.value if told.value is not None else told.at_least
    return (evidence.end_to_end if judged == "end_to_end" else evidence.publish).p99


def _allowed_ms(evidence: Evidence, metric: str, judged_ms: float) -> float:
    """How late the generator may be."""
    floor_ms = SERVICE_DELAY_MS_FLOOR if evidence.headline == "service" else 0.0
    return max(allowed_ms(judged_ms, _hidden_ms(evidence, metric)), floor_ms)


def _hidden_ms(evidence: Evidence, metric: str) -> float:
    """What of a delay is in no latency."""
    return hidden_ms(evidence.workload.linger_ms, evidence.cpu) if metric == "send_delay" else 0.0


def _own_lateness(evidence: Evidence, metric: str) -> OwnLateness | None:
    """Whose fault a delay was; None where nothing watched, or nothing was due."""
    quiet = evidence.quiet
    if quiet is None or not quiet.found.watched or evidence.workload.arrival == "closed":
        return None
    judged_ms = _judged_p99_ms(evidence, metric)
    if not judged_ms or not evidence.delays[metric].count:
        return None
    found = own_lateness(
        metric,
        quiet.intervals[metric],
        quiet.told[metric]["p99"],
        _allowed_ms(evidence, metric, judged_ms),
        quiet.unseen,
    )
    # Where next to nothing was disturbed all messages tell it.
    return None if found.own is None and not quiet.is_disturbed else found


def _held_up(evidence: Evidence, lateness: Sequence[OwnLateness], short: Shortage | None) -> str:
    """Why no figure may stand, though nothing shows that the generator was at fault; empty where nothing is known against them."""
    quiet = evidence.quiet
    if quiet is None or not quiet.is_disturbed:
        return ""
    if short is not None and short.is_explained:
        return short.held_up
    soak = _failed_soak(evidence)
    if soak is not None and soak.by_machine:
        return f"{_did_not_hold(soak)}: who had had more CPU might have kept up."
    for one in lateness:
        came = evidence.delays[one.metric].p99
        if one.own is None and came is not None and came > one.bound_ms:
            return one.sentence
    return ""


def _verdict(evidence: Evidence, reasons: list[str], held_up: str) -> Verdict:
    quiet = evidence.quiet
    told = {} if quiet is None else quiet.told
    named = {
        f"{metric.replace('_', '-')} {name}": figure
        for metric in (evidence.headline, "end_to_end")
        if quiet is not None and _has_messages(quiet, metric)
        for name, figure in told.get(metric, {}).items()
        if name in ("p50", "p99")
    }
    return verdict(
        own_faults=reasons,
        watched=quiet is not None and quiet.found.watched,
        disturbed_share=0.0 if quiet is None else quiet.disturbed_share,
        unseen_share=0.0 if quiet is None else quiet.unseen.share,
        held_up=held_up,
        figures_missing=[name for name, figure in named.items() if figure.value is None],
        # Topics that are only read have rates alone.
        figures_told=[name for name, figure in named.items() if figure.value is not None]
        if named
        else ["rates"],
        attracted=ATTRACTION_UNKNOWN if quiet is None else quiet.attracted,
        blurred=quiet is not None and quiet.blurred,
    )


def _broken(evidence: Evidence) -> list[str]:
    reasons = list(evidence.fatal)
    if evidence.status == "failed" and not evidence.fatal:
        reasons.append(evidence.failure or "The trial failed before it was complete.")
    if evidence.workload.consumes_only:
        if not evidence.received_msgs:
            reasons.append("No message was read: the topics hold nothing from where the subscriptions began.")
    elif evidence.window_s <= 0 or evidence.publish.count == 0:
        reasons.append(
            "No message was measured: the trial ended before or within warm-up, or nothing was acknowledged."
        )
    if evidence.failed_msgs and not evidence.has_faults:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(evidence.errors.items()))
        reasons.append(
            f"{plural(evidence.failed_msgs, 'message')} failed"
            + (f" ({kinds})." if kinds else ".")
            + " A valid trial has none."
        )
    return reasons


def _has_messages(quiet: Quiet, metric: str) -> bool:
    """Whether there is anything that figures could be of: topics that are only read have no latency."""
    return any(one.came.count or one.came_beyond for one in quiet.intervals.get(metric, ()))


def _generator(evidence: Evidence, lateness: Sequence[OwnLateness]) -> list[str]:
    reasons = []
    watched = {one.metric: one for one in lateness}
    for metric, delay in evidence.delays.items():
        if evidence.workload.arrival == "closed":
            break
        judged, judged_ms = _judged_by(evidence, metric), _judged_p99_ms(evidence, metric)
        floor = f", at least {SERVICE_DELAY_MS_FLOOR:.0f} ms" if evidence.headline == "service" else ""
        hidden = _hidden_ms(evidence, metric)
        beside = f", and {trimmed(hidden)} ms that a batch lingers for less" if hidden else ""
        allowed = f"({100 * OWN_SHARE_MAX:.0f} % of the {judged.replace('_', '-')} p99{beside}{floor})."
        if metric in watched:
            if watched[metric].own:
                reasons.append(f"{watched[metric].sentence.removesuffix('.')} {allowed}")
        elif delay.p99 is not None and judged_ms and delay.p99 > _allowed_ms(evidence, metric, judged_ms):
            why = evidence.lateness.explanation if metric == "send_delay" else ""
            reasons.append(
                f"The generator was late: p99 of {metric.replace('_', ' ')} is {trimmed(delay.p99)} ms, allowed are "
                f"{trimmed(_allowed_ms(evidence, metric, judged_ms))} ms {allowed}"
                + (BACKPRESSURE_IN_IT if evidence.headline == "service" else "")
                + (f" {why}" if why else "")
            )
    for worker, share in sorted(evidence.worker_cpu_shares.items()):
        if share > WORKERS_SHARE_MAX:
            reasons.append(
                f"Worker {worker} used {100 * share:.0f} % of its cores; above 90 % the generator "
                "sets the figures."
            )
    return reasons


def _own_share(evidence: Evidence, lateness: Sequence[OwnLateness]) -> list[str]:
    """How much of the latencies may be the generator's own, where that is much and not too much."""
    watched = {one.metric: one.quiet.value for one in lateness}
    shares = []
    for metric, delay in evidence.delays.items():
        own_ms, judged_ms = watched.get(metric, delay.p99), _judged_p99_ms(evidence, metric)
        if evidence.workload.arrival == "closed" or own_ms is None or not judged_ms:
            continue
        share = (own_ms - _hidden_ms(evidence, metric)) / judged_ms
        if OWN_SHARE_SAID < share <= OWN_SHARE_MAX:
            judged = _judged_by(evidence, metric).replace("_", "-")
            shares.append(
                f"{100 * share:.0f} % of the {judged} p99 ({metric.replace('_', ' ')}: {trimmed(own_ms)} ms)"
            )
    return [f"Up to {' and up to '.join(shares)} may be the generator's own."] if shares else []


def _shortage(evidence: Evidence) -> Shortage | None:
    """What is missing of the target rate; None where nothing is, or where it was broken on purpose."""
    if evidence.has_faults:
        return None
    found = None if evidence.quiet is None else evidence.quiet.found
    return shortage(
        evidence.workload,
        acked_msgs=evidence.acked_msgs,
        window_s=evidence.window_s,
        is_disturbed=evidence.quiet is not None and evidence.quiet.is_disturbed,
        away_share=0.0 if found is None else found.away_share or 0.0,
        needed=needed_shares(
            evidence.lanes,
            evidence.audit.acked,
            evidence.workload.rate_msgs_s,
            0.0 if found is None else found.windows_s_by_cause.get("unknown", 0.0),
        ),
    )


def _soak(evidence: Evidence) -> list[str]:
    """A rate that was found must hold over the measured window, or it is not what it is called."""
    soak = _failed_soak(evidence)
    return [] if soak is None or soak.by_machine else [f"{_did_not_hold(soak)}."]


def _failed_soak(evidence: Evidence) -> Probe | None:
    """The measured window, where the rate that was found did not hold in it."""
    soak = evidence.search.soak if evidence.search is not None else None
    if soak is None or soak.growth_share_low <= soak.growth_share_max or evidence.status != "complete":
        return None
    return soak


def _did_not_hold(soak: Probe) -> str:
    return (
        f"The rate that was found did not hold: what was due and not received grew by "
        f"{trimmed(100 * soak.growth_share, 2)} % of it over the measured {soak.seconds:.0f} s"
    )


def _books(evidence: Evidence) -> list[str]:
    audit = evidence.audit
    if not evidence.audit_expected:
        return []
    reasons = []
    if not audit.balanced:
        reasons.append(
            f"The books do not balance: {audit.imbalance or 'the worker gave no reason'}.".replace("..", ".")
        )
    return reasons + evidence.books


def _level(evidence: Evidence) -> list[str]:
    asked, declared = evidence.durability.asked, evidence.durability.declared
    if (
        asked is not None
        and declared is not None
        and asked != declared
        and not evidence.durability.mismatches
    ):
        return [f"Durability {asked} was asked for, the settings read back amount to {declared}."]
    return []


def _warnings(evidence: Evidence) -> list[str]:
    return [
        *evidence.notes,
        *_trial_warnings(evidence),
        *_error_warnings(evidence),
        *_machine_warnings(evidence),
    ]


def _trial_warnings(evidence: Evidence) -> list[str]:
    warnings = []
    if evidence.status == "interrupted":
        warnings.append("The trial was stopped by the user; figures are of what was measured until then.")
    if evidence.has_faults:
        warnings.append(
            "The system was broken on purpose in this trial: its figures are those of the faults."
        )
    elif evidence.steadiness.label not in ("steady", "too short"):
        warnings.append(f"The trial is {evidence.steadiness.label}: {evidence.steadiness.explanation}")
    elif evidence.steadiness.label == "too short":
        warnings.append(f"Too short to judge steadiness: {evidence.steadiness.explanation}")
    if evidence.workload.consumes_only:
        warnings.append(
            "Topics were read that existed before: what was sent to them is not known, so there is no audit and no "
            "end-to-end latency."
        )
    elif not evidence.audit.enabled and evidence.audit_expected and evidence.audit.missing is None:
        warnings.append("The audit is off: messages below 32 bytes have no room for the stamp.")
    target = target_msgs(evidence.workload, evidence.window_s)
    if target and evidence.acked_msgs > CAUGHT_UP_SHARE_MIN * target + allowance_msgs(
        evidence.workload, target
    ):
        warnings.append(
            f"{100 * evidence.acked_msgs / target:.0f} % of the target rate was acknowledged: the measured phase worked off "
            "what the warm-up had left waiting. A longer warm-up is needed."
        )
    if evidence.workload.arrival == "closed":
        warnings.append(
            "Closed loop: messages leave as fast as others are acknowledged, so latencies describe "
            "a full pipeline "
            "and are not comparable with those of a fixed rate."
        )
    return warnings


def _error_warnings(evidence: Evidence) -> list[str]:
    if evidence.failed_msgs and not evidence.has_faults:
        return []
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(evidence.errors.items()) if count)
    if evidence.failed_msgs:
        return [f"{plural(evidence.failed_msgs, 'message')} failed" + (f" ({kinds})." if kinds else ".")]
    if evidence.retries:
        return [f"{evidence.retries:,} sends were retried and succeeded" + (f" ({kinds})." if kinds else ".")]
    return [f"Errors without a failed message: {kinds}."] if kinds else []


def _machine_warnings(evidence: Evidence) -> list[str]:
    warnings = []
    cpu = evidence.cpu
    if cpu.steal_s is not None and cpu.duration_s > 0:
        steal = cpu.steal_s / (cpu.cores * cpu.duration_s)
        if steal > STEAL_SHARE_MAX:
            warnings.append(
                f"Steal was {100 * steal:.1f} % (above 2 %): other guests of the same host took CPU "
                "time away."
            )
    if cpu.others_share is not None and cpu.others_share > OTHERS_SHARE_MAX:
        who = (
            "The cluster, which runs on this machine, and other programs"
            if evidence.cluster_here
            else "Other programs on this machine"
        )
        its = "the machine's" if evidence.cluster_here else "its"
        warnings.append(
            f"{who} used {100 * cpu.others_share:.0f} % of {its} CPU (above 10 %): "
            "the figures are of a busy machine."
        )
    if not evidence.attached and cpu.cores < evidence.nodes:
        warnings.append(
            f"{trimmed(cpu.cores / evidence.nodes, 2)} cores per broker on this {cpu.cores}-core machine: "
            "brokers and generator share CPU, and that is measured too."
        )
    if evidence.attached and not evidence.has_agents:
        warnings.append(
            "The cluster was not started by this run: its CPU, disks and network limits were not measured"
            + (
                ", and what it uses of this machine counts as that of others."
                if evidence.cluster_here
                else "."
            )
        )
    if evidence.joined_intervals:
        warnings.append(
            f"What was seen in {plural(evidence.joined_intervals, 'interval')} is told together with that of others, in the first of them: the worker could "
            "not hand over in time. Figures of the whole phase are not touched by it, those over time are."
        )
    for lane in evidence.lane_use:
        if lane.busy_share > LANE_BUSY_SHARE_MAX:
            warnings.append(
                f"Lane {lane.name} of worker {lane.worker} was busy {100 * lane.busy_share:.0f} % of the time: "
                "the generator may be the limit; try more lanes or more workers."
            )
    target = target_msgs(evidence.workload, evidence.window_s)
    at_its_most = not evidence.has_faults and (
        not evidence.workload.rate_changes
        if target is None
        else evidence.acked_msgs < ACHIEVED_SHARE_MIN * target
    )
    share = evidence.share_of_limit
    is_unexplained = share is not None and share.value < NEAR_LIMIT_SHARE and evidence.binding is None
    if at_its_most and not evidence.attached and share is not None and is_unexplained:
        warnings.append(
            f"Nothing is near its limit (the most used is {share.name.replace('_', ' ')} at "
            f"{100 * share.value:.0f} %): "
            "the bottleneck is unexplained."
        )
    return warnings
