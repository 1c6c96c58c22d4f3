"""How much repeats differ: variances of few repeats, squeezed towards what like ones have in common.

A variance from three rounds is as often as not off by half. Those of one study resemble each other, so each one is taken for a draw from a common distribution,
s0^2 d0 / chi^2(d0), whose place and width are estimated from all of them; with it an own variance s^2 of d degrees of freedom becomes (d0 s0^2 + d s^2) / (d0 +
d), with d0 + d degrees of freedom. Where all are alike d0 is large and they are pooled; where they are not it is small and each speaks for itself.

The place differs between groups (a system that syncs to disk repeats itself less well than one that does not), as far as the variances show it: the mean of a
group is squeezed towards that of all in turn, and what is not known of it makes d0 smaller.

Smyth, G. K. (2004), Linear models and empirical Bayes methods for assessing differential expression in microarray experiments, Stat. Appl. Genet. Mol. Biol.
3(1), section 6.2. Law, C. W. et al. (2014), voom, Genome Biology 15, R29: a place that follows what is known of the variance.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

CELLS_MIN = 4
"""With fewer there is no telling how much they have in common."""
FREEDOM_MAX = 20.0
"""Of what they have in common: a dozen cells do not tell more."""
GROUPS_SPARE_MIN = 4
"""So many more variances than groups are needed to tell how far those of a group lie apart."""


@dataclass(frozen=True)
class Common:
    """What the variances of several cells have in common."""

    variance: float
    freedom: float
    """How much it counts."""

    def moderate(self, variance: float, freedom: float, *, doubtful: bool = False) -> tuple[float, float]:
        """An own variance with so many degrees of freedom, moderated: variance and degrees of freedom. `doubtful`: where it is larger, what others have in
        common counts for less, and lowers nothing."""
        if doubtful and variance > self.variance:
            return variance, self.freedom * (self.variance / variance) ** 2 + freedom
        total = self.freedom + freedom
        return (self.freedom * self.variance + freedom * variance) / total, total


@dataclass(frozen=True)
class Own:
    """A variance as it was found."""

    group: Hashable
    variance: float
    freedom: float


def common(found: Sequence[Own], fallback: Common, alike: float = 1.0) -> dict[Hashable, Common]:
    """What they have in common, by group. `fallback`: experience, where there are too few, or none that vary. `alike`: by how much variances of a group are
    nearer to each other than independent ones, as they share what they are made of."""
    known = [one for one in found if one.variance > 0 and one.freedom > 0]
    groups = dict.fromkeys(one.group for one in found)
    if len(known) < CELLS_MIN:
        return dict.fromkeys(groups, fallback)
    free = np.array([one.freedom for one in known])
    logs = np.log([one.variance for one in known]) - special.digamma(free / 2) + np.log(free / 2)
    sampling = float(_trigamma(free / 2).mean())
    of = {group: [at for at, one in enumerate(known) if one.group == group] for group in groups}
    places = {group: float(logs[at].mean()) for group, at in of.items() if at}
    within = sum(float(((logs[of[group]] - place) ** 2).sum()) for group, place in places.items())
    spare = len(known) - len(places)
    # Of groups of one it is not known how far their members lie apart.
    scatter = alike * within / spare if spare >= GROUPS_SPARE_MIN else alike * float(logs.var(ddof=1))
    middle = float(logs.mean())
    between = _between([(place, len(of[group])) for group, place in places.items()], scatter)
    told = {}
    for group, at in of.items():
        error = scatter / len(at) if at else math.inf
        share = between / (between + error) if between > 0 and at else 0.0
        place = middle + share * (places[group] - middle) if at else middle
        # What is not known of the group's place is part of how far its members may lie from it.
        unknown = between * (1.0 - share)
        told[group] = _common(place, scatter + unknown - sampling, float(free.sum()))
    return told


def highest(own: Own) -> float:
    """What a variance is at most, in 95 of 100 cases; infinite where nothing was found."""
    if own.freedom <= 0:
        return math.inf
    return own.variance * own.freedom / float(special.chdtri(own.freedom, 0.95))


def _common(place: float, beyond: float, freedom_max: float) -> Common:
    freedom = FREEDOM_MAX if beyond <= 0 else min(2.0 * _trigamma_inverse(beyond), FREEDOM_MAX)
    variance = math.exp(place + special.digamma(freedom / 2) - math.log(freedom / 2))
    return Common(variance, min(freedom, freedom_max))


def _between(groups: Sequence[tuple[float, int]], scatter: float) -> float:
    """Variance between the groups' places, beyond what their own scatter explains. Each with its mean and size."""
    if len(groups) < 2:
        return 0.0
    means = np.array([mean for mean, _ in groups])
    return max(float(means.var(ddof=1)) - scatter * float(np.mean([1.0 / size for _, size in groups])), 0.0)


def _trigamma_inverse(value: float) -> float:
    """The x at which the trigamma function has this value (Newton's method on its reciprocal, as in Smyth's appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        third = float(_trigamma(x))
        step = third * (1.0 - third / value) / (-2.0 * float(special.zeta(3.0, x)))
        x += step
        if abs(step / x) < 1e-8:
            break
    return x


def _trigamma(x: Any) -> Any:
    """As Hurwitz's zeta function, which is what scipy's polygamma computes it by, ten times as slowly."""
    return special.zeta(2.0, x)
