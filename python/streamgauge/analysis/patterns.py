"""What a series does over time: levels that change, and spikes that come back.

*Change points* are found by PELT (Killick, Fearnhead and Eckley 2012; the `ruptures` library) on logarithms, which finds the segmentation with the least
squared error plus a penalty for each change. The noise is taken from the differences of neighbours, which a change of level hardly touches, and
single values far out are pulled in first: a spike is no change.

*Periods*: the series is folded at every period that could be, and the one is taken whose folds are most alike (analysis of variance over the phases,
Schwarzenberg-Czerny 1989). Unlike a periodogram this finds narrow spikes, whose power lies on many frequencies, as well as waves. The shortest
period that explains nearly as much as the best is the period: a fold at twice the period is alike, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.inference import distributions
from streamgauge.model.result_reasons import Pattern

Values = npt.NDArray[np.float64]

SMALLEST = {
    "publish_rate": 0.02,
    **{f"{metric}_ms_{figure}": 0.1 for metric in ("publish", "service") for figure in ("p50", "p99", "max")},
}
"""Series that are looked at, and the smallest change (or swing) that matters, as a share of the level."""
INTERVALS_MIN = 20
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
"""Of what is looked at again with every run: with it less than one of 365 nights of noise alone raises an alarm (simulated in tests/test_statistics.py, also
for noise with heavy tails or an autocorrelation of 0.5)."""
FALSE_ALARMS_PER_YEAR = 1
"""At most, of one figure that is measured and looked at every night."""
PERIODS_MIN = 3
PERIOD_INTERVALS_MIN = 4
PHASES_MAX = 12
OVERSAMPLING = 8
CHANCE_MAX = 0.001
AUTOCORRELATION_MIN = 0.2
HARMONIC_SHARE = 0.9


@dataclass(frozen=True)
class Change:
    """From `at` on (an index of the series) the level is another."""

    at: int
    before: float
    after: float
    """Medians of the stretches before and after."""


@dataclass(frozen=True)
class Period:
    """Something that comes back."""

    intervals: float
    """The period, in intervals of the series."""
    share: float
    """Share of the series' variation that it explains."""
    swing: float
    """The highest phase over the lowest one, as a ratio."""


def changes(
    values: Values, *, smallest: int = 5, at_least: float = 0.0, caution: float = 1.0
) -> list[Change]:
    """Where the level of a series changes for at least `smallest` values, by at least the share `at_least`. Values above 0, no NaN. `caution`: how much
    surer than in a single look a change has to be."""
    import ruptures

    step = max(1, math.ceil(len(values) / POINTS_MAX))
    series = _logarithms(_averaged(values, step))
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


def period(values: Values) -> Period | None:
    """The period of what comes back in a series (values above 0, no NaN); None where chance explains it."""
    step = max(1, math.ceil(len(values) / POINTS_MAX))
    series = _logarithms(_averaged(values, step))
    length = len(series)
    if length < PERIODS_MIN * PERIOD_INTERVALS_MIN or float(np.ptp(series)) == 0:
        return None
    axis = np.arange(length)
    series = series - np.polyval(np.polyfit(axis, series, 1), axis)
    frequencies = np.arange(PERIODS_MIN / length, 1.0 / PERIOD_INTERVALS_MIN, 1.0 / (OVERSAMPLING * length))
    explained, chances = _folds(series, frequencies)
    # So many periods were tried; neighbouring ones are not different questions.
    corrected = chances * len(frequencies) / OVERSAMPLING
    best = int(np.argmin(chances))
    if corrected[best] >= CHANCE_MAX:
        return None
    place = _fundamental(series, frequencies, explained, corrected, best)
    if place is None:
        return None
    best, lag = place, 1.0 / float(frequencies[place])
    folded = _phases(series, float(frequencies[best]))
    return Period(lag * step, float(explained[best]), math.exp(float(folded.max() - folded.min())))


def _folds(series: Values, frequencies: Values) -> tuple[Values, Values]:
    """For each frequency the share of the variance that lies between the phases, and the chance of as much in noise."""
    length, mean = len(series), float(series.mean())
    total = float(np.sum((series - mean) ** 2))
    explained, counts = np.zeros(len(frequencies)), np.full(len(frequencies), 2)
    for at, frequency in enumerate(frequencies):
        count = _phase_count(frequency)
        places = _places(length, frequency, count)
        members = np.bincount(places, minlength=count)
        if members.min() < 2:
            continue
        sums = np.bincount(places, weights=series - mean, minlength=count)
        explained[at], counts[at] = float(np.sum(sums**2 / members)) / total, count
    within = np.maximum(1.0 - explained, 1e-12)
    chances = distributions.f_above(
        (explained / (counts - 1)) / (within / (length - counts)), counts - 1, length - counts
    )
    return explained, chances


def _fundamental(
    series: Values, frequencies: Values, explained: Values, corrected: Values, best: int
) -> int | None:
    """The highest multiple (or simple fraction) of the frequency that explains nearly as much, and a period after which the series
    resembles itself; None when there is none."""
    for multiple in (6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1 / 2, 1 / 3):
        wanted = multiple * float(frequencies[best])
        near = np.flatnonzero(np.abs(frequencies / wanted - 1.0) < 0.05)
        if len(near):
            candidate = int(near[np.argmax(explained[near])])
            is_good = explained[candidate] >= HARMONIC_SHARE * explained[best] or multiple < 1.0
            resembles = _alike(series, round(1.0 / float(frequencies[candidate]))) >= AUTOCORRELATION_MIN
            if is_good and resembles and corrected[candidate] < CHANCE_MAX:
                return candidate
    return None


def _phase_count(frequency: float) -> int:
    return int(min(PHASES_MAX, max(2, 1.0 / frequency)))


def _places(length: int, frequency: float, count: int) -> npt.NDArray[np.int64]:
    return np.minimum((np.arange(length) * frequency % 1.0 * count).astype(np.int64), count - 1)


def _phases(series: Values, frequency: float) -> Values:
    count = _phase_count(frequency)
    places = _places(len(series), frequency, count)
    return np.array([series[places == phase].mean() for phase in range(count)])


def _alike(series: Values, lag: int) -> float:
    """How much the series resembles itself a period later; spikes move by an interval, so the best of three lags counts."""
    found = [
        float(np.corrcoef(series[:-one], series[one:])[0, 1])
        for one in (lag - 1, lag, lag + 1)
        if 0 < one < len(series) - 2
    ]
    return max(found, default=0.0)


def _averaged(values: Values, step: int) -> Values:
    whole = len(values) // step * step
    return np.asarray(values[:whole].reshape(-1, step).mean(axis=1), dtype=np.float64)


def _logarithms(values: Values) -> Values:
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
            found = max(found, math.sqrt(stretch) * _of_differences(_averaged(series, stretch)))
    return found


def _of_differences(series: Values) -> float:
    differences = np.diff(series)
    spread = distributions.deviation(differences)
    return (spread if spread > 0 else float(differences.std())) / math.sqrt(2.0)


def find(series: Mapping[str, Values], start_s: Values) -> list[Pattern]:
    """What the series of a measured phase do (names: SMALLEST), one value per interval, NaN where nothing is known. `start_s`: where each
    interval begins on the schedule's axis."""
    found: list[Pattern] = []
    for name, smallest in SMALLEST.items():
        if name not in series:
            continue
        values = known(series[name])
        if len(values) < INTERVALS_MIN:
            continue
        interval_s = float(np.median(np.diff(start_s)))
        found += [
            Pattern(
                kind="change",
                series=name,
                at_s=round(float(start_s[one.at]), 3),
                before=one.before,
                after=one.after,
            )
            for one in changes(values, at_least=smallest)
        ]
        comes_back = period(values)
        if comes_back is not None and comes_back.swing >= 1.0 + smallest:
            found.append(
                Pattern(
                    kind="period",
                    series=name,
                    period_s=round(comes_back.intervals * interval_s, 2),
                    swing=comes_back.swing,
                    share=comes_back.share,
                )
            )
    return found


def known(values: Values) -> Values:
    """Gaps filled with the value before them, so that the axis stays even; an empty array where nothing is known."""
    present = np.flatnonzero(~np.isnan(values) & (values > 0))
    if not len(present):
        return np.array([], dtype=np.float64)
    nearest = np.searchsorted(present, np.arange(len(values)), side="right") - 1
    return np.asarray(values[present[np.maximum(nearest, 0)]], dtype=np.float64)
