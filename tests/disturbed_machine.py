"""Systems whose latency is known, on machines whose CPUs are taken away: what a worker would tell of them.

The truth is what the system does by itself; a thief delays messages and cuts quiet time to pieces. Times are in s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats
from streamgauge.analysis.quiet import QuietInterval
from streamgauge.analysis.quiet_check import Ages, Attraction, attraction, doubt_of
from streamgauge.vocabulary.histograms import Histogram, recorded

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Draw = Callable[[np.random.Generator, Values], Values]

MEDIAN_S, SPREAD = 0.001, 0.35
THEFT_S = (0.002, 0.030)
"""A CPU is taken for a time between these; recovery lasts as long again."""


@dataclass(frozen=True)
class System:
    """What latencies it has by itself."""

    name: str
    draw: Draw
    """Latency of each message, from when they are due."""
    survival: Callable[[Values], Values]
    """Share of messages that take longer."""

    def percentile_s(self, percent: float) -> float:
        """The truth."""
        share = 1.0 - percent / 100.0
        return float(optimize.brentq(lambda at: float(self.survival(np.array([at]))[0]) - share, 1e-6, 10.0))


@dataclass(frozen=True)
class Spans:
    """Disturbed spans, in order and apart: the CPU is gone from `begin` to `back`, and recovered from at `end`."""

    begin: Values
    back: Values
    end: Values

    def share(self, seconds: float) -> float:
        """Of the first so many seconds, in which they begin."""
        return float((np.minimum(self.end, seconds) - self.begin).sum()) / seconds

    def before(self, at: Values) -> npt.NDArray[np.int64]:
        """The span that began last; -1 for none."""
        return np.asarray(np.searchsorted(self.begin, at, side="right") - 1, dtype=np.int64)

    def holds(self, at: Values) -> Mask:
        """Which instants are disturbed."""
        before = self.before(at)
        return np.asarray((before >= 0) & (at < np.append(self.end, 0.0)[before]), dtype=np.bool_)

    def following(self, at: Values) -> Values:
        """When the next one begins."""
        return np.append(self.begin, np.inf)[self.before(at) + 1]


def _base(random: np.random.Generator, due: Values) -> Values:
    return np.asarray(MEDIAN_S * np.exp(SPREAD * random.standard_normal(len(due))), dtype=np.float64)


def _base_survival(at: Values, median_s: float = MEDIAN_S, spread: float = SPREAD) -> Values:
    return np.asarray(stats.norm.sf(np.log(np.maximum(at, 1e-12) / median_s) / spread), dtype=np.float64)


def independent() -> System:
    """Each message for itself."""
    return System("each message for itself", _base, _base_survival)


def stalls(every_s: float = 2.0, mean_s: float = 0.005) -> System:
    """Everything stands still now and then, for an exponential time: who is due then waits until it is over."""

    def draw(random: np.random.Generator, due: Values) -> Values:
        count = int((due[-1] + 1.0) / every_s * 2 + 50)
        gaps, lengths = random.exponential(every_s, count), random.exponential(mean_s, count)
        begin = np.cumsum(gaps) + np.concatenate(([0.0], np.cumsum(lengths)[:-1]))
        still = Spans(begin, begin + lengths, begin + lengths)
        rest = np.where(still.holds(due), still.end[np.maximum(still.before(due), 0)] - due, 0.0)
        return np.asarray(_base(random, due) + rest, dtype=np.float64)

    share = mean_s / (every_s + mean_s)
    rests = -mean_s * np.log1p(-(np.arange(2000) + 0.5) / 2000)

    def survival(at: Values) -> Values:
        waiting = np.array([_base_survival(one - rests).mean() for one in at])
        return np.asarray((1 - share) * _base_survival(at) + share * waiting, dtype=np.float64)

    return System(f"stalls of {mean_s * 1e3:g} ms every {every_s:g} s", draw, survival)


def slow_seconds(share: float = 0.1, factor: float = 3.0) -> System:
    """Whole seconds are slow."""

    def draw(random: np.random.Generator, due: Values) -> Values:
        second = due.astype(np.int64)
        slow = random.random(int(second[-1]) + 1) < share
        return np.asarray(_base(random, due) * np.where(slow[second], factor, 1.0), dtype=np.float64)

    def survival(at: Values) -> Values:
        slow = _base_survival(at, MEDIAN_S * factor)
        return np.asarray((1 - share) * _base_survival(at) + share * slow, dtype=np.float64)

    return System(f"{share:.0%} of the seconds {factor:g} times as slow", draw, survival)


def waves(step_s: float = 1.0, memory: float = 0.8, height: float = 0.3) -> System:
    """The level wanders: an autoregressive series in the logarithm."""

    def draw(random: np.random.Generator, due: Values) -> Values:
        step = (due / step_s).astype(np.int64)
        shocks = random.standard_normal(int(step[-1]) + 1) * height * math.sqrt(1 - memory**2)
        level = np.empty(len(shocks))
        last = random.standard_normal() * height
        for at, shock in enumerate(shocks):
            last = memory * last + shock
            level[at] = last
        return np.asarray(_base(random, due) * np.exp(level[step]), dtype=np.float64)

    def survival(at: Values) -> Values:
        return _base_survival(at, MEDIAN_S, math.hypot(SPREAD, height))

    return System(f"AR({memory:g}) in steps of {step_s:g} s", draw, survival)


def thief(random: np.random.Generator, seconds: float, share: float) -> Spans:
    """Takes a CPU so often that a share of the time is disturbed, whenever it likes."""
    low, high = THEFT_S
    mean = low + high
    if share <= 0:
        none = np.zeros(0)
        return Spans(none, none, none)
    count = int(seconds / mean * 3 + 20)
    gaps = random.exponential(mean * (1 - share) / share, count)
    taken = random.uniform(low, high, count)
    if random.random() < share:
        gaps[0] = 0.0
    begin = np.cumsum(gaps) + 2 * np.concatenate(([0.0], np.cumsum(taken)[:-1]))
    kept = begin < seconds
    begin, taken = begin[kept], taken[kept]
    return Spans(begin, begin + taken, begin + 2 * taken)


def as_it_came(due: Values, alone: Values, spans: Spans) -> Values:
    """Latencies on the disturbed machine: never less than alone."""
    if not len(spans.begin):
        return alone
    last = np.maximum(spans.before(due), 0)
    begin, back, end = spans.begin[last], spans.back[last], spans.end[last]
    disturbed = spans.holds(due)
    stolen = disturbed & (due < back)
    waits = np.where(stolen, (back - due) + (due - begin) / 2, 0.0)
    waits = np.where(disturbed & ~stolen, (back - begin) / 2 * (end - due) / (end - back), waits)
    following = np.minimum(spans.before(due) + 1, len(spans.begin) - 1)
    cut = ~disturbed & (due + alone > spans.following(due))
    waits = np.where(cut, spans.back[following] - spans.begin[following], waits)
    return np.asarray(alone + waits, dtype=np.float64)


def told(due: Values, alone: Values, spans: Spans, interval_s: float = 1.0) -> list[QuietInterval]:
    """What a worker tells of each interval."""
    came = as_it_came(due, alone, spans)
    inside = spans.holds(due)
    until = spans.following(due) - due
    seen = ~inside & (alone <= until)
    cut = ~inside & ~seen
    place = (due / interval_s).astype(np.int64)
    edges = np.searchsorted(place, np.arange(int(place[-1]) + 2))
    return [
        QuietInterval(
            histogram(alone[start:stop][seen[start:stop]]),
            histogram(until[start:stop][cut[start:stop]]),
            histogram(came[start:stop]),
            int(inside[start:stop].sum()),
        )
        for start, stop in pairwise(edges)
    ]


def histogram(latencies_s: Values) -> Histogram:
    """As a worker records it."""
    values = np.round(latencies_s * 1e9).astype(np.int64)
    return recorded(values, np.ones(len(values), dtype=np.int64))


OLD_S = 0.002
"""What is older is slow."""
STILL_S = 0.005


def attacked(
    random: np.random.Generator, seconds: int, rate: int, times: float
) -> tuple[Values, Values, Spans, Attraction]:
    """Due times, what the system takes by itself, when it is disturbed, and what its workers make of that. Every 2 s everything stands still for STILL_S; a
    thief strikes every 100 ms, and `times` times as often while it does."""
    due = np.arange(rate * seconds) / rate
    whole = np.arange(1.0, seconds, 2.0)
    begin = whole + random.uniform(0, 0.5, len(whole))
    still = Spans(begin, begin + STILL_S, begin + STILL_S)
    rest = np.where(still.holds(due), still.end[np.maximum(still.before(due), 0)] - due, 0.0)
    extra = begin + random.exponential(0.1 / max(times - 1, 1e-9), len(begin))
    spans = _strikes(random, seconds, extra[extra < begin + STILL_S])
    return due, np.asarray(0.0005 + rest, dtype=np.float64), spans, _attraction(still, spans, seconds)


def _attraction(still: Spans, spans: Spans, seconds: int) -> Attraction:
    """From what a worker would count of the oldest message under way."""

    def older(at: Values) -> Mask:
        return np.asarray(still.holds(at) & (at - still.begin[np.maximum(still.before(at), 0)] > OLD_S))

    at = np.arange(0.0, seconds, 0.001)
    at = at[~spans.holds(at)]
    second = at.astype(np.int64)
    samples = np.bincount(second, minlength=seconds)
    old = np.bincount(second, weights=older(at), minlength=seconds).astype(np.int64)
    begins = older(spans.begin - 1e-9)
    found = attraction(
        [Ages(1e3 * OLD_S, samples.tolist(), old.tolist(), len(spans.begin), int(begins.sum()))]
    )
    lengths = spans.end - spans.begin
    began = spans.begin[begins].astype(np.int64).tolist()
    return replace(
        found,
        doubt=doubt_of(found, float(lengths[begins].sum()), float(lengths.sum()), float(seconds), began),
    )


def _strikes(random: np.random.Generator, seconds: int, extra: Values) -> Spans:
    """A thief every 100 ms, and the `extra` strikes; none within another's span."""
    usual = np.cumsum(random.exponential(0.1, seconds * 20))
    wished = np.sort(np.concatenate((usual[usual < seconds], extra)))
    begins, backs, over = [], [], 0.0
    for at in wished:
        if at >= over:
            taken = random.uniform(0.002, 0.010)
            begins.append(at)
            backs.append(at + taken)
            over = at + 2 * taken
    begin, back = np.array(begins), np.array(backs)
    return Spans(begin, back, 2 * back - begin)
