"""Does a claim hold here? What its tests (checks.py) come to, and what may be concluded from so many of them.

A claim holds when each of its tests does (intersection-union); it is refuted, or no difference that matters is shown, when one test is, corrected for having
asked so many. A study asks many questions, several times: the error of 5 % is that of all claims and looks together. What a look may decide at follows from
how many there were (looks.py), and within a look claims are decided in the order of their evidence, each at what is left (Holm 1979). What is decided stays
decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streamgauge.inference.checks import (
    Numbers,
    PrintedOf,
    Sample,
    SampleOf,
    Tested,
    Verdict,
    chances_of,
    errors_of,
    is_directional,
    named_of,
    tested,
    untested,
)
from streamgauge.inference.estimates import holm
from streamgauge.inference.looks import ALPHA, ROUNDS_MIN, level, told
from streamgauge.model.study_file import CheckFile, ClaimFile
from streamgauge.vocabulary.format import plural


@dataclass(frozen=True)
class Judged:
    """A claim, its tests and its verdict."""

    claim: ClaimFile
    tests: tuple[Tested, ...]
    verdict: Verdict
    at_round: int | None = None
    """After which round it was decided."""
    reason: str = ""
    """Why an undecided one is, where that is no matter of a single test."""

    @property
    def why(self) -> str:
        """For one that is not decided: what is missing, cells with the same reason together."""
        reasons: dict[str, dict[str, None]] = {}
        for test in self.tests:
            for cell, reason in test.missing:
                reasons.setdefault(reason, {})[cell] = None
        told = [f"{', '.join(cells)}: {reason}" for reason, cells in reasons.items()]
        own = [test.why for test in self.tests if test.why and not test.verdict.decided]
        return "; ".join(dict.fromkeys([*told, *own, *([self.reason] if self.reason else [])]))

    @property
    def route(self) -> tuple[Tested, ...]:
        """Of an undecided one: the tests that decide it if what was found is true. It is one that speaks against the claim, the first to tell; where none does,
        all of which it is not told yet. Nothing is decided as long as one has no number."""
        without = [test for test in self.tests if test.measured is None or test.measured.interval is None]
        if without:
            return tuple(without)
        against = [test for test in self.tests if test.leans in (Verdict.refuted, Verdict.equivalent)]
        soon = [test for test in against if test.rounds is not None]
        if soon:
            return (min(soon, key=_price),)
        undecided = [test for test in self.tests if not test.verdict.decided]
        # Where each is decided by itself it is chance that must be ruled out: for one that speaks against the claim, or for all that speak for it.
        return tuple(undecided or against or self.tests)

    @property
    def rounds(self) -> int | None:
        """Of an undecided one: so many rounds in all would decide it; None where none would."""
        known = [one.rounds for one in self.route if one.rounds is not None]
        return max(known) if known and len(known) == len(self.route) else None

    @property
    def after(self) -> int:
        """How many rounds there are of the tests that decide it."""
        return min((one.after for one in self.route), default=0)


def _price(test: Tested) -> int:
    assert test.rounds is not None
    return test.rounds - test.after


@dataclass(frozen=True)
class Question:
    """What is asked of trials."""

    claims: Sequence[ClaimFile]
    cells: Sequence[str]
    """All cells that are part of it: what they have in common tells how much figures vary."""
    sample: SampleOf
    printed: PrintedOf
    fixed: bool = True
    """The number of rounds was fixed beforehand, so that there is one look, at the end."""
    bars: Callable[[Sequence[CheckFile]], str] = lambda _tests: ""
    """Why a claim of such tests cannot be judged, whatever its figures are; empty where nothing is against it."""


def judge(question: Question) -> list[Judged]:
    """Every claim, in order."""
    steps = [_steps(claim) for claim in question.claims]
    cache: dict[tuple[str, str], Sample] = {}

    def sample(cell: str, figure: str) -> Sample:
        if (cell, figure) not in cache:
            cache[cell, figure] = question.sample(cell, figure)
        return cache[cell, figure]

    samples = [sample(cell, figure) for tests in steps for test in tests for cell, figure in named_of(test)]
    # What is known beforehand not to be part of it is not asked.
    part = [
        all(cell in question.cells for test in tests for cell in test.cells) and not question.bars(tests)
        for tests in steps
    ]
    families = _Families(
        [place for place, is_part in enumerate(part) if is_part],
        [place for place, tests in enumerate(steps) if part[place] and any(map(is_directional, tests))],
    )
    last = max((one.round for found in samples for one in found.all), default=0)
    looks = [last] if question.fixed else list(range(ROUNDS_MIN, last + 1)) or [last]
    decided: dict[int, tuple[Verdict, int]] = {}
    for until in looks:
        numbers = Numbers(question.cells, _until(sample, until))
        chances = {
            place: chance
            for place in families.either
            if place not in decided and (chance := _chances(steps[place], numbers)) is not None
        }
        found = _decided(chances, families.left(decided), fixed=question.fixed)
        decided |= {place: (verdict, until) for place, verdict in found.items()}
    if any(one.round > last for found in cache.values() for one in found.all):
        # Rounds of cells that no claim is about tell something of how much figures vary, too.
        numbers = Numbers(question.cells, sample)
    left = families.left(decided)
    errors = dict.fromkeys((Verdict.holds, Verdict.refuted), ALPHA / max(len(left.either), 1))
    errors[Verdict.equivalent] = ALPHA / max(len(left.same), 1)
    return [
        _judged(claim, tests, decided.get(place), numbers, question, errors, sum(part))
        for place, (claim, tests) in enumerate(zip(question.claims, steps, strict=True))
    ]


def _judged(
    claim: ClaimFile,
    tests: Sequence[CheckFile],
    decided: tuple[Verdict, int] | None,
    numbers: Numbers,
    question: Question,
    errors: Mapping[Verdict, float],
    asked: int,
) -> Judged:
    if why := question.bars(tests):
        return Judged(
            claim, tuple(untested(test, question.printed) for test in tests), Verdict.not_shown, reason=why
        )
    following = max(_rounds_of(tests, numbers), ROUNDS_MIN) + 1
    alphas = {
        verdict: error if question.fixed else level(error, following) for verdict, error in errors.items()
    }
    found = tuple(tested(test, numbers, question.printed, alphas, len(tests)) for test in tests)
    if decided is not None:
        return Judged(claim, found, decided[0], decided[1])
    if any(one.verdict is Verdict.not_shown for one in found):
        return Judged(claim, found, Verdict.not_shown)
    reason = ""
    if all(one.verdict.decided for one in found):
        reason = f"each test by itself is decided, but of {plural(asked, 'claim')} one may look so by chance"
    return Judged(claim, found, Verdict.undecided, reason=reason)


def _rounds_of(tests: Sequence[CheckFile], numbers: Numbers) -> int:
    """Of the test with the most, as that is the one that was looked at most often; 0 where none has a number."""
    return max((one.rounds for test in tests for one in numbers.of(test) or ()), default=0)


def _until(sample: SampleOf, round_: int) -> SampleOf:
    return lambda cell, figure: sample(cell, figure).until(round_)


def _steps(claim: ClaimFile) -> list[CheckFile]:
    """Its tests; rising and falling are a ratio per step."""
    return [step for check in claim.tests for step in _steps_of(check)]


def _steps_of(check: CheckFile) -> Iterator[CheckFile]:
    cells = check.rising or check.falling
    if cells is None:
        yield check
        return
    bound: dict[str, float] = {"above": 1.0} if check.rising else {"below": 1.0}
    for later, earlier in zip(cells[1:], cells[:-1], strict=True):
        yield check.model_copy(update={"rising": None, "falling": None, "ratio": [later, earlier], **bound})


@dataclass(frozen=True)
class _Chance:
    """Of a claim at a look: the chances that what would be said of it is wrong, over all ways in which that may be (p-values, corrected for their number). 1
    where the 95 % interval that is shown would contradict it."""

    error: float
    verdict: Verdict
    """That it holds or is refuted, whichever is less likely to be wrong."""
    no_difference: float
    """That there is none that matters; 1 where that is not asked."""
    rounds: int
    """Of the test with the most, as that is the one that was looked at most often."""


def _chances(tests: Sequence[CheckFile], numbers: Numbers) -> _Chance | None:
    """Of a claim; None where a number is not known. Each test must hold by itself (intersection-union); that one of several does not is corrected for their
    number."""
    found = []
    for test in tests:
        known = numbers.of(test)
        if known is None:
            return None
        found.append((test, chances_of(test, known)))
    # A difference that is shown, and shown not to matter, is none.
    shown = [
        (test, one if one.equivalent >= ALPHA / 2 else replace(one, holds=1.0, refuted=1.0))
        for test, one in found
    ]
    holds = _corrected(
        max(one.holds for _, one in shown), max(errors_of(test, Verdict.holds) for test, _ in shown)
    )
    refuted = min(
        _corrected(one.refuted, errors_of(test, Verdict.refuted) * len(shown)) for test, one in shown
    )
    none = min(_corrected(one.equivalent, len(found)) for _, one in found)
    verdict = Verdict.holds if holds <= refuted else Verdict.refuted
    return _Chance(min(holds, refuted), verdict, none, _rounds_of(tests, numbers))


def _corrected(chance: float, times: float) -> float:
    """A p-value, for so many ways of being wrong."""
    return min(1.0, chance * times) if chance < ALPHA / 2 else 1.0


@dataclass(frozen=True)
class _Families:
    """The claims, by number, of which something may be said wrongly, in two families that are corrected each by itself: of one that was found to hold it might
    have been said that nothing differs by what matters, and the other way round."""

    either: Sequence[int]
    """That it holds, or is refuted."""
    same: Sequence[int]
    """That there is no difference that matters."""

    def left(self, decided: Mapping[int, tuple[Verdict, int]]) -> _Families:
        """Without those of which it was said."""
        same = {place for place, (verdict, _) in decided.items() if verdict is Verdict.equivalent}
        return _Families(
            [place for place in self.either if place not in decided or place in same],
            [place for place in self.same if place not in same],
        )


def _decided(chances: Mapping[int, _Chance], families: _Families, *, fixed: bool) -> dict[int, Verdict]:
    """What is decided of claims that are asked at once. Where this is not the only look, each is looked at after as many rounds as its own cells have: others'
    rounds cost it nothing."""

    def worth(chance: float, one: _Chance) -> float:
        return chance if fixed else told(chance, one.rounds)

    def said(places: Sequence[int], chance: Callable[[_Chance], float]) -> set[int]:
        # A claim without its figures was asked, too.
        errors = [
            worth(chance(chances[place]), chances[place]) if place in chances else 1.0 for place in places
        ]
        return {
            place
            for place, error in zip(places, holm(errors), strict=True)
            if place in chances and error <= ALPHA
        }

    found = {place: chances[place].verdict for place in said(families.either, lambda one: one.error)}
    same = said(families.same, lambda one: one.no_difference)
    return found | dict.fromkeys(same, Verdict.equivalent)
