"""Whether a trial of a study is made once more, and at what rate.

A claim needs a figure of each of its cells in every round, so that a trial which cannot be used costs its whole round. It is made again while there is
time: at a lower rate where the system cannot take the one that was planned, else as it was. A rate that the system has carried in an earlier trial stays:
lowering it would make all that was measured at it worthless.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamgauge.model.result import TrialResult
from streamgauge.model.study_plan import StudyPlan
from streamgauge.model.study_rates import counts, lowered

TRIES_MAX = 4
"""Of one trial. Halving a rate three times is enough for the difference between systems on one machine; beyond that something else is wrong."""
SAME_AGAIN_MAX = 1
"""So often a trial is made again as it was."""


def after(
    plan: StudyPlan, found: TrialResult, before: Sequence[TrialResult], *, tries: int, same_again: int
) -> tuple[StudyPlan, bool]:
    """The plan to go on with after a trial, and whether that trial is made again. `before`: the other trials of the study so far; `tries`: how often this
    one was made, and `same_again`, how often of these at the rate of the try before."""
    cell = plan.cell(found.workload.name)
    if found.status != "complete" or found.validity.valid:
        return plan, False
    slower = None if _carried(plan, cell.cell, before) else _lowered(plan, found)
    if cell.heats:
        # What a start is heated with is not counted; what it has shown of the rate is for the cells that follow.
        is_cold = found.warm_up is not None and not found.warm_up.steady
        return slower if slower is not None and is_cold else plan, False
    if slower is not None:
        return slower, tries < TRIES_MAX
    return plan, tries < TRIES_MAX and same_again < SAME_AGAIN_MAX and not _is_a_finding(found)


def _is_a_finding(found: TrialResult) -> bool:
    """Whether what makes it invalid is the system's own doing, and must stay: messages that were lost, a level that was asked for and not given."""
    return found.audit.shows_lost > 0 or bool(found.durability.mismatches)


def _lowered(plan: StudyPlan, found: TrialResult) -> StudyPlan | None:
    # The neighbours' doing is not the system's.
    return None if found.validity.disturbed else lowered(plan, found.workload.name, found.achieved_share)


def _carried(plan: StudyPlan, cell: str, before: Sequence[TrialResult]) -> bool:
    """Whether its system has carried the rate at which the cell is run now: in a valid trial of this cell, or of another that is run at the same."""
    wanted = plan.cell(cell)
    alike = {
        other.cell
        for other in plan.cells
        if (other.system, other.paced_with) == (wanted.system, wanted.paced_with) and not other.heats
    }
    return any(
        one.validity.valid
        and one.workload.name in alike
        and counts(plan, one.workload.name, one.workload.rate_msgs_s)
        for one in before
    )
