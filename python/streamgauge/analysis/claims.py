"""Does a claim hold here? A test is a number over cells with an interval, and a bound.

Let a cell's figure be the median over its valid trials, and the test's number a ratio of two of them (or the value
itself, or the largest over the smallest of several). Its 95 % interval is that of inference/estimates.py: of a median
over trials, or of a ratio of two sets of trials; for the largest over the smallest, of the ratio of those two. A bound
is met when the whole interval lies within it, missed when the whole interval lies outside, and neither is shown
otherwise - as when a cell is missing, invalid, or ran too few times. A claim holds when all its tests are met, does
not hold as soon as one is missed, and is not shown otherwise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from streamgauge.inference.estimates import TRIALS_MIN, median_interval, ratio
from streamgauge.model.study_file import CheckFile, ClaimFile
from streamgauge.vocabulary.format import plural

Verdict = Literal["holds", "does not hold", "not shown"]


@dataclass(frozen=True)
class Sample:
    """One figure of one cell: a value per valid trial, or why there is none."""

    values: tuple[float, ...]
    why: str | None = None
    """Why values are missing: the cell was left out, failed, or was invalid."""
    ran: int = 0
    """How many trials of the cell ran, whatever became of them."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over trials; None with too few of them."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Tested:
    """What a test came to."""

    test: CheckFile
    text: str
    """What is compared, in words."""
    printed: float | None
    """The same number from the printed figures; None where they are not numbers."""
    measured: Estimate | None
    verdict: Verdict
    why: str
    """For one that is not shown: why, where that is no matter of a single cell."""
    missing: tuple[tuple[str, str], ...] = ()
    """Cells without a figure, and why each has none."""


@dataclass(frozen=True)
class Judged:
    """A claim, its tests and its verdict."""

    claim: ClaimFile
    tests: tuple[Tested, ...]
    verdict: Verdict

    @property
    def why(self) -> str:
        """For one that is not shown: what is missing, cells with the same reason together."""
        reasons: dict[str, dict[str, None]] = {}
        for test in self.tests:
            for cell, reason in test.missing:
                reasons.setdefault(reason, {})[cell] = None
        told = [f"{', '.join(cells)}: {reason}" for reason, cells in reasons.items()]
        return "; ".join(dict.fromkeys([*told, *(test.why for test in self.tests if test.why)]))


SampleOf = Callable[[str, str], Sample]
"""Cell and figure -> the sample."""
PrintedOf = Callable[[str, str], float | None]
"""Cell and figure -> the figure as printed, where it is a number."""


def judge(claim: ClaimFile, sample: SampleOf, printed: PrintedOf) -> Judged:
    """Judges one claim."""
    tests: list[Tested] = []
    for check in claim.tests:
        tests += _steps(check, sample, printed)
    verdicts = {test.verdict for test in tests}
    verdict: Verdict = "holds"
    if "does not hold" in verdicts:
        verdict = "does not hold"
    elif "not shown" in verdicts:
        verdict = "not shown"
    return Judged(claim, tuple(tests), verdict)


def _steps(check: CheckFile, sample: SampleOf, printed: PrintedOf) -> list[Tested]:
    """Rising and falling are a ratio per step; the others are one number."""
    cells = check.rising or check.falling
    if cells is None:
        return [_test(check, sample, printed)]
    bound: dict[str, float] = {"above": 1.0} if check.rising else {"below": 1.0}
    steps = zip(cells[1:], cells[:-1], strict=True)
    no_steps = {"rising": None, "falling": None}
    return [
        _test(check.model_copy(update={**no_steps, "ratio": [later, earlier], **bound}), sample, printed)
        for later, earlier in steps
    ]


def _test(check: CheckFile, sample: SampleOf, printed: PrintedOf) -> Tested:
    figures = [check.figure] * len(_cells(check))
    if check.ratio is not None and check.of is not None:
        figures[1] = check.of
    named = list(zip(_cells(check), figures, strict=True))
    samples = [sample(cell, figure) for cell, figure in named]
    as_printed = _printed(check, [printed(cell, figure) for cell, figure in named])
    missing = tuple(
        (cell, one.why or "no figure")
        for (cell, _), one in zip(named, samples, strict=True)
        if not one.values
    )
    if missing:
        return Tested(check, _text(check), as_printed, None, "not shown", "", missing)
    measured = estimate(check, [one.values for one in samples])
    if measured is None:
        return Tested(check, _text(check), as_printed, None, "not shown", "a figure is zero: no ratio")
    few = [
        _how_few(cell, one)
        for (cell, _), one in zip(named, samples, strict=True)
        if len(one.values) < TRIALS_MIN
    ]
    verdict, why = _verdict(check, measured, "; ".join(dict.fromkeys(few)))
    return Tested(check, _text(check), as_printed, measured, verdict, why)


def _printed(check: CheckFile, told: Sequence[float | None]) -> float | None:
    """The test's number from the printed figures."""
    known = [one for one in told if one is not None]
    if len(known) < len(told):
        return None
    found = estimate(check, [(one,) for one in known])
    return None if found is None else found.value


def _cells(check: CheckFile) -> list[str]:
    return [check.value] if check.value is not None else list(check.ratio or check.spread or [])


def estimate(check: CheckFile, samples: Sequence[Sequence[float]]) -> Estimate | None:
    """The test's number and its interval; None where there is no ratio (a value is zero)."""
    if check.value is not None:
        return Estimate(statistics.median(samples[0]), median_interval(samples[0]))
    if check.ratio is not None:
        other, base = samples
    else:
        other, base = max(samples, key=statistics.median), min(samples, key=statistics.median)
    found = ratio(base, other)
    if found is None:
        return None
    shown = found.low is not None and found.high is not None
    return Estimate(found.value, (found.low, found.high) if shown else None)  # type: ignore[arg-type]


def _how_few(cell: str, sample: Sample) -> str:
    count = len(sample.values)
    if sample.ran > count:
        return f"{count} of {plural(sample.ran, 'trial')} of {cell} gave it"
    return f"{cell} ran {'once' if count == 1 else f'{count} times'}"


def _verdict(check: CheckFile, measured: Estimate, few: str) -> tuple[Verdict, str]:
    """`few`: which cells have too few values for an interval."""
    lowest, highest = bounds(check)
    if measured.interval is None:
        return "not shown", f"no interval ({TRIALS_MIN} trials are needed): {few}"
    low, high = measured.interval
    if low > lowest and high < highest:
        return "holds", ""
    if high <= lowest or low >= highest:
        return "does not hold", ""
    return "not shown", "the interval contains the bound"


def bounds(check: CheckFile) -> tuple[float, float]:
    """The open interval in which the number must lie."""
    if check.between is not None:
        return check.between[0], check.between[1]
    return (
        -math.inf if check.above is None else check.above,
        math.inf if check.below is None else check.below,
    )


def _text(check: CheckFile) -> str:
    if check.value is not None:
        return check.value
    if check.ratio is not None:
        return f"{check.ratio[0]} / {check.ratio[1]}"
    return f"largest / smallest of {', '.join(check.spread or [])}"
