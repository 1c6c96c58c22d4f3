"""What is known of the spread of figures before anything is measured, and independent sides judged by it and by what their trials show.

A figure of repeats differs by factors, so its logarithm is taken for normal, and the number that is tested is the mean of the logarithms, or the difference of
two such means. Its spread is that of the trials, moderated by experience: with one trial there is nothing else to go by, with three the trials' own standard
deviation is as often as not off by half. As in Smyth (2004) experience counts as PRIOR_FREEDOM degrees of freedom; unlike there it never lowers what the
trials show, and counts for less where they contradict it. On top comes what all trials of a run have in common and another run of the same has not
(RUN_SHARE): repeating within a run cannot reduce it, and without it two runs of the same would differ the more surely the longer they are. Sides of one run
have met the same hour of the machine.

Smyth, G. K. (2004), Linear models and empirical Bayes methods for assessing differential expression in microarray experiments, Stat. Appl. Genet. Mol.
Biol. 3(1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from streamgauge.inference.number import Number

MEDIAN_SPREAD, MEAN_SPREAD, TAIL_SPREAD, RATE_SPREAD = 0.07, 0.10, 0.33, 0.02
"""Standard deviations of the logarithm between trials of one cell, as found on a virtual machine of 2 cores (docs/method.md)."""
PRIOR_FREEDOM = 6
QUIETEST = 0.01
"""Experience never counts for less than where trials have so many times its variance."""
RUN_SHARE = 0.75
"""Variance between runs over variance between trials of a run. What was found is about 0 (every trial starts its system fresh), but from one hour of one
machine. With this share, runs that vary as much as the trials within them are called different in at most 5 of 100 comparisons (tests/test_gates.py)."""


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


def number_of(
    other: Sequence[float], base: Sequence[float] | None, prior: float, *, one_run: bool = False
) -> Number:
    """A figure by the values of its trials or, with `base`, its ratio to those. All values are above 0. `prior`: the spread by experience. `one_run`: both
    sides were measured side by side in one run."""
    sides = [[math.log(value) for value in side] for side in (other, base) if side is not None]
    spread, freedom = _moderated(sides, prior)
    return Number(
        statistics.fmean(sides[0]) - (statistics.fmean(sides[1]) if base is not None else 0.0),
        spread,
        tuple(len(side) for side in sides),
        freedom,
        fixed=0.0 if one_run else RUN_SHARE * len(sides) * spread**2,
    )


def load_against(figure: str, other: Sequence[float], base: Sequence[float]) -> Number:
    """Other over base, where each is a single load, told second by second (values above 0). Seconds of a load resemble each other, so however many there are,
    they are one value: it spreads as experience says, or as the seconds do where that is more."""
    logs = [[math.log(value) for value in side] for side in (other, base)]
    prior = max(spread_of(figure, paced=True), *(statistics.pstdev(side) for side in logs))
    means = [[math.exp(statistics.fmean(side))] for side in logs]
    return number_of(means[0], means[1], prior)


def _moderated(sides: Sequence[Sequence[float]], prior: float) -> tuple[float, float]:
    """Spread and degrees of freedom."""
    own = float(sum(len(side) - 1 for side in sides))
    if not own:
        return prior, float(PRIOR_FREEDOM)
    variance = sum((value - statistics.fmean(side)) ** 2 for side in sides for value in side) / own
    counts = PRIOR_FREEDOM * _agreement(variance / prior**2)
    if variance > prior**2:
        return math.sqrt(variance), counts + own
    return math.sqrt((counts * prior**2 + own * variance) / (counts + own)), counts + own


def _agreement(ratio: float) -> float:
    """How much experience counts where the trials' variance is so many times what it expects. Trials that are noisier refute it soon; a few that are quieter
    may be so by chance, or by the width of a histogram's bucket."""
    return ratio**-1.5 if ratio > 1.0 else math.sqrt(max(ratio, QUIETEST))
