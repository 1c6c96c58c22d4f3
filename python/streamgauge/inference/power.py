"""What would decide: how many more rounds, if what was estimated so far is true."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamgauge.inference import distributions, sequential
from streamgauge.inference.contrast import Contrast
from streamgauge.inference.sequential import ROUNDS_MIN
from streamgauge.inference.verdict import RESOLUTION, Asked

POWER = 0.8
LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
"""Numbers of further rounds that are tried; nobody is advised to make more than the last."""


@dataclass(frozen=True)
class Price:
    """What would decide an undecided test or claim if what was estimated so far is true, with a power of 80 %."""

    rounds: int | None
    """So many more; None where no reasonable number would."""
    why: str = ""
    """Why there is none."""


def power(found: Contrast, asked: Asked, level: float) -> float:
    """How probable a decision at a two-sided level is where the estimate is the truth."""
    if found.error == 0:
        return 1.0
    edge = distributions.student_quantile(1.0 - level / 2.0, found.freedom)

    def beyond(distance: float) -> float:
        if math.isinf(distance):
            return float(distance > 0)
        return distributions.student_beyond(edge, found.freedom, (distance - RESOLUTION) / found.error)

    holds = [beyond(found.estimate - asked.low), beyond(asked.high - found.estimate)]
    refuted = [beyond(asked.low - found.estimate), beyond(found.estimate - asked.high)]
    decided = [max(sum(holds) - 1.0, 0.0), max(refuted)]
    if asked.margin is not None:
        same = [beyond(asked.margin - found.estimate), beyond(asked.margin + found.estimate)]
        decided.append(max(sum(same) - 1.0, 0.0))
    return max(decided)


def price(found: Contrast, asked: Asked, looks: tuple[int, ...], error: float) -> Price:
    """`looks`: those that were, the last at hand; empty where all is judged once. `error`: what may be spent on it over all looks."""
    for more in LADDER:
        then = found.after(more)
        if then.shape.units < ROUNDS_MIN:
            continue
        later = (*looks, looks[-1] + more) if looks else ()
        if power(then, asked, sequential.level_for(error, later)) >= POWER:
            return Price(more)
    if then.shape.starts:
        return Price(
            None,
            "runs or starts of the same may differ by as much, and repeats of one do not tell by how much",
        )
    return Price(
        None,
        f"the estimate is too near to what would have to be excluded: more than {LADDER[-1]} further rounds",
    )
