"""When a study looks at its claims, and how much of its error each look may spend.

A study with a budget looks after its first rounds and after every further one, and stops asking what is decided. Each look is a chance to be wrong, so that
the error of 5 % is divided among them beforehand: FIRST_SHARE of it to the first look, the same share of the rest to the next, and so on. The shares add up
to no more than 1 however many looks there are, which holds for any dependence between them; calibrated bounds would spend a little less.
"""

from __future__ import annotations

ALPHA = 0.05
"""Over all looks and, with Holm's correction, all claims of a study."""
ROUNDS_MIN = 3
"""Before the first look."""
FIRST_SHARE = 0.6


def alpha_at(look: int, looks: int | None) -> float:
    """What the look (from 1) may spend. `looks`: how many there are where that was fixed beforehand, 1 for a study without a budget; None where
    the budget decides."""
    if looks == 1:
        return ALPHA
    return ALPHA * FIRST_SHARE * (1.0 - FIRST_SHARE) ** (look - 1)
