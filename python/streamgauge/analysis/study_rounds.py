"""What a study should run next: the cells of claims that are still in doubt, as far as the time that is left allows."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.checks import Verdict
from streamgauge.inference.claims import Judged
from streamgauge.inference.looks import ROUNDS_MIN
from streamgauge.model.study_order import with_round

TURNS_MAX = 3
FAILURES_MAX = 2
"""A cell of which so many trials failed, and none ended, is not run again: it cannot run here."""


def next_round(outcome: StudyOutcome, left_s: float) -> tuple[list[str], int]:
    """The cells of one more round, which by the plan's estimate takes `left_s` at most, and how often each start goes through them; no cell when nothing is in
    doubt or no claim's cells fit in.

    Claims come in the order of the time that is expected to decide them, those first that wait for a round that was void or a trial that was not valid. As long
    as all that were taken are expected to be decided in the time that is left, another one is: a claim that takes more would only keep them from it. Where
    none can be decided any more, the round is for as many as fit in.
    """
    doubtful = _doubtful(outcome)
    wanted, most, taken = set[str](), 0.0, list[_Doubt]()
    for claim in doubtful:
        cells, rounds = wanted | claim.cells, max(most, claim.rounds)
        if rounds * round_s(outcome, cells) <= left_s:
            wanted, most = cells, rounds
            taken.append(claim)
    if not wanted:
        for claim in doubtful:
            if round_s(outcome, wanted | claim.cells) <= left_s:
                wanted |= claim.cells
                taken.append(claim)
    turns = 1
    if taken and all(share_a_start(outcome, claim.cells) for claim in taken):
        turns = turns_of(outcome, wanted, left_s / max(most, 1.0))
    return [cell.cell for cell in outcome.plan.cells if cell.cell in wanted], turns


def turns_of(outcome: StudyOutcome, cells: Collection[str], left_s: float) -> int:
    """How often each start of a further round goes through its cells, where a round may take `left_s`: as long as trials take no longer than starting and
    heating. Between cells of one start a second turn tells as much as a second round does."""
    trials_s = sum(cell.trial_s for cell in outcome.plan.cells if cell.cell in cells)
    starts_s = round_s(outcome, cells) - trials_s
    turns = 1
    while (
        turns < TURNS_MAX
        and (turns + 1) * trials_s <= starts_s
        and starts_s + (turns + 1) * trials_s <= left_s
    ):
        turns += 1
    return turns


def share_a_start(outcome: StudyOutcome, cells: Collection[str]) -> bool:
    """Whether a round of these cells is one start of a system that is kept."""
    planned = with_round(outcome.plan, cells)
    blocks = {trial.block for trial in planned.trials if trial.round == planned.rounds}
    return len(blocks) == 1 and not any(cell.fresh for cell in planned.cells if cell.cell in cells)


def claims_helped(outcome: StudyOutcome, cells: Collection[str]) -> int:
    """How many claims a round of these cells is for."""
    return sum(
        bool(doubtful := cells_in_doubt(judged)) and doubtful <= set(cells) for judged in outcome.claims
    )


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
    found = [
        _Doubt(cells, rounds_wanted(judged), lacks_rounds(judged))
        for judged in outcome.claims
        if (cells := cells_in_doubt(judged)) and all(_can_run(outcome, cell) for cell in cells)
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
