"""How long a run goes on: what its loads take, and for what starts and stops take what they have taken so far."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

OVERHEAD_S = 15.0
"""What a trial takes beyond its load, until one has shown it."""


class TimeLeft:
    """Is told when trials begin and end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._load_s = 0.0
        self._overheads_s: list[float] = []

    def trial_started(self, load_s: float) -> None:
        """A trial begins whose load takes so long."""
        self._began_s, self._load_s = self._clock(), load_s

    def trial_ended(self) -> None:
        """It has ended: what it took beyond its load is known."""
        self._overheads_s.append(max(0.0, self._clock() - self._began_s - self._load_s))

    def left_s(self, loads_s: Sequence[float]) -> float:
        """How long trials with such loads take."""
        each_s = statistics.fmean(self._overheads_s) if self._overheads_s else OVERHEAD_S
        return sum(loads_s) + each_s * len(loads_s)
