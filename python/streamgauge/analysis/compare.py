"""Two sets of trials beside each other: ratios with intervals, and what may be said of them (inference/comparison.py decides)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.analysis.cells import Cell, of_all
from streamgauge.analysis.quiet_cells import bounds_beside, prior_spread
from streamgauge.analysis.quiet_compare import Beside
from streamgauge.inference.checks import Verdict
from streamgauge.inference.comparison import Difference, Sides
from streamgauge.inference.comparison import compare as compare_sides
from streamgauge.vocabulary.figures import figure, higher_is_better, title_of
from streamgauge.vocabulary.format import joined, plural, trimmed

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
NO_VALID_TRIAL = "no valid trial"


@dataclass(frozen=True)
class Compared:
    """One figure of two cells."""

    figure: str
    base: float
    other: float
    """Medians over the trials."""
    trials: tuple[int, int]
    difference: Difference | None
    """None where a value is 0 (there is no ratio to nothing), and where nothing may be concluded."""
    verdict: str

    @property
    def differs(self) -> bool:
        """Whether a difference was shown that may matter."""
        return self.difference is not None and self.difference.verdict is Verdict.holds


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
        told = [f"{title_of(one.figure)} is {one.verdict}" for one in self.figures if one.differs]
        for verdict, words in (
            (Verdict.equivalent, "no difference that matters in"),
            (Verdict.undecided, "undecided:"),
        ):
            if names := [title_of(one.figure) for one in self.figures if _is(one, verdict)]:
                told.append(f"{words} {joined(names)}")
        return "; ".join(told) or "none of the figures has a ratio"


def _is(one: Compared, verdict: Verdict) -> bool:
    return one.difference is not None and one.difference.verdict is verdict


def compare(base: Cell, other: Cell, figures: Sequence[str] = FIGURES) -> Comparison:
    """`other` beside `base`. Figures that one of them, or one of its trials that count, does not have are left out. Where a side's workers do not
    tell publish latency, service time is compared as well: both sides have it."""
    untold = {name: why for cell in (base, other) for name, why in cell.first.untold.items()}
    missing = tuple(
        f"{name}: {why}"
        for name, why in untold.items()
        if any(one == name or one.startswith(f"{name}.") for one in figures)
    )
    if "publish_ms" in untold:
        pairs = [(name, name.replace("publish_ms.", "service_ms.")) for name in figures]
        figures = tuple(dict.fromkeys(name for pair in pairs for name in pair))
    decides = bool(base.valid and other.valid)
    found = [one for name in figures if (one := _sides(name, base, other)).base and one.other]
    positive = [one for one in found if decides and min(*one.base, *one.other) > 0]
    told = dict(zip((one.figure for one in positive), compare_sides(positive), strict=True))
    compared = tuple(_compared(one, told.get(one.figure), decides=decides) for one in found)
    bounded = [(name, bounds_beside(base, other, name)) for name in figures]
    return Comparison(
        base, other, compared, tuple((name, one) for name, one in bounded if one is not None), missing
    )


def _sides(name: str, base: Cell, other: Cell) -> Sides:
    values = [of_all(cell.counted, lambda trial: figure(trial, name)) for cell in (base, other)]
    one_run = base.first.run_id == other.first.run_id
    return Sides(name, values[0], values[1], prior=prior_spread(name, base, other), one_run=one_run)


def _compared(sides: Sides, found: Difference | None, *, decides: bool) -> Compared:
    """Figures of invalid trials may be looked at; they are not the system's, and nothing is concluded from them."""
    middles = [statistics.median(side) for side in (sides.base, sides.other)]
    verdict = _verdict(sides.figure, found) if decides else NO_VALID_TRIAL
    return Compared(sides.figure, middles[0], middles[1], (len(sides.base), len(sides.other)), found, verdict)


def _verdict(name: str, found: Difference | None) -> str:
    if found is None:
        return "no ratio: a value is 0"
    if found.verdict is Verdict.equivalent:
        return f"no difference that matters (none beyond a factor of {trimmed(found.margin)})"
    if found.verdict is Verdict.undecided:
        return f"undecided: {_open(found)}"
    ratio = found.ratio.value
    percent = 100.0 * abs(ratio - 1.0)
    better = (ratio > 1.0) == higher_is_better(name)
    return f"{trimmed(percent)} % {'higher' if ratio > 1.0 else 'lower'} ({'better' if better else 'worse'})"


def _open(found: Difference) -> str:
    """What would decide it."""
    if found.trials is None:
        return "runs of the same differ by as much" if found.ratio.fixed else "no number of repeats tells"
    chance = "of so many figures one may differ by chance; " if found.by_chance else ""
    more = found.trials - found.ratio.rounds
    return f"{chance}about {plural(more, 'more repeat')} of each would tell"
