"""Quiet time of a trial: from its intervals to what its result says of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from streamgauge.analysis.intervals import Intervals, Row, Window, total, total_s
from streamgauge.analysis.quiet import QuietInterval
from streamgauge.analysis.quiet_away import ALL_SEEN, Unseen, away_s, unseen
from streamgauge.analysis.quiet_bounds import TRIALS_APART, Estimates, Told, distrust, figures, mean, rate
from streamgauge.analysis.quiet_bounds import RateInterval as QuietCount
from streamgauge.analysis.quiet_check import Ages, Attraction, Doubt, attraction, doubt_of
from streamgauge.model.messages import OLDER_MS, CpuWindow, Disturbance, ProbesStatus
from streamgauge.model.result_quiet import Bounded, QuietLatency, QuietTime
from streamgauge.vocabulary.bounds import DISTURBED_SHARE_MAX
from streamgauge.vocabulary.phases import MEASURE

METRICS = ("publish", "service", "send_delay", "end_to_end", "ack_delay", "receive_delay")
HEADLINE_METRICS = ("publish", "end_to_end")
"""The ones whose rows count what lies beyond the histograms' range."""


@dataclass(frozen=True)
class Quiet:
    """What is known of a trial's disturbance."""

    found: QuietTime
    attracted: Attraction
    intervals: dict[str, list[QuietInterval]] = field(default_factory=dict)
    """Metric -> its intervals of the measured phase, in the order of time; empty where nothing watched."""
    told: dict[str, dict[str, Told]] = field(default_factory=dict)
    """Metric -> percentile -> its figure or bounds."""
    blurred: bool = False
    """The workers look for the kernel's work for the system, and could not tell it from disturbance."""
    unseen: Unseen = ALL_SEEN

    @property
    def disturbed_share(self) -> float:
        """Of the measured phase; 0 where nothing watched."""
        return self.found.disturbed_share or 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether so much that figures as they came do not stand."""
        return _is_disturbed(self.disturbed_share, self.unseen)


def _is_disturbed(share: float, unseen: Unseen) -> bool:
    return share + unseen.share > DISTURBED_SHARE_MAX


def quiet_time(
    intervals: Intervals, window: Window, probes: ProbesStatus | None, *, at_its_most: bool
) -> Quiet | None:
    """None where the workers tell nothing of disturbance. `at_its_most`: the system, not the schedule, sets the rate. Raises ValueError for what no worker
    tells."""
    counters = [row for row in intervals.counters() if window.holds(row)]
    seen = [(row, disturbance_of(row)) for row in counters if row["disturbance"]]
    if not seen and probes is None:
        return None
    stolen = sum(sum(one.steal_s) for _, one in seen) if seen else None
    if not seen or any(row["quiet_s"] is None for row, _ in seen):
        why_not = probes.why_not if probes is not None else None
        return Quiet(QuietTime(watched=False, why_not=why_not, steal_s=stolen), attraction([]))
    seconds, quiet_s = total_s(counters, "duration_s"), total_s(counters, "quiet_s")
    workers = len({row["worker"] for row in counters})
    share = 1.0 - quiet_s / seconds if seconds else 0.0
    axis = sorted({int(row["interval"]) for row in counters})
    attracted = attraction(_ages(seen))
    attracted = replace(attracted, doubt=_doubt(seen, attracted, axis))
    of_metric = {metric: _intervals(intervals, metric, axis) for metric in METRICS}
    not_seen = unseen(seen, seconds, probes)
    sky = _Sky(attracted, share, not_seen)
    estimated = {metric: sky.estimate(one) for metric, one in of_metric.items()}
    windows = [one for _, disturbance in seen for one in disturbance.windows]
    found = QuietTime(
        watched=True,
        seconds=seconds / workers,
        quiet_s=quiet_s / workers,
        disturbed_share=share,
        away_share=away_s(seen) / seconds if seconds else 0.0,
        unseen_share=not_seen.share,
        windows=len(windows) + sum(one.unlisted.windows for _, one in seen),
        longest_ms=max((1e3 * one.late_s for one in windows), default=None),
        windows_s_by_cause=_by_cause(windows),
        steal_s=stolen,
        probes_cpu_share=_cost(seen, seconds, probes),
        probes_period_ms=None if probes is None else probes.period_ms,
        stretches_s=_stretches_s(seen),
        attraction=attracted.kind,
        why=distrust(attracted, share),
        **{f"{metric}_ms": found for metric, (found, _) in estimated.items()},
        end_to_end_by_subscription_ms=_by_subscription(intervals, axis, sky, estimated["end_to_end"][0]),
        publish_rate_msgs_s=_rate(counters, "acked_msgs", "quiet_acked_msgs", counters, attracted)
        if at_its_most
        else None,
        consume_rate_msgs_s=_rate(
            [row for row in intervals.receipts() if window.holds(row)],
            "received_msgs",
            "quiet_received_msgs",
            counters,
            attracted,
        )
        if at_its_most
        else None,
    )
    told_of = {metric: told for metric, (_, told) in estimated.items()}
    return Quiet(found, attracted, of_metric, told_of, blurred=_is_blurred(seen), unseen=not_seen)


@dataclass(frozen=True)
class _Sky:
    """What all figures of a phase were measured under."""

    attracted: Attraction
    disturbed_share: float
    unseen: Unseen

    def estimate(self, intervals: Sequence[QuietInterval]) -> tuple[QuietLatency, dict[str, Told]]:
        """The figures of one metric."""
        # Undisturbed it would have been another trial.
        apart = TRIALS_APART if _is_disturbed(self.disturbed_share, self.unseen) else 0.0
        found = Estimates(intervals, self.attracted.doubt, self.unseen, apart)
        told = figures(found, self.attracted, self.disturbed_share)
        latency = QuietLatency(
            mean=bounded(mean(found, self.attracted, self.disturbed_share)),
            quiet_msgs=sum(one.quiet.count for one in intervals),
            censored_msgs=sum(one.censored.count for one in intervals),
            left_out_msgs=sum(one.left_out for one in intervals),
            **{name: bounded(one) for name, one in told.items()},
        )
        return latency, told


def _by_subscription(
    intervals: Intervals, axis: Sequence[int], sky: _Sky, of_all: QuietLatency
) -> dict[str, QuietLatency]:
    """`of_all`: of all subscriptions together, which is that of a single one."""
    names = intervals.subscriptions()
    if len(names) == 1:
        return {names[0]: of_all}
    return {name: sky.estimate(_intervals(intervals, "end_to_end", axis, name))[0] for name in names}


def disturbance_of(row: Row) -> Disturbance:
    """What a row of counters tells of it. Raises ValueError for what no worker tells."""
    return Disturbance.model_validate_json(row["disturbance"])


def _ages(seen: Sequence[tuple[Row, Disturbance]]) -> list[Ages]:
    """Per age, the samples of each interval in the order of time."""
    ordered = [one.attraction for _, one in sorted(seen, key=lambda pair: int(pair[0]["interval"]))]
    known = [one for one in ordered if len(one.quiet_older) == len(one.begins_older) == len(OLDER_MS)]
    return [
        Ages(
            threshold_ms=older_ms,
            samples=[one.quiet_samples for one in known],
            older=[one.quiet_older[at] for one in known],
            begins=sum(one.begins for one in known),
            begins_older=sum(one.begins_older[at] for one in known),
        )
        for at, older_ms in enumerate(OLDER_MS)
    ]


def _doubt(
    seen: Sequence[tuple[Row, Disturbance]], attracted: Attraction, axis: Sequence[int]
) -> Doubt | None:
    """What spans may hide; None where there is no doubt, or their length is not told."""
    if attracted.doubtful_ms is None:
        return None
    at = OLDER_MS.index(attracted.doubtful_ms)
    lengths = [one.attraction.begins_older_s for _, one in seen]
    if any(one is None or len(one) <= at for one in lengths):
        return None
    disturbed_s = total_s([row for row, _ in seen], "disturbed_s")
    old_s = sum(one[at] for one in lengths if one is not None)
    began = {axis.index(int(row["interval"])) for row, one in seen if one.attraction.begins_older[at]}
    return doubt_of(attracted, old_s, disturbed_s, total_s([row for row, _ in seen], "duration_s"), began)


def _intervals(
    intervals: Intervals, metric: str, axis: Sequence[int], subscription: str | None = None
) -> list[QuietInterval]:
    """One for each interval of the phase, those in which nothing was seen included. What was decided after the last of them belongs to it."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index in intervals.of_phase(metric, MEASURE, subscription):
        if axis:
            groups[min(max(int(intervals.rows[index]["interval"]), axis[0]), axis[-1])].append(index)
    found = [_interval(intervals, groups[interval], metric) for interval in axis]
    if found and (unanswered := intervals.unanswered(metric, MEASURE, subscription)):
        # When they were due plays no part: they last longer than all others.
        last = found[-1]
        found[-1] = replace(last, beyond=last.beyond + unanswered, came_beyond=last.came_beyond + unanswered)
    return found


def _interval(intervals: Intervals, indices: Sequence[int], metric: str) -> QuietInterval:
    rows, headline = [intervals.rows[index] for index in indices], metric in HEADLINE_METRICS
    return QuietInterval(
        quiet=intervals.merged(indices, f"{metric}_quiet"),
        censored=intervals.merged(indices, f"{metric}_censored"),
        came=intervals.merged(indices, metric),
        left_out=total(rows, f"{metric}_left_out"),
        beyond=total(rows, "quiet_overflow") + total(rows, "censored_overflow") if headline else 0,
        came_beyond=total(rows, "overflow") if headline else 0,
    )


def bounded(told: Told) -> Bounded:
    """As a result keeps it: a bound that is infinite is none."""
    high = told.at_most if told.at_most is not None and math.isfinite(told.at_most) else None
    return Bounded(value=told.value, at_least=told.at_least, at_most=high, why=told.why, ends=told.ends)


def told_of(figure: Bounded) -> Told:
    """As the statistics take it."""
    return Told(figure.value, figure.at_least, figure.at_most, figure.why)


def _rate(
    rows: Sequence[Row], all_column: str, quiet_column: str, counters: Sequence[Row], attracted: Attraction
) -> Bounded:
    counted: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        counted[int(row["interval"])].append(row)
    spans: dict[int, list[Row]] = defaultdict(list)
    for row in counters:
        spans[int(row["interval"])].append(row)
    found = [
        QuietCount(
            quiet_msgs=total(counted[interval], quiet_column),
            quiet_s=total_s(mine, "quiet_s") / len(mine),
            msgs=total(counted[interval], all_column),
            seconds=total_s(mine, "duration_s") / len(mine),
        )
        for interval, mine in sorted(spans.items())
    ]
    return bounded(rate(found, attracted))


def _by_cause(windows: Iterable[CpuWindow]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for window in windows:
        sums[window.cause] += window.to_s - window.from_s
    return dict(sorted(sums.items()))


def _is_blurred(seen: Sequence[tuple[Row, Disturbance]]) -> bool:
    """Those of before do not look for it, and say nothing of it."""
    return any(one.stretches_s is None and "stretches_s" in one.model_fields_set for _, one in seen)


def _stretches_s(seen: Sequence[tuple[Row, Disturbance]]) -> float | None:
    told = [one.stretches_s for _, one in seen]
    return None if None in told else sum(one or 0.0 for one in told)


def _cost(
    seen: Sequence[tuple[Row, Disturbance]], seconds: float, probes: ProbesStatus | None
) -> float | None:
    if probes is None or not probes.cpus or not seconds:
        return None
    return sum(one.probes_cpu_s for _, one in seen) / (seconds * len(probes.cpus))
