"""Studies whose truth is known: cells on starts of variants, round by round, with whatever makes real machines hard to judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from streamgauge.inference.samples import Measured, Sample
from streamgauge.inference.study import Observed


@dataclass(frozen=True)
class World:
    """How figures vary: standard deviations of logarithms."""

    noise: float = 0.1
    """From trial to trial."""
    starts: float = 0.0
    """From start to start of a variant."""
    rounds: float = 0.1
    """From round to round, of all that is in one."""
    ar: float = 0.0
    """Lag-1 autocorrelation of the noise, from trial to trial in the order in which they run."""
    tails: bool = False
    """Noise with heavy tails: Student's t with 3 degrees of freedom."""
    drift: float = 0.0
    """By how much figures rise in the course of the study."""
    uneven: float = 0.0
    """Cells differ in their noise: standard deviation of its logarithm."""


WORLDS = {
    "plain": World(),
    "starts differ": World(starts=0.15),
    "AR 0.5": World(ar=0.5, starts=0.05),
    "AR 0.8": World(ar=0.8, starts=0.05),
    "heavy tails": World(tails=True, starts=0.05),
    "drift": World(drift=0.5, starts=0.05),
    "uneven cells": World(uneven=0.4, starts=0.05),
    "all at once": World(starts=0.1, ar=0.5, tails=True, drift=0.3, uneven=0.3),
}


def measured(
    world: World,
    truth: Mapping[str, float],
    variants: Sequence[Sequence[str]],
    rounds: int,
    random: np.random.Generator,
    *,
    one_start: bool = False,
) -> dict[str, list[Measured]]:
    """What a study measures. `truth`: cell -> its median. `variants`: cells of each, run on one start a round in random order. `one_start`: an old design, in
    which all rounds of a variant follow each other on one start."""
    count = sum(map(len, variants))
    steps = (
        random.standard_t(3, count * rounds) / np.sqrt(3)
        if world.tails
        else random.standard_normal(count * rounds)
    )
    series = np.empty(count * rounds)
    before = random.standard_normal()
    for at, step in enumerate(steps):
        before = world.ar * before + np.sqrt(1 - world.ar**2) * step
        series[at] = before
    spread = {cell: np.exp(world.uneven * random.standard_normal()) for cells in variants for cell in cells}
    found: dict[str, list[Measured]] = {cell: [] for cells in variants for cell in cells}
    shared = world.rounds * random.standard_normal(rounds)
    order = [(number, place) for number in range(rounds) for place in random.permutation(len(variants))]
    if one_start:
        order = [(number, place) for place in random.permutation(len(variants)) for number in range(rounds)]
    kept = world.starts * random.standard_normal(len(variants))
    at = 0
    for number, place in order:
        start = kept[place] if one_start else world.starts * random.standard_normal()
        for cell in random.permutation(list(variants[place])):
            log = np.log(truth[cell]) + start + shared[number] + world.noise * spread[cell] * series[at]
            log += world.drift * at / (count * rounds)
            name = f"{place}" if one_start else f"{place} in {number}"
            found[str(cell)].append(Measured(float(np.exp(log)), number + 1, name))
            at += 1
    return found


def observed(found: Mapping[str, Sequence[Measured]], looks: tuple[int, ...] = ()) -> Observed:
    """As the judge takes it."""
    return Observed(
        lambda cell, _figure: Sample(tuple(found[cell])), lambda _cell, _figure: None, tuple(found), looks
    )
