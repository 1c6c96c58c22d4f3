"""What coincided with the slowest messages.

The tail is what is slower than the trial's p99.9. For each kind of event (a stop of a JVM, a slow flush of the disk, steal, ...) the intervals in
which it happened are compared with those that hold the tail: *lift* is the share of slow messages in intervals with the event, over the share of
intervals with it. Chance is asked by shifting the two series against each other (every shift once, circularly): that leaves both as they are,
clustering included, and only breaks what connects them. A coincidence is no cause; where several are shown together, one may be the cause of another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamgauge.analysis.intervals import Intervals, Series, Window, felt
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.model.result_base import Headline
from streamgauge.model.result_reasons import Coincidence, Tail
from streamgauge.store.files import read_log

INTERVALS_MIN = 20
CHANCE_MAX = 0.05
LIFT_MIN = 1.5
EVENT_SHARE_MAX = 0.8
"""What happens nearly always explains nothing."""
STOP_MS_MIN = 10.0
STEAL_SHARE_MIN = 0.02
OTHERS_SHARE_MIN = 0.10
BUSY_SHARE_MIN = 0.95
TIMES_USUAL = 3.0
FLUSH_MS_MIN = 5.0
LATE_MS_MIN = 1.0

Flags = npt.NDArray[np.bool_]
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
    cluster_here: bool = False,
) -> Tail | None:
    """The tail of a metric in a phase. `lined_up`: the series of the trial, interval by interval; `stops_ms`: interval -> time for which a
    JVM of the system stood still, None where there is none. None when there is too little to tell anything."""
    whole = intervals.histogram(metric, phase)
    above_ns = whole.percentile(99.9)
    inside = lined_up.within(window)
    if above_ns is None or int(inside.sum()) < INTERVALS_MIN:
        return None
    slow = np.zeros(len(lined_up))
    place = {int(interval): at for at, interval in enumerate(lined_up.interval)}
    for interval, histogram in intervals.histograms_by_interval(metric, phase).items():
        if interval in place:
            slow[place[interval]] = round(histogram.share_above(above_ns) * histogram.count)
    weights = slow[inside]
    if weights.sum() == 0:
        return None
    events = {
        name: flags[inside]
        for name, flags in _events(lined_up, cores, stops_ms, cluster_here=cluster_here).items()
    }
    happened = {name: flags for name, flags in events.items() if 0 < flags.mean() <= EVENT_SHARE_MAX}
    found = [
        one for name, flags in happened.items() if (one := _coincidence(name, flags, weights)) is not None
    ]
    found.sort(key=lambda one: -one.lift)
    return Tail(
        metric=metric,
        above_ms=above_ns / NS_PER_MS,
        msgs=int(weights.sum()),
        intervals=int(np.count_nonzero(weights)),
        coincidences=found,
        looked_at=sorted(happened),
        explanation=_explain(found, happened),
    )


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


def _events(
    lined_up: Series, cores: int, stops_ms: Mapping[int, float] | None, *, cluster_here: bool
) -> dict[str, Flags]:
    """Event -> in which intervals it happened."""
    values, seconds = lined_up.values, np.maximum(lined_up.duration_s, 1e-9)
    flags: dict[str, Flags] = {}
    if stops_ms is not None:
        flags["a JVM stood still (collection or other safepoint)"] = np.array(
            [stops_ms.get(int(interval), 0.0) >= STOP_MS_MIN for interval in lined_up.interval]
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        flush_ms = 1e3 * values["flush_s"] / values["flushes"]
        flags["slow flushes of the disk (fsync)"] = _unusual(flush_ms) & (flush_ms > FLUSH_MS_MIN)
        flags["much written to the disk"] = _unusual(values["system_disk_write_bytes"])
        flags["the disk was busy all the time"] = values["disk_busy_s"] / seconds > BUSY_SHARE_MIN
        flags["steal"] = values["steal_s"] / (cores * seconds) > STEAL_SHARE_MIN
        others = np.nan_to_num(values["others_cpu_s"]) + np.nan_to_num(values["lab_cpu_s"])
        who = "the cluster or other programs" if cluster_here else "other programs"
        flags[f"{who} used CPU"] = others / (cores * seconds) > OTHERS_SHARE_MIN
        flags["all cores were busy"] = values["host_cpu_s"] / (cores * seconds) > BUSY_SHARE_MIN
        flags["the generator was late"] = values["send_delay_ms_p99"] > LATE_MS_MIN
    return {name: felt(found) for name, found in flags.items()}


def _unusual(values: npt.NDArray[np.float64]) -> Flags:
    known = values[~np.isnan(values)]
    if not len(known):
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(values > TIMES_USUAL * max(float(np.median(known)), 1e-12), dtype=np.bool_)


def _coincidence(name: str, flags: Flags, weights: npt.NDArray[np.float64]) -> Coincidence | None:
    """None where chance explains it."""
    usual = float(flags.mean())
    shares = (
        np.array([float(weights[np.roll(flags, shift)].sum()) for shift in range(len(flags))]) / weights.sum()
    )
    share = float(shares[0])
    chance = float(np.mean(shares >= share - 1e-12))
    lift = share / usual
    if chance > CHANCE_MAX or lift < LIFT_MIN:
        return None
    return Coincidence(
        event=name,
        lift=lift,
        intervals=int(flags.sum()),
        share=share,
        chance=chance,
        explanation=(
            f"{100 * share:.0f} % of the slow messages lie in the {100 * usual:.0f} % of the intervals with it, "
            f"{lift:.1f} times as many as by chance (p = {chance:.3f})"
        ),
    )


def _explain(found: list[Coincidence], happened: Mapping[str, Flags]) -> str:
    if found:
        return "; ".join(f"{one.event}: {one.explanation}" for one in found) + "."
    if not happened:
        return "None of the events that are looked for happened."
    return f"What happened ({', '.join(sorted(happened))}) did so no more often in the intervals that hold the tail than in others."
