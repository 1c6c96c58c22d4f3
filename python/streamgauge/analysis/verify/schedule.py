"""How many messages were due when, computed again from rate, arrivals and seed.

Theory: a message leaves when L(t), the integral of the rate, reaches its place u (crates/gauge-load/src/pacing.rs). So the number due before T is the number of
places below L(T): with equal gaps i + stagger, in bursts the burst's first place, for Poisson arrivals the sums of exponential gaps that the producer's seed
draws. That seed is mixed from the trial's seed, the run's name, the trial's number and the producer's: arrivals of another seed, trial or run are others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.seeds import run_mark
from streamgauge.store.context import TrialContext

EDGE = 1e-6
"""Of a message: sums of doubles are not the same to the last digit everywhere."""
DRAWN_MAX = 200_000_000
PIECE = 1 << 20
_WORD = (1 << 64) - 1
_STEP, _MIX = np.uint64(0x2D358DCCAA6C78A5), np.uint64(0x8BB84B93962EACC9)
"""Constants of WyRand, final version 4 (wyhash, as in the crate fastrand 2)."""


@dataclass(frozen=True)
class Segment:
    """A stretch in which the rate is linear."""

    from_s: float
    due: float
    """L at its beginning."""
    rate: float
    slope: float

    def due_by(self, at_s: float) -> float:
        """L."""
        x = at_s - self.from_s
        return self.due + (self.rate + 0.5 * self.slope * x) * x


class Schedule:
    """The arrivals of a trial."""

    def __init__(self, workload: WorkloadResult, rate_msgs_s: float, *, seed: int, mark: int) -> None:
        """`mark`: see `model.seeds.run_mark`."""
        self._producers = workload.topics * workload.producers_per_topic
        self._arrival = workload.arrival
        self._burst = max(int(workload.extra.get("burst_msgs") or 1), 1)
        self._segments = _segments(workload, rate_msgs_s)
        self._seeds = [_producer_seed(seed, mark, number) for number in range(self._producers)]
        self._drawn: list[npt.NDArray[np.float64]] | None = None

    def due(self, at_s: float) -> tuple[int, int]:
        """The fewest and the most messages that were due before a time: they differ where one is due just then."""
        reached = self.most(at_s) / max(self._producers, 1)
        pairs = [self._of(number, reached) for number in range(self._producers)]
        return sum(low for low, _ in pairs), sum(high for _, high in pairs)

    def most(self, until_s: float) -> float:
        """About how many are due until then."""
        # Of those that begin at one time the last one holds.
        segment = next((one for one in reversed(self._segments) if one.from_s <= until_s), self._segments[0])
        return max(segment.due_by(until_s), 0.0)

    def draw(self, until_s: float) -> None:
        """Draws the places of Poisson arrivals until then, which takes time and memory for each."""
        if self._arrival != "poisson":
            return
        reached = self.most(until_s) / self._producers
        self._drawn = [_places(seed, reached + 1.0) for seed in self._seeds]

    def _of(self, producer: int, reached: float) -> tuple[int, int]:
        low, high = reached - EDGE, reached + EDGE
        if self._arrival == "poisson":
            assert self._drawn is not None
            places = self._drawn[producer]
            return int(np.searchsorted(places, low)), int(np.searchsorted(places, high))
        # Place i * burst + stagger * burst lies below L.
        stagger = producer / self._producers
        bursts = [max(math.ceil(one / self._burst - stagger), 0) * self._burst for one in (low, high)]
        return bursts[0], bursts[1]


def of_trial(context: TrialContext) -> Schedule | None:
    """The schedule that a trial had by what its record says; None where it had none of ours."""
    workload = context.workload
    if (
        workload.arrival == "closed"
        or workload.consumes_only
        or context.untold
        or context.rate_msgs_s is None
    ):
        return None
    return Schedule(
        workload, context.rate_msgs_s, seed=context.seed, mark=run_mark(context.run_id, context.trial)
    )


def _segments(workload: WorkloadResult, rate_msgs_s: float) -> Sequence[Segment]:
    found = [Segment(0.0, 0.0, rate_msgs_s, 0.0)]

    def change(at_s: float, to: float, over_s: float) -> None:
        last = found[-1]
        rate = last.rate + last.slope * (at_s - last.from_s)
        due = last.due_by(at_s)
        if over_s > 0:
            bent = Segment(at_s, due, rate, (to - rate) / over_s)
            found.append(bent)
            due = bent.due_by(at_s + over_s)
        found.append(Segment(at_s + over_s, due, to, 0.0))

    ramp_to, ramp_over = workload.extra.get("ramp_to_msgs_s"), workload.extra.get("ramp_over_s")
    if isinstance(ramp_to, int | float) and isinstance(ramp_over, int | float):
        change(0.0, float(ramp_to), float(ramp_over))
    for step in workload.steps:
        change(step.at_s, step.rate_msgs_s, step.over_s)
    return found


def _producer_seed(seed: int, mark: int, producer: int) -> int:
    """As crates/gauge-worker/src/load.rs has it (SplitMix64's finalizer)."""
    mixed = (seed & _WORD) ^ (mark << 32 | producer)
    mixed = (mixed + 0x9E3779B97F4A7C15) & _WORD
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _WORD
    return mixed ^ mixed >> 31


def _places(seed: int, until: float) -> npt.NDArray[np.float64]:
    """Sums of exponential gaps until one is beyond `until`."""
    found: list[npt.NDArray[np.float64]] = []
    last, drawn = 0.0, 0
    while last <= until:
        count = min(int((until - last) * 1.05) + 64, PIECE)
        uniform = (_words(seed, drawn, count) >> np.uint64(1)).astype(np.float64) * 2.0**-63
        drawn += count
        gaps = -np.log(1.0 - uniform[uniform < 1.0])
        places = np.cumsum(np.concatenate(([last], gaps)))[1:]
        last = float(places[-1])
        found.append(places)
    return np.concatenate(found) if found else np.empty(0)


def _words(seed: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """Words of the generator: its state is a counter, so that any of them can be had."""
    with np.errstate(over="ignore"):
        a = np.uint64(seed) + np.arange(first + 1, first + count + 1, dtype=np.uint64) * _STEP
        b = a ^ _MIX
        half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
        a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
        one, other = a_low * b_high, a_high * b_low
        middle = (a_low * b_low >> half) + (one & low) + (other & low)
        above = a_high * b_high + (one >> half) + (other >> half) + (middle >> half)
        return np.asarray(a * b ^ above, dtype=np.uint64)
