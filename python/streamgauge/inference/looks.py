"""When a study looks at its claims, and how much of its error each look may spend.

A study with a budget looks after its first rounds and after every further one, and stops asking what is decided. Each look is a chance to be wrong, so that
what may be wrong in all is divided among them beforehand, by the number of rounds alone: after n rounds 0.9 (1 - (2 / n)^1.5) of it is spent, 41 % at the
first look, 58 % by the second, 67 % by the third, and never more than 90 %, however often a study is taken up again (Lan and DeMets 1983).

A look has seen what the looks before it have seen: whoever was nearly wrong then is likely to be wrong now, and that costs nothing twice. So a look may
decide at more than its own share: at the level at which the chance to be wrong here *and at no look before* is its share, where the sum over n rounds is n
steps of a random walk (Armitage, McPherson and Rowe 1969). Levels are of p-values, which tests of few degrees of freedom keep but for some hundredths
(Jennison and Turnbull 2000, chapter 4.4): the last tenth is kept for that. tests/test_inference.py holds it against studies whose truth is known.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import special

ALPHA = 0.05
"""Over all looks and, with Holm's correction, all claims of a study."""
ROUNDS_MIN = 3
"""Before the first look."""
SPENT_MAX = 0.9
"""Of the error, over all looks that there may ever be."""
LEVELS = np.geomspace(1e-9, 0.5, 18)
"""At these the looks are computed; between them their logarithms lie on lines."""
GRID = 161
"""Points of the walk that has not crossed yet."""

Row = npt.NDArray[np.float64]


def spent(rounds: int) -> float:
    """The share of the error that is spent after so many rounds."""
    return SPENT_MAX * (1.0 - math.pow(2.0 / rounds, 1.5))


def told(chance: float, rounds: int) -> float:
    """What a two-sided p-value is worth that was found at the look after so many rounds: the error over all looks at which this one would just decide."""
    levels, nominal = np.log(LEVELS), np.log(_nominal(rounds))
    if chance <= 0.0:
        return 0.0
    found = math.log(chance)
    if found < nominal[0] or found > nominal[-1]:
        end = 0 if found < nominal[0] else -1
        return min(1.0, math.exp(found + float(levels[end] - nominal[end])))
    return float(np.exp(np.interp(found, nominal, levels)))


def level(error: float, rounds: int) -> float:
    """The two-sided p-value at which the look after so many rounds decides, where so much error may be made over all looks."""
    nominal = np.log(_nominal(rounds))
    return float(np.exp(np.interp(math.log(error), np.log(LEVELS), nominal)))


@functools.cache
def _nominal(rounds: int) -> Row:
    """The levels of a look, for LEVELS."""
    return np.array([_walk(float(error), rounds)[0] for error in LEVELS])


@functools.cache
def _walk(error: float, rounds: int) -> tuple[float, Row, Row]:
    """The level of a look that spends its share, and where the walk is after it that has not crossed: places and their density."""
    if rounds <= ROUNDS_MIN:
        first = error * spent(ROUNDS_MIN)
        edge = float(-special.ndtri(first / 2.0)) * math.sqrt(ROUNDS_MIN)
        places = np.linspace(-edge, edge, GRID)
        density = np.exp(-(places**2) / (2.0 * ROUNDS_MIN)) / math.sqrt(2.0 * math.pi * ROUNDS_MIN)
        return first, places, density
    _, before, density = _walk(error, rounds - 1)
    weights = density * _weights(before)
    edge = _edge(before, weights, error * (spent(rounds) - spent(rounds - 1)), math.sqrt(rounds))
    places = np.linspace(-edge, edge, GRID)
    steps = np.exp(-((places[:, None] - before[None, :]) ** 2) / 2.0) / math.sqrt(2.0 * math.pi)
    return 2.0 * float(special.ndtr(-edge / math.sqrt(rounds))), places, steps @ weights


def _weights(places: Row) -> Row:
    """Of the trapezoidal rule."""
    width = places[1] - places[0]
    weights = np.full(len(places), width)
    weights[[0, -1]] = width / 2.0
    return weights


def _edge(places: Row, weights: Row, share: float, deviation: float) -> float:
    """How far out the walk must be after one more step so that it gets there, from where it has not crossed yet, with this probability."""
    low, high = 0.0, 12.0 * deviation
    for _ in range(60):
        middle = (low + high) / 2.0
        beyond = special.ndtr(places - middle) + special.ndtr(-places - middle)
        low, high = (middle, high) if float(weights @ beyond) > share else (low, middle)
    return high
