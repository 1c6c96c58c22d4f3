"""Does a claim hold here? A test is a number over cells with an interval, and a bound.

Let a cell's figure be the median over its valid trials, and the test's number a ratio of two of them (or the value
itself, or the largest over the smallest of several). Its interval is a percentile bootstrap over trials, each cell
resampled by itself. A bound is met when the whole interval lies within it, missed when the whole interval lies
outside, and neither is shown otherwise - as when a cell is missing, invalid, or ran too few times. A claim holds when
all its tests are met, does not hold as soon as one is missed, and is not shown otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamgauge.analysis.estimates import TRIALS_MIN
from streamgauge.model.study_file import CheckFile, ClaimFile

BOOTSTRAP_DRAWS = 2000
BOOTSTRAP_SEED = 1

Verdict = Literal["holds", "does not hold", "not shown"]
Draws = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """One figure of one cell: a value per valid trial, or why there is none."""

    values: tuple[float, ...]
    why: str | None = None
    """Why values are missing: the cell was left out, failed, or was invalid."""


@dataclass(frozen=True)
class Estimate:
    """A number with its bootstrap 95 % interval over trials; None with too few of them."""

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
    combine = _combination(check)
    as_printed = _printed(combine, [printed(cell, figure) for cell, figure in named])
    missing = tuple(
        (cell, one.why or "no figure")
        for (cell, _), one in zip(named, samples, strict=True)
        if not one.values
    )
    if missing:
        return Tested(check, _text(check), as_printed, None, "not shown", "", missing)
    measured = estimate(combine, [one.values for one in samples])
    if measured is None:
        return Tested(check, _text(check), as_printed, None, "not shown", "a figure is zero: no ratio")
    verdict, why = _verdict(check, measured, min(len(one.values) for one in samples))
    return Tested(check, _text(check), as_printed, measured, verdict, why)


def _printed(combine: Callable[[Sequence[Draws]], Draws], told: Sequence[float | None]) -> float | None:
    """The test's number from the printed figures."""
    known = [np.array(one) for one in told if one is not None]
    if len(known) < len(told):
        return None
    number = float(combine(known))
    return number if math.isfinite(number) else None


def _cells(check: CheckFile) -> list[str]:
    return [check.value] if check.value is not None else list(check.ratio or check.spread or [])


def _combination(check: CheckFile) -> Callable[[Sequence[Draws]], Draws]:
    """From one number (or one draw of medians) per cell to the test's number."""
    if check.value is not None:
        return lambda each: each[0]
    if check.ratio is not None:
        return _ratio
    return lambda each: np.max(each, axis=0) / np.min(each, axis=0)


def _ratio(each: Sequence[Draws]) -> Draws:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(each[0], each[1])


def estimate(
    combine: Callable[[Sequence[Draws]], Draws], samples: Sequence[Sequence[float]]
) -> Estimate | None:
    """The number and its interval; None when it is not finite (a ratio to zero)."""
    value = float(combine([np.array(np.median(sample)) for sample in samples]))
    if not math.isfinite(value):
        return None
    if min(len(sample) for sample in samples) < TRIALS_MIN:
        return Estimate(value, None)
    source = np.random.default_rng(BOOTSTRAP_SEED)
    medians = []
    for sample in samples:
        drawn = source.integers(0, len(sample), (BOOTSTRAP_DRAWS, len(sample)))
        medians.append(np.median(np.asarray(sample, dtype=np.float64)[drawn], axis=1))
    numbers = combine(medians)
    low, high = np.percentile(numbers[~np.isnan(numbers)], [2.5, 97.5])
    return Estimate(value, (float(low), float(high)))


def _verdict(check: CheckFile, measured: Estimate, trials: int) -> tuple[Verdict, str]:
    lowest, highest = bounds(check)
    if measured.interval is None:
        times = "once" if trials == 1 else f"{trials} times"
        return "not shown", f"ran {times}: no interval ({TRIALS_MIN} trials are needed)"
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
