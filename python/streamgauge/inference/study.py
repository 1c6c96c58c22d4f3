"""The claims of a study, judged together: look by look, with one error rate over all of them.

    observed = Observed(sample=..., printed=..., cells=("kafka-1", "pulsar-1"), looks=(3, 4, 6), void={2: "the disk slowed down"})
    judged = judge(study.claims, observed)
    again = wanted_cells(judged, costs, left_s)          # price.py

Judging replays the looks: at each, the claims that are not decided yet are judged by the rounds up to it, with Holm's correction for their number (those
that were decided earlier count as decided: Holm 1979 steps down over looks as it does within one; Ye et al. 2013). A claim that is decided stays so, with
the numbers that decided it. Nothing need be stored between looks.

Ye, Y., Li, A., Liu, L. and Yao, B. (2013), A group sequential Holm procedure with multiple primary endpoints, Statistics in Medicine 32, 1112-1124.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamgauge.inference import sequential
from streamgauge.inference.evidence import Evidence, Weighing
from streamgauge.inference.power import Price, price
from streamgauge.inference.samples import Sample
from streamgauge.inference.sequential import ERROR
from streamgauge.inference.steps import steps_of, text_of
from streamgauge.inference.verdict import Chances, Verdict, all_of
from streamgauge.model.study_file import CheckFile, ClaimFile

SampleOf = Callable[[str, str], Sample]
"""Cell and figure -> the sample."""
PrintedOf = Callable[[str, str], float | None]
"""Cell and figure -> the figure as printed, where it is a number."""
CONTAINS = "the interval contains the bound"
BY_CHANCE = "alone it would be decided; of so many claims one may look so by chance"


@dataclass(frozen=True)
class Observed:
    """All that a study has measured so far."""

    sample: SampleOf
    printed: PrintedOf
    cells: tuple[str, ...]
    """All cells of the study, in its order: what they have in common tells how a figure varies."""
    looks: tuple[int, ...] = ()
    """After which rounds claims were judged, up to now, in rising order (settled before anything was measured; 3 at least); the last is the one at hand.
    Empty: they are judged once, with all that there is."""
    void: Mapping[int, str] = field(default_factory=dict)
    """Rounds that do not count, and why."""


@dataclass(frozen=True)
class Estimate:
    """A number and its interval (95 % over all looks), in the figure's unit or as a ratio."""

    value: float
    low: float
    high: float
    rounds: int
    """How many independent units it rests on: rounds, or starts where the sides have starts of their own."""


@dataclass(frozen=True)
class Tested:
    """What a test came to; `rising` and `falling` are one for each step."""

    test: CheckFile
    text: str
    """What is compared, in words."""
    printed: float | None
    """The same number from the printed figures; None where they are not numbers."""
    measured: Estimate | None
    margin: float | None
    """The smallest ratio that matters, above 1; None where it plays no part (the bound is not 1)."""
    verdict: Verdict
    """Of this test alone."""
    why: str = ""
    """For one that is undecided or not shown: why, where that is no matter of a single cell."""
    note: str = ""
    """What has to be known of any verdict: the design was an old one, bounds are all there is."""
    missing: tuple[tuple[str, str], ...] = ()
    """Cells without a figure, and why each has none."""
    price: Price | None = None
    """What would decide it; None where it is decided, also in the company of all claims."""


@dataclass(frozen=True)
class Judged:
    """A claim, its tests and its verdict."""

    claim: ClaimFile
    tests: tuple[Tested, ...]
    verdict: Verdict
    rounds: int | None = None
    """After which round it was decided; None while it is not, and where it was judged only once."""
    price: Price | None = None
    """Of an undecided one."""
    by_chance: bool = False
    """It is undecided only because so many claims are judged."""

    @property
    def why(self) -> str:
        """For one that is undecided or not shown: why, cells with the same reason together."""
        reasons: dict[str, dict[str, None]] = {}
        for test in self.tests:
            for cell, reason in test.missing:
                reasons.setdefault(reason, {})[cell] = None
        told = [f"{', '.join(cells)}: {reason}" for reason, cells in reasons.items()]
        told += [test.why for test in self.tests if test.why]
        return "; ".join(dict.fromkeys([*told, *([BY_CHANCE] if self.by_chance else [])]))

    @property
    def notes(self) -> list[str]:
        """What has to be known of the verdict, whatever it is."""
        return list(dict.fromkeys(test.note for test in self.tests if test.note))


@dataclass(frozen=True)
class _Step:
    """A test with its evidence, at one look."""

    check: CheckFile
    evidence: Evidence


@dataclass(frozen=True)
class _Weighed:
    """A claim at one look."""

    steps: tuple[_Step, ...]
    chances: Chances | None
    """Over all looks, before Holm's correction over claims; None where no test has any."""

    @property
    def chance(self) -> float:
        """Of what may be said first."""
        return 1.0 if self.chances is None else min(self.chances.holds, self.chances.against)


def judge(claims: Sequence[ClaimFile], observed: Observed) -> list[Judged]:
    """Judges all claims of a study, in their order."""
    split = [[step for check in claim.tests for step in steps_of(check)] for claim in claims]
    weighing = Weighing(observed.sample, observed.cells, observed.void)
    left = sum(not all(weighing.never(step) for step in steps) for steps in split)
    judged: dict[int, Judged] = {}
    for looks in _looks(observed.looks):
        weighing.until(looks[-1] if looks else None)
        found = {
            at: _weigh([_Step(step, weighing.of(step)) for step in steps], looks)
            for at, steps in enumerate(split)
            if at not in judged or not judged[at].verdict.decided
        }
        # Holm steps down from the surest claim, and stops at the first that is not sure enough.
        for at in sorted(found, key=lambda one: found[one].chance):
            judged[at] = _judged(claims[at], found[at], observed, looks, ERROR / max(left, 1))
            left -= judged[at].verdict.decided
    return [judged[at] for at in range(len(claims))]


def _looks(looks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Each look with those before it."""
    return [looks[: place + 1] for place in range(len(looks))] or [()]


def _weigh(steps: list[_Step], looks: tuple[int, ...]) -> _Weighed:
    known = [step.evidence.chances for step in steps if step.evidence.chances is not None]
    if not known:
        return _Weighed(tuple(steps), None)
    found = all_of(known)
    if len(known) < len(steps):
        # What is not known keeps a claim from holding; it does not save it.
        against = min(1.0, len(steps) * min(one.against for one in known))
        found = Chances(holds=1.0, refuted=against, equivalent=1.0)
    over = [sequential.over_all_looks(one, looks) for one in (found.holds, found.refuted, found.equivalent)]
    return _Weighed(tuple(steps), Chances(*over))


def _judged(
    claim: ClaimFile, found: _Weighed, observed: Observed, looks: tuple[int, ...], error: float
) -> Judged:
    """`error`: what may be spent on the claim over all looks."""
    tests = tuple(_tested(step, observed, looks, error) for step in found.steps)
    verdict = Verdict.undecided if found.chances is None else found.chances.verdict(error)
    if verdict.decided:
        return Judged(claim, tests, verdict, looks[-1] if looks else None)
    if any(test.verdict is Verdict.not_shown for test in tests):
        return Judged(claim, tests, Verdict.not_shown)
    alone = found.chances is not None and found.chances.verdict(ERROR).decided
    return Judged(claim, tests, Verdict.undecided, price=_price(found, tests), by_chance=alone)


def _tested(step: _Step, observed: Observed, looks: tuple[int, ...], error: float) -> Tested:
    check, evidence = step.check, step.evidence
    level = sequential.level(looks)
    verdict = Verdict.not_shown if evidence.missing else Verdict.undecided
    strict = False
    if evidence.chances is not None:
        verdict = evidence.chances.verdict(level)
        strict = evidence.chances.verdict(sequential.level_for(error, looks)).decided
    cost = None
    # What would decide it is asked at the look at hand alone: those before it are over.
    if evidence.contrasts and not strict and looks == observed.looks:
        cost = _dearest([price(one, evidence.asked, looks, error) for one in evidence.contrasts])
    measured = evidence.interval(level)
    return Tested(
        test=check,
        text=text_of(check),
        printed=evidence.printed(observed.printed),
        measured=None if measured is None else Estimate(*measured, evidence.rounds),
        margin=evidence.margin,
        verdict=verdict,
        why=evidence.why or (CONTAINS if verdict is Verdict.undecided else ""),
        note=evidence.note,
        missing=evidence.missing,
        price=cost,
    )


def _price(found: _Weighed, tests: Sequence[Tested]) -> Price | None:
    """Of a claim: it would hold with the dearest of its tests, and is refuted by the cheapest of those that look refuted."""
    wrong = [
        test.price or Price(0)
        for step, test in zip(found.steps, tests, strict=True)
        if step.evidence.leans_against
    ]
    if not wrong:
        return _dearest([test.price for test in tests if test.price is not None])
    possible = [one for one in wrong if one.rounds is not None]
    return min(possible, key=lambda one: one.rounds or 0) if possible else wrong[0]


def _dearest(prices: Sequence[Price]) -> Price | None:
    """None of none."""
    never = next((one for one in prices if one.rounds is None), None)
    return never or max(prices, key=lambda one: one.rounds or 0, default=None)


def void_of(judged: Judged, why: str) -> Judged:
    """The same claim where nothing that was measured counts."""
    tests = tuple(replace(test, verdict=Verdict.not_shown, why=why, price=None) for test in judged.tests)
    return Judged(judged.claim, tests, Verdict.not_shown)
