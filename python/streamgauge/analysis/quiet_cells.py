"""What is known of a latency over the trials of a cell: its figure, or the bounds between which it lies where no trial's figure stands."""

from __future__ import annotations

import math
import statistics

from streamgauge.analysis.cells import Cell, of_all
from streamgauge.analysis.quiet_bounds import Told
from streamgauge.analysis.quiet_compare import Beside, beside
from streamgauge.analysis.quiet_limits import Z
from streamgauge.analysis.quiet_measured import told_of
from streamgauge.inference.experience import spread_of
from streamgauge.model.result import TrialResult
from streamgauge.vocabulary.figures import STANDING, figure

SPREAD_MAX = 0.6
"""A trial that knows less of itself than a factor of 3 either way is too short to say how little."""


def told(cell: Cell, name: str) -> Told | None:
    """`name`: of a latency's percentile, as `publish_ms.p99`. Bounds are the widest of the trials that are not invalid; None where any of them knows
    nothing of it."""
    found = [_told(trial, name) for trial in cell.trials if not trial.validity.is_invalid]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    values = [one.value for one in known if one.value is not None]
    highs = [one.at_most for one in known if one.at_most is not None]
    return Told(
        statistics.median(values) if len(values) == len(known) else None,
        min(one.at_least for one in known),
        max(highs) if len(highs) == len(known) else None,
        next((one.why for one in known if one.value is None), ""),
    )


def bounds_beside(base: Cell, other: Cell, name: str) -> Beside | None:
    """`other` against `base` where a side has no figure, but both have bounds, or one has a figure; else None."""
    a, b = (told(side, name) or _unwatched(side, name) for side in (base, other))
    if a is None or b is None or (a.value is not None and b.value is not None):
        return None
    return beside(a, b, share(base), share(other))


def _unwatched(cell: Cell, name: str) -> Told | None:
    """A figure of trials of which nothing else is known: how well, nobody can say."""
    values = of_all(cell.valid, lambda trial: figure(trial, name))
    return (
        Told(statistics.median(values), 0.0, None) if values and name.partition(".")[0] in STANDING else None
    )


def prior_spread(name: str, *sides: Cell) -> float:
    """The spread between trials that experience expects of a figure; what is not known well within the trials cannot be known better between them."""
    paced = sides[0].first.workload.rate_msgs_s is not None
    within = math.sqrt(statistics.fmean(_within_spread(side, name) ** 2 for side in sides))
    return max(spread_of(name, paced=paced), within)


def _within_spread(cell: Cell, name: str) -> float:
    """How well a trial knows a figure itself: the standard deviation of its logarithm, by the 95 % interval over its stretches of time; of the trials the
    median. 0 where nothing is known of it."""
    found = [_told(trial, name) for trial in cell.valid]
    spreads = [spread for one in found if one is not None and (spread := _spread(one)) is not None]
    return statistics.median(spreads) if spreads else 0.0


def _spread(figure: Told) -> float | None:
    """By half of the interval's width; an end that is open is as far away as the other."""
    if figure.value is None or figure.value <= 0:
        return None
    sides = [bound for bound in (figure.at_least, figure.at_most) if bound is not None and bound > 0]
    return (
        min(statistics.fmean(abs(math.log(figure.value / bound)) for bound in sides) / Z, SPREAD_MAX)
        if sides
        else None
    )


def share(cell: Cell) -> float:
    """Of the measured time, how much was disturbed: the mean over trials that were watched."""
    found = [trial.quiet.disturbed_share for trial in cell.trials if trial.quiet is not None]
    known = [one for one in found if one is not None]
    return statistics.fmean(known) if known else 0.0


def _told(trial: TrialResult, name: str) -> Told | None:
    latency, _, percentile = name.partition(".")
    figure = trial.bounded(latency, percentile) if latency in STANDING else None
    return None if figure is None or percentile == "mean" else told_of(figure)
