"""How busy each thread of the generator was while the system was measured."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.analysis.intervals import Row, Window
from streamgauge.model.result_machine import Lane


@dataclass(frozen=True)
class LaneUse:
    """A thread and its share of one core's time, 0 to 1."""

    worker: str
    name: str
    busy_share: float


def lane_use(lanes: Sequence[Lane], counters: Sequence[Row], window: Window, load_s: float) -> list[LaneUse]:
    """Of each lane, its CPU time in the window by the time that its worker's intervals there last: neither the warm-up nor the drain dilutes it.

    `counters`: rows of role worker (column `lanes_cpu_s`), whose lanes are in the order of `lanes`. Tables of before that column have the CPU time of the
    whole trial alone: it is divided by `load_s`, the time of all intervals. Raises ValueError for a column that holds no list of numbers.
    """
    spent: dict[str, npt.NDArray[np.float64]] = {}
    seconds: dict[str, float] = defaultdict(float)
    for row in counters:
        if window.holds(row) and row["lanes_cpu_s"] is not None:
            worker, told = str(row["worker"]), _numbers(row["lanes_cpu_s"])
            before = spent.get(worker)
            spent[worker] = told if before is None or len(before) != len(told) else before + told
            seconds[worker] += float(row["duration_s"])
    place: dict[str, int] = defaultdict(int)
    found = []
    for lane in lanes:
        at, place[lane.worker] = place[lane.worker], place[lane.worker] + 1
        mine = spent.get(lane.worker)
        if mine is not None and at < len(mine) and seconds[lane.worker] > 0:
            share = float(mine[at]) / seconds[lane.worker]
        else:
            share = lane.cpu_s / load_s if load_s > 0 else 0.0
        found.append(LaneUse(lane.worker, lane.name, min(max(share, 0.0), 1.0)))
    return found


def _numbers(text: str) -> npt.NDArray[np.float64]:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, list) or not all(isinstance(one, int | float) for one in told):
        raise ValueError(f"lanes_cpu_s is {text[:40]!r}; expected a list of seconds")
    return np.array(told, dtype=np.float64)
