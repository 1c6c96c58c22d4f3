"""Intervals over repeats, and several questions at once.

With three to ten trials a percentile bootstrap cannot keep its promise: three values have ten different resamples, and its "95 %" interval
covers the true median in 3 of 4 cases. So the values' logarithms are taken for normal (figures of repeats differ by factors: a slow disk
makes latencies half as long again, not 3 ms longer), for which Student's t is exact, whatever the number of trials; the median of a
lognormal distribution is the exponential of the mean of its logarithms. The more trials, the more a wrong assumption costs (exponential
values: 92.7 % of the intervals of 20 would hold the median, 86.5 % of those of 40), so from ORDER_TRIALS_MIN values on the bounds of order
statistics take over, which assume nothing, interpolated between neighbours (Hettmansperger and Sheather 1986) because whole ranks cover too
much. Its coverage is simulated in the tests, for distributions that are not lognormal, too. Holm's correction (Holm 1979) is for where several things are
asked at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from streamgauge.inference import distributions

CONFIDENCE = 0.95
TRIALS_MIN = 3
"""With two values a median and an interval say no more than the two values."""
ORDER_TRIALS_MIN = 11
RESOLUTION = 0.001
"""Relative width of a histogram's bucket: two figures that differ by less are the same figure."""


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the median over trials, in the values' unit; None for fewer than TRIALS_MIN values."""
    count = len(values)
    if count < TRIALS_MIN:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if count >= ORDER_TRIALS_MIN:
        rank, inward = _order(count)
        low, high = (
            (1.0 - inward) * float(outer) + inward * float(inner)
            for outer, inner in ((ordered[rank - 1], ordered[rank]), (ordered[-rank], ordered[-rank - 1]))
        )
        return low, high
    positive = bool(ordered[0] > 0)
    scale = np.log(ordered) if positive else ordered
    half = _student(count - 1) * float(scale.std(ddof=1)) / math.sqrt(count)
    low, high = float(scale.mean()) - half, float(scale.mean()) + half
    if positive:
        low, high = math.exp(low), math.exp(high)
    # What is shown in the middle must lie within, also when one outlier moved the mean away from it.
    middle = float(np.median(ordered))
    return min(low, middle), max(high, middle)


@functools.cache
def _student(freedom: int) -> float:
    """Student's t at which CONFIDENCE of the distribution lies between it and its negative."""
    return distributions.student_quantile(0.5 + CONFIDENCE / 2.0, freedom)


@functools.cache
def _order(count: int) -> tuple[int, float]:
    """The rank, from below and from above, between which values too many medians lie, and how far to go inward to the next."""

    def covers(rank: int) -> float:
        return 1.0 - 2.0 * distributions.coin_below(rank - 1, count)

    rank = distributions.coin_quantile((1.0 - CONFIDENCE) / 2.0, count)
    excess = (covers(rank) - CONFIDENCE) / (covers(rank) - covers(rank + 1))
    return rank, (count - rank) * excess / (rank + (count - 2 * rank) * excess)


def holm(chances: Sequence[float]) -> list[float]:
    """P-values corrected for having asked so many questions, in the order given (Holm's step-down method)."""
    order = sorted(range(len(chances)), key=lambda at: chances[at])
    corrected, highest = [0.0] * len(chances), 0.0
    for step, at in enumerate(order):
        highest = max(highest, min(1.0, (len(chances) - step) * chances[at]))
        corrected[at] = highest
    return corrected
