"""From what the runner collected to the result of a trial.

`RawTrial` is the seam: the runner fills it, `analyse` turns it into a `TrialResult`. The steps: merge the
measured phase's histograms, add up the measured window's counters, charge CPU and disk to their owners, ask
for steadiness, then judge.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from streamgauge.analysis import bottleneck, patterns, steadiness, validity
from streamgauge.analysis import limits as limits_module
from streamgauge.analysis import search as search_rules
from streamgauge.analysis import tail as tail_module
from streamgauge.analysis.acks import Acks
from streamgauge.analysis.books import audit_of, disagreements
from streamgauge.analysis.catch_up import catch_up
from streamgauge.analysis.faults import faults as fault_figures
from streamgauge.analysis.intervals import (
    EDGE_S,
    METRICS,
    Intervals,
    Row,
    Series,
    Window,
    read_resources,
    series,
    total,
    total_s,
)
from streamgauge.analysis.lateness import lateness
from streamgauge.analysis.percentiles import latency
from streamgauge.analysis.untold import remarks, told, told_max, told_total
from streamgauge.model.result import Durability, OnOff, Phase, Steadiness, SubscriptionFigures, TrialResult
from streamgauge.model.result import headline as headline_of
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_base import Headline, Latency
from streamgauge.model.result_machine import Cpu, Lane, Process, SystemMetric
from streamgauge.model.result_reasons import Pattern
from streamgauge.model.result_special import CatchUp, Fault, Search, WarmUpResult
from streamgauge.store.context import BacklogFacts
from streamgauge.store.directory import ACKS_NAME

MEASURE = "measure"
"""The phase whose messages make the headline figures."""
EXTRA_READER = "catch-up"
"""The subscription that reads a backlog while others tail."""
INTERVAL_S = 1.0
"""Length of the intervals."""
STAMP_BYTES = 32
"""Messages below this size carry no stamp: no audit and no end-to-end latency."""
BYTES_PER_MB = 1e6


@dataclass
class RawTrial:
    """What the runner knows of a trial when its system is gone. Times are as in `TrialResult`."""

    run_id: str
    trial: int
    repeat: int
    started_unix_ms: int
    ended_unix_ms: int
    status: str
    failure: str | None
    system: str
    system_title: str
    system_version: str
    client: str
    nodes: int
    attached: bool
    durability: Durability
    workload: WorkloadResult
    seed: int
    phases: list[Phase]
    measure_from_s: float
    """The measured window on the schedule's axis, at whole intervals."""
    measure_until_s: float
    directory: Path
    """Holds intervals.parquet and resources.parquet (either may be missing when the trial ended early)."""
    finish: dict[str, Any] | None
    """The workers' /finish answers, merged; None when a worker was lost."""
    probes: list[dict[str, Any]]
    lanes: list[Lane]
    cannot: list[str]
    cores: int
    system_metrics: list[SystemMetric] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Become warnings."""
    rate_msgs_s: float | None = None
    """The rate of the schedule: the workload's, or the one that was found."""
    tls: OnOff = "off"
    authentication: str | None = None
    search: Search | None = None
    backlog: BacklogFacts | None = None
    warm_up: WarmUpResult | None = None
    faults: list[Fault] = field(default_factory=list)
    schedule_start_unix_ms: int | None = None
    """When the schedule began, for what logs tell."""
    fatal: list[str] = field(default_factory=list)
    """Become reasons of invalidity."""
    untold: dict[str, str] = field(default_factory=dict)
    """Figures that the workers cannot tell, and why."""


@dataclass(frozen=True)
class Counted:
    """Sums over the measured window."""

    duration_s: float
    sent_msgs: int
    acked_msgs: int
    acked_bytes: int
    received_msgs: int
    received_bytes: int
    backlog_msgs_max: int
    waiting_msgs_max: int | None

    def per_second(self, amount: float) -> float:
        """A rate over the window; 0 when nothing was measured."""
        return amount / self.duration_s if self.duration_s > 0 else 0.0


def analyse(raw: RawTrial) -> TrialResult:
    """Computes every figure of a trial and judges it. Reads the Parquet files in `raw.directory`; writes
    nothing.

    Raises HistogramError (a ValueError) when a stored histogram is damaged.
    """
    everything = Intervals.read(raw.directory)
    # What reads a backlog has figures of its own; the headline is of those that tail.
    intervals = everything.without(EXTRA_READER) if has_extra_reader(raw.workload) else everything
    resources = read_resources(raw.directory)
    window = _window(raw, intervals)
    counted = _count(intervals, window)
    headline = headline_of(raw.untold)
    latencies = {
        metric: latency(intervals.histogram(metric, MEASURE), intervals.beyond(metric, MEASURE))
        for metric in METRICS
    }
    used = [row for row in resources if window.holds(row)]
    cpu = _cpu(raw, intervals, window, used, counted)
    processes = _processes(used, raw.cores, counted.duration_s)
    machine = limits_module.limits(raw.probes)
    shares = limits_module.shares(
        machine,
        cpu,
        payload_mb_s=counted.per_second(counted.acked_bytes + counted.received_bytes) / BYTES_PER_MB,
        system_disk_write_mb_s=_disk_mb_s(processes, "disk_write_bytes", counted),
        system_disk_read_mb_s=_disk_mb_s(processes, "disk_read_bytes", counted),
        host_cpu_s=_scope_cpu(used, "host"),
        attached=raw.attached,
    )
    audit = audit_of(raw.finish)
    if raw.workload.consumes_only:
        # What was sent is not known: there is nothing to compare with.
        audit = audit.model_copy(update={"enabled": False, "clean": False})
    whole = intervals.counters()
    # Judged as the load that it was: at the rate that was found, where one was to be found.
    asked = raw.workload.model_copy(update={"rate_msgs_s": raw.rate_msgs_s}) if raw.search else raw.workload
    target = validity.target_msgs(asked, counted.duration_s)
    search = _soaked(raw, intervals, window, counted, latencies, cpu)
    caught = _caught_up(raw, everything, window)
    lined_up = series(intervals, resources, MEASURE)
    steady = _steadiness(lined_up, window, counted, headline)
    amplification = _write_amplification(processes, counted)
    busiest = bottleneck.threads(used)
    bottle = bottleneck.bottleneck(
        at_its_most=not raw.workload.consumes_only
        and (
            asked.arrival == "closed"
            or raw.search is not None
            or bool(target and counted.acked_msgs < validity.ACHIEVED_SHARE_MIN * target)
        ),
        shares=[] if raw.attached else shares,
        busiest=busiest,
        others=[
            bottleneck.fsync_limit(used, machine),
            None
            if "backpressure_ms" in raw.untold
            else bottleneck.window_limit(
                asked,
                latencies["service"],
                counted.per_second(counted.acked_bytes) / BYTES_PER_MB,
                _held_share(intervals, window, raw),
            ),
            bottleneck.lane_limit(raw.lanes, _load_s(intervals, raw)),
        ],
        write_amplification=amplification,
    )
    evidence = validity.Evidence(
        status=raw.status,
        failure=raw.failure,
        fatal=_fatal(raw),
        notes=[*_clock_notes(raw), *raw.notes, *remarks(raw.finish), *_late_in(caught)],
        workload=asked,
        search=search,
        has_faults=bool(raw.faults),
        headline=headline,
        publish=latencies[headline],
        send_delay=latencies["send_delay"],
        lateness=lateness(lined_up, window),
        acked_msgs=counted.acked_msgs,
        received_msgs=counted.received_msgs,
        window_s=counted.duration_s,
        failed_msgs=total(whole, "failed_msgs"),
        retries=told_total(whole, "retries"),
        errors=_errors(whole),
        worker_cpu_shares=_worker_shares(intervals, window, raw.cores),
        lanes=raw.lanes,
        load_s=_load_s(intervals, raw),
        audit=audit,
        audit_expected=raw.finish is not None,
        books=disagreements(intervals, audit, headline)
        if raw.finish is not None and raw.status == "complete"
        else [],
        durability=raw.durability,
        steadiness=steady,
        cpu=cpu,
        nodes=raw.nodes,
        attached=raw.attached,
        share_of_limit=limits_module.most_used(shares),
        binding=bottle.binding,
    )
    return TrialResult(
        run_id=raw.run_id,
        trial=raw.trial,
        repeat=raw.repeat,
        started_unix_ms=raw.started_unix_ms,
        ended_unix_ms=raw.ended_unix_ms,
        status=_status(raw.status),
        failure=raw.failure,
        system=raw.system,
        system_title=raw.system_title,
        system_version=raw.system_version,
        client=raw.client,
        nodes=raw.nodes,
        attached=raw.attached,
        tls=raw.tls,
        authentication=raw.authentication,
        durability=raw.durability,
        workload=raw.workload,
        seed=raw.seed,
        phases=raw.phases,
        **{f"{metric}_ms": figures for metric, figures in latencies.items()},
        end_to_end_by_subscription_ms=_by_subscription(everything),
        subscriptions=_subscriptions(raw, everything, window, counted),
        search=search,
        catch_up=caught,
        warm_up=raw.warm_up,
        faults=fault_figures(
            everything,
            raw.faults,
            Acks.read(raw.directory / ACKS_NAME),
            window,
            None if raw.workload.rate_changes else raw.rate_msgs_s,
        ),
        publish_rate_msgs_s=counted.per_second(counted.acked_msgs),
        publish_rate_mb_s=counted.per_second(counted.acked_bytes) / BYTES_PER_MB,
        consume_rate_msgs_s=counted.per_second(counted.received_msgs),
        consume_rate_mb_s=counted.per_second(counted.received_bytes) / BYTES_PER_MB,
        target_rate_msgs_s=asked.rate_msgs_s,
        achieved_share=counted.acked_msgs / target if target else None,
        backlog_msgs_max=counted.backlog_msgs_max,
        waiting_msgs_max=counted.waiting_msgs_max,
        errors=evidence.errors,
        failed_msgs=evidence.failed_msgs,
        retries=evidence.retries,
        audit=audit,
        validity=validity.judge(evidence),
        steadiness=steady,
        cpu=cpu,
        processes=processes,
        system_metrics=raw.system_metrics,
        limits=machine,
        share_of_limit=evidence.share_of_limit,
        shares=shares,
        patterns=_patterns(lined_up, window, headline),
        bottleneck=bottle,
        tail=tail_module.tail(
            intervals,
            lined_up,
            window,
            metric=headline,
            phase=MEASURE,
            cores=raw.cores,
            stops_ms=tail_module.stops(raw.directory / "logs", raw.schedule_start_unix_ms, INTERVAL_S),
        ),
        threads=busiest,
        write_amplification=amplification,
        lanes=raw.lanes,
        cannot=raw.cannot,
        untold=raw.untold,
        worker_rss_bytes_max=told_max(whole, "rss_bytes"),
        end_to_end_bound_ms=_clocks(raw).get("bound_ms"),
    )


def _window(raw: RawTrial, intervals: Intervals) -> Window:
    """The measured window. Where topics are only read, it ends with the last interval in which something came: there is an end to what
    is there, and waiting behind it is no reading."""
    if not raw.workload.consumes_only:
        return Window(raw.measure_from_s, raw.measure_until_s)
    ends = [
        float(row["start_s"]) + float(row["duration_s"])
        for row in intervals.receipts()
        if row["received_msgs"]
    ]
    until_s = min(max(ends, default=raw.measure_until_s), raw.measure_until_s)
    return Window(raw.measure_from_s, max(until_s, raw.measure_from_s))


def has_extra_reader(workload: WorkloadResult) -> bool:
    """Whether a further subscription reads the backlog while the others tail."""
    return workload.backlog is not None and workload.backlog.reader == "extra"


def _count(intervals: Intervals, window: Window) -> Counted:
    counters = [row for row in intervals.counters() if window.holds(row)]
    receipts = [row for row in intervals.receipts() if window.holds(row)]
    durations = {int(row["interval"]): float(row["duration_s"]) for row in counters}
    return Counted(
        duration_s=sum(durations.values()),
        sent_msgs=total(counters, "sent_msgs"),
        acked_msgs=total(counters, "acked_msgs"),
        acked_bytes=total(counters, "acked_bytes"),
        received_msgs=total(receipts, "received_msgs"),
        received_bytes=total(receipts, "received_bytes"),
        backlog_msgs_max=max(intervals.level("backlog_msgs", receipts).values(), default=0),
        waiting_msgs_max=max(intervals.level("waiting_msgs", counters).values(), default=0)
        if told(counters, "waiting_msgs")
        else None,
    )


def _by_subscription(intervals: Intervals) -> dict[str, Latency]:
    return {
        name: latency(
            intervals.histogram("end_to_end", MEASURE, name),
            intervals.beyond("end_to_end", MEASURE, name),
        )
        for name in intervals.subscriptions()
    }


def _subscriptions(
    raw: RawTrial, intervals: Intervals, window: Window, counted: Counted
) -> list[SubscriptionFigures]:
    rows = [row for row in intervals.receipts() if window.holds(row)]
    extra = has_extra_reader(raw.workload)
    figures = []
    for name in intervals.subscriptions():
        mine = [row for row in rows if row["subscription"] == name]
        figures.append(
            SubscriptionFigures(
                name=name,
                role="catching up" if extra and name == EXTRA_READER else "tailing",
                consume_rate_msgs_s=counted.per_second(total(mine, "received_msgs")),
                consume_rate_mb_s=counted.per_second(total(mine, "received_bytes")) / BYTES_PER_MB,
                backlog_msgs_max=max(intervals.level("backlog_msgs", mine).values(), default=0),
                end_to_end_ms=latency(
                    intervals.histogram("end_to_end", MEASURE, name),
                    intervals.beyond("end_to_end", MEASURE, name),
                ),
            )
        )
    return figures


def _caught_up(raw: RawTrial, intervals: Intervals, window: Window) -> CatchUp | None:
    if raw.backlog is None or raw.workload.backlog is None:
        return None
    return catch_up(
        intervals,
        raw.workload.backlog,
        raw.backlog,
        measured=window,
        rate_msgs_s=None if raw.workload.rate_changes else raw.rate_msgs_s,
        message_bytes=raw.workload.message_size_bytes,
        headline=headline_of(raw.untold),
    )


def _late_in(caught: CatchUp | None) -> list[str]:
    """The measured phase is judged with the trial; the phases after it have figures, too."""
    notes = []
    for phase in caught.phases[1:] if caught is not None else []:
        delay, publish = phase.send_delay_ms.p99, (phase.service_ms or phase.publish_ms).p99
        bound = max(
            validity.SEND_DELAY_SHARE_MAX * (publish or 0.0),
            validity.SEND_DELAY_MS_FLOOR,
        )
        if delay is not None and delay > bound:
            notes.append(
                f"The generator was late in the phase {phase.name}: p99 of send delay is {delay:.3g} ms, "
                f"{bound:.3g} ms are allowed; latencies of this phase are partly its own."
            )
        share = phase.achieved_share
        if share is not None and share < validity.ACHIEVED_SHARE_MIN:
            notes.append(f"In the phase {phase.name} only {100 * share:.1f} % of the rate was acknowledged.")
    return notes


def _clocks(raw: RawTrial) -> Mapping[str, Any]:
    """How the clocks of several hosts compared (fleet.clocks); nothing with one clock."""
    found = (raw.finish or {}).get("clocks")
    return found if isinstance(found, dict) else {}


def _clock_notes(raw: RawTrial) -> list[str]:
    found = _clocks(raw)
    if not found:
        return []
    drifts = [abs(float(pair["drift_ppm"])) for pair in found["pairs"]]
    notes = [
        f"End-to-end latencies between hosts are corrected for their clocks and right within {found['bound_ms']:.3g} ms "
        f"({len(found['pairs'])} pairs compared, drift up to {max(drifts, default=0.0):.3g} ppm)."
    ]
    loops = found["loops"]
    if loops["open"]:
        notes.append(
            f"The comparison of clocks does not close: round {loops['open']} of {loops['looked_at']} loops of workers "
            f"{loops['worst_ms']:.3g} ms are left over, more than the bounds allow; a clock was not steady."
        )
    return notes


def _soaked(
    raw: RawTrial,
    intervals: Intervals,
    window: Window,
    counted: Counted,
    latencies: Mapping[str, Latency],
    cpu: Cpu,
) -> Search | None:
    """The search with the measured window judged like a probe."""
    if raw.search is None or raw.rate_msgs_s is None or raw.search.low_msgs_s is None:
        return raw.search
    lined_up = series(intervals, [], MEASURE)
    end_s = lined_up.start_s + lined_up.duration_s
    inside = (end_s >= window.from_s - EDGE_S) & (end_s <= window.until_s + EDGE_S)
    if not inside.any():
        return raw.search
    names = intervals.subscriptions()
    received = [np.cumsum(_received(intervals, name, lined_up.interval))[inside] for name in names]
    acked = np.cumsum(np.nan_to_num(lined_up.values["acked_msgs"]))[inside]
    counters = [row for row in intervals.counters() if window.holds(row)]
    producers = raw.workload.topics * raw.workload.producers_per_topic
    seen = search_rules.Seen(
        rate_msgs_s=raw.rate_msgs_s,
        producers=producers,
        end_s=end_s[inside],
        acked_msgs=acked,
        received_msgs=search_rules.slowest(received, acked),
        publish_ms_p99=latencies["publish"].p99,
        send_delay_ms_p99=latencies["send_delay"].p99,
        backpressured_share=counted.per_second(total_s(counters, "backpressured_s")) / producers,
        workers_share=cpu.workers_share or 0.0,
        busiest_lane_share=0.0,
        failed_msgs=total(counters, "failed_msgs"),
        errors=_errors(counters),
        linger_s=raw.workload.linger_ms / 1e3,
    )
    asked = raw.workload.search
    probe, _ = search_rules.judge(seen, asked.publish_ms_p99_max if asked else None)
    return raw.search.model_copy(update={"soak": probe})


def _received(intervals: Intervals, name: str, order: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    counts: dict[int, int] = defaultdict(int)
    for row in intervals.receipts():
        if row["subscription"] == name:
            counts[int(row["interval"])] += int(row["received_msgs"] or 0)
    return np.array([counts[int(interval)] for interval in order], dtype=np.float64)


def _cpu(raw: RawTrial, intervals: Intervals, window: Window, used: list[Row], counted: Counted) -> Cpu:
    counters = [row for row in intervals.counters() if window.holds(row)]
    workers_s = total_s(counters, "cpu_s") if told(counters, "cpu_s") else None
    system_s = None if raw.attached else _scope_cpu(used, "system")
    others = [value for value in (_scope_cpu(used, "others"), _scope_cpu(used, "lab")) if value is not None]
    others_s = sum(others) if others else None
    hosts = [row for row in used if row["scope"] == "host" and row["steal_s"] is not None]
    available_s = raw.cores * counted.duration_s

    def share(seconds: float | None) -> float | None:
        return None if seconds is None or available_s <= 0 else seconds / available_s

    def us_per_msg(seconds: float | None) -> float | None:
        return None if seconds is None or not counted.sent_msgs else 1e6 * seconds / counted.sent_msgs

    return Cpu(
        cores=raw.cores,
        duration_s=counted.duration_s,
        workers_s=workers_s,
        system_s=system_s,
        others_s=others_s,
        steal_s=total_s(hosts, "steal_s") if hosts else None,
        workers_us_per_msg=us_per_msg(workers_s),
        system_us_per_msg=us_per_msg(system_s),
        workers_share=None if workers_s is None else share(workers_s) or 0.0,
        system_share=share(system_s),
        others_share=share(others_s),
    )


def _scope_cpu(used: list[Row], scope: str) -> float | None:
    rows = [row for row in used if row["scope"] == scope and row["cpu_s"] is not None]
    return total_s(rows, "cpu_s") if rows else None


def _processes(used: list[Row], cores: int, duration_s: float) -> list[Process]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in used:
        if row["scope"] == "system":
            groups[str(row["process"])].append(row)
    available_s = cores * duration_s
    return [
        Process(
            name=name,
            cpu_s=total_s(rows, "cpu_s"),
            cpu_share=total_s(rows, "cpu_s") / available_s if available_s > 0 else 0.0,
            rss_bytes_max=max(int(row["rss_bytes"] or 0) for row in rows),
            disk_write_bytes=total(rows, "disk_write_bytes"),
            disk_read_bytes=total(rows, "disk_read_bytes"),
        )
        for name, rows in sorted(groups.items())
    ]


def _disk_mb_s(processes: list[Process], column: str, counted: Counted) -> float | None:
    if not processes:
        return None
    written: int = sum(getattr(process, column) for process in processes)
    return counted.per_second(written) / BYTES_PER_MB


def _write_amplification(processes: list[Process], counted: Counted) -> float | None:
    if not processes or not counted.acked_bytes:
        return None
    return sum(process.disk_write_bytes for process in processes) / counted.acked_bytes


def _worker_shares(intervals: Intervals, window: Window, cores: int) -> dict[str, float]:
    cpu: dict[str, float] = defaultdict(float)
    duration: dict[str, float] = defaultdict(float)
    for row in intervals.counters():
        if window.holds(row) and row["cpu_s"] is not None:
            cpu[row["worker"]] += float(row["cpu_s"])
            duration[row["worker"]] += float(row["duration_s"])
    return {worker: cpu[worker] / (cores * duration[worker]) for worker in cpu if duration[worker] > 0}


def _load_s(intervals: Intervals, raw: RawTrial) -> float:
    ends = [float(row["start_s"]) + float(row["duration_s"]) for row in intervals.counters()]
    return max(ends, default=raw.measure_until_s)


def _errors(counters: list[Row]) -> dict[str, int]:
    """Kind -> count over the whole trial; the column holds a JSON object, or a mapping where the reader
    decoded it.
    """
    errors: dict[str, int] = defaultdict(int)
    for row in counters:
        found = row["errors"]
        kinds: Mapping[str, int] = json.loads(found) if isinstance(found, str) and found else (found or {})
        for kind, count in kinds.items():
            errors[kind] += int(count)
    return {kind: count for kind, count in sorted(errors.items()) if count}


def _held_share(intervals: Intervals, window: Window, raw: RawTrial) -> float:
    """Share of the time for which producers had something due and no room, the mean over producers."""
    producers = raw.workload.topics * raw.workload.producers_per_topic
    rows = [row for row in intervals.counters() if window.holds(row)]
    seconds = total_s(rows, "duration_s")
    return total_s(rows, "backpressured_s") / (producers * seconds) if producers and seconds else 0.0


def _patterns(lined_up: Series, window: Window, headline: Headline) -> list[Pattern]:
    inside = lined_up.within(window)
    names = (f"{headline}_ms_p50", f"{headline}_ms_p99", f"{headline}_ms_max")
    judged = {name: lined_up.values[name][inside] for name in names}
    with np.errstate(invalid="ignore", divide="ignore"):
        judged["publish_rate"] = (lined_up.values["acked_msgs"] / lined_up.duration_s)[inside]
    return patterns.find(judged, lined_up.start_s[inside])


def _steadiness(lined_up: Series, window: Window, counted: Counted, headline: Headline) -> Steadiness:
    inside = lined_up.within(window)
    values = lined_up.values
    duration = lined_up.duration_s
    # The system's CPU tells of warm-up and cycles in it; where it is not ours to see, the workers' stands in.
    cpu = values["system_cpu_s"] if not np.isnan(values["system_cpu_s"]).all() else values["workers_cpu_s"]
    with np.errstate(invalid="ignore", divide="ignore"):
        judged = {
            "publish_rate": (values["acked_msgs"] / duration)[inside],
            f"{headline}_p50": values[f"{headline}_ms_p50"][inside],
            f"{headline}_p99": values[f"{headline}_ms_p99"][inside],
            "cpu": (cpu / duration)[inside],
        }
    count = int(inside.sum())
    return steadiness.judge(judged, counted.acked_msgs / count if count else None)


def _fatal(raw: RawTrial) -> list[str]:
    if raw.finish is None and raw.status == "complete" and not raw.fatal:
        return ["A worker was lost before it could report: no audit was made."]
    untaken = int(((raw.finish or {}).get("audit") or {}).get("untaken") or 0)
    if untaken:
        return [
            *raw.fatal,
            f"{untaken:,} messages were due and never sent, because the system left no room for them until the "
            "end: they are in no figure.",
        ]
    return raw.fatal


def _status(status: str) -> Literal["complete", "interrupted", "failed"]:
    if status not in ("complete", "interrupted", "failed"):
        raise ValueError(f"status of a trial is complete, interrupted or failed, not {status!r}")
    return cast(Literal["complete", "interrupted", "failed"], status)
