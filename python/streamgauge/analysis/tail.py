"""What coincided with the slowest messages.

The tail is what is slower than the trial's p99.9, or where that lies in a few seconds alone, which no chance can be reckoned for, than the highest
percentile that does not. What happened meanwhile - stops of JVMs, slow flushes of the disk, steal, what the system told of itself -
is held against it, interval by interval (analysis/causes.py). The largest latency is one message: no chance can be reckoned for it, but where something
stood still for half of its time at that moment, that is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamgauge.analysis.causes import INTERVALS_MIN, Cause, Event, causes, unusual
from streamgauge.analysis.intervals import Intervals, Series, Values, Window
from streamgauge.analysis.own_metrics import OwnSeries
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.model.result_base import Headline
from streamgauge.model.result_reasons import Coincidence, Largest, Tail
from streamgauge.store.files import read_log
from streamgauge.vocabulary.format import significant

STOOD_STILL = "a JVM stood still (collection or other safepoint)"
STOP_MS_MIN = 10.0
STEAL_SHARE_MIN = 0.02
OTHERS_SHARE_MIN = 0.10
BUSY_SHARE_MIN = 0.95
PRESSURE_SHARE_MIN = 0.02
DISTURBED_S_MIN = 0.01
FLUSH_MS_MIN = 5.0
LATE_MS_MIN = 1.0

PERCENTILES = (99.9, 99.5, 99.0)
"""What the tail may be above."""
SPREAD_MIN = 5.0
"""Over so many intervals it has to be spread (Kish's effective number), for there to be something to explain it by."""

LARGEST_SHARE_MIN = 0.5
"""Of the largest latency, for what stood still to be named as its reason."""

# [2026-11-21T10:00:00.123+0000][12.345s][info][safepoint] Safepoint "G1CollectForAllocation", ..., Total: 4821034 ns
_SAFEPOINT = re.compile(r'^\[([^\]]+)\].*?Safepoint "([^"]+)".*Total:\s*(\d{1,18}) ns')


def tail(
    intervals: Intervals,
    lined_up: Series,
    window: Window,
    *,
    metric: Headline,
    phase: str,
    cores: int,
    stops_ms: Mapping[int, float] | None,
    own: Sequence[OwnSeries] = (),
    hosts: Mapping[str, Series] | None = None,
    host_cores: Mapping[str, int] | None = None,
    cluster_here: bool = False,
) -> Tail | None:
    """The tail of a metric in a phase. `lined_up`: the series of the trial, interval by interval; `stops_ms`: interval -> time for which a
    JVM of the system stood still, None where there is none; `own`: what the system told of itself; `hosts`: what agents told of the
    cluster's machines, by name, and `host_cores` how many cores they have. None when there is too little to tell anything."""
    inside = lined_up.within(window)
    percentile, above_ns, slow = _slowest(intervals, lined_up, metric, phase)
    if above_ns is None or int(inside.sum()) < INTERVALS_MIN:
        return None
    place = {int(interval): at for at, interval in enumerate(lined_up.interval)}
    weights = slow[inside]
    if weights.sum() == 0:
        return None
    all_events = [
        *_events(lined_up, cores, stops_ms, cluster_here=cluster_here, is_told_apart=bool(hosts)),
        # Of a cluster's machines each tells its own.
        *([] if hosts else [_slow_syncs(lined_up)]),
        _disturbed(intervals, place),
        *own_events(own),
        *(
            event
            for name, told in (hosts or {}).items()
            for event in host_events(name, told, (host_cores or {}).get(name, 1))
        ),
    ]
    events = [Event(one.name, one.strength[inside], one.role) for one in all_events]
    happened = [one for one in events if (one.strength > 0).any()]
    found = [_coincidence(one) for one in causes(weights, happened)]
    return Tail(
        metric=metric,
        percentile=percentile,
        above_ms=above_ns / NS_PER_MS,
        msgs=int(weights.sum()),
        intervals=int(np.count_nonzero(weights)),
        coincidences=found,
        looked_at=sorted(one.name for one in happened),
        largest=_largest(lined_up, inside, metric, [*_standing_still(lined_up, stops_ms), *_own_times(own)]),
        explanation=_explain(found, happened),
    )


def _slowest(
    intervals: Intervals, lined_up: Series, metric: Headline, phase: str
) -> tuple[float, float | None, Values]:
    """The highest percentile above which messages are spread over several intervals, its latency in ns and how many messages of each interval are
    slower. What happened meanwhile has no part in the choice. The highest of all where none is."""
    for percentile in PERCENTILES:
        above_ns, slow = slow_msgs(intervals, lined_up, metric, phase, percentile)
        if slow.sum() ** 2 >= SPREAD_MIN * (slow**2).sum() > 0:
            return percentile, above_ns, slow
    return PERCENTILES[0], *slow_msgs(intervals, lined_up, metric, phase, PERCENTILES[0])


def slow_msgs(
    intervals: Intervals, lined_up: Series, metric: Headline, phase: str, percentile: float = 99.9
) -> tuple[float | None, Values]:
    """A percentile of a metric in a phase, in ns (None without a message), and how many messages of each interval are slower."""
    above_ns = intervals.histogram(metric, phase).percentile(percentile)
    slow = np.zeros(len(lined_up))
    if above_ns is None:
        return None, slow
    place = {int(interval): at for at, interval in enumerate(lined_up.interval)}
    for interval, histogram in intervals.histograms_by_interval(metric, phase).items():
        if interval in place:
            slow[place[interval]] = round(histogram.share_above(above_ns) * histogram.count)
    return above_ns, slow


def stops(logs: Path, start_unix_ms: int | None, interval_s: float) -> dict[int, float] | None:
    """Interval -> ms for which the system's JVMs stood still (safepoints: collections and others), from their logs; None without such logs."""
    files = sorted(logs.rglob("gc.log*")) if logs.is_dir() else []
    if not files or start_unix_ms is None:
        return None
    found: dict[int, float] = {}
    for file in files:
        for line in read_log(file):
            match = _SAFEPOINT.match(line)
            if match is None:
                continue
            try:
                ended_s = datetime.fromisoformat(match.group(1)).timestamp()
            except (ValueError, OverflowError):
                continue
            interval = int((ended_s - start_unix_ms / 1e3) // interval_s)
            found[interval] = found.get(interval, 0.0) + int(match.group(3)) / NS_PER_MS
    return found


def _stopped(lined_up: Series, stops_ms: Mapping[int, float]) -> Values:
    return np.array([stops_ms.get(int(interval), 0.0) for interval in lined_up.interval])


def _events(
    lined_up: Series,
    cores: int,
    stops_ms: Mapping[int, float] | None,
    *,
    cluster_here: bool,
    is_told_apart: bool,
) -> list[Event]:
    """What happened on the machine. `is_told_apart`: agents tell what a cluster used, and what others did."""
    values, seconds = lined_up.values, np.maximum(lined_up.duration_s, 1e-9)
    found: list[Event] = []
    if stops_ms is not None:
        found.append(Event(STOOD_STILL, _above(_stopped(lined_up, stops_ms), STOP_MS_MIN)))
    with np.errstate(invalid="ignore", divide="ignore"):
        flush_ms = 1e3 * values["flush_s"] / values["flushes"]
        others = np.nan_to_num(values["others_cpu_s"]) + np.nan_to_num(values["lab_cpu_s"])
        who = "the cluster or other programs" if cluster_here else "other programs"
        found += [
            Event("slow flushes of the disk (fsync)", unusual(flush_ms, FLUSH_MS_MIN)),
            Event("much written to the disk", unusual(values["system_disk_write_bytes"])),
            Event("the disk was busy all the time", _above(values["disk_busy_s"] / seconds, BUSY_SHARE_MIN)),
            Event("steal", _above(values["steal_s"] / (cores * seconds), STEAL_SHARE_MIN)),
            Event(
                f"{who} used CPU",
                _above(others / (cores * seconds), OTHERS_SHARE_MIN),
                # What the cluster used by itself has a reason, which is another event.
                "sign" if cluster_here and is_told_apart else "cause",
            ),
            Event(
                "all cores were busy",
                _above(values["host_cpu_s"] / (cores * seconds), BUSY_SHARE_MIN),
                "sign",
            ),
            Event("the generator was late", _above(values["send_delay_ms_p99"], LATE_MS_MIN), "sign"),
        ]
    return found


def host_events(name: str, told: Series, cores: int) -> list[Event]:
    """What happened on a machine of the cluster, by its agent."""
    values, seconds = told.values, np.maximum(told.duration_s, 1e-9)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = [
            Event(
                "slow flushes of the disk (fsync)",
                unusual(1e3 * values["flush_s"] / values["flushes"], FLUSH_MS_MIN),
            ),
            _slow_syncs(told),
            Event("the disk was busy all the time", _above(values["disk_busy_s"] / seconds, BUSY_SHARE_MIN)),
            Event(
                "much waited for the disk (PSI)",
                unusual(values["pressure_io_s"] / seconds, PRESSURE_SHARE_MIN),
            ),
            Event(
                "much waited for memory (PSI)",
                unusual(values["pressure_memory_s"] / seconds, PRESSURE_SHARE_MIN),
            ),
            Event("steal", _above(values["steal_s"] / (cores * seconds), STEAL_SHARE_MIN)),
            Event("a CPU was not to be had (disturbance)", _above(values["disturbed_s"], DISTURBED_S_MIN)),
            Event(
                "other programs used CPU",
                unusual(values["others_cpu_s"] / (cores * seconds), OTHERS_SHARE_MIN),
            ),
            Event("TCP segments sent again", unusual(values["retransmits"])),
            Event(
                "the system waited for a CPU",
                unusual(values["run_delay_s"] / seconds, PRESSURE_SHARE_MIN),
                "sign",
            ),
            Event(
                "all cores were busy",
                _above(values["host_cpu_s"] / (cores * seconds), BUSY_SHARE_MIN),
                "sign",
            ),
        ]
    return [Event(f"{name}: {one.name}", one.strength, one.role) for one in found]


def _slow_syncs(told: Series) -> Event:
    """What the system's threads waited in fsync and fdatasync, as the kernel saw it: how long the sync lasted in which one of them was found. Among hundreds
    that are fast a few that are slow leave the mean as it was, and it is those that others wait for."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found_ms = 1e3 * told.values["system_sync_s2"] / told.values["system_sync_s"]
    return Event("slow syncs of the system (fsync)", unusual(found_ms, FLUSH_MS_MIN))


def _disturbed(intervals: Intervals, place: Mapping[int, int]) -> Event:
    """A CPU was not to be had, as the workers' probes saw it (docs/quiet-time.md)."""
    seen = np.zeros(len(place))
    for row in intervals.counters():
        at = place.get(int(row["interval"]))
        if at is not None and row["disturbed_s"] is not None:
            seen[at] = max(seen[at], float(row["disturbed_s"]))
    return Event("a CPU was not to be had (disturbance)", _above(seen, DISTURBED_S_MIN))


def own_events(own: Sequence[OwnSeries]) -> list[Event]:
    """What each process told of itself and that was unusually high."""
    return [
        Event(f"{one.source}: {one.metric.title}, unusually high", unusual(one.values), one.metric.role)
        for one in own
    ]


def _standing_still(lined_up: Series, stops_ms: Mapping[int, float] | None) -> list[tuple[str, Values]]:
    return [] if stops_ms is None else [(STOOD_STILL, _stopped(lined_up, stops_ms))]


def _own_times(own: Sequence[OwnSeries]) -> list[tuple[str, Values]]:
    """Time that was spent in something that holds others up, above what is usual, in ms per second or per operation."""
    return [
        (f"{one.source}: {one.metric.title}", unusual(one.values))
        for one in own
        if one.metric.unit == "ms" and one.metric.kind == "counter" and one.metric.role == "cause"
    ]


def _largest(
    lined_up: Series,
    inside: npt.NDArray[np.bool_],
    metric: Headline,
    lasting: Sequence[tuple[str, Values]],
) -> Largest | None:
    """The largest latency, and what lasted for most of it."""
    values = np.where(inside, lined_up.values[f"{metric}_ms_max"], np.nan)
    if np.isnan(values).all():
        return None
    at = int(np.nanargmax(values))
    value_ms = float(values[at])
    nearby = [(float(np.max(lasted[max(0, at - 1) : at + 1])), name) for name, lasted in lasting]
    lasted_ms, name = max(nearby, default=(0.0, ""))
    if lasted_ms < max(LARGEST_SHARE_MIN * value_ms, STOP_MS_MIN):
        return None
    return Largest(
        value_ms=value_ms,
        at_s=float(lined_up.start_s[at]),
        event=name,
        lasted_ms=lasted_ms,
        explanation=(
            f"the largest latency ({significant(value_ms)} ms, {lined_up.start_s[at]:g} s after the start) came with {name}: "
            f"{significant(lasted_ms)} ms in that second or the one before"
        ),
    )


def _above(values: Values, least: float) -> Values:
    """Values from `least` on; the others are nothing."""
    known = np.nan_to_num(values)
    return np.where(known >= least, known, 0.0)


def _coincidence(cause: Cause) -> Coincidence:
    return Coincidence(
        event=cause.event.name,
        lift=cause.lift,
        lift_low=cause.lift_low,
        lift_high=cause.lift_high,
        intervals=cause.intervals,
        share=cause.share,
        explained=cause.explained,
        chance=cause.chance,
        is_echo=cause.is_echo,
        explanation=(
            f"{100 * cause.share:.0f} % of the slow messages lie in the {100 * cause.usual:.0f} % of the intervals with it, "
            f"{cause.lift:.1f} times as many as by chance (95 %: {cause.lift_low:.1f} to {cause.lift_high:.1f}; p = {cause.chance:.3f})"
        ),
    )


def _explain(found: list[Coincidence], happened: Sequence[Event]) -> str:
    if found:
        own = "; ".join(f"{one.event}: {one.explanation}" for one in found if not one.is_echo)
        echoes = ", ".join(one.event for one in found if one.is_echo)
        return f"{own}." + (f" What went along with it: {echoes}." if echoes else "")
    if not happened:
        return "Nothing found: none of the events that are looked for happened."
    names = ", ".join(sorted(one.name for one in happened))
    return (
        f"Nothing found: what happened ({names}) did so no more often in the intervals that hold the tail than in others, or too seldom to "
        "tell."
    )
