"""A rate that this machine can carry: found while the load warms up, so that the system and the workers use about so much of the CPU that is theirs to have.

What others use and what the host takes is not to be had. The rate is brought down, or up again but never above the one that was asked for, until the use lies
near the share; a JVM needs less after half a minute than at its start, so the last word is the last stretch's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamgauge.model.messages import Interval

STRETCH = 5
"""Intervals over which the use is taken."""
FIRST_LOOK = 10
"""Intervals before the first look: a system that has just begun is busy with itself."""
NEAR = (0.8, 1.2)
"""Of the share: nearer than that is near enough."""
STEP_MAX = 3.0
RATE_MSGS_S_MIN = 500.0
CHANGES_MAX = 8
KEPT_UP_MIN = 0.95
"""Of the rate: with less acknowledged the system is at its limit, whatever it uses."""
OURS = ("system", "worker")
THEIRS = ("others", "lab")


class Pace:
    """Watches what a load uses, and says at which rate it should go on."""

    def __init__(
        self, share: float, rate_msgs_s: float, cores: int, set_rate: Callable[[str, float], None]
    ) -> None:
        """`share`: of the CPU that can be had. `rate_msgs_s`: with which the load begins; it never becomes higher. `set_rate`: changes that of a worker's
        trial."""
        self.set_rate = set_rate
        self._share = share
        self._asked_msgs_s = self.rate_msgs_s = rate_msgs_s
        self._cores = cores
        self._left = FIRST_LOOK
        self._changes = 0
        self._used: deque[tuple[float, float]] = deque(maxlen=STRETCH)
        self._acked_msgs: deque[float] = deque(maxlen=STRETCH)
        self.found = False
        """Whether the rate is settled."""

    def see(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Resources of an interval (RESOURCE_COLUMNS)."""
        cpu = {"ours": 0.0, "theirs": 0.0}
        duration_s = 0.0
        for row in rows:
            scope, used_s = row["scope"], float(row.get("cpu_s") or 0.0)
            duration_s = max(duration_s, float(row["duration_s"]) if scope == "host" else 0.0)
            cpu["ours"] += used_s if scope in OURS else 0.0
            cpu["theirs"] += (used_s if scope in THEIRS else 0.0) + (
                float(row.get("steal_s") or 0.0) if scope == "host" else 0.0
            )
        if duration_s > 0:
            self._used.append((cpu["ours"] / duration_s, cpu["theirs"] / duration_s))

    def after(self, interval: Interval) -> float | None:
        """One more interval of the load is over: the rate to go on with, in msg/s; None to go on as it is."""
        if interval.duration_s > 0:
            self._acked_msgs.append(interval.acked_msgs / interval.duration_s)
        self._left -= 1
        if self.found or self._left > 0 or len(self._used) < STRETCH:
            return None
        use = self._use()
        wanted = self.rate_msgs_s / STEP_MAX if use is None else self.rate_msgs_s * self._share / use
        wanted = min(max(wanted, self.rate_msgs_s / STEP_MAX), self.rate_msgs_s * STEP_MAX)
        wanted = _round(min(max(wanted, RATE_MSGS_S_MIN), self._asked_msgs_s))
        near = use is not None and NEAR[0] <= use / self._share <= NEAR[1]
        if near or wanted == self.rate_msgs_s or self._changes >= CHANGES_MAX:
            self.found = True
            return None
        self._changes += 1
        self.rate_msgs_s = wanted
        # The first interval still works off what was before.
        self._left = STRETCH + 1
        self._used.clear()
        self._acked_msgs.clear()
        return wanted

    def _use(self) -> float | None:
        """Share of the CPU that can be had; None where the system did not keep up."""
        acked = sorted(self._acked_msgs)[len(self._acked_msgs) // 2] if self._acked_msgs else 0.0
        if acked < KEPT_UP_MIN * self.rate_msgs_s:
            return None
        ours = sum(one for one, _ in self._used) / len(self._used)
        theirs = sum(one for _, one in self._used) / len(self._used)
        return max(ours, 1e-3) / max(self._cores - theirs, 0.1 * self._cores)


def _round(rate_msgs_s: float) -> float:
    """To two digits: it is said, and typed again."""
    unit = 10.0 ** (math.floor(math.log10(rate_msgs_s)) - 1)
    return round(rate_msgs_s / unit) * unit
