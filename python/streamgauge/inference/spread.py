"""How much a figure varies from trial to trial, moderated: three values tell little of their own spread, and what else was measured tells a lot.

As in Smyth (2004) each variance is taken to be drawn from a distribution about s0^2 worth d0 degrees of freedom, and what is estimated of it is squeezed
towards that: (d0 s0^2 + d s^2) / (d0 + d) with d0 + d degrees of freedom. Both are learnt from the study's own cells (`learn`). Smyth's estimate of d0
takes many variances; with the few of a study, some that vary as is usual are mixed in (EXPECTED). Where there are too few to learn anything, the values
speak for themselves.

A gate or a comparison has no other cells to learn from, and often one trial: experience (SPREADS of one machine) stands in. Then a variance is never taken
for smaller than the values themselves show.

Smyth, G. K. (2004), Linear models and empirical Bayes methods for assessing differential expression in microarray experiments, Stat. Appl. Genet. Mol.
Biol. 3(1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.inference import distributions

MEDIAN_SPREAD, MEAN_SPREAD, TAIL_SPREAD, RATE_SPREAD = 0.07, 0.10, 0.33, 0.02
"""Standard deviations of the logarithm between trials of one cell, as found on a virtual machine of 2 cores (docs/method.md)."""
PRIOR_FREEDOM = 6.0
"""What experience is worth in a gate or a comparison, which would otherwise have nothing to go by."""
START_SHARE = 1.0
"""Variance between starts (or runs) over variance between trials of one. What was found is about 0 (every trial started its system fresh), but from one
hour of one machine; this is the cautious end: runs that vary as much as the trials within them are called different no more often than is said."""
LEARN_MIN = 5
"""Fewer variances tell nothing of how variances vary."""
EXPECTED = 4
"""So many variances that vary as is usual are mixed in with those that were found."""
USUAL_FREEDOM = 4.0
"""What a prior is usually worth: variances of cells differ by a factor of 2 to 3."""
FREEDOM_MAX = 5.0
"""However alike the variances are: that the next one is like them is never sure."""
OTHERS_SHARE = 0.33
"""With these four, intervals of 3 to 5 values err in 4.5 to 6.3 of 100 cases, whether variances are all the same or differ by a factor of 10 (simulated)."""
SMALLEST = 1e-6
"""Variances below it are differences within a bucket of a histogram."""


@dataclass(frozen=True)
class Prior:
    """What is known of a variance before the values are looked at."""

    variance: float
    freedom: float
    learnt: bool
    """From the study's own cells; else it is experience."""

    def moderate(self, variance: float, freedom: float) -> tuple[float, float]:
        """Variance and degrees of freedom with what the values themselves show (nothing: 0 degrees of freedom)."""
        together = self.freedom + freedom
        found = (self.freedom * self.variance + freedom * variance) / together
        return (found if self.learnt or not freedom else max(found, variance)), together


def spread_of(figure: str, *, paced: bool) -> float:
    """What experience says of the spread between trials of a figure. `paced`: its rate was set, and not what the system takes."""
    last = figure.rpartition(".")[2]
    if last.endswith(("_msgs_s", "_mb_s")) or last == "achieved_share":
        return RATE_SPREAD if paced else MEAN_SPREAD
    if last == "p50":
        return MEDIAN_SPREAD
    if last == "mean" or figure.startswith("cpu.") or last == "write_amplification":
        return MEAN_SPREAD
    return TAIL_SPREAD


def learn(variances: Sequence[tuple[float, float]]) -> Prior | None:
    """From variances with their degrees of freedom (above 0); None where they are too few."""
    if len(variances) < LEARN_MIN:
        return None
    found = [(max(variance, SMALLEST), freedom) for variance, freedom in variances]
    logs = [math.log(one) - _log_bias(freedom) for one, freedom in found]
    middle = sum(logs) / len(logs)
    noise = sum(distributions.trigamma(freedom / 2.0) for _, freedom in found) / len(found)
    usual = noise + distributions.trigamma(USUAL_FREEDOM / 2.0)
    apart = (sum((one - middle) ** 2 for one in logs) + EXPECTED * usual) / (len(logs) - 1 + EXPECTED)
    freedom = _freedom_of(apart - noise)
    # What was estimated of few values is worth less than half of what the others have.
    total = sum(one for _, one in found)
    freedom = min(freedom, OTHERS_SHARE * (total - total / len(found)))
    return Prior(math.exp(middle + _log_bias(freedom)), freedom, learnt=True)


def _log_bias(freedom: float) -> float:
    """By how much the logarithm of an estimated variance is, in the mean, off that of the variance."""
    return distributions.digamma(freedom / 2.0) - math.log(freedom / 2.0)


def _freedom_of(excess: float) -> float:
    """The degrees of freedom whose trigamma is `excess`: how much variances vary beyond what their estimation explains."""
    if excess <= distributions.trigamma(FREEDOM_MAX / 2.0):
        return FREEDOM_MAX
    low, high = 0.1, FREEDOM_MAX
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if distributions.trigamma(middle / 2.0) > excess else (low, middle)
    return high
