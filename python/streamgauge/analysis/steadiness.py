"""Was the trial in a steady state? Judged on the 1 s series of the measured phase.

Each series (publish rate, publish p50 and p99, CPU) is asked three questions, in this order:

1. *Does it drift?* The Theil-Sen slope is the median of the slopes between all pairs of intervals, so single
   spikes do not move it (Theil 1950, Sen 1968). METHOD: a slope under 0.1 % of the level per interval is
   flat. A slope estimated from noise is rarely exactly 0, so a drift is only called one when the whole 99 %
   confidence interval of the slope lies beyond 0.1 %: four series are asked, and at 95 % one healthy trial in
   six would be accused. Neighbours resemble each other, which makes the interval wider (Hamed and Rao 1998).
2. *Does it go round in circles?* Either one frequency holds more of the periodogram of the detrended ranks
   than chance explains (Fisher's g-test, p < 0.001), or the series resembles itself one and two periods later
   (autocorrelation: spikes that come back). The window must hold three whole periods, and the swing must be
   large enough to matter.
3. *Does it jump about?* The middle 80 % of the intervals spread wider than the series' bound, or the rate
   fell below half of its level in any interval. The bound for rates grows with the counting noise of few
   messages (three standard deviations of a Poisson count).

The label is that of the worst answer; `steady` is what remains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamgauge.inference import distributions
from streamgauge.model.result import Steadiness
from streamgauge.vocabulary.format import plural, signed, trimmed

Values = npt.NDArray[np.float64]

INTERVALS_MIN = 10
SLOPE_PERCENT_MAX = 0.1
CONFIDENCE = 0.99
CYCLE_CHANCE_MAX = 0.001
CYCLE_PERIODS_MIN = 3
CYCLE_AUTOCORRELATION_MIN = 0.3
PULSE_AUTOCORRELATION_MIN = 0.5
PULSE_DEVIATIONS = 12.0
COLLAPSE_SHARE = 0.5
PAIRS_INTERVALS_MAX = 2000
"""Theil-Sen compares all pairs; longer series are averaged down to this many points first (2 million pairs).
"""


@dataclass(frozen=True)
class Kind:
    """What is normal for a series."""

    title: str
    spread_max: float
    """Width of the middle 80 % over the median beyond which the series jumps about."""
    swing_min: float
    """Peak-to-peak of a cycle over the median below which it does not matter."""


KINDS: dict[str, Kind] = {
    "publish_rate": Kind("publish rate", 0.10, 0.02),
    "publish_p50": Kind("publish p50", 1.0, 0.2),
    "publish_p99": Kind("publish p99", 4.0, 0.5),
    "service_p50": Kind("service p50", 1.0, 0.2),
    "service_p99": Kind("service p99", 4.0, 0.5),
    "cpu": Kind("CPU", 0.5, 0.2),
}


@dataclass(frozen=True)
class Finding:
    """What one series answered."""

    label: Literal["steady", "drifting", "cyclic", "unsteady"]
    explanation: str
    slope_percent: float


def judge(series: Mapping[str, Values], events_per_interval: float | None = None) -> Steadiness:
    """Labels a trial by its series (names: KINDS; one value per interval, NaN where unknown).

    `events_per_interval` is the number of messages in a typical interval, for the counting noise of the rate.
    """
    usable = {name: _known(values) for name, values in series.items() if name in KINDS}
    usable = {name: values for name, values in usable.items() if len(values)}
    length = max((len(values) for values in usable.values()), default=0)
    if length < INTERVALS_MIN:
        return Steadiness(
            label="too short",
            explanation=(
                f"{plural(length, 'interval')} measured; at least {INTERVALS_MIN} are needed to "
                "tell a trend from noise."
            ),
        )
    findings = {
        name: examine(name, values, events_per_interval)
        for name, values in usable.items()
        if len(values) >= INTERVALS_MIN and float(np.median(values)) > 0
    }
    slopes = {name: round(finding.slope_percent, 4) for name, finding in findings.items()}
    for label in ("drifting", "cyclic", "unsteady"):
        sentences = [finding.explanation for finding in findings.values() if finding.label == label]
        if sentences:
            return Steadiness(
                label=label, explanation=" ".join(sentences), slopes_percent_per_interval=slopes
            )
    return Steadiness(
        label="steady",
        explanation=f"No drift, cycle or jump shows in the {length} intervals.",
        slopes_percent_per_interval=slopes,
    )


def examine(name: str, values: Values, events_per_interval: float | None = None) -> Finding:
    """Asks one series (no NaN, at least INTERVALS_MIN values, median above 0) the three questions of the
    module.
    """
    kind = KINDS[name]
    level = float(np.median(values))
    slope, low, high = (100.0 * value / level for value in slope_per_interval(values))
    if low > SLOPE_PERCENT_MAX or high < -SLOPE_PERCENT_MAX:
        direction = "rises" if slope > 0 else "falls"
        sentence = (
            f"The {kind.title} {direction} by {trimmed(abs(slope), 2)} % of its level per interval "
            f"(99 % interval {signed(low, 2)} to {signed(high, 2)} %)."
        )
        return Finding("drifting", sentence, slope)
    period = cycle(values, kind.swing_min * level)
    if period is not None:
        return Finding(
            "cyclic", f"The {kind.title} swings with a period of about {trimmed(period, 2)} intervals.", slope
        )
    jump = _jump(name, kind, values, level, events_per_interval)
    if jump:
        return Finding("unsteady", jump, slope)
    return Finding("steady", "", slope)


def slope_per_interval(values: Values) -> tuple[float, float, float]:
    """Theil-Sen slope with its 99 % confidence interval (slope, low, high), in units of the values per
    interval.
    """
    chunk = math.ceil(len(values) / PAIRS_INTERVALS_MAX)
    if chunk > 1:
        whole = len(values) // chunk * chunk
        values = values[:whole].reshape(-1, chunk).mean(axis=1)
    slope, low, high = distributions.theil_sen(values, CONFIDENCE, dependent=True)
    return slope / chunk, low / chunk, high / chunk


def cycle(values: Values, swing_min: float) -> float | None:
    """Period in intervals of a cycle that chance does not explain and that swings by at least `swing_min`;
    else None.
    """
    trend = slope_per_interval(values)[0]
    detrended = np.asarray(values - trend * np.arange(len(values)), dtype=np.float64)
    period = _wave(detrended) or _pulse(detrended)
    if period is None:
        return None
    lag = round(period)
    folded = [float(np.median(detrended[phase::lag])) for phase in range(lag)]
    return period if max(folded) - min(folded) >= swing_min else None


def _wave(detrended: Values) -> float | None:
    """A smooth cycle: one frequency of the periodogram of the ranks holds more than chance explains.

    Fisher (1929), Tests of significance in harmonic analysis: g is the largest share of the periodogram that
    one of m frequencies holds; P(g > x) <= m (1 - x)^(m - 1).
    """
    length = len(detrended)
    ranks = distributions.ranks(detrended)
    power = np.abs(np.fft.rfft(ranks - ranks.mean()))[1 : (length - 1) // 2 + 1] ** 2
    if len(power) < CYCLE_PERIODS_MIN or power.sum() == 0:
        return None
    strongest = int(np.argmax(power))
    share = float(power[strongest] / power.sum())
    chance = len(power) * (1.0 - share) ** (len(power) - 1)
    periods = strongest + 1
    if chance >= CYCLE_CHANCE_MAX or periods < CYCLE_PERIODS_MIN:
        return None
    period = length / periods
    return period if _autocorrelation(ranks, round(period)) >= CYCLE_AUTOCORRELATION_MIN else None


def _pulse(detrended: Values) -> float | None:
    """Spikes that come back: their power lies on many frequencies, but the series resembles itself one and
    two periods later.

    Values far out are pulled in first, so that the size of one spike does not decide. The bound is 3.3
    standard deviations of the autocorrelation of noise (1 / sqrt of the number of pairs).
    """
    median = float(np.median(detrended))
    deviation = float(np.median(np.abs(detrended - median))) or 1e-300
    inside = np.clip(detrended, median - PULSE_DEVIATIONS * deviation, median + PULSE_DEVIATIONS * deviation)
    for lag in range(2, len(inside) // CYCLE_PERIODS_MIN + 1):
        bound = max(PULSE_AUTOCORRELATION_MIN, 3.3 / math.sqrt(len(inside) - lag))
        if (
            _autocorrelation(inside, lag) > bound
            and _autocorrelation(inside, 2 * lag) > PULSE_AUTOCORRELATION_MIN
        ):
            return float(lag)
    return None


def _autocorrelation(values: Values, lag: int) -> float:
    centred = values - values.mean()
    energy = float(np.dot(centred, centred))
    if lag < 1 or lag >= len(values) or energy == 0:
        return 0.0
    # Divided by the number of pairs, so that a long lag is not weakened by its fewer pairs.
    return float(np.dot(centred[:-lag], centred[lag:])) / (len(values) - lag) / (energy / len(values))


def _jump(name: str, kind: Kind, values: Values, level: float, events: float | None) -> str | None:
    if name == "publish_rate":
        collapsed = int(np.count_nonzero(values < COLLAPSE_SHARE * level))
        noise = 3.0 / math.sqrt(events) if events else 0.0
        if collapsed and noise < COLLAPSE_SHARE:
            return f"The publish rate fell below half of its level in {collapsed} of {plural(len(values), 'interval')}."
        bound = kind.spread_max + noise
    else:
        bound = kind.spread_max
    spread = float(np.subtract(*np.percentile(values, [90, 10]))) / level
    if spread <= bound:
        return None
    return (
        f"The {kind.title} jumps about: the middle 80 % of its intervals spread over "
        f"{100 * spread:.0f} % of its level."
    )


def _known(values: Values) -> Values:
    return np.asarray(values[~np.isnan(values)], dtype=np.float64)
