"""What is known of a latency over the trials of a cell: its figure, or the bounds between which it lies where no trial's figure stands."""

from __future__ import annotations

import statistics

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.quiet_bounds import Told
from streamgauge.analysis.quiet_compare import Beside, beside
from streamgauge.analysis.quiet_measured import told_of
from streamgauge.model.result import TrialResult


def told(cell: Cell, name: str) -> Told | None:
    """`name`: of a latency's percentile, as `publish_ms.p99`. Bounds are the widest of the trials that are not invalid; None where any of them knows
    nothing of it."""
    found = [_told(trial, name) for trial in cell.trials if trial.validity.called != "invalid"]
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
    """`other` against `base` where a side has no figure, but both have bounds; else None."""
    a, b = told(base, name), told(other, name)
    if a is None or b is None or (a.value is not None and b.value is not None):
        return None
    return beside(a, b, share(base), share(other))


def share(cell: Cell) -> float:
    """Of the measured time, how much was disturbed: the mean over trials that were watched."""
    found = [trial.quiet.disturbed_share for trial in cell.trials if trial.quiet is not None]
    known = [one for one in found if one is not None]
    return statistics.fmean(known) if known else 0.0


def _told(trial: TrialResult, name: str) -> Told | None:
    latency, _, percentile = name.partition(".")
    quiet = getattr(trial.quiet, latency, None)
    figure = None if quiet is None else quiet.figures().get(percentile)
    return None if figure is None or percentile == "mean" else told_of(figure)
