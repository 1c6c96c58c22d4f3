"""The knee of a latency over the rate: how far a system goes before its latency bends, and how surely that is known.

**What it is.** The *level* is the latency at low load: the geometric mean over the points at up to a quarter of the highest rate that was sustained (of the
lowest point alone where there is none). The knee is the highest rate up to which the latency stays within BEND times the level. It needs no model of the
curve - a wall, a slope and a queue's 1 / (1 - utilisation) all have one - and supposes one thing: a latency that has come to BEND times the level does not
come back below it at a higher rate.

**Its interval.** Points scatter: what is seen of a point is the logarithm of its latency with an error, whose standard deviation is known from experience,
from what trials of one rate differ by, and from what the points leave beside a fit that never falls (experience counts as 6 degrees of freedom, and never makes
it less than the points show). The likelihood ratio is inverted: the knee may lie between two neighbouring points if the best fit of a latency that never falls,
and is at most BEND times the level below the gap and at least as much above it, is hardly worse than the best such fit for any gap. A fit that never falls and
keeps a bound is the isotonic regression, cut off at it. The level has its own error, which the fit may use. A rate that was not sustained is above the bend
whatever it showed. As the knee can lie anywhere within a gap, the interval's ends are points that were measured, and it covers at least 95 % (simulated:
tests/test_knee.py).

Banerjee, M. and Wellner, J. A. (2001), Likelihood ratio tests for monotone functions, Annals of Statistics 29(6), 1699-1731 (the inversion); Barlow, R. E.,
Bartholomew, D. J., Bremner, J. M. and Brunk, H. D. (1972), Statistical Inference under Order Restrictions, Wiley (isotonic regression, pool adjacent
violators); Meyer, M. and Woodroofe, M. (2000), On the degrees of freedom in shape-restricted regression, Annals of Statistics 28(4), 1083-1104 (the spread).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.inference import distributions
from streamgauge.inference.experience import PRIOR_FREEDOM
from streamgauge.inference.looks import ALPHA

BEND = 2.0
"""Times the level: more than anybody takes for no difference (50 % of a p99), and soon left behind where queues build up."""
LOW_SHARE = 0.25
"""Of the highest rate that was sustained: points up to here tell the level."""
POINTS_MIN = 3
LEVELS_TRIED = 41
"""Levels that a fit may use: over four standard errors to either side."""
REACH = 4.0
LEVEL_COSTS = 1.5
RATIO = 2.269
"""95 % of twice the logarithm of the likelihood ratio for where a function that never falls takes a value (Banerjee and Wellner 2001, table 1, `D`)."""
NORMAL = 1.95996
"""97.5 % of the normal distribution: by how much Student's t is larger, the ratio is allowed to be."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """What was measured at one rate."""

    rate_msgs_s: float
    """As it was asked for."""
    values: tuple[float, ...]
    """The latency of each trial, above 0; empty only where `sustained` is False."""
    sustained: bool

    @property
    def log(self) -> float:
        """Of the geometric mean."""
        return float(np.mean(np.log(self.values)))


@dataclass(frozen=True)
class Knee:
    """Where a latency bends. Rates in msg/s, levels in the latency's unit."""

    rate_msgs_s: float | None
    """Read off between the two points that it lies between; None where it is not within the points."""
    low_msgs_s: float
    """It lies at this rate or above."""
    high_msgs_s: float | None
    """It lies below this rate; None where it may not have been reached."""
    level: float
    bound: float
    """BEND times the level."""

    @property
    def reached(self) -> bool:
        """Whether the latency has bent within the points, as far as is known."""
        return self.high_msgs_s is not None


def find_knee(points: Sequence[Point], prior: float) -> Knee | None:
    """The knee by points of different rates, in any order. `prior`: what experience says of the spread of a single trial's latency (the standard deviation of
    its logarithm). None with fewer than POINTS_MIN points, or where the lowest was not sustained: then there is no low load to compare with."""
    ordered = sorted(points, key=lambda one: one.rate_msgs_s)
    if len(ordered) < POINTS_MIN or not ordered[0].sustained:
        return None
    # What comes after a rate that was not sustained is above the bend, too.
    last = next((at for at, one in enumerate(ordered) if not one.sustained), len(ordered))
    known = ordered[:last]
    rates = [one.rate_msgs_s for one in known]
    logs = np.array([one.log for one in known])
    repeats = np.array([len(one.values) for one in known], dtype=np.float64)
    spread, freedom = _spread(known, logs, repeats, prior)
    weights = repeats / spread**2
    low = [at for at, rate in enumerate(rates) if rate <= LOW_SHARE * rates[-1]] or [0]
    level = float(np.average(logs[low], weights=weights[low]))
    costs = _costs(logs, weights, level + math.log(BEND), float(weights[low].sum()))
    surprise = distributions.student_quantile(1.0 - ALPHA / 2.0, freedom) / NORMAL
    allowed = costs.min() + RATIO * surprise**2
    gaps = np.flatnonzero(costs <= allowed)
    beyond = ordered[last].rate_msgs_s if last < len(ordered) else None
    # Gap 0 lies below the lowest point, which is part of the level and cannot be above it.
    best = int(np.argmin(costs))
    first, final = int(gaps[0]), int(gaps[-1])
    return Knee(
        rate_msgs_s=_between(ordered, rates, logs, best, beyond, level + math.log(BEND)),
        low_msgs_s=rates[first - 1],
        high_msgs_s=[*rates, beyond][final],
        level=math.exp(level),
        bound=BEND * math.exp(level),
    )


def _spread(known: Sequence[Point], logs: Values, repeats: Values, prior: float) -> tuple[float, float]:
    """Of a single trial, with its degrees of freedom: what trials of one rate differ by, and what is left of the points beside a fit that never falls,
    moderated by experience. A fit of so many levels takes LEVEL_COSTS times as many degrees of freedom, because it chooses where they lie."""
    fit = isotonic(logs, repeats)
    beside = max(len(logs) - LEVEL_COSTS * len(np.unique(fit)), 0.0)
    own = beside + float((repeats - 1).sum())
    if own <= 0:
        return prior, float(PRIOR_FREEDOM)
    squares = sum(float(((np.log(one.values) - one.log) ** 2).sum()) for one in known)
    if beside:
        squares += float((repeats * (logs - fit) ** 2).sum())
    variance = squares / own
    both = (PRIOR_FREEDOM * prior**2 + own * variance) / (PRIOR_FREEDOM + own)
    return math.sqrt(max(both, variance)), PRIOR_FREEDOM + own


def _costs(logs: Values, weights: Values, bound: float, level_weight: float) -> Values:
    """Per gap (before the first point, between two, after the last): the least sum of squares over the variance of a fit that bends there; infinite for the
    first, where it cannot be."""
    shifts = np.linspace(-REACH, REACH, LEVELS_TRIED) / math.sqrt(level_weight)
    found = np.full(len(logs) + 1, np.inf)
    for gap in range(1, len(found)):
        below = isotonic(logs[:gap], weights[:gap])
        above = isotonic(logs[gap:], weights[gap:])
        fit = np.concatenate(
            [
                np.minimum(below, bound + shifts[:, None]),
                np.maximum(above, bound + shifts[:, None]),
            ],
            axis=1,
        )
        squares = (weights * (logs - fit) ** 2).sum(axis=1) + level_weight * shifts**2
        found[gap] = squares.min()
    return found


def isotonic(values: Values, weights: Values) -> Values:
    """The values that never fall and are nearest to these, by weighted least squares (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, count = float(value), float(weight), 1
        while blocks and blocks[-1][0] >= mean:
            before, heavy, many = blocks.pop()
            mean = (mean * total + before * heavy) / (total + heavy)
            total, count = total + heavy, count + many
        blocks.append((mean, total, count))
    return np.array([mean for mean, _, count in blocks for _ in range(count)], dtype=np.float64)


def _between(
    ordered: Sequence[Point],
    rates: Sequence[float],
    logs: Values,
    gap: int,
    beyond: float | None,
    bound: float,
) -> float | None:
    """Where the bound is crossed within a gap: on the straight line between the two points, both scales logarithmic."""
    if gap == len(rates) and beyond is None:
        return None
    below = (math.log(rates[gap - 1]), min(float(logs[gap - 1]), bound))
    if gap < len(rates):
        above = (math.log(rates[gap]), max(float(logs[gap]), bound))
    else:
        after = next(one for one in ordered if one.rate_msgs_s == beyond)
        if not after.values or after.log <= bound:
            return rates[gap - 1]
        above = (math.log(after.rate_msgs_s), after.log)
    if above[1] <= below[1]:
        return math.exp(below[0])
    share = (bound - below[1]) / (above[1] - below[1])
    return math.exp(below[0] + share * (above[0] - below[0]))
