"""Two sets of trials beside each other: ratios with intervals, and what may be said of them (inference/comparison.py decides)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.quiet_cells import bounds_beside
from streamgauge.analysis.quiet_compare import Beside
from streamgauge.inference.comparison import Difference, Sides
from streamgauge.inference.comparison import compare as compare_sides
from streamgauge.inference.samples import Measured
from streamgauge.inference.sequential import ROUNDS_MIN
from streamgauge.inference.verdict import Verdict
from streamgauge.model.result import TrialResult
from streamgauge.vocabulary.figures import figure, higher_is_better
from streamgauge.vocabulary.format import plural, trimmed

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
TOO_FEW = f"undecided: at least {ROUNDS_MIN} trials on each side are needed (--repeat)"
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
        """Whether a difference was shown."""
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
        if not any(one.difference is not None and one.difference.low is not None for one in self.figures):
            return TOO_FEW
        told = [f"{one.figure} {one.verdict}" for one in self.figures if one.differs]
        for verdict, words in (
            (Verdict.equivalent, "no difference that matters in"),
            (Verdict.undecided, "undecided:"),
        ):
            names = [one.figure for one in self.figures if _is(one, verdict)]
            if names:
                told.append(f"{words} {', '.join(names)}")
        return "; ".join(told)


def _is(one: Compared, verdict: Verdict) -> bool:
    return one.difference is not None and one.difference.verdict is verdict


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
    decides = bool(base.valid and other.valid)
    same_run = base.first.run_id == other.first.run_id
    found = []
    for name in figures:
        sides = [_values(cell.counted, name, same_run=same_run) for cell in (base, other)]
        if all(sides):
            found.append(Sides(name, *sides))
    told = compare_sides(found) if decides else [None] * len(found)
    compared = tuple(_compared(sides, one, decides=decides) for sides, one in zip(found, told, strict=True))
    bounded = [(name, bounds_beside(base, other, name)) for name in figures]
    return Comparison(
        base, other, compared, tuple((name, one) for name, one in bounded if one is not None), missing
    )


def _values(trials: Sequence[TrialResult], name: str, *, same_run: bool) -> tuple[Measured, ...]:
    """Of one run each trial is a start of its own; trials of two runs have their run in common."""
    repeats = [trial.repeat for trial in trials]
    # Results of other tools do not number their repeats.
    rounds = repeats if len(set(repeats)) == len(repeats) else range(1, len(repeats) + 1)
    return tuple(
        Measured(value, number, f"{trial.run_id} {trial.trial}" if same_run else trial.run_id)
        for number, trial in zip(rounds, trials, strict=True)
        if (value := figure(trial, name)) is not None
    )


def _compared(sides: Sides, found: Difference | None, *, decides: bool) -> Compared:
    """Figures of invalid trials may be looked at; they are not the system's, and nothing is concluded from them."""
    middles = [statistics.median(one.value for one in side) for side in (sides.base, sides.other)]
    verdict = _verdict(sides.figure, found) if decides else NO_VALID_TRIAL
    return Compared(sides.figure, middles[0], middles[1], (len(sides.base), len(sides.other)), found, verdict)


def _verdict(name: str, found: Difference | None) -> str:
    if found is None:
        return "no ratio: a value is 0"
    if found.low is None:
        return TOO_FEW
    if found.verdict is Verdict.equivalent:
        return f"no difference that matters (within x{trimmed(found.margin)})"
    if found.verdict is Verdict.undecided:
        return f"undecided: {_open(found)}"
    percent = 100.0 * abs(found.value - 1.0)
    better = (found.value > 1.0) == higher_is_better(name)
    return f"{trimmed(percent)} % {'higher' if found.value > 1.0 else 'lower'} ({'better' if better else 'worse'})"


def _open(found: Difference) -> str:
    """What would decide it."""
    if found.price is None or found.price.rounds is None:
        why = "it is too near" if found.price is None else found.price.why
        return f"more trials would hardly tell ({why})"
    chance = "one of so many figures may differ by chance; " if found.by_chance else ""
    return f"{chance}about {plural(found.price.rounds, 'more trial')} on each side would tell"
