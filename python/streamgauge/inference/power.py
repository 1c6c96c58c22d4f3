"""What would decide: how many more rounds, if what was estimated so far is true."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.inference import distributions, sequential
from streamgauge.inference.contrast import Contrast
from streamgauge.inference.sequential import ROUNDS_MIN
from streamgauge.inference.verdict import RESOLUTION, Asked

POWER = 0.8
LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
"""Numbers of further rounds that are tried; nobody is advised to make more than the last."""
SHARES = tuple((at + 0.5) / 40 for at in range(40))
"""Quantiles over which an estimated variance is averaged."""


@dataclass(frozen=True)
class Price:
    """What would decide an undecided test or claim if what was estimated so far is true, with a power of 80 %."""

    rounds: int | None
    """So many more; None where no reasonable number would."""
    why: str = ""
    """Why there is none."""


def power(found: Contrast, asked: Asked, level: float) -> float:
    """How probable a decision at a two-sided level is where the estimate and its variance are the truth."""
    if found.error == 0:
        return 1.0
    near = 0.0 if found.linear else RESOLUTION
    edge = distributions.student_quantile(1.0 - level / 2.0, found.freedom)
    decided = 0.0
    for share in SHARES:
        # The standard error as it may be estimated, and for which estimates that decides.
        half = (
            edge * found.error * math.sqrt(distributions.chi2_quantile(share, found.freedom) / found.freedom)
            + near
        )
        ways = [
            (asked.low + half, asked.high - half),
            (-math.inf, asked.low - half),
            (asked.high + half, math.inf),
        ]
        if asked.margin is not None:
            ways.append((near + half - asked.margin, asked.margin - half - near))
        decided += _within(ways, found) / len(SHARES)
    return decided


def _within(ways: Sequence[tuple[float, float]], found: Contrast) -> float:
    """How probable an estimate in any of these intervals is."""
    total, covered = 0.0, -math.inf
    for low, high in sorted(ways):
        low = max(low, covered)
        if high > low:
            total += _below(high, found) - _below(low, found)
            covered = high
    return total


def _below(edge: float, found: Contrast) -> float:
    """How probable a lower estimate is."""
    return 0.5 * math.erfc((found.estimate - edge) / found.error / math.sqrt(2.0))


@functools.cache
def _estimated(freedom: float) -> tuple[float, ...]:
    """Estimated standard errors over the true one, each as probable as the others."""
    return tuple(math.sqrt(distributions.chi2_quantile(share, freedom) / freedom) for share in SHARES)


def price(found: Contrast, asked: Asked, looks: tuple[int, ...], error: float) -> Price:
    """`looks`: those that were, the last at hand; empty where all is judged once. `error`: what may be spent on it over all looks."""

    def decides(more: int) -> bool:
        then = found.after(more)
        later = (*looks, looks[-1] + more) if looks else ()
        return (
            then.shape.units >= ROUNDS_MIN and power(then, asked, sequential.level_for(error, later)) >= POWER
        )

    at = bisect.bisect_left(LADDER, True, key=decides)
    if at < len(LADDER):
        return Price(LADDER[at])
    if found.shape.starts:
        return Price(
            None,
            "runs or starts of the same may differ by as much, and repeats of one do not tell by how much",
        )
    return Price(
        None,
        f"the estimate is too near to what would have to be excluded: more than {LADDER[-1]} further rounds",
    )
