"""What faults made on purpose did to a trial: gaps, recovery, latencies before, during and after."""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamgauge.analysis.acks import Acks
from streamgauge.analysis.catch_up import phase_figures
from streamgauge.analysis.intervals import Intervals, Window
from streamgauge.model.result_base import PhaseFigures
from streamgauge.model.result_special import Fault, Faults

BEFORE, DURING, AFTER = "before", "during", "after"


def faults(
    intervals: Intervals, done: Sequence[Fault], acks: Acks, window: Window, rate_msgs_s: float | None
) -> Faults | None:
    """None where no fault was made. `window` is the measured one; `rate_msgs_s` that of a schedule."""
    if not done:
        return None
    first_s, end_s = done[0].from_s, window.until_s
    usual = acks.rate_msgs_s(window.from_s, first_s)
    gap = acks.gap(first_s, end_s)
    back_s = acks.rate_back(_end_of_last_gap(done, acks, end_s), end_s, usual)
    caught_up_s = acks.caught_up(first_s, end_s, rate_msgs_s, window.from_s) if rate_msgs_s else None
    return Faults(
        faults=[_one(fault, following, acks, usual, end_s) for fault, following in _with_next(done, end_s)],
        resolution_s=acks.resolution_s(),
        unavailable_s=gap[1] - gap[0] if gap else 0.0,
        recovered_s=None if back_s is None else back_s - first_s,
        caught_up_s=None if caught_up_s is None else caught_up_s - first_s,
        phases=_phases(intervals, window, first_s, caught_up_s or back_s, rate_msgs_s),
    )


def _end_of_last_gap(done: Sequence[Fault], acks: Acks, end_s: float) -> float:
    """The latest end of a fault's longest gap: from there on the rate is looked for."""
    ends = [fault.done_s for fault in done]
    for fault, following_s in _with_next(done, end_s):
        gap = acks.gap(fault.from_s, following_s)
        if gap is not None:
            ends.append(gap[1])
    return max(ends)


def _with_next(done: Sequence[Fault], end_s: float) -> list[tuple[Fault, float]]:
    """Each fault with the time of the next one, or the end."""
    following = [fault.from_s for fault in done[1:]] + [end_s]
    return list(zip(done, following, strict=True))


def _one(fault: Fault, following_s: float, acks: Acks, usual: float, end_s: float) -> Fault:
    gap = acks.gap(fault.from_s, following_s)
    # A gap that the next fault has not ended, as kill's is ended by restart, belongs to both.
    after_gap_s = max(fault.done_s, gap[1]) if gap else fault.done_s
    back_s = acks.rate_back(after_gap_s if gap and gap[1] > fault.done_s else fault.done_s, end_s, usual)
    if back_s is not None and back_s > following_s:
        back_s = None
    return fault.model_copy(
        update={
            "gap_s": None if gap is None else gap[1] - gap[0],
            "rate_back_s": None if back_s is None else back_s - fault.from_s,
        }
    )


def _phases(
    intervals: Intervals, window: Window, first_s: float, whole_s: float | None, rate_msgs_s: float | None
) -> list[PhaseFigures]:
    """Before, during and after at whole intervals."""
    begin_s = max(window.from_s, float(math.floor(first_s)))
    until_s = window.until_s if whole_s is None else min(window.until_s, float(math.ceil(whole_s)))
    bounds = ((BEFORE, window.from_s, begin_s), (DURING, begin_s, until_s), (AFTER, until_s, window.until_s))
    return [
        phase_figures(intervals.within(Window(from_s, to_s)), name, Window(from_s, to_s), rate_msgs_s, None)
        for name, from_s, to_s in bounds
        if to_s > from_s
    ]
