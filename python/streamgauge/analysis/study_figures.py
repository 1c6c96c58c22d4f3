"""The figures that studies name (`vocabulary.figures`), computed from a trial's result and, where it takes the series, from
its directory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamgauge.analysis.intervals import Intervals, read_resources, series
from streamgauge.analysis.patterns import period
from streamgauge.model.percentiles import NS_PER_MS, PERCENTS
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Latency
from streamgauge.model.result_quiet import Bounded
from streamgauge.model.result_special import Drain
from streamgauge.vocabulary.figures import RESULT_FIGURES, SERIES, STANDING, study_figure
from streamgauge.vocabulary.figures import figure as figure_of
from streamgauge.vocabulary.phases import CATCH_UP, MEASURE

Values = npt.NDArray[np.float64]

SPIKE_FACTOR = 10.0
"""An interval is a spike when its p99 is so many times the median of the intervals' p99."""
BEFORE = MEASURE
APART_MAX = 4.0
"""Bounds of a latency that are further apart are none."""
OTHER_PHASES = ("sustained", "catch_up")
"""What figures begin with that are not of the measured phase."""
OPEN = ("generator", "machine")
"""What may end a search below what the system sustains."""


@dataclass(frozen=True)
class MeasuredTrial:
    """A trial and where its tables are."""

    result: TrialResult
    directory: Path


def value(measured: MeasuredTrial, figure: str) -> float | None:
    """A figure of a trial; None when the trial has none of the kind, or when there is no such figure any more."""
    known = study_figure(figure)
    if known is None:
        return None
    if known.name in _OF_SERIES:
        return _OF_SERIES[known.name](measured)
    result = measured.result
    if known.name in RESULT_FIGURES:
        return figure_of(result, known.name)
    name, _, statistic = known.name.partition(".")
    if name == "before_publish_ms":
        return _statistic(_phase(result, BEFORE), statistic)
    if name == "catch_up_publish_ms":
        return _statistic(_phase(result, CATCH_UP), statistic)
    return _OF_RESULT[known.name](result)


def taken_share(result: TrialResult, figure: str) -> float | None:
    """The share of the time in which a CPU was not to be had; None where nobody watched, and of figures of another phase than the measured one."""
    known = study_figure(figure)
    if known is None or known.name.startswith(OTHER_PHASES):
        return None
    return None if result.quiet is None else result.quiet.away_share


def is_latency(figure: str) -> bool:
    """Whether it is one of a latency of the measured phase, whose bounds stand whatever the machine did."""
    known = study_figure(figure)
    return known is not None and known.name.partition(".")[0] in STANDING


def bounds(measured: MeasuredTrial, figure: str) -> tuple[float, float] | None:
    """What a figure is at least, and at most (infinite where that is open), of a trial that does not know it; None when nothing is known of it."""
    known = study_figure(figure)
    if known is None:
        return None
    first, _, statistic = known.name.partition(".")
    if first in STANDING:
        return _between(measured.result.bounded(first, statistic))
    return _BOUNDS[known.name](measured.result) if known.name in _BOUNDS else None


def _between(told: Bounded | None) -> tuple[float, float] | None:
    """Of a latency that a disturbance leaves bounds of. A trial that leaves an end open, or both far apart, is as one that was not had: the host may have
    hidden anything, and to keep what is so little known would outweigh the rounds that know it."""
    if told is None or told.value is not None:
        return None
    low, high = told.at_least, told.at_most
    if told.ends is not None:
        # Rounds tell by themselves how much chance does; results of before know only the limits that it has.
        low, high = max(told.ends[0], low), told.ends[1]
    if low <= 0 or high is None:
        return None
    return (low, high) if high <= APART_MAX * low else None


def _statistic(latency: Latency | None, statistic: str) -> float | None:
    if latency is None:
        return None
    found: float | None = getattr(latency, statistic)
    return found


def _phase(result: TrialResult, name: str) -> Latency | None:
    if result.catch_up is None:
        return None
    return next((phase.publish_ms for phase in result.catch_up.phases if phase.name == name), None)


def _sustained(result: TrialResult) -> float | None:
    """The lower edge of the bracket. A maximum that was the generator's, or may be the machine's, is none of the system."""
    found = result.search
    if found is None or found.bound in OPEN:
        return None
    return found.low_msgs_s


def _sustained_bounds(result: TrialResult) -> tuple[float, float] | None:
    """Where the generator was at its end, or the machine was: what was sustained, and the lowest rate that the system did not sustain."""
    found = result.search
    if found is None or found.bound not in OPEN or found.low_msgs_s is None:
        return None
    return found.low_msgs_s, math.inf if found.high_msgs_s is None else found.high_msgs_s


def _read_bounds(result: TrialResult) -> tuple[float, float] | None:
    """Of backlogs that were read in less than a second: in their best second all of it was read, and it might have been more, had there been more."""
    caught = result.catch_up
    if caught is None or not caught.drains:
        return None
    lows = [
        float(drain.read_msgs) if drain.chase_s is not None and drain.max_msgs_s is None else drain.max_msgs_s
        for drain in caught.drains
    ]
    known = [one for one in lows if one is not None]
    return (sum(known), math.inf) if len(known) == len(lows) else None


def _drained(part: Callable[[Drain], float | None]) -> Callable[[TrialResult], float | None]:
    def total(result: TrialResult) -> float | None:
        if result.catch_up is None or not result.catch_up.drains:
            return None
        found = [part(drain) for drain in result.catch_up.drains]
        return None if any(one is None for one in found) else sum(one for one in found if one is not None)

    return total


def _sustained_mb_s(result: TrialResult) -> float | None:
    rate = _sustained(result)
    return None if rate is None else rate * result.workload.message_size_bytes / 1e6


_OF_RESULT: dict[str, Callable[[TrialResult], float | None]] = {
    "sustained_mb_s": _sustained_mb_s,
    "sustained_msgs_s": _sustained,
    "catch_up_max_mb_s": _drained(lambda drain: drain.max_mb_s),
    "catch_up_mean_mb_s": _drained(lambda drain: drain.mean_mb_s),
    "catch_up_max_msgs_s": _drained(lambda drain: drain.max_msgs_s),
}


BoundsOf = Callable[[TrialResult], tuple[float, float] | None]


def _in_mb(found: BoundsOf) -> BoundsOf:
    def of(result: TrialResult) -> tuple[float, float] | None:
        ends, mb = found(result), result.workload.message_size_bytes / 1e6
        return None if ends is None else (ends[0] * mb, ends[1] * mb)

    return of


_BOUNDS: dict[str, BoundsOf] = {
    "sustained_mb_s": _in_mb(_sustained_bounds),
    "sustained_msgs_s": _sustained_bounds,
    "catch_up_max_mb_s": _in_mb(_read_bounds),
    "catch_up_max_msgs_s": _read_bounds,
}


_COUNTED: dict[str, tuple[str, float]] = {
    "publish_rate_mb_s": ("acked_bytes", 1e-6),
    "publish_rate_msgs_s": ("acked_msgs", 1.0),
    "consume_rate_mb_s": ("received_bytes", 1e-6),
    "consume_rate_msgs_s": ("received_msgs", 1.0),
    "cpu.system_cores": ("system_cpu_s", 1.0),
}
"""What is counted in an interval, and what makes it the figure per second."""


def over_time(measured: MeasuredTrial, figure: str) -> tuple[Values, Values]:
    """A series (`vocabulary.figures.SERIES`) of the whole trial: middles of the intervals in s on the schedule's axis, and values.
    Intervals without a value are left out, and a figure that there is no more has none."""
    if figure not in SERIES:
        return np.array([]), np.array([])
    if not figure.startswith(("publish_ms", "end_to_end_ms")):
        return _counted(measured, figure)
    name, _, statistic = figure.partition(".")
    intervals = Intervals.read(measured.directory)
    axis = {
        int(row["interval"]): float(row["start_s"]) + float(row["duration_s"]) / 2
        for row in intervals.counters()
    }
    times, values = [], []
    for interval, histogram in intervals.histograms_by_interval(name.removesuffix("_ms")).items():
        plain = histogram.mean if statistic == "mean" else histogram.max
        found = histogram.percentile(PERCENTS[statistic]) if statistic in PERCENTS else plain
        if found is not None and interval in axis:
            times.append(axis[interval])
            values.append(found / NS_PER_MS)
    return np.array(times), np.array(values)


def _counted(measured: MeasuredTrial, figure: str) -> tuple[Values, Values]:
    found = series(Intervals.read(measured.directory), read_resources(measured.directory))
    if figure in _COUNTED:
        column, factor = _COUNTED[figure]
        values = found.values[column] / found.duration_s * factor
    else:
        values = found.values[figure]
    known = np.isfinite(values)
    return (found.start_s + found.duration_s / 2)[known], values[known]


def _within(measured: MeasuredTrial, figure: str) -> Values:
    """As `over_time`, of the measured phase alone."""
    times, values = over_time(measured, figure)
    phase = next((phase for phase in measured.result.phases if phase.name == BEFORE), None)
    if phase is None or phase.until_s is None:
        return np.array([])
    return np.asarray(values[(times > phase.from_s) & (times < phase.until_s)], dtype=np.float64)


def _period_s(measured: MeasuredTrial) -> float | None:
    """Period of the bumps, in s (an interval is 1 s); None where chance explains the series."""

    found = period(_within(measured, "end_to_end_ms.mean"))
    return None if found is None else found.intervals


def _swing_ms(measured: MeasuredTrial) -> float | None:
    """How far the mean end-to-end latency moves along its period: from the lowest to the highest place of it."""
    period = _period_s(measured)
    if period is None:
        return None
    values, lag = _within(measured, "end_to_end_ms.mean"), round(period)
    folded = [float(np.median(values[place::lag])) for place in range(lag)]
    return max(folded) - min(folded)


def _range_ms(measured: MeasuredTrial) -> float | None:
    """How far the mean end-to-end latencies of the seconds lie apart, without the highest and the lowest twentieth of them."""
    values = _within(measured, "end_to_end_ms.mean")
    if not len(values):
        return None
    low, high = np.quantile(values, [0.05, 0.95])
    return float(high - low)


def _spikes_per_min(measured: MeasuredTrial) -> float | None:
    values = _within(measured, "publish_ms.p99")
    if not len(values):
        return None
    spikes = int(np.count_nonzero(values > SPIKE_FACTOR * float(np.median(values))))
    return 60.0 * spikes / len(values)


_OF_SERIES: dict[str, Callable[[MeasuredTrial], float | None]] = {
    "period_s.end_to_end_mean": _period_s,
    "swing_ms.end_to_end_mean": _swing_ms,
    "range_ms.end_to_end_mean": _range_ms,
    "spikes_per_min.publish_p99": _spikes_per_min,
}
