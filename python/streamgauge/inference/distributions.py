"""What the analysis needs of classical statistics: tails of distributions, a line through points, robust spread.

All of it is in scipy.stats too, and tests compare the two. It is here because importing scipy.stats takes a second of CPU at every start of the lab;
scipy.special, which has the distributions themselves, takes a tenth of that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

Values = npt.NDArray[np.float64]

ALIKE_MAX = 0.98
"""Autocorrelation beyond which nothing is told from a trend."""
NORMAL_QUARTILE = float(special.ndtri(0.75))
"""Median absolute deviation of a normal distribution, in its standard deviations."""


def student_quantile(share: float, freedom: float) -> float:
    """Student's t below which `share` of the distribution lies."""
    return float(special.stdtrit(freedom, share))


def student_above(value: float, freedom: float) -> float:
    """How probable a t above `value` is."""
    return float(special.stdtr(freedom, -value))


def f_above(values: Values, above: Any, below: Any) -> Values:
    """How probable an F above each value is, with so many degrees of freedom above and below the line."""
    return np.asarray(special.fdtrc(above, below, values), dtype=np.float64)


def coin_below(rank: int, count: int) -> float:
    """How probable at most `rank` heads in `count` tosses are."""
    return float(special.bdtr(rank, count, 0.5)) if rank >= 0 else 0.0


def coin_quantile(share: float, count: int) -> int:
    """The smallest number of heads that is not exceeded with a probability of at least `share`."""
    return next(rank for rank in range(count + 1) if coin_below(rank, count) >= share)


def share_interval(seen: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """The shares of which it is not too improbable to see so many of so many (Clopper and Pearson 1934)."""
    tail = (1.0 - confidence) / 2.0
    low = float(special.betaincinv(seen, of - seen + 1.0, tail)) if seen else 0.0
    high = float(special.betaincinv(seen + 1.0, of - seen, 1.0 - tail)) if seen < of else 1.0
    return low, high


def deviation(values: Values) -> float:
    """Standard deviation of what is normal but for some values far out: from the median absolute deviation."""
    return float(np.median(np.abs(values - np.median(values)))) / NORMAL_QUARTILE


def ranks(values: Values) -> Values:
    """Rank of each value, from 1; equal ones share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[places], dtype=np.float64)


def line(at: Values, values: Values) -> tuple[float, float]:
    """Slope of the least-squares line through at least 3 points, and its standard error (0 for a perfect fit).

    The error is right where deviations from the line are independent of each other.
    """
    across = at - at.mean()
    spread = float(across @ across)
    if spread == 0.0:
        return 0.0, 0.0
    deviations = values - values.mean()
    both, along = float(across @ deviations), float(deviations @ deviations)
    slope = both / spread
    left = max(along - slope * both, 0.0)
    return slope, math.sqrt(left / (len(values) - 2) / spread)


def theil_sen(values: Values, confidence: float, *, dependent: bool = False) -> tuple[float, float, float]:
    """Median of the slopes between all pairs of neighbours and others, per place, with its interval (slope, low, high); needs 2 values.

    Theil (1950); the interval is that of Sen (1968), equation 2.6, with its correction for ties, and holds where values are independent. `dependent`: it is
    made wider by how much neighbours resemble each other (`trend_variance`).
    """
    count = len(values)
    earlier, later = np.triu_indices(count, 1)
    slopes = np.sort((values[later] - values[earlier]) / (later - earlier))
    _, ties = np.unique(values, return_counts=True)
    variance = (_sen(count) - sum(_sen(int(tie)) for tie in ties)) / 18.0
    slope = float(np.median(slopes))
    if dependent:
        variance *= trend_variance(values - slope * np.arange(count))
    reach = -float(special.ndtri((1.0 - confidence) / 2.0)) * math.sqrt(max(variance, 0.0))
    high = min(round((len(slopes) + reach) / 2.0), len(slopes) - 1)
    low = max(round((len(slopes) - reach) / 2.0) - 1, 0)
    return slope, float(slopes[low]), float(slopes[high])


def trend_variance(left: Values) -> float:
    """By how much larger the variance of a trend test is where each value resembles the one before it, from what is left of the values without their trend.

    Hamed, K. H. and Rao, A. R. (1998), A modified Mann-Kendall trend test for autocorrelated data, Journal of Hydrology 204, 182-196, equation 9, with the
    autocorrelations of an AR(1) process; its first, from ranks, is raised by what so few values make it too small by (Kendall 1954).
    """
    count = len(left)
    if count < 4:
        return 1.0
    centred = ranks(left) - (count + 1) / 2.0
    energy = float(centred @ centred)
    found = float(centred[:-1] @ centred[1:]) / energy if energy else 0.0
    resemblance = min(found + (1.0 + 4.0 * found) / count, ALIKE_MAX)
    if resemblance <= 0.0:
        return 1.0
    lags = np.arange(1, count)
    pairs = (count - lags) * (count - lags - 1.0) * (count - lags - 2.0)
    return 1.0 + 2.0 * float(pairs @ resemblance**lags) / (count * (count - 1.0) * (count - 2.0))


def _sen(count: int) -> float:
    return count * (count - 1) * (2.0 * count + 5)
