"""One test of a claim: a number over cells with its error (contrast.py), a bound, and a margin (margins.py).

It *holds* when the number is shown to lie within its bounds, is *refuted* when it is shown to lie outside, and where the bound is 1 - higher, lower, rising,
falling - it is *equivalent* when the whole ratio is shown to lie within the margin: a difference, if there is one, that does not matter. Else it is
*undecided*, or *not shown* where a cell has no figure. Intervals are shown at 95 % each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from streamgauge.inference.contrast import Between, Spreads, Value, of_rounds, quotients, ratio, single
from streamgauge.inference.looks import ALPHA, ROUNDS_MIN
from streamgauge.inference.margins import margin_of
from streamgauge.inference.number import Bounded, Number
from streamgauge.model.study_file import CheckFile
from streamgauge.vocabulary.format import plural, significant


class Verdict(StrEnum):
    """What a study says of a claim."""

    holds = "holds"
    refuted = "refuted"
    equivalent = "no difference that matters"
    undecided = "undecided"
    not_shown = "not shown"

    @property
    def decided(self) -> bool:
        """Whether the question is answered."""
        return self in (Verdict.holds, Verdict.refuted, Verdict.equivalent)


@dataclass(frozen=True)
class Sample:
    """One figure of one cell: a value per valid trial, or why there is none."""

    values: tuple[Value, ...]
    why: str | None = None
    """Why values are missing: the cell was left out, failed, or was invalid."""
    ran: int = 0
    """How many trials of the cell ran, whatever became of them."""
    bounds: tuple[Between, ...] = ()
    """Of trials that only know bounds."""

    @property
    def all(self) -> tuple[Value | Between, ...]:
        """What is known, of each trial that knows anything."""
        return (*self.values, *self.bounds)

    @property
    def rounds(self) -> set[int]:
        """Those of which anything is known."""
        return {one.round for one in self.all}

    def until(self, round_: float) -> Sample:
        """Without what came after a round."""
        return replace(
            self,
            values=tuple(one for one in self.values if one.round <= round_),
            bounds=tuple(one for one in self.bounds if one.round <= round_),
        )


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; None with too few rounds."""

    value: float | None
    """None where trials only know bounds: then the interval is what it lies between."""
    interval: tuple[float, float] | None
    came: float | None = None
    """The value as it came, where taking out how disturbed its cells were moved it."""
    evened: bool = False
    """Whether anything was taken out."""

    @property
    def text(self) -> str:
        """For the reader."""
        if self.interval is None:
            return significant(self.value)
        low, high = (significant(one) for one in self.interval)
        if self.value is not None:
            came = "" if self.came is None else f" ({significant(self.came)} as it came)"
            return f"{significant(self.value)} [{low}, {high}]{came}"
        if math.isinf(self.interval[1]):
            return f"at least {low}"
        return f"at most {high}" if self.interval[0] <= 0 else f"{low} to {high}"


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
    """For one that is not decided: why, where that is no matter of a single cell."""
    missing: tuple[tuple[str, str], ...] = ()
    """Cells without a figure, and why each has none."""
    rounds: int | None = None
    """So many rounds in all would decide it among all that is asked, if what was found is true; None where none would."""
    leans: Verdict | None = None
    """What it would come to then; None where only bounds are known that allow several."""
    after: int = 0
    """How many rounds it rests on."""
    shared_start: bool = False
    """All repeats ran on one start of their systems, as studies once did."""


SampleOf = Callable[[str, str], Sample]
"""Cell and figure -> the sample."""
PrintedOf = Callable[[str, str], float | None]
"""Cell and figure -> the figure as printed, where it is a number."""


class Numbers:
    """The numbers that tests ask about, from samples as they were at a look."""

    def __init__(self, cells: Sequence[str], sample: SampleOf) -> None:
        self.sample = sample
        self._cells = cells
        self._spreads: dict[tuple[str, str | None], Spreads] = {}
        self._found: dict[int, tuple[CheckFile, list[Number | Bounded] | None]] = {}
        """By what a test is to Python, and the test, so that no other becomes that."""

    def _spread(self, figure: str, of: str | None = None) -> Spreads:
        """Of a figure or, with `of`, of its quotient by another of the same trial."""
        if (figure, of) not in self._spreads:
            samples: dict[str, list[Value]] = {}
            for cell in self._cells:
                values = self.sample(cell, figure).values
                told = values if of is None else quotients(values, self.sample(cell, of).values)
                samples[cell] = [one for one in of_rounds(told) if isinstance(one, Value)]
            self._spreads[figure, of] = Spreads(figure, samples)
        return self._spreads[figure, of]

    def of(self, test: CheckFile) -> list[Number | Bounded] | None:
        """The test's numbers: one, or of a spread all ratios of two cells; None where one of them is not known."""
        if id(test) not in self._found:
            self._found[id(test)] = test, self._of(test)
        return self._found[id(test)][1]

    def _of(self, test: CheckFile) -> list[Number | Bounded] | None:
        if test.of is not None and len(set(test.cells)) == 1:
            cell = test.cells[0]
            told = quotients(self.sample(cell, test.figure).all, self.sample(cell, test.of).all)
            number = single(cell, of_rounds(told), self._spread(test.figure, test.of))
            return None if number is None else [number]
        found = [
            single(cells[0], of_rounds(self.sample(cells[0], test.figure).all), self._spread(test.figure))
            if len(cells) == 1
            else ratio(
                cells,
                of_rounds(self.sample(cells[0], test.figure).all),
                of_rounds(self.sample(cells[1], test.of or test.figure).all),
                self._spread(test.figure),
                self._spread(test.of or test.figure),
            )
            for cells in _pairs(test)
        ]
        known = [one for one in found if one is not None]
        return known if len(known) == len(found) else None


def _pairs(test: CheckFile) -> list[tuple[str, ...]]:
    if test.spread is not None:
        return [(one, other) for one in test.spread for other in test.spread if one != other]
    return [tuple(test.cells)]


@dataclass(frozen=True)
class Chances:
    """One-sided p-values of a test: how probable trials like these are unless ..."""

    holds: float
    refuted: float
    equivalent: float


def chances_of(test: CheckFile, numbers: Sequence[Number | Bounded]) -> Chances:
    lowest, highest = bounds(test)
    if test.spread is not None:
        return _chances_of_spread(lowest, highest, numbers)
    number = numbers[0]
    holds = max(
        number.chance_unless_above(lowest) if lowest > -math.inf else 0.0,
        number.chance_unless_below(highest) if highest < math.inf else 0.0,
    )
    refuted = min(
        number.chance_unless_below(lowest) if lowest > -math.inf else 1.0,
        number.chance_unless_above(highest) if highest < math.inf else 1.0,
    )
    equivalent = 1.0
    if is_directional(test):
        equivalent = number.chance_unless_within(margin_of_test(test))
    return Chances(holds, refuted, equivalent)


def _chances_of_spread(lowest: float, highest: float, numbers: Sequence[Number | Bounded]) -> Chances:
    """Largest over smallest, over all ratios of two cells: below a bound when all of them are, above when one is, corrected for their number."""
    beyond = 1.0
    for bound in (one for one in (lowest, highest) if math.isfinite(one)):
        beyond = min(1.0, len(numbers) * min(one.chance_unless_above(bound) for one in numbers))
    below = max(one.chance_unless_below(highest if math.isfinite(highest) else lowest) for one in numbers)
    return Chances(below, beyond, 1.0) if math.isfinite(highest) else Chances(beyond, below, 1.0)


def is_directional(test: CheckFile) -> bool:
    """Whether it asks for higher or lower than another cell, by however much."""
    return test.ratio is not None and 1.0 in (test.above, test.below)


def errors_of(test: CheckFile, verdict: Verdict) -> float:
    """In how many ways such a verdict may be wrong at once, with one number that is true. A number is beyond a bound or it is not, so that one of holds and
    refuted is right, and the other has the whole error. Where it may be the bound itself (cells that do not differ, asked which is higher) both are wrong, and
    one that lies between two bounds may seem to be beyond either. Who says that it lies within a range has two chances only in a range so narrow that nothing
    could be said to lie in it."""
    if is_directional(test):
        return 1.0 if verdict is Verdict.equivalent else 2.0
    return 2.0 if test.between is not None and verdict is Verdict.refuted else 1.0


def margin_of_test(test: CheckFile) -> float:
    """The smallest effect that matters in it."""
    return test.margin or margin_of(test.figure)


def untested(test: CheckFile, printed: PrintedOf) -> Tested:
    """A test without a number."""
    return Tested(test, _text(test), _printed(test, printed), None, Verdict.not_shown, "")


def tested(
    test: CheckFile, numbers: Numbers, printed: PrintedOf, alphas: Mapping[Verdict, float], of: int
) -> Tested:
    """What a test came to. `alphas`: what a further look may spend on such a verdict on its claim, which has `of` tests: each must hold by itself, and one that
    speaks against it pays for the others."""
    named = named_of(test)
    samples = [numbers.sample(cell, figure) for cell, figure in named]
    blank = untested(test, printed)
    missing = tuple(
        (cell, one.why or "no figure") for (cell, _), one in zip(named, samples, strict=True) if not one.all
    )
    if missing:
        return replace(blank, missing=missing)
    number = None
    if not any(one.bounds for one in samples):
        number = _from(test, [statistics.median(value.value for value in one.values) for one in samples])
        if number is None:
            return replace(blank, why="a figure is zero: no ratio")
    found = numbers.of(test)
    if found is None:
        few = dict.fromkeys(
            _how_few(cell, one)
            for (cell, _), one in zip(named, samples, strict=True)
            if len(one.rounds) < ROUNDS_MIN
        )
        shared = set.intersection(*(one.rounds for one in samples))
        if number is None and len(shared) >= ROUNDS_MIN:
            why = "its figures only have bounds, and the ends of these that would tell are open"
            return replace(blank, verdict=Verdict.undecided, why=why)
        why = "; ".join(few) or "too few rounds have all of its cells"
        why = f"no interval ({ROUNDS_MIN} rounds are needed): {why}"
        if len(samples) > 1 and {len(one.rounds) for one in samples} == {len(shared)}:
            # What every cell lacks is no matter of the cells (void rounds), and is said alike of all claims.
            counts = "counts" if len(shared) == 1 else "count"
            why = f"no interval: {plural(len(shared), 'round')} {counts}, and {ROUNDS_MIN} are needed"
        measured = Estimate(number, None)
        return replace(blank, measured=measured, verdict=Verdict.undecided, why=why, after=len(shared))
    shown = _widest(test, found)
    low, high = shown.interval(ALPHA if test.spread is None else ALPHA / len(found))
    chances = chances_of(test, found)
    verdict = Verdict.undecided
    for one, chance in (
        (Verdict.equivalent, chances.equivalent),
        (Verdict.holds, chances.holds),
        (Verdict.refuted, chances.refuted),
    ):
        if chance < ALPHA / 2:
            verdict = one
            break
    leans = _leaning(test, shown)
    expected = leans or Verdict.refuted
    each = alphas[expected] / errors_of(test, expected) / (1 if leans is Verdict.holds else of)
    return replace(
        blank,
        measured=Estimate(shown.value, (low, high), shown.came, shown.evened != 0),
        verdict=verdict,
        why="" if verdict.decided else "the interval contains the bound",
        rounds=shown.rounds_to_tell(_nearest(test, shown), min(each, ALPHA / 2))
        or _exact_rounds(test, shown, samples, min(each, ALPHA / 2)),
        leans=leans,
        after=shown.rounds,
        shared_start=shown.shared_start,
    )


def _exact_rounds(
    test: CheckFile, shown: Number | Bounded, samples: Sequence[Sample], alpha: float
) -> int | None:
    """With how many rounds a number whose bounds allow both would be known by rounds that have values, if they come as often as so far (Laplace's rule of
    succession: a figure that was hidden each time will mostly be again), and told from its bound; None where it is known, where that is no matter of a
    disturbance, or where no number of them would tell."""
    middle = shown.middle if isinstance(shown, Bounded) else None
    exact = set.intersection(*({value.round for value in one.values} for one in samples))
    lacking = ROUNDS_MIN - len(exact)
    if middle is None or lacking <= 0:
        return None
    told = middle.rounds_to_tell(_nearest(test, middle), alpha)
    known = shown.rounds + math.ceil(lacking * (shown.rounds + 2) / (len(exact) + 1))
    return None if told is None else max(known, told)


def _leaning(test: CheckFile, number: Number | Bounded) -> Verdict | None:
    """The verdict on a test if what was found is true."""
    if isinstance(number, Bounded):
        ends = {_leaning(test, end) if end is not None else None for end in (number.low, number.high)}
        return ends.pop() if len(ends) == 1 else None
    if is_directional(test) and number.nearest_decision(margin_of_test(test)) != [1.0]:
        return Verdict.equivalent
    lowest, highest = bounds(test)
    return Verdict.holds if lowest < number.value < highest else Verdict.refuted


def _widest(test: CheckFile, found: Sequence[Number | Bounded]) -> Number | Bounded:
    """The number that is shown: of a spread the largest ratio."""
    return found[0] if test.spread is None else max(found, key=lambda one: one.mean)


def _nearest(test: CheckFile, number: Number | Bounded) -> list[float]:
    """The bounds that it must be told from to be decided: those of the test, or within the margin those of the margin."""
    if is_directional(test):
        return number.nearest_decision(margin_of_test(test))
    return [one for one in bounds(test) if math.isfinite(one)]


def named_of(test: CheckFile) -> list[tuple[str, str]]:
    """Its cells with the figure of each."""
    figures = [test.figure] * len(test.cells)
    if test.ratio is not None and test.of is not None:
        figures[1] = test.of
    return list(zip(test.cells, figures, strict=True))


def _printed(test: CheckFile, printed: PrintedOf) -> float | None:
    """The test's number from the printed figures."""
    told = [printed(cell, figure) for cell, figure in named_of(test)]
    known = [one for one in told if one is not None]
    return _from(test, known) if len(known) == len(told) else None


def _from(test: CheckFile, figures: Sequence[float]) -> float | None:
    """The test's number from a figure of each of its cells; None where there is no ratio (a figure is zero)."""
    if test.value is not None:
        return figures[0]
    if min(figures) <= 0:
        return None
    return figures[0] / figures[1] if test.ratio is not None else max(figures) / min(figures)


def _how_few(cell: str, sample: Sample) -> str:
    count = len(sample.all)
    if sample.ran > count:
        return f"{count} of {plural(sample.ran, 'trial')} of {cell} gave it"
    return f"{cell} ran {'once' if count == 1 else f'{count} times'}"


def bounds(test: CheckFile) -> tuple[float, float]:
    """The open interval in which the number must lie."""
    if test.between is not None:
        return test.between[0], test.between[1]
    return (
        -math.inf if test.above is None else test.above,
        math.inf if test.below is None else test.below,
    )


def _text(test: CheckFile) -> str:
    if test.value is not None:
        return test.value
    if test.ratio is not None:
        return f"{test.ratio[0]} / {test.ratio[1]}"
    return f"largest / smallest of {', '.join(test.spread or [])}"
