"""What a study should run next: the cells of claims that are still in doubt, as far as the time that is left allows."""

from __future__ import annotations

import math
from collections.abc import Collection

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.checks import Verdict
from streamgauge.inference.claims import Judged
from streamgauge.inference.looks import ROUNDS_MIN
from streamgauge.model.study_order import with_round

FAILURES_MAX = 2
"""A cell of which so many trials failed, and none ended, is not run again: it cannot run here."""


def next_round(outcome: StudyOutcome, left_s: float) -> list[str]:
    """The cells of one more round, which by the plan's estimate takes `left_s` at most; empty when nothing is in doubt or no claim's cells fit in.

    Claims that wait for a round that was void or a trial that was not valid come first, then those of which fewer rounds are expected to decide: so the
    time goes where it tells most.
    """
    wanted: set[str] = set()
    for cells in _doubtful(outcome):
        if round_s(outcome, wanted | cells) <= left_s:
            wanted |= cells
    return [cell.cell for cell in outcome.plan.cells if cell.cell in wanted]


def claims_helped(outcome: StudyOutcome, cells: Collection[str]) -> int:
    """How many claims a round of these cells is for."""
    return sum(
        bool(doubtful := cells_in_doubt(judged)) and doubtful <= set(cells) for judged in outcome.claims
    )


def round_s(outcome: StudyOutcome, cells: Collection[str]) -> float:
    """How long one more round of these cells takes, starts and heating included."""
    planned = with_round(outcome.plan, cells)
    return planned.estimate_s([trial.number for trial in planned.trials if trial.round == planned.rounds])


def _doubtful(outcome: StudyOutcome) -> list[set[str]]:
    """The cells of each claim in doubt that more rounds can help."""
    found: list[tuple[float, int, set[str]]] = []
    for place, judged in enumerate(outcome.claims):
        cells = cells_in_doubt(judged)
        if cells and all(_can_run(outcome, cell) for cell in cells):
            found.append((rounds_wanted(judged), place, cells))
    return [cells for _, _, cells in sorted(found, key=lambda one: one[:2])]


def rounds_wanted(judged: Judged) -> float:
    """With how many rounds in all an undecided claim is expected to be decided, or to have an interval; infinite where no number of them helps."""
    if lacks_rounds(judged):
        return ROUNDS_MIN
    return math.inf if judged.rounds is None else judged.rounds


def lacks_rounds(judged: Judged) -> bool:
    """Whether it has too few rounds for an interval: some were void, or their trials were not valid."""
    undecided = [test for test in judged.tests if test.verdict is Verdict.undecided]
    return any(test.measured is not None and test.measured.interval is None for test in undecided)


def cells_in_doubt(judged: Judged) -> set[str]:
    """The cells of the tests that keep a claim from being decided."""
    if judged.verdict.decided:
        return set()
    doubtful = [test for test in judged.tests if not test.verdict.decided]
    # Where each test by itself is decided, all of them may be in doubt.
    return {cell for test in doubtful or judged.tests for cell in test.test.cells}


def _can_run(outcome: StudyOutcome, cell: str) -> bool:
    if outcome.planned(cell) is None:
        return False
    trials = outcome.of(cell)
    failed = sum(one.result.status == "failed" for one in trials)
    return failed < FAILURES_MAX or failed < len(trials)
