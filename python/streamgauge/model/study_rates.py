"""Rates that a study finds to be too high on this machine, and what it goes on with."""

from __future__ import annotations

import math

from streamgauge.model.scaling import round_down
from streamgauge.model.study_plan import StudyPlan
from streamgauge.vocabulary.units import format_rate

HEADROOM = 0.5
"""Of what was achieved: a latency is to be measured well below the maximum."""
ACHIEVED_MIN = 0.97
"""Share of a rate below which it was too high for the system, and did not just miss a second."""


def lowered(plan: StudyPlan, cell: str, achieved_share: float | None) -> StudyPlan | None:
    """The plan after a trial of a cell that achieved this share of its rate: all cells that the study ran at one rate go on with half of what was achieved.
    None where the rate was carried, or none is set. Trials at the former rate count no more (`counts`)."""
    rate, planned = plan.rate_of(cell), plan.cell(cell)
    if rate is None or achieved_share is None or achieved_share >= ACHIEVED_MIN:
        return None
    wanted = round_down(HEADROOM * achieved_share * rate)
    found = f"{format_rate(rate)} was more than {planned.system_title} takes here ({format_rate(achieved_share * rate)})"
    cells = [
        one.model_copy(
            update={
                "workload": {**one.workload, "rate": wanted},
                "rates_before": [*one.rates_before, rate],
                "scaled": [] if one.heats else [*one.scaled, f"then {format_rate(wanted)}: {found}"],
            }
        )
        if one.paced_with == planned.paced_with
        else one
        for one in plan.cells
    ]
    return plan.model_copy(update={"cells": cells})


def counts(plan: StudyPlan, cell: str, rate_msgs_s: float | None) -> bool:
    """Whether a trial at this rate is one of the cell as it is planned now."""
    planned = next((one for one in plan.cells if one.cell == cell), None)
    if planned is None or rate_msgs_s is None:
        return True
    return not any(math.isclose(before, rate_msgs_s, rel_tol=1e-6) for before in planned.rates_before)
