"""Where the level of a series changes: within a trial, and over runs.

Change points are found by PELT (Killick, Fearnhead and Eckley 2012; the `ruptures` library) on logarithms, which finds the segmentation with the least
squared error plus a penalty for each change. The noise is taken from the differences of neighbours, which a change of level hardly touches, and single
values far out are pulled in first: a spike is no change.

A history is looked at again with every run. With HISTORY_CAUTION less than one of 365 nights of noise alone raises an alarm (simulated in
tests/test_inference_errors.py, also for noise with heavy tails or an autocorrelation of 0.5).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.inference import distributions

Values = npt.NDArray[np.float64]

POINTS_MAX = 1000
"""Longer series are averaged down to this many points first: hours of 1 s intervals show their changes by then, too."""
CLIP_DEVIATIONS = 6.0
PENALTY = 4.0
"""Times the logarithm of the length, times the variance of the noise."""
SHORT = 25.0
"""A short series tells little of its own noise: the penalty is higher by this number over the length. Chosen so that noise alone shows a
change in about 1 of 20 series of 6 values, and in fewer of longer ones (simulated)."""
STRETCHES_MIN = 10
HISTORY_CAUTION = 1.5
"""Of what is looked at again and again."""
FALSE_ALARMS_PER_YEAR = 1
"""At most, of one figure that is measured and looked at every night."""


@dataclass(frozen=True)
class Change:
    """From `at` on (an index of the series) the level is another."""

    at: int
    before: float
    after: float
    """Medians of the stretches before and after."""


def changes(
    values: Values, *, smallest: int = 5, at_least: float = 0.0, caution: float = 1.0
) -> list[Change]:
    """Where the level of a series changes for at least `smallest` values, by at least the share `at_least`. Values above 0, no NaN. `caution`: how much
    surer than in a single look a change has to be."""
    import ruptures

    step = max(1, math.ceil(len(values) / POINTS_MAX))
    series = logarithms(averaged(values, step))
    if len(series) < 2 * smallest or _noise(series) == 0:
        return []
    scaled = (series / _noise(series)).reshape(-1, 1)
    cut = ruptures.KernelCPD(kernel="linear", min_size=smallest).fit(scaled)
    penalty = caution * PENALTY * math.log(len(series)) * (1.0 + SHORT / len(series))
    found = [0, *cut.predict(pen=penalty)]
    stretches = [values[begin * step : end * step] for begin, end in itertools.pairwise(found)]
    levels = [float(np.median(stretch)) for stretch in stretches]
    return [
        Change(at * step, before, after)
        for at, before, after in zip(found[1:-1], levels, levels[1:], strict=False)
        if abs(after / before - 1.0) >= at_least
    ]


def averaged(values: Values, step: int) -> Values:
    """Means of so many values each; what is left over is left out."""
    whole = len(values) // step * step
    return np.asarray(values[:whole].reshape(-1, step).mean(axis=1), dtype=np.float64)


def logarithms(values: Values) -> Values:
    """Logarithms, with values far out pulled in."""
    logs = np.log(np.maximum(values, 1e-12))
    middle, spread = float(np.median(logs)), distributions.deviation(logs)
    if spread == 0:
        return logs
    return np.clip(logs, middle - CLIP_DEVIATIONS * spread, middle + CLIP_DEVIATIONS * spread)


def _noise(series: Values) -> float:
    """Standard deviation of the noise, from the differences of neighbours. Where neighbours resemble each other, the differences of
    whole stretches tell how far their means wander: what a change has to stand out from."""
    found = _of_differences(series)
    for stretch in (5, 10, 20):
        if len(series) >= STRETCHES_MIN * stretch:
            found = max(found, math.sqrt(stretch) * _of_differences(averaged(series, stretch)))
    return found


def _of_differences(series: Values) -> float:
    differences = np.diff(series)
    spread = distributions.deviation(differences)
    return (spread if spread > 0 else float(differences.std())) / math.sqrt(2.0)
