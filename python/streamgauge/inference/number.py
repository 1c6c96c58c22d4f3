"""A number that was measured, with its error, and what follows: its interval, how probable it is beyond a bound, and how many more rounds would tell."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamgauge.inference import distributions
from streamgauge.inference.estimates import RESOLUTION
from streamgauge.inference.looks import ALPHA

POWER = 0.8
ROUNDS_MAX = 100
"""More rounds than that nobody is advised to make."""
EVENED_MIN = 1.05
"""Where evening out moves a number by less, nobody need know."""


@dataclass(frozen=True)
class Number:
    """A number with its error, on the scale on which it is tested."""

    mean: float
    spread: float
    """Standard deviation between rounds, or between the trials of a side."""
    counts: tuple[int, ...]
    """How many rounds it rests on, or trials of each side where sides are independent."""
    freedom: float
    """Degrees of freedom of Student's t."""
    fixed: float = 0.0
    """Variance that more rounds do not reduce."""
    logarithmic: bool = True
    shared_start: bool = False
    """Repeats shared one start of their system, and how starts differ is known from experience only."""
    evened: float = 0.0
    """What was taken out of the mean, as one side was disturbed more than the other (covariate.py)."""

    @property
    def rounds(self) -> int:
        """Of the side with fewer."""
        return min(self.counts)

    @property
    def error(self) -> float:
        """Standard error; figures that differ by less than a histogram's bucket are the same figure."""
        repeats = sum(1.0 / count for count in self.counts)
        resolution = RESOLUTION * math.sqrt(repeats) if self.logarithmic else 0.0
        return math.sqrt(self.spread**2 * repeats + self.fixed) + resolution

    @property
    def value(self) -> float:
        """On its own scale."""
        return math.exp(self.mean) if self.logarithmic else self.mean

    @property
    def came(self) -> float | None:
        """The value without evening out; None where that hardly moved it."""
        return math.exp(self.mean + self.evened) if abs(self.evened) > math.log(EVENED_MIN) else None

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Two-sided, on its own scale."""
        half = distributions.student_quantile(1.0 - alpha / 2.0, self.freedom) * self.error
        low, high = self.mean - half, self.mean + half
        return (math.exp(low), math.exp(high)) if self.logarithmic else (low, high)

    def chance_unless_above(self, bound: float) -> float:
        """How probable a number as high as this is if the true one is not above the bound (one-sided)."""
        return self._chance(self.mean - self._scaled(bound))

    def chance_unless_below(self, bound: float) -> float:
        """How probable a number as low as this is if the true one is not below the bound (one-sided)."""
        return self._chance(self._scaled(bound) - self.mean)

    def chance_unless_within(self, margin: float) -> float:
        """How probable a ratio as near to 1 as this is if the true one is further away than by this factor (two one-sided tests)."""
        return max(self.chance_unless_above(1.0 / margin), self.chance_unless_below(margin))

    def rounds_to_tell(self, bounds: Sequence[float], alpha: float, power: float = POWER) -> int | None:
        """With so many rounds in all (of each side) the number that was found would be told from the nearest of these bounds, in this share of cases; None
        where no number of them would. `alpha`: one-sided."""
        distance = min((abs(self.mean - self._scaled(bound)) for bound in bounds), default=math.inf)

        def tells(rounds: int) -> bool:
            counts = tuple(max(count, rounds) for count in self.counts)
            freedom = self.freedom + sum(counts) - sum(self.counts)
            reach = distributions.student_quantile(1.0 - alpha, freedom)
            reach += distributions.student_quantile(power, freedom)
            return reach * replace(self, counts=counts).error < distance

        # More rounds only narrow what is reached.
        rounds = range(self.rounds + 1, ROUNDS_MAX + 1)
        first = bisect.bisect_left(rounds, True, key=tells)
        return rounds[first] if first < len(rounds) else None

    def _scaled(self, bound: float) -> float:
        if not self.logarithmic:
            return bound
        return math.log(bound) if bound > 0 else -math.inf

    def _chance(self, beyond: float) -> float:
        if math.isinf(beyond) or self.error == 0:
            return 0.0 if beyond > 0 else 1.0
        return distributions.student_above(beyond / self.error, self.freedom)

    def nearest_decision(self, margin: float) -> list[float]:
        """What a ratio must be told from so that it is decided whether it is 1: near 1 it is the ends of the margin that will decide, further away 1 itself."""
        return [1.0 / margin, margin] if abs(self.mean) < math.log(margin) / 2.0 else [1.0]


@dataclass(frozen=True)
class Bounded:
    """A number of which some rounds have only bounds: as it would be with all of them at their lower ends, and at their upper ones. The true one is no lower
    than the first and no higher than the second (compare Manski 1990); None where one of the ends is open."""

    low: Number | None
    high: Number | None

    @property
    def mean(self) -> float:
        """For an order of several; infinite where its upper end is open."""
        return math.inf if self.high is None else self.high.mean

    @property
    def rounds(self) -> int:
        """Of the end that is known."""
        return max(one.rounds for one in (self.low, self.high) if one is not None)

    @property
    def middle(self) -> Number | None:
        """Between its ends, and varying no more than the calmer of them: what rounds without bounds may come to. None where an end is open."""
        if self.low is None or self.high is None:
            return None
        mean, spread = (self.low.mean + self.high.mean) / 2.0, min(self.low.spread, self.high.spread)
        return replace(self.low, mean=mean, spread=spread)

    @property
    def value(self) -> None:
        """Nobody knows."""
        return None

    @property
    def came(self) -> None:
        """Nobody knows."""
        return None

    @property
    def evened(self) -> float:
        """As of an end."""
        return next(one.evened for one in (self.low, self.high) if one is not None)

    @property
    def shared_start(self) -> bool:
        """As of its ends."""
        return any(one.shared_start for one in (self.low, self.high) if one is not None)

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """From the lower end of the one to the upper end of the other."""
        return (
            0.0 if self.low is None else self.low.interval(alpha)[0],
            math.inf if self.high is None else self.high.interval(alpha)[1],
        )

    def chance_unless_above(self, bound: float) -> float:
        """As of a number; it is above where its lower end is."""
        return 1.0 if self.low is None else self.low.chance_unless_above(bound)

    def chance_unless_below(self, bound: float) -> float:
        """As of a number; it is below where its upper end is."""
        return 1.0 if self.high is None else self.high.chance_unless_below(bound)

    def chance_unless_within(self, margin: float) -> float:
        """As of a number."""
        return max(self.chance_unless_above(1.0 / margin), self.chance_unless_below(margin))

    def rounds_to_tell(self, bounds: Sequence[float], alpha: float, power: float = POWER) -> int | None:
        """As of a number, by the end that is beyond a bound."""
        found = []
        for bound in bounds:
            if self.low is not None and self.low.value > bound:
                found.append(self.low.rounds_to_tell([bound], alpha, power))
            if self.high is not None and self.high.value < bound:
                found.append(self.high.rounds_to_tell([bound], alpha, power))
        return min((one for one in found if one is not None), default=None)

    def nearest_decision(self, margin: float) -> list[float]:
        """What it must be told from so that it is decided whether it is 1."""
        return [1.0 / margin, 1.0, margin]
