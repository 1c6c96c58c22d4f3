"""Two sets of trials beside each other: ratios with intervals, and what may be said of them.

A figure differs when the 95 % interval of its ratio leaves 1 out, and it still does after Holm's correction for the number of figures that are looked
at. Without the correction a system compared with itself in eight figures would "differ" in one of them every third time.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.quiet_cells import bounds_beside
from streamgauge.analysis.quiet_compare import Beside
from streamgauge.inference.estimates import CONFIDENCE, TRIALS_MIN, Ratio, holm, ratio
from streamgauge.vocabulary.figures import figure, higher_is_better
from streamgauge.vocabulary.format import trimmed

FIGURES = (
    "publish_rate_msgs_s",
    "publish_ms.p50",
    "publish_ms.p99",
    "publish_ms.p99_9",
    "end_to_end_ms.p50",
    "end_to_end_ms.p99",
    "cpu.system_us_per_msg",
    "write_amplification",
)
"""What is compared unless other figures are asked for."""
NO_DIFFERENCE = "no difference shown"
NO_VALID_TRIAL = "no valid trial"


@dataclass(frozen=True)
class Compared:
    """One figure of two cells."""

    figure: str
    base: float
    other: float
    """Medians over the trials."""
    trials: tuple[int, int]
    ratio: Ratio | None
    """None where a value is 0: there is no ratio to nothing."""
    verdict: str
    differs: bool


@dataclass(frozen=True)
class Comparison:
    """Two cells."""

    base: Cell
    other: Cell
    figures: tuple[Compared, ...]
    bounded: tuple[tuple[str, Beside], ...] = ()
    """Figures that a disturbed machine has left with bounds, and what these say."""
    missing: tuple[str, ...] = ()
    """What is not compared because the workers of one side do not tell it, a sentence each."""

    @property
    def verdict(self) -> str:
        """One sentence over all figures."""
        if not (self.base.valid and self.other.valid):
            if not self.bounded:
                return f"{NO_VALID_TRIAL}: nothing can be said"
            decided = [f"{name} {one.sentence}" for name, one in self.bounded if one.differs]
            return "; ".join(decided) or "the bounds allow either side to be higher"
        shown = [one for one in self.figures if one.differs]
        if not any(one.ratio is not None and one.ratio.low is not None for one in self.figures):
            return f"too few trials to tell: at least {TRIALS_MIN} on each side are needed (--repeat)"
        if not shown:
            return NO_DIFFERENCE
        return "; ".join(f"{one.figure} {one.verdict}" for one in shown)


def compare(base: Cell, other: Cell, figures: Sequence[str] = FIGURES) -> Comparison:
    """`other` beside `base`. Figures that one of them does not have are left out. Where a side's workers do not tell publish latency, service time is
    compared as well: both sides have it."""
    untold = {name: why for cell in (base, other) for name, why in cell.first.untold.items()}
    missing = tuple(
        f"{name}: {why}"
        for name, why in untold.items()
        if any(one == name or one.startswith(f"{name}.") for one in figures)
    )
    if "publish_ms" in untold:
        pairs = [(name, name.replace("publish_ms.", "service_ms.")) for name in figures]
        figures = tuple(dict.fromkeys(name for pair in pairs for name in pair))
    found: list[tuple[str, list[float], list[float]]] = []
    for name in figures:
        values = [
            [value for trial in cell.counted if (value := figure(trial, name)) is not None]
            for cell in (base, other)
        ]
        if all(values):
            found.append((name, values[0], values[1]))
    decides = bool(base.valid and other.valid)
    ratios = [ratio(a, b) if decides else None for _, a, b in found]
    asked = [at for at, one in enumerate(ratios) if one is not None and one.chance is not None]
    corrected = dict(zip(asked, holm([ratios[at].chance or 0.0 for at in asked]), strict=True))  # type: ignore[union-attr]
    compared = tuple(
        _compared(name, a, b, ratios[at], corrected.get(at)) if decides else _only_shown(name, a, b)
        for at, (name, a, b) in enumerate(found)
    )
    bounded = [(name, bounds_beside(base, other, name)) for name in figures]
    return Comparison(
        base, other, compared, tuple((name, one) for name, one in bounded if one is not None), missing
    )


def _compared(
    name: str, base: list[float], other: list[float], found: Ratio | None, corrected: float | None
) -> Compared:
    verdict, differs = _verdict(name, found, corrected)
    middles = [statistics.median(values) for values in (base, other)]
    return Compared(name, middles[0], middles[1], (len(base), len(other)), found, verdict, differs)


def _only_shown(name: str, base: list[float], other: list[float]) -> Compared:
    """Figures of invalid trials may be looked at; they are not the system's, and nothing is concluded from them."""
    middles = [statistics.median(values) for values in (base, other)]
    return Compared(name, middles[0], middles[1], (len(base), len(other)), None, NO_VALID_TRIAL, False)


def _verdict(name: str, found: Ratio | None, corrected: float | None) -> tuple[str, bool]:
    if found is None:
        return "no ratio: a value is 0", False
    if found.low is None or found.high is None or corrected is None:
        return "too few trials to tell", False
    if found.low <= 1.0 <= found.high:
        return NO_DIFFERENCE, False
    if corrected >= 1.0 - CONFIDENCE:
        return f"{NO_DIFFERENCE} (one of so many figures may differ by chance)", False
    percent = 100.0 * abs(found.value - 1.0)
    better = (found.value > 1.0) == higher_is_better(name)
    return (
        f"{trimmed(percent)} % {'higher' if found.value > 1.0 else 'lower'} ({'better' if better else 'worse'})",
        True,
    )
