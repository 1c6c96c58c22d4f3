"""Which rates a sweep measures: from a tenth of what a closed loop took to beyond what is sustained, and then where the latency bends.

Rates are preferred numbers (ISO 3: the series R40, 40 to a decade, 6 % apart), so that sweeps of other systems and of other days have points in common, which
are cells that can be compared. First come those of the series R5 (58 % apart) from a tenth of the maximum on and the first of R10 above it, in an order
that is shuffled: what changes with time does not look like a change with the rate. Then the highest rates until one is not sustained; then the gap in which the
knee lies is halved until its edges are neighbours of R40, with edges measured once more when it has become narrow - what was measured earlier may be worse
because the system was not warm yet -, and the gap above the highest rate that was sustained until it is one of R20. What time is left goes
into the interval of the knee. `runner.sweep_run` measures them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamgauge.analysis.curves import CurvePoint, Worth
from streamgauge.inference.knee import Knee
from streamgauge.vocabulary.units import RATE_MAX_MSGS_S

PER_DECADE = 40
COARSE, UP, WIDE = 8, 4, 2
"""Steps of R5, R10 and R20 in R40."""
FROM_SHARE = 0.1
"""Of the maximum: the lowest rate lies at or below."""
TRIES_MAX = 2
"""Of a rate whose trial says nothing, or contradicts a higher one."""
POINTS_MAX = 24


@dataclass(frozen=True)
class Tried:
    """What a rate has shown so far."""

    rate_msgs_s: float
    worth: Worth
    trials: int


def tried(points: Sequence[CurvePoint]) -> list[Tried]:
    """Of the points of a curve."""
    return [Tried(point.asked_msgs_s, point.worth, len(point.cell.trials)) for point in points]


def preferred(place: int) -> float:
    """The rate in msg/s at a place of R40, with 3 digits; 0 is 1 msg/s."""
    return float(f"{10 ** (place / PER_DECADE):.3g}")


def place_of(rate_msgs_s: float) -> int:
    """The place in R40 that is nearest to a rate."""
    return round(PER_DECADE * math.log10(rate_msgs_s))


class Sweep:
    """Chooses the rates of a start one after the other."""

    def __init__(self, maximum_msgs_s: float, seed: int) -> None:
        """`maximum_msgs_s`: what a closed loop took, above 0."""
        exact = PER_DECADE * math.log10(max(maximum_msgs_s, 1.0))
        lowest = COARSE * math.floor((exact + PER_DECADE * math.log10(FROM_SHARE)) / COARSE)
        highest = UP * math.ceil(exact / UP)
        places = [place for place in range(max(lowest, 0), highest, COARSE) if highest - place >= UP]
        self._coarse = [preferred(place) for place in [*places, highest]]
        random.Random(seed).shuffle(self._coarse)

    def next(self, found: Sequence[Tried], knee: Knee | None) -> float | None:
        """The rate in msg/s of the next point; None where no further one would tell more. `found`: what was measured in this start, by rate."""
        seen = {one.rate_msgs_s: one for one in found}
        if sum(one.trials for one in found) >= POINTS_MAX:
            return None
        for rate in self._coarse:
            if rate not in seen:
                return rate
        again = self._again(found)
        if again is not None:
            return again
        sustained = [one.rate_msgs_s for one in found if one.worth == "sustained"]
        beyond = min(
            (one.rate_msgs_s for one in found if one.rate_msgs_s > max(sustained, default=0.0)), default=None
        )
        if beyond is None:
            higher = preferred(place_of(max(seen)) + UP)
            return higher if higher <= RATE_MAX_MSGS_S else None
        if not sustained:
            lower = preferred(place_of(min(seen)) - COARSE)
            return lower if min(seen) > 1.0 else None
        confirmed = _edge_again(seen, _gap_of_the_knee(sorted(seen), knee))
        if confirmed is not None:
            return confirmed
        for low, high, width in (*_gap_of_the_knee(sorted(seen), knee), (max(sustained), beyond, WIDE)):
            middle = _middle(low, high, width)
            if middle is not None:
                return middle
        return _within(sorted(seen), knee)

    def _again(self, found: Sequence[Tried]) -> float | None:
        """A rate that was tried once and says nothing, or was not sustained although a higher one was."""
        highest = max((one.rate_msgs_s for one in found if one.worth == "sustained"), default=0.0)
        for one in found:
            says_nothing = one.worth in ("bounds", "no figure")
            contradicts = one.worth == "not sustained" and one.rate_msgs_s < highest
            if one.trials < TRIES_MAX and (says_nothing or contradicts):
                return one.rate_msgs_s
        return None


def _gap_of_the_knee(rates: Sequence[float], knee: Knee | None) -> list[tuple[float, float, int]]:
    """The two rates that it lies between, and how near they are to be."""
    if knee is None or knee.rate_msgs_s is None:
        return []
    below = [rate for rate in rates if rate <= knee.rate_msgs_s]
    above = [rate for rate in rates if rate > knee.rate_msgs_s]
    return [(below[-1], above[0], 1)] if below and above else []


def _edge_again(seen: Mapping[float, Tried], gaps: Sequence[tuple[float, float, int]]) -> float | None:
    """An edge of the knee's gap that was measured once, when the gap has become narrow: what was measured earlier may look worse because it was earlier."""
    for low, high, _ in gaps:
        if place_of(high) - place_of(low) <= UP:
            for rate in (high, low):
                if seen[rate].trials < TRIES_MAX:
                    return rate
    return None


def _middle(low: float, high: float, width: int) -> float | None:
    """The preferred rate in the middle of two; None where they are as near as `width` steps."""
    left, right = place_of(low), place_of(high)
    return preferred((left + right) // 2) if right - left > width else None


def _within(rates: Sequence[float], knee: Knee | None) -> float | None:
    """The middle of the widest gap within the knee's interval; None where all of it is as dense as can be."""
    if knee is None:
        return None
    inside = [rate for rate in rates if knee.low_msgs_s <= rate <= (knee.high_msgs_s or math.inf)]
    gaps = [(place_of(high) - place_of(low), low, high) for low, high in itertools.pairwise(inside)]
    widest = max(gaps, default=(0, 0.0, 0.0))
    return _middle(widest[1], widest[2], 1) if widest[0] > 1 else None
