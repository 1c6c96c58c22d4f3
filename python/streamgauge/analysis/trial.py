"""From what the runner collected to the result of a trial.

`TrialContext` is the seam: the runner fills it, `analyse` turns it and the trial's tables into a `TrialResult`. The
steps: merge the measured phase's histograms, add up the measured window's counters, charge CPU and disk to their
owners, ask for steadiness, then judge.
"""

from __future__ import annotations

import tempfile
import textwrap
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.analysis import bottleneck, hosts, own_metrics, patterns, steadiness, validity
from streamgauge.analysis import limits as limits_module
from streamgauge.analysis import tail as tail_module
from streamgauge.analysis.acks import Acks
from streamgauge.analysis.books import audit_of, disagreements
from streamgauge.analysis.catch_up import catch_up
from streamgauge.analysis.faults import faults as fault_figures
from streamgauge.analysis.intervals import Intervals, total
from streamgauge.analysis.lateness import hidden_ms, lateness
from streamgauge.analysis.measured import Measured, errors_of
from streamgauge.analysis.notes import clock_notes, clocks, fatal, late_in
from streamgauge.analysis.profiles import profiled
from streamgauge.analysis.quiet_measured import Quiet, quiet_time
from streamgauge.analysis.shortage import target_msgs
from streamgauge.analysis.soak import soaked
from streamgauge.analysis.untold import remarks, told_max, told_total
from streamgauge.analysis.usage import (
    BYTES_PER_MB,
    cpu_of,
    disk_mb_s,
    processes_of,
    scope_cpu,
    worker_shares,
    write_amplification,
)
from streamgauge.model.percentiles import latency
from streamgauge.model.result import Steadiness, SubscriptionFigures, TrialResult
from streamgauge.model.result_machine import Cpu, Limits, Process, Share, Thread
from streamgauge.model.result_reasons import Bottleneck, Pattern
from streamgauge.model.result_special import CatchUp, Search
from streamgauge.store.context import TrialContext
from streamgauge.store.directory import ACKS_NAME
from streamgauge.vocabulary.bounds import ACHIEVED_SHARE_MIN
from streamgauge.vocabulary.phases import EXTRA_READER, INTERVAL_S, MEASURE

TOLD = (TrialContext.model_fields.keys() & TrialResult.model_fields.keys()) - {"search", "faults"}
"""What a result tells as the runner knew it. The other two have the runner's part and what is computed of it."""


ERROR_CHARS = 300
"""Of an error that nobody expected."""


NOT_COMPUTED = "its figures could not be computed"


def analyse_or_fail(
    context: TrialContext, directory: Path, everything: Intervals | None = None
) -> tuple[TrialContext, TrialResult]:
    """The same for a run that has to go on: where this fails the trial has failed, for that reason. What was measured stays where it is."""
    try:
        return context, analyse(context, directory, everything)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {textwrap.shorten(str(error), ERROR_CHARS)}, in {Path(place.filename).name}, line {place.lineno}"
        failure = f"{NOT_COMPUTED} ({said}); what was measured is kept"
        failed = context.model_copy(update={"status": "failed", "failure": context.failure or failure})
        # As of a trial of which nothing was measured.
        with tempfile.TemporaryDirectory(prefix="streamgauge-") as nothing:
            return failed, analyse(failed, Path(nothing))


def analyse(context: TrialContext, directory: Path, everything: Intervals | None = None) -> TrialResult:
    """Computes every figure of a trial and judges it. Reads the Parquet files in its directory (either may be missing when the
    trial ended early); writes nothing. `everything`: the intervals that lie there, where they were read already.

    Raises HistogramError (a ValueError) when a stored histogram is damaged.
    """
    raw = context.ended()
    told: dict[str, Any] = {name: getattr(raw, name) for name in TOLD}
    measured = Measured.read(raw, directory, everything)
    intervals, window, counted = measured.intervals, measured.window, measured.counted
    machine = limits_module.limits(raw.probes)
    cpu, processes = cpu_of(measured), processes_of(measured)
    shares = _shares(measured, machine, cpu, processes)
    amplification = write_amplification(processes, counted)
    busiest = bottleneck.threads(measured.used)
    told_inside = own_metrics.read(directory, raw.own_metrics_told, measured.lined_up)
    cluster_hosts = hosts.figures(raw.hosts, [row for row in measured.of_hosts if window.holds(row)])
    bottle = _bottleneck(measured, machine, shares, busiest, amplification, hosts.shares(cluster_hosts))
    subscriptions = _subscriptions(measured)
    caught = _caught_up(measured)
    quiet = quiet_time(
        intervals,
        window,
        raw.cpu_probes,
        at_its_most=raw.workload.arrival == "closed" or raw.search is not None,
    )
    evidence = _evidence(
        measured,
        search=soaked(measured, cpu, quiet),
        caught=caught,
        cpu=cpu,
        shares=shares,
        binding=bottle.binding,
        quiet=quiet,
    )
    target = target_msgs(measured.asked, counted.duration_s)
    return TrialResult(
        **told,
        **{f"{metric}_ms": figures for metric, figures in measured.latencies.items()},
        end_to_end_by_subscription_ms={one.name: one.end_to_end_ms for one in subscriptions},
        subscriptions=subscriptions,
        search=evidence.search,
        catch_up=caught,
        faults=fault_figures(
            measured.everything,
            raw.faults,
            Acks.read(directory / ACKS_NAME),
            window,
            None if raw.workload.rate_changes else raw.rate_msgs_s,
        ),
        publish_rate_msgs_s=counted.per_second(counted.acked_msgs),
        publish_rate_mb_s=counted.per_second(counted.acked_bytes) / BYTES_PER_MB,
        consume_rate_msgs_s=counted.per_second(counted.received_msgs),
        consume_rate_mb_s=counted.per_second(counted.received_bytes) / BYTES_PER_MB,
        target_rate_msgs_s=measured.asked.rate_msgs_s,
        achieved_share=counted.acked_msgs / target if target else None,
        backlog_msgs_max=counted.backlog_msgs_max,
        waiting_msgs_max=counted.waiting_msgs_max,
        errors=evidence.errors,
        failed_msgs=evidence.failed_msgs,
        retries=evidence.retries,
        audit=evidence.audit,
        validity=validity.judge(evidence),
        steadiness=evidence.steadiness,
        quiet=quiet.found if quiet is not None else None,
        cpu=cpu,
        processes=processes,
        cluster_hosts=cluster_hosts,
        own_metrics=own_metrics.figures(told_inside, measured.lined_up.within(window)),
        limits=machine,
        share_of_limit=evidence.share_of_limit,
        shares=shares,
        patterns=_patterns(measured),
        bottleneck=bottle,
        tail=tail_module.tail(
            intervals,
            measured.lined_up,
            window,
            metric=measured.headline,
            phase=MEASURE,
            cores=raw.cores,
            cluster_here=raw.cluster_here,
            own=told_inside,
            hosts=hosts.series(measured.of_hosts, measured.lined_up),
            host_cores={host.name: host.cores for host in raw.hosts},
            stops_ms=tail_module.stops(directory / "logs", raw.schedule_start_unix_ms, INTERVAL_S),
        ),
        profiled=profiled(directory, intervals, measured.lined_up, window, measured.headline),
        threads=busiest,
        write_amplification=amplification,
        worker_rss_bytes_max=told_max(intervals.counters(), "rss_bytes"),
        end_to_end_bound_ms=clocks(raw).get("bound_ms"),
    )


def _evidence(
    measured: Measured,
    *,
    search: Search | None,
    caught: CatchUp | None,
    cpu: Cpu,
    shares: list[Share],
    binding: str | None,
    quiet: Quiet | None,
) -> validity.Evidence:
    """All that the trial is judged by."""
    raw, intervals, counted = measured.raw, measured.intervals, measured.counted
    whole = intervals.counters()
    audit = audit_of(raw.finish)
    if raw.workload.consumes_only:
        # What was sent is not known: there is nothing to compare with.
        audit = audit.model_copy(update={"enabled": False, "clean": False})
    has_books = raw.finish is not None and raw.status == "complete"
    return validity.Evidence(
        status=raw.status,
        failure=raw.failure,
        fatal=fatal(raw),
        notes=[
            *clock_notes(raw),
            *raw.notes,
            *remarks(raw.finish),
            *late_in(caught, hidden_ms(measured.asked.linger_ms, cpu)),
        ],
        workload=measured.asked,
        search=search,
        has_faults=bool(raw.faults),
        headline=measured.headline,
        publish=measured.latencies[measured.headline],
        end_to_end=measured.latencies["end_to_end"],
        delays={metric: measured.latencies[metric] for metric in validity.JUDGED_BY},
        lateness=lateness(measured.lined_up, measured.window),
        quiet=quiet,
        acked_msgs=counted.acked_msgs,
        received_msgs=counted.received_msgs,
        window_s=counted.duration_s,
        failed_msgs=total(whole, "failed_msgs"),
        retries=told_total(whole, "retries"),
        joined_intervals=sum(bool(row["joined_lanes"]) for row in measured.counters()),
        errors=errors_of(whole),
        worker_cpu_shares=worker_shares(measured),
        lanes=raw.lanes,
        lane_use=measured.lane_use,
        audit=audit,
        audit_expected=raw.finish is not None,
        books=disagreements(intervals, audit, measured.headline) if has_books else [],
        durability=raw.durability,
        steadiness=_steadiness(measured),
        cpu=cpu,
        nodes=raw.nodes,
        attached=raw.attached,
        cluster_here=raw.cluster_here,
        has_agents=bool(measured.of_hosts),
        share_of_limit=limits_module.most_used(shares),
        binding=binding,
    )


def _shares(measured: Measured, machine: Limits, cpu: Cpu, processes: list[Process]) -> list[Share]:
    """How much of the machine's limits was used."""
    counted = measured.counted
    if measured.raw.attached:
        # What the system used it used elsewhere (analysis/hosts.py).
        cpu = cpu.model_copy(update={"system_s": None, "system_share": None})
    return limits_module.shares(
        machine,
        cpu,
        payload_mb_s=counted.per_second(counted.acked_bytes + counted.received_bytes) / BYTES_PER_MB,
        system_disk_write_mb_s=disk_mb_s(processes, "disk_write_bytes", counted),
        system_disk_read_mb_s=disk_mb_s(processes, "disk_read_bytes", counted),
        host_cpu_s=scope_cpu(measured.used, "host"),
        attached=measured.raw.attached,
        cluster_here=measured.raw.cluster_here,
    )


def _bottleneck(
    measured: Measured,
    machine: Limits,
    shares: list[Share],
    busiest: list[Thread],
    amplification: float | None,
    host_shares: list[Share],
) -> Bottleneck:
    """Which limit binds, where the system was at its most."""
    raw, counted, asked = measured.raw, measured.counted, measured.asked
    target = target_msgs(asked, counted.duration_s)
    fell_short = bool(target and counted.acked_msgs < ACHIEVED_SHARE_MIN * target)
    window_limit = None
    if "backpressure_ms" not in raw.untold:
        rate_mb_s = counted.per_second(counted.acked_bytes) / BYTES_PER_MB
        window_limit = bottleneck.window_limit(
            asked, measured.latencies["service"], rate_mb_s, measured.held_share()
        )
    return bottleneck.bottleneck(
        at_its_most=not raw.workload.consumes_only
        and (asked.arrival == "closed" or raw.search is not None or fell_short),
        shares=host_shares if raw.attached else shares,
        busiest=busiest,
        others=[
            bottleneck.fsync_limit(measured.used, machine),
            window_limit,
            bottleneck.lane_limit(measured.lane_use),
        ],
        write_amplification=amplification,
    )


def _subscriptions(measured: Measured) -> list[SubscriptionFigures]:
    intervals, counted = measured.everything, measured.counted
    rows = [row for row in intervals.receipts() if measured.window.holds(row)]
    extra = measured.raw.workload.has_extra_reader
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


def _caught_up(measured: Measured) -> CatchUp | None:
    raw = measured.raw
    if raw.backlog is None or raw.workload.backlog is None:
        return None
    return catch_up(
        measured.everything,
        raw.workload.backlog,
        raw.backlog,
        measured=measured.window,
        rate_msgs_s=None if raw.workload.rate_changes else raw.rate_msgs_s,
        message_bytes=raw.workload.message_size_bytes,
        headline=measured.headline,
    )


def _patterns(measured: Measured) -> list[Pattern]:
    lined_up, headline = measured.lined_up, measured.headline
    inside = lined_up.within(measured.window)
    names = (f"{headline}_ms_p50", f"{headline}_ms_p99", f"{headline}_ms_max")
    judged = {name: lined_up.values[name][inside] for name in names}
    with np.errstate(invalid="ignore", divide="ignore"):
        judged["publish_rate"] = (lined_up.values["acked_msgs"] / lined_up.duration_s)[inside]
    return patterns.find(judged, lined_up.start_s[inside])


def _steadiness(measured: Measured) -> Steadiness:
    lined_up, headline = measured.lined_up, measured.headline
    inside = lined_up.within(measured.window)
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
    return steadiness.judge(judged, measured.counted.acked_msgs / count if count else None)
