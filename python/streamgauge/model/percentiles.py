"""Latency figures from merged histograms: the headline percentiles, and curves for charts. ns in, ms out."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    min_ns: int | None = None
    max_ns: int | None = None


def latency(histogram: Histogram, beyond: Beyond | None = None) -> Latency:
    """The figures of one metric.

    A percentile that falls among the overflowed samples is None: it is above 1 h, and no number would be
    true. The maximum is then the worker's own, or 1 h as its lower bound. Negative samples rank below
    everything in the histogram.
    """
    beyond = beyond or Beyond()
    total = histogram.count + beyond.overflow + beyond.negative
    if not total:
        return Latency()
    return Latency(
        mean=_ms(histogram.mean),
        min=_minimum(histogram, beyond),
        max=_maximum(histogram, beyond),
        count=total,
        overflow=beyond.overflow,
        negative=beyond.negative,
        **{name: _ms(_percentile(histogram, percent, beyond)) for name, percent in PERCENTS.items()},
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
    found = (_percentile(histogram, share * 100.0, Beyond(negative=below)) for share in shares)
    return [math.nan if value is None else value / NS_PER_MS for value in found]


def _percentile(histogram: Histogram, percent: float, beyond: Beyond) -> float | None:
    if not beyond.negative:
        return histogram.percentile(percent, beyond.overflow)
    total = histogram.count + beyond.overflow + beyond.negative
    rank = rank_of(percent, total) - beyond.negative
    if rank < 1 or not histogram.count:
        # The percentile is a negative sample, whose exact value is not kept.
        return None
    return histogram.percentile(100.0 * rank / (histogram.count + beyond.overflow), beyond.overflow)


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
