"""`warmup: auto`: how long it takes until the load is steady.

The last WINDOW intervals are looked at, whenever somebody asks: publish rate, publish p50 and p99, and the worker's CPU. The load is
steady when none of the four drifts, swings or jumps (analysis/steadiness.py), and when the later half of the window is at the level of
the earlier one: ten intervals are too few for a test to notice a slow drift, and what it does not notice must at least be small.

A JVM that has just been started takes all of a small machine for half a minute or more, and is steady all that time, at several times
the latency that it has once its compilers are done. So these must be done, too, of a system that the lab has started.
"""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np

from streamgauge.analysis import steadiness
from streamgauge.model.messages import Interval
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.model.result_base import Headline
from streamgauge.vocabulary.format import trimmed

WINDOW = 10
"""Intervals."""
COMPILING_WINDOW = 5
COMPILING_MAX = 0.1
"""Cores. Compilers at work take 0.2 to 0.6 of one on two cores, and afterwards a hundredth."""
UNITS = {"publish_rate": "msg/s", "cpu": "cores"}
"""The others are latencies."""


class WarmUp:
    """The intervals of a warm-up, and whether they have become steady."""

    def __init__(self) -> None:
        self._seen: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self._compiled: deque[tuple[float, float]] = deque(maxlen=COMPILING_WINDOW + 1)
        self._headline: Headline = "publish"
        self._explanation: str | None = None
        """Made when somebody asks: nobody does once the warm-up is over."""

    def add(self, interval: Interval) -> None:
        """One more interval."""
        self._explanation = None
        self._headline = interval.headline
        publish = interval.latency(self._headline)
        unknown = float("nan")
        self._seen.append(
            {
                "publish_rate": interval.acked_msgs / interval.duration_s if interval.duration_s else unknown,
                "p50": publish.p50_ns / NS_PER_MS if publish and publish.p50_ns is not None else unknown,
                "p99": publish.p99_ns / NS_PER_MS if publish and publish.p99_ns is not None else unknown,
            }
        )
        if interval.cpu_s is not None:
            # Workers that are not ours and run elsewhere do not tell it.
            self._seen[-1]["cpu"] = interval.cpu_s / interval.duration_s if interval.duration_s else unknown

    def compiled(self, at_s: float, cpu_s: float) -> None:
        """What the system's compilers have used by now (compilers.py)."""
        self._explanation = None
        self._compiled.append((at_s, cpu_s))

    @property
    def _compiling(self) -> float:
        """Cores. A compiler that has ended takes its seconds with it: what goes down is left out."""
        if len(self._compiled) < 2:
            return 0.0
        used = sum(max(now - before, 0.0) for (_, before), (_, now) in itertools.pairwise(self._compiled))
        return used / max(self._compiled[-1][0] - self._compiled[0][0], 1e-9)

    @property
    def explanation(self) -> str:
        """Why it is not steady yet; empty when it is."""
        if self._explanation is None:
            self._explanation = self._problem()
        return self._explanation

    def _problem(self) -> str:
        if len(self._seen) < WINDOW:
            return f"fewer than {WINDOW} intervals were seen"
        if self._compiling > COMPILING_MAX:
            return f"the system's compilers take {self._compiling:.2f} of a core"
        series = {
            f"{self._headline}_{name}" if name in ("p50", "p99") else name: np.array(
                [one[name] for one in self._seen]
            )
            for name in self._seen[-1]
            if all(name in one for one in self._seen)
        }
        for name, values in series.items():
            known = values[~np.isnan(values)]
            if len(known) < WINDOW:
                return f"no {steadiness.KINDS[name].title} in some of the last {WINDOW} intervals"
            before, after = float(np.median(values[: WINDOW // 2])), float(np.median(values[WINDOW // 2 :]))
            allowed = steadiness.KINDS[name].swing_min
            if abs(after - before) > allowed * max(before, 1e-12):
                return (
                    f"the {steadiness.KINDS[name].title} went from {trimmed(before, 4)} to {trimmed(after, 4)} "
                    f"{UNITS.get(name, 'ms')} within the last {WINDOW} intervals"
                )
        judged = steadiness.judge(series, float(np.median(series["publish_rate"])))
        return "" if judged.label == "steady" else judged.explanation
