"""How a disturbance moves a figure: analysis of covariance over the trials of a study.

Figures of quiet time leave out when a CPU was not to be had, and not that the rest was slower, too: caches are cold, a core's other thread is busy, a system
near its limit is still behind. So the logarithm of a figure rises with the share of the time that was taken away, and roughly alike in all cells: for
medians by 1 to 2 per unit, so that one that lost a tenth of its time is 10 to 20 % higher. Two cells are compared as if nothing had been taken from either.

The slope is told by the trials themselves, by how those of one cell and those of one start differ from each other: neither a start that is slow, and is taken
more from as it has more to do, nor a cell that is heavier, is taken for a slope. Its error is the larger of what independent trials would have and of what
trials of one cell, with a slope of their own, have (Liang and Zeger 1986).

Liang, K.-Y. and Zeger, S. L. (1986), Longitudinal data analysis using generalized linear models, Biometrika 73, 13-22.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FREEDOM_MIN = 6
"""With fewer degrees of freedom, beside cells and starts, there is no slope: its error would count for more than what it explains."""
TAKEN_MIN = 0.003
"""Standard deviation of the shares, beside what cells and starts have in common: below, nothing differs that could be told by it."""
SLOPES_APART = 0.4
"""Standard deviation of cells' own slopes, over the slope of all: 0.3 to 0.4 in the studies it was found in (docs/method.md)."""
SLOPES_FREEDOM = 12.0
"""How many cells that was."""


@dataclass(frozen=True)
class Met:
    """A trial's logarithm of a figure, and how much it was disturbed."""

    cell: str
    start: tuple[int, int]
    """Its round and start."""
    taken: float
    """Share of its time in which a CPU was not to be had."""
    log: float


@dataclass(frozen=True)
class Slope:
    """By how much a figure's logarithm rises with the share that was taken."""

    value: float = 0.0
    error: float = 0.0
    """Its standard error."""
    freedom: float = 1.0
    """Degrees of freedom of that."""
    inflation: float = 1.0
    """What a variance that is found after it was taken out must be multiplied by: it was chosen to make them small."""


@dataclass(frozen=True)
class Remainder:
    """What is not known of what was taken out of the difference of two cells: variances."""

    slope: float
    """Of the slope."""
    own: float
    """Of each cell's own: more rounds do not tell it."""


def remainder_of(slopes: tuple[Slope, Slope], taken: Sequence[float]) -> Remainder:
    """Of two cells, each with the slope of its figure and the mean share of its time that was taken."""
    one, other = slopes
    # Of one figure it is one slope, and its error is that of the difference.
    errors = (
        [one.error * (taken[0] - taken[1])]
        if one is other
        else [slope.error * share for slope, share in zip(slopes, taken, strict=True)]
    )
    # A slope that was found to be small by chance has not made cells' own ones small.
    own = [
        SLOPES_APART * math.hypot(slope.value, slope.error) * share
        for slope, share in zip(slopes, taken, strict=True)
    ]
    return Remainder(math.fsum(error**2 for error in errors), math.fsum(one**2 for one in own))


def together(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each with its own (Satterthwaite 1946)."""
    known = [(variance, freedom) for variance, freedom in parts if variance > 0]
    if not known:
        return parts[0][1]
    total = sum(variance for variance, _ in known)
    return total**2 / sum(variance**2 / freedom for variance, freedom in known)


NONE = Slope()


def slope_of(trials: Sequence[Met]) -> Slope:
    """The slope that all cells have in common; NONE where too little tells it."""
    if len(trials) < FREEDOM_MIN:
        return NONE
    cells = {cell: at for at, cell in enumerate(dict.fromkeys(one.cell for one in trials))}
    starts = {start: at for at, start in enumerate(dict.fromkeys(one.start for one in trials))}
    both = np.array([[one.taken, one.log] for one in trials])
    if len(trials) * both[:, 0].var() < FREEDOM_MIN * TAKEN_MIN**2:
        return NONE
    common = np.zeros((len(trials), len(cells) + len(starts)))
    for row, one in zip(common, trials, strict=True):
        row[cells[one.cell]] = row[len(cells) + starts[one.start]] = 1.0
    fitted, _, rank, _ = np.linalg.lstsq(common, both, rcond=None)
    freedom = len(trials) - int(rank)
    shares, logs = (both - common @ fitted).T
    square = float(shares @ shares)
    if freedom < FREEDOM_MIN or square < freedom * TAKEN_MIN**2:
        return NONE
    value = float(shares @ logs) / square
    left = logs - value * shares
    independent = float(left @ left) / (freedom - 1) * square
    of_cells = np.zeros(len(cells))
    np.add.at(of_cells, [cells[one.cell] for one in trials], shares * left)
    clustered = float(of_cells @ of_cells) * len(cells) / (len(cells) - 1)
    return Slope(
        value,
        math.sqrt(max(independent, clustered)) / square,
        float(min(freedom, len(cells)) - 1),
        freedom / (freedom - 1),
    )
