"""Latency figures from merged histograms: the headline percentiles, and curves for charts. ns in, ms out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from streamgauge.model.result_base import Latency
from streamgauge.vocabulary.histograms import Histogram, rank_of

NS_PER_MS = 1e6
RANGE_MS = 3_600_000.0
"""Upper end of the recorders' range (1 h)."""

PERCENTS: dict[str, float] = {
    "p50": 50.0,
    "p75": 75.0,
    "p90": 90.0,
    "p95": 95.0,
    "p99": 99.0,
    "p99_9": 99.9,
    "p99_99": 99.99,
}


@dataclass(frozen=True)
class Beyond:
    """Samples outside of a histogram's range, and the extremes when the worker told them."""

    overflow: int = 0
    negative: int = 0
    unanswered: int = 0
    """Messages without an end, which rank above all samples."""
    is_dated: bool = True
    """Whether all of the unanswered are known to be of these samples' time."""
    min_ns: int | None = None
    max_ns: int | None = None


def latency(histogram: Histogram, beyond: Beyond | None = None) -> Latency:
    """The figures of one metric.

    A percentile that falls among the overflowed samples is None: it is above 1 h, and no number would be
    true. The maximum is then the worker's own, or 1 h as its lower bound. Negative samples rank below
    everything in the histogram. Messages without an end rank above everything: a percentile among them has
    no value, and is at least the largest latency that was measured.
    """
    beyond = beyond or Beyond()
    total = histogram.count + beyond.overflow + beyond.negative
    if not total:
        return Latency(unanswered=beyond.unanswered)
    figures = {name: _ms(_percentile(histogram, percent, beyond)) for name, percent in PERCENTS.items()}
    largest, unanswered = _maximum(histogram, beyond), beyond.unanswered > 0
    at_least: dict[str, float | None] = {}
    if unanswered:
        # Of those that came back, where some of the others may be of another time: more on top can only raise it.
        lowest = {
            name: largest
            if beyond.is_dated
            else _ms(_percentile(histogram, percent, replace(beyond, unanswered=0)))
            for name, percent in PERCENTS.items()
        }
        at_least = {name: lowest[name] for name, figure in figures.items() if figure is None}
        at_least["max"] = largest
    return Latency(
        # The mean of those that came back is not the mean.
        mean=None if unanswered else _ms(histogram.mean),
        min=_minimum(histogram, beyond),
        max=None if unanswered else largest,
        count=total,
        overflow=beyond.overflow,
        negative=beyond.negative,
        unanswered=beyond.unanswered,
        at_least={name: bound for name, bound in at_least.items() if bound is not None},
        **figures,
    )


CURVE_STEPS_PER_DECADE = 24
"""Points of a curve per factor of ten in 1 - share."""


def curve(histogram: Histogram, below: int = 0) -> list[float]:
    """Latency by percentile for a chart: value k, in ms, is that of share 1 - 10^(-k /
    CURVE_STEPS_PER_DECADE).

    The same grid for every histogram, so that curves of repeats can be compared point by point. It ends with
    the first point beyond the share of a single sample, which is the maximum: finer than that the data says
    nothing. `below` samples are smaller than all in the histogram: points among them are NaN.
    """
    if not histogram.count:
        return []
    total = histogram.count + below
    steps = math.ceil(math.log10(total) * CURVE_STEPS_PER_DECADE - 1e-9)
    shares = [1.0 - 10.0 ** (-step / CURVE_STEPS_PER_DECADE) for step in range(steps + 1)]
    shares[-1] = 1.0
    percents = [share * 100.0 for share in shares]
    if not below:
        return [math.nan if value is None else value / NS_PER_MS for value in histogram.percentiles(percents)]
    found = (_percentile(histogram, percent, Beyond(negative=below)) for percent in percents)
    return [math.nan if value is None else value / NS_PER_MS for value in found]


def _percentile(histogram: Histogram, percent: float, beyond: Beyond) -> float | None:
    above = beyond.overflow + beyond.unanswered
    if not beyond.negative:
        return histogram.percentile(percent, above)
    total = histogram.count + above + beyond.negative
    rank = rank_of(percent, total) - beyond.negative
    if rank < 1 or not histogram.count:
        # The percentile is a negative sample, whose exact value is not kept.
        return None
    return histogram.percentile(100.0 * rank / (histogram.count + above), above)


def _minimum(histogram: Histogram, beyond: Beyond) -> float | None:
    if beyond.min_ns is not None:
        return _ms(beyond.min_ns)
    if beyond.negative:
        # How far below zero is not known, and a positive figure would be wrong.
        return None
    return _ms(histogram.min)


def _maximum(histogram: Histogram, beyond: Beyond) -> float | None:
    if beyond.max_ns is not None:
        return _ms(beyond.max_ns)
    return RANGE_MS if beyond.overflow else _ms(histogram.max)


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / NS_PER_MS
