"""Looking more than once: how much of the error each look may spend.

A study looks at its claims after rounds that were settled beforehand and stops measuring what is decided. Who looks five times at 5 % errs in 14 of 100
cases. So the error is spent (Lan and DeMets 1983): after n rounds no more than the share `spent(n)` of it is gone, whatever the number of looks. The share
rises to 1 and never reaches it: a study that is resumed with more rounds has something left to spend, and need not have been planned so long. The level of
a look follows from those before it (Armitage, McPherson and Rowe 1969): the score's distribution is carried from look to look on a grid, without what was
decided already.

Levels are those of a normal score with independent increments and are applied to Student's t, which errs a little more than it says with few degrees of
freedom; what is never spent is more than that (simulated in tests/test_inference_errors.py).

Armitage, P., McPherson, C. K. and Rowe, B. C. (1969), Repeated significance tests on accumulating data, J. R. Stat. Soc. A 132, 235-244. Lan, K. K. G. and
DeMets, D. L. (1983), Discrete sequential boundaries for clinical trials, Biometrika 70, 659-663.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from streamgauge.inference import distributions

ERROR = 0.05
"""So often at most any claim of a study is decided wrongly, any figure of a comparison, any gate of a command."""
ROUNDS_MIN = 3
"""Nothing is decided by fewer."""
EASE = 1.5
"""The share 1 - (2 / n) ** EASE of the error is gone after n rounds: 46 % after 3, 81 % after 6, 88 % after 8. Of 0.7 to 3 it decides most, and soonest, in
three to eight rounds (simulated)."""
GRID = 301
REACH = 10.0
"""No score is further from 0 than so many of its standard deviations."""
BISECTIONS = 40
ERRORS = np.geomspace(1e-7, 0.8, 12)
"""For which the levels of looks are computed. Between them they are interpolated: in logarithms the relation is nearly a straight line."""


def spent(rounds: int) -> float:
    """Share of the error that may be gone after so many rounds."""
    return 1.0 - math.pow(2.0 / rounds, EASE)


@functools.cache
def levels(looks: tuple[int, ...], error: float) -> tuple[float, ...]:
    """Two-sided level of each look (after so many rounds; rising, ROUNDS_MIN at least), so that all of them together err no more often than `error`."""
    found: list[float] = []
    points, mass = np.array([0.0]), np.array([1.0])
    before, gone = 0, 0.0
    for rounds in looks:
        step = math.sqrt(rounds - before)
        allowed = error * spent(rounds) - gone
        low, high = 0.0, REACH * math.sqrt(rounds)
        for _ in range(BISECTIONS):
            edge = (low + high) / 2.0
            beyond = distributions.normal_above((edge - points) / step)
            beyond += distributions.normal_above((edge + points) / step)
            low, high = (edge, high) if float(mass @ beyond) > allowed else (low, edge)
        found.append(2.0 * float(distributions.normal_above(np.array([high / math.sqrt(rounds)]))[0]))
        grid = np.linspace(-high, high, GRID)
        weights = np.full(GRID, grid[1] - grid[0])
        weights[[0, -1]] /= 2.0
        kernel = np.exp(-0.5 * ((grid[:, None] - points[None, :]) / step) ** 2)
        mass = (kernel @ mass) * weights / (step * math.sqrt(2.0 * math.pi))
        points, before, gone = grid, rounds, error * spent(rounds)
    return tuple(found)


def level(looks: tuple[int, ...]) -> float:
    """Two-sided level of the last look; all of ERROR where there is but one judgement (no looks)."""
    return levels(looks, ERROR)[-1] if looks else ERROR


def over_all_looks(chance: float, looks: tuple[int, ...]) -> float:
    """From a two-sided p-value of the last look to the error of all looks at which it would just decide: what Holm's correction may take."""
    if not looks or chance <= 0.0:
        return chance
    of_look = np.log([levels(looks, float(error))[-1] for error in ERRORS])
    log, errors = math.log(chance), np.log(ERRORS)
    if log >= of_look[-1]:
        return 1.0
    if log <= of_look[0]:
        return math.exp(log + float(errors[0] - of_look[0]))
    return math.exp(float(np.interp(log, of_look, errors)))


def level_for(error: float, looks: tuple[int, ...]) -> float:
    """The other way round: the two-sided level of the last look at which all looks err as often as `error`."""
    return levels(looks, error)[-1] if looks else error
