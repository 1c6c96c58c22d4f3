"""How much repeats differ: variances of few repeats, squeezed towards what all cells have in common.

A variance from three rounds is as often as not off by half. Cells of one study resemble each other, so each one's variance is taken for a draw from a common
distribution, s0^2 d0 / chi^2(d0), whose place and width are estimated from all of them; with it a cell's own variance s^2 of d degrees of freedom becomes (d0
s0^2 + d s^2) / (d0 + d), with d0 + d degrees of freedom. Where all are alike d0 is large and they are pooled; where they are not it is small and each speaks
for itself.

Smyth, G. K. (2004), Linear models and empirical Bayes methods for assessing differential expression in microarray experiments, Stat. Appl. Genet. Mol. Biol.
3(1), section 6.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

CELLS_MIN = 4
"""With fewer there is no telling how much they have in common."""
FREEDOM_MAX = 20.0
"""Of what they have in common: a dozen cells do not tell more."""


@dataclass(frozen=True)
class Common:
    """What the variances of several cells have in common."""

    variance: float
    freedom: float
    """How much it counts."""

    def moderate(self, variance: float, freedom: float) -> tuple[float, float]:
        """One cell's own variance with so many degrees of freedom, moderated: variance and degrees of freedom."""
        total = self.freedom + freedom
        return (self.freedom * self.variance + freedom * variance) / total, total


def common(variances: Sequence[float], freedoms: Sequence[float], fallback: Common) -> Common:
    """From the cells' own. `fallback`: experience, where there are too few cells, or none that vary."""
    known = [(s, d) for s, d in zip(variances, freedoms, strict=True) if s > 0 and d > 0]
    if len(known) < CELLS_MIN:
        return fallback
    own, free = (np.array(column) for column in zip(*known, strict=True))
    logs = np.log(own) - special.digamma(free / 2) + np.log(free / 2)
    middle = float(logs.mean())
    beyond = float(logs.var(ddof=1) - special.polygamma(1, free / 2).mean())
    freedom = FREEDOM_MAX if beyond <= 0 else min(2.0 * _trigamma_inverse(beyond), FREEDOM_MAX)
    variance = math.exp(middle + special.digamma(freedom / 2) - math.log(freedom / 2))
    return Common(variance, min(freedom, float(free.sum())))


def _trigamma_inverse(value: float) -> float:
    """The x at which the trigamma function has this value (Newton's method on its reciprocal, as in Smyth's appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        third = float(special.polygamma(1, x))
        step = third * (1.0 - third / value) / float(special.polygamma(2, x))
        x += step
        if abs(step / x) < 1e-8:
            break
    return x
