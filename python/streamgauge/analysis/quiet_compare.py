"""Two sides beside each other where one or both were disturbed: a ratio where both have a figure, else what the bounds allow.

The interval is that of this one trial of each side: how far its messages tell what the system did in it. How trials differ from each other is another
question (estimates.py).

Zou, G. Y. and Donner, A. (2008), Construction of confidence limits about effect measures, Statistics in Medicine 27, 1693-1702.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamgauge.analysis.quiet_bounds import Told
from streamgauge.vocabulary.format import percent, trimmed

SHARES_APART = 0.10
"""Disturbed shares that differ by more are said."""


@dataclass(frozen=True)
class Beside:
    """Other over base, of one figure."""

    value: float | None
    """Ratio of the figures; None where a side has only bounds, or a figure is 0."""
    at_least: float
    """The ratio is at least that: the lower end of its 95 % interval where there is a value."""
    at_most: float | None
    """And at most that; None where there is no such bound."""
    disturbed: tuple[float, float]
    """Shares of time, base and other."""
    why: str = ""
    """Why there is no value."""

    @property
    def differs(self) -> bool:
        """Whether 1 lies outside."""
        return self.at_least > 1.0 or (self.at_most is not None and self.at_most < 1.0)

    @property
    def sentence(self) -> str:
        """What may be said of other against base."""
        return self._finding + self._shares

    @property
    def _finding(self) -> str:
        if self.value is not None and self.at_most is not None:
            interval = f"95 % interval {trimmed(self.at_least)} to {trimmed(self.at_most)}"
            if not self.differs:
                return f"no difference shown ({trimmed(self.value)} times as high, {interval})"
            return f"{trimmed(self.value)} times as high ({interval})"
        if self.at_least > 1.0:
            return f"at least {trimmed(self.at_least)} times as high"
        if self.at_most is not None and self.at_most < 1.0:
            return f"at most {trimmed(self.at_most)} times as high"
        return "no difference shown: the bounds allow either side to be higher"

    @property
    def _shares(self) -> str:
        base, other = self.disturbed
        if abs(base - other) <= SHARES_APART:
            return ""
        return f"; {percent(base)} of the time was disturbed on one side and {percent(other)} on the other"


def beside(base: Told, other: Told, base_disturbed: float, other_disturbed: float) -> Beside:
    """`other` against `base`, of one figure in one unit."""
    disturbed = (base_disturbed, other_disturbed)
    sides = [_logarithms(one) for one in (base, other)]
    if sides[0] is not None and sides[1] is not None:
        return _of_figures(sides[0], sides[1], disturbed)
    why = base.why or other.why or "there is no ratio to 0"
    at_least = other.at_least / base.at_most if base.at_most else 0.0
    at_most = other.at_most / base.at_least if other.at_most is not None and base.at_least > 0 else None
    return Beside(None, at_least, at_most, disturbed, why)


def _logarithms(one: Told) -> tuple[float, float, float] | None:
    """Figure, lower and upper end of its interval; None where there are not all three, or no logarithm."""
    if one.value is None or one.at_most is None or one.at_least <= 0:
        return None
    return math.log(one.value), math.log(one.at_least), math.log(one.at_most)


def _of_figures(
    base: tuple[float, float, float], other: tuple[float, float, float], disturbed: tuple[float, float]
) -> Beside:
    """The interval comes from those of both, each on its own side of its figure (Zou and Donner 2008), in logarithms."""
    ratio = other[0] - base[0]
    down, up = (
        math.hypot(other[0] - other[1], base[2] - base[0]),
        math.hypot(other[2] - other[0], base[0] - base[1]),
    )
    return Beside(math.exp(ratio), math.exp(ratio - down), math.exp(ratio + up), disturbed)
