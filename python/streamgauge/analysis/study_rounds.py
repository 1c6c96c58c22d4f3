"""What a study should run next: the cells of claims that are still in doubt, as far as the time that is left allows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.checks import Verdict
from streamgauge.inference.claims import Judged
from streamgauge.inference.looks import ROUNDS_MIN
from streamgauge.model.study_order import instance_of, with_round

TURNS_MAX = 3
LOOKED_AT_MAX = 10
"""So many claims, those that take least, are put together in every way."""
FAILURES_MAX = 2
"""A cell of which so many trials failed, and none ended, is not run again: it cannot run here."""


def next_round(outcome: StudyOutcome, left_s: float) -> tuple[list[str], int]:
    """The cells of one more round, which by the plan's estimate takes `left_s` at most, and how often each start goes through them; no cell when nothing is in
    doubt or no claim's cells fit in.

    The time goes to the claims of which most are expected to be decided in it, among as many to those that take least, and first of all to those that wait for
    a round that was void or a trial that was not valid: a claim that takes more would only keep them from it. What shares no start is not run in one round,
    so that each such part may go through its starts as often as is best for it; the cheapest claims come first. Where none can be decided any more, the round
    is for as many as fit in.
    """
    doubtful = _doubtful(outcome)
    prices = _Prices(outcome)
    taken = _most_decided(prices, doubtful, left_s)
    turns = 1
    if taken:
        part = min(prices.parts(taken), key=lambda part: part.order)
        wanted, turns = part.cells, part.turns
        if part.is_one_start:
            # What is expected to be enough is not enough half of the time, and a turn costs less than a start.
            spare_s = left_s - (prices.of(taken) - part.price_s)
            turns = max(turns, min(turns + 1, turns_of(outcome, wanted, spare_s)))
    else:
        wanted = set[str]()
        for claim in doubtful:
            if round_s(outcome, wanted | claim.cells) <= left_s:
                wanted |= claim.cells
        if wanted and share_a_start(outcome, wanted):
            turns = turns_of(outcome, wanted, left_s)
    return [cell.cell for cell in outcome.plan.cells if cell.cell in wanted], turns


def _most_decided(prices: _Prices, doubtful: Sequence[_Doubt], left_s: float) -> list[_Doubt]:
    """The claims that time is best spent on; none if it decides none."""
    near = [claim for claim in doubtful if prices.of([claim]) <= left_s][:LOOKED_AT_MAX]
    best: tuple[tuple[int, int, float], list[_Doubt]] = ((0, 0, 0.0), [])

    def extend(taken: list[_Doubt], others: Sequence[_Doubt]) -> None:
        nonlocal best
        price_s = prices.of(taken)
        if price_s > left_s:
            return
        worth = sum(claim.lacks for claim in taken), len(taken), -price_s
        if taken and worth > best[0]:
            best = worth, taken
        for at, claim in enumerate(others):
            extend([*taken, claim], others[at + 1 :])

    extend([], near)
    return best[1]


@dataclass(frozen=True)
class _Part:
    """Claims whose cells share starts, directly or through one another."""

    claims: tuple[_Doubt, ...]
    price_s: float
    is_one_start: bool = False
    """A round of it is one start, which may go through its cells several times."""
    turns: int = 1

    @property
    def cells(self) -> set[str]:
        """Those of all."""
        return {cell for claim in self.claims for cell in claim.cells}

    @property
    def order(self) -> tuple[bool, float]:
        """What comes first: where a round is lacking, and then what takes least for a claim."""
        return not any(claim.lacks for claim in self.claims), self.price_s / len(self.claims)


@dataclass(frozen=True)
class _Prices:
    """In which time claims are expected to be decided."""

    outcome: StudyOutcome
    known: dict[frozenset[str], float] = field(default_factory=dict)
    """What a round of cells takes: there are a thousand ways to put ten claims together."""

    def of(self, claims: Sequence[_Doubt]) -> float:
        """All of them."""
        return math.fsum(part.price_s for part in self.parts(claims))

    def parts(self, claims: Sequence[_Doubt]) -> list[_Part]:
        """In parts that share no start."""
        groups: list[tuple[set[str], list[_Doubt]]] = []
        for claim in claims:
            starts, members = starts_of(self.outcome, claim.cells), [claim]
            for group in [one for one in groups if one[0] & starts]:
                groups.remove(group)
                starts, members = starts | group[0], [*group[1], *members]
            groups.append((starts, members))
        return [self._part(members) for _, members in groups]

    def _part(self, claims: Sequence[_Doubt]) -> _Part:
        """As many rounds of each claim's cells as it wants; on one start for all of them several at once."""
        wanted = frozenset(cell for claim in claims for cell in claim.cells)
        most, lacks = max(claim.rounds for claim in claims), any(claim.lacks for claim in claims)
        if share_a_start(self.outcome, wanted) and not lacks and math.isfinite(most):
            turns = min(turns_of(self.outcome, wanted, math.inf), math.ceil(most))
            price_s = math.ceil(most / turns) * turned_s(self.outcome, wanted, turns)
            return _Part(tuple(claims), price_s, True, turns)
        price_s, before = 0.0, 0.0
        for rounds in sorted({claim.rounds for claim in claims}):
            cells = frozenset(cell for claim in claims if claim.rounds >= rounds for cell in claim.cells)
            price_s += (rounds - before) * self._round_s(cells)
            before = rounds
        return _Part(tuple(claims), price_s)

    def _round_s(self, cells: frozenset[str]) -> float:
        if cells not in self.known:
            self.known[cells] = round_s(self.outcome, cells)
        return self.known[cells]


def turns_of(outcome: StudyOutcome, cells: Collection[str], left_s: float) -> int:
    """How often each start of a further round goes through its cells, where a round may take `left_s`: as long as trials take no longer than starting and
    heating. Between cells of one start a second turn tells as much as a second round does."""
    trials_s = _trials_s(outcome, cells)
    starts_s = round_s(outcome, cells) - trials_s
    turns = 1
    while (
        turns < TURNS_MAX
        and (turns + 1) * trials_s <= starts_s
        and turned_s(outcome, cells, turns + 1) <= left_s
    ):
        turns += 1
    return turns


def turned_s(outcome: StudyOutcome, cells: Collection[str], turns: int) -> float:
    """How long a round takes in which each start goes through its cells so often."""
    return round_s(outcome, cells) + (turns - 1) * _trials_s(outcome, cells)


def _trials_s(outcome: StudyOutcome, cells: Collection[str]) -> float:
    return math.fsum(cell.trial_s for cell in outcome.plan.cells if cell.cell in cells)


def starts_of(outcome: StudyOutcome, cells: Collection[str]) -> set[str]:
    """The starts that a round of these cells makes, by what is started."""
    planned = [cell for cell in outcome.plan.cells if cell.cell in cells]
    return {instance_of(cell, outcome.plan) for cell in planned}


def share_a_start(outcome: StudyOutcome, cells: Collection[str]) -> bool:
    """Whether a round of these cells is one start of a system that is kept."""
    is_fresh = any(cell.fresh for cell in outcome.plan.cells if cell.cell in cells)
    return not is_fresh and len(starts_of(outcome, cells)) == 1


def claims_in_doubt(outcome: StudyOutcome) -> int:
    """How many claims more rounds may decide."""
    return len(_doubtful(outcome))


def claims_helped(outcome: StudyOutcome, cells: Collection[str]) -> int:
    """How many claims a round of these cells is for."""
    return sum(claim.cells <= set(cells) for claim in _doubtful(outcome))


def round_s(outcome: StudyOutcome, cells: Collection[str]) -> float:
    """How long one more round of these cells takes, starts and heating included."""
    planned = with_round(outcome.plan, cells)
    return planned.estimate_s([trial.number for trial in planned.trials if trial.round == planned.rounds])


@dataclass(frozen=True)
class _Doubt:
    """A claim in doubt that more rounds can help."""

    cells: set[str]
    rounds: float
    """How many more are expected to decide it."""
    lacks: bool
    """It has too few for an interval."""


def _doubtful(outcome: StudyOutcome) -> list[_Doubt]:
    """Those that take least come first. What the scale cannot tell of, whatever the figures are, is not among them."""
    found = [
        _Doubt(cells, rounds_wanted(judged), lacks_rounds(judged))
        for judged in outcome.claims
        if (cells := cells_in_doubt(judged))
        and not outcome.outside(judged)
        and all(_can_run(outcome, cell) for cell in cells)
    ]
    return sorted(
        found, key=lambda one: (not one.lacks, one.rounds * round_s(outcome, one.cells), one.rounds)
    )


def rounds_wanted(judged: Judged) -> float:
    """With how many more rounds an undecided claim is expected to be decided, or to have an interval; infinite where no number of them helps."""
    if lacks_rounds(judged):
        return max(ROUNDS_MIN - judged.after, 1)
    return math.inf if judged.rounds is None else max(judged.rounds - judged.after, 1)


def lacks_rounds(judged: Judged) -> bool:
    """Whether it has too few rounds for an interval: some were void, or their trials were not valid."""
    undecided = [test for test in judged.tests if test.verdict is Verdict.undecided]
    return any(test.measured is not None and test.measured.interval is None for test in undecided)


def cells_in_doubt(judged: Judged) -> set[str]:
    """The cells of the tests that are expected to decide a claim."""
    if judged.verdict.decided:
        return set()
    return {cell for test in judged.route for cell in test.test.cells}


def _can_run(outcome: StudyOutcome, cell: str) -> bool:
    if outcome.planned(cell) is None:
        return False
    trials = outcome.of(cell)
    failed = sum(one.result.status == "failed" for one in trials)
    return failed < FAILURES_MAX or failed < len(trials)
