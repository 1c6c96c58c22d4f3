"""A system that has just started is busy with itself; its start is no part of the figures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from streamgauge.runner.observer import Observer

SETTLE_WITHIN_S = 10.0
SETTLE_SHARE = 0.15
"""The system is settled when all its processes together use less than this share of one core for as long as is looked."""
LOOK_S, LOOK_KEPT_S = 1.0, 0.5
"""One that has just started loads its classes in fits and starts; one that the trial before has left has come to rest, or not."""


def settle(name: str, pids: Sequence[int], observer: Observer, look_s: float) -> bool:
    """Waits until the processes have come to rest; False when they had not within SETTLE_WITHIN_S."""
    deadline_s = time.monotonic() + SETTLE_WITHIN_S
    before_s = _cpu_s(pids)
    while time.monotonic() < deadline_s:
        began_s = time.monotonic()
        time.sleep(look_s)
        spent_s = _cpu_s(pids)
        share = (spent_s - before_s) / (time.monotonic() - began_s)
        if share < SETTLE_SHARE:
            return True
        observer.progress(f"{name} still uses {100 * share:.0f} % of a core")
        before_s = spent_s
    return False


def _cpu_s(pids: Sequence[int]) -> float:
    """CPU that processes have used so far."""
    import psutil

    total_s = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            spent = psutil.Process(pid).cpu_times()
            total_s += spent.user + spent.system
    return total_s
