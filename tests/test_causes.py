"""Causes of the tail, on synthetic series into which a cause of known kind and time was put, or none. Everything is seeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
from sample_run import Shape, sample_trial, workload
from streamgauge.analysis.causes import INTERVALS_MIN, Event, causes, unusual
from streamgauge.analysis.intervals import Intervals, Series, Window
from streamgauge.analysis.measured import Measured
from streamgauge.analysis.own_metrics import OwnSeries
from streamgauge.analysis.tail import _slowest, own_events, tail
from streamgauge.model.own_metric import OwnMetric, Role
from streamgauge.report.explain import sentences
from streamgauge.vocabulary.histograms import Histogram, merge, recorded

Values = npt.NDArray[np.float64]
KINDS = ("GC pressure", "disk delay", "CPU thief", "network delay", "compaction")
INTERVALS = 120


def autoregressive(random: np.random.Generator, length: int, memory: float) -> Values:
    """Noise with a memory, of variance 1."""
    drawn: Values = random.standard_normal(length) * float(np.sqrt(1 - memory**2))
    drawn[0] /= float(np.sqrt(1 - memory**2))
    for at in range(1, length):
        drawn[at] += memory * drawn[at - 1]
    return drawn


def world(random: np.random.Generator, length: int, injected: str | None) -> tuple[Values, list[Event]]:
    """What was slow, and what happened: all kinds of things a little and without harm, one of them so that it is felt, queues that grow with latency,
    and metrics that jump for no reason."""
    happened = {kind: np.zeros(length) for kind in KINDS}
    for series in happened.values():
        for _ in range(random.poisson(4)):
            at = random.integers(0, length)
            series[at : at + 1 + random.poisson(1)] += random.uniform(0.1, 0.5)
    felt = np.zeros(length)
    if injected is not None:
        pulses = np.zeros(length)
        for at in random.choice(length - 4, size=random.integers(5, 9), replace=False):
            lasts = 1 if injected in ("GC pressure", "network delay") else random.integers(1, 4)
            pulses[at : at + lasts] = random.uniform(1, 3)
        happened[injected] += pulses
        # A part of it is felt one interval later.
        felt = np.convolve(pulses, [0.7, 0.3])[:length]
    usual = 3 * np.exp(1.2 * autoregressive(random, length, 0.5))
    for _ in range(random.poisson(2)):
        usual[random.integers(0, length)] *= random.uniform(5, 30)
    slow = np.floor(usual + random.poisson(60 * felt) * random.lognormal(0, 0.5, length))

    def noise(size: float, memory: float = 0.6) -> Values:
        return size * np.exp(0.3 * autoregressive(random, length, memory))

    events: list[Event] = []

    def add(name: str, values: Values, role: Role = "cause") -> None:
        events.append(Event(name, unusual(values), role))

    add("GC pressure", noise(0.05) + happened["GC pressure"])
    add("disk delay", noise(1) + 4 * happened["disk delay"] + 0.5 * happened["compaction"])
    add("CPU thief", noise(0.05) + happened["CPU thief"])
    add("network delay", random.poisson(0.1 + 6 * happened["network delay"]).astype(float))
    add("compaction", noise(1) + 8 * happened["compaction"])
    load = usual / usual.mean() + 20 * felt
    for number in range(3):
        add(f"queue {number}", noise(1) + 0.15 * load * random.uniform(0.5, 1.5, length), "sign")
    add("busy cores", noise(0.3) + happened["CPU thief"] + 0.4 * happened["GC pressure"], "sign")
    for number in range(8):
        jumps = noise(1, 0.8)
        for _ in range(random.poisson(4)):
            jumps[random.integers(0, length)] *= random.uniform(3, 10)
        add(f"metric {number}", jumps)
    return slow, events


@pytest.mark.parametrize("kind", KINDS)
def test_the_injected_cause_comes_first_in_nine_of_ten(kind: str) -> None:
    right = 0
    for seed in range(30):
        found = causes(*world(np.random.default_rng([seed, KINDS.index(kind)]), INTERVALS, kind))
        right += bool(found) and found[0].event.name == kind
    assert right >= 27


@pytest.mark.parametrize(("length", "times"), [(40, 100), (INTERVALS, 160)])
def test_with_nothing_injected_a_cause_is_claimed_in_one_of_twenty_at_most(length: int, times: int) -> None:
    claimed = sum(
        bool(causes(*world(np.random.default_rng([seed, 9]), length, None))) for seed in range(times)
    )
    assert claimed <= times / 20


def test_the_injected_cause_is_found_in_a_short_trial_beside_many_metrics() -> None:
    right = 0
    for seed in range(12):
        for number, kind in enumerate(KINDS):
            random = np.random.default_rng([seed, number, 1])
            slow, events = world(random, 50, kind)
            for metric in range(30):
                jumps = random.lognormal(0, 0.3, 50)
                jumps[random.integers(0, 50, random.poisson(3))] *= random.uniform(3, 10)
                events.append(Event(f"another metric {metric}", unusual(jumps)))
            found = causes(slow, events)
            right += bool(found) and found[0].event.name == kind
    assert right >= 55


def flags(length: int, *at: int) -> Values:
    values = np.zeros(length)
    values[list(at)] = 1.0
    return values


TIMES = (3, 17, 29, 40, 52)


def test_what_is_told_of_a_cause_and_what_went_along_with_it() -> None:
    slow = np.full(60, 1.0)
    slow[list(TIMES)] = 100.0
    events = [
        Event("queue", flags(60, *TIMES), "sign"),
        Event("flush", flags(60, *(at - 1 for at in TIMES))),
        Event("written", flags(60, *(at - 1 for at in TIMES), 35, 46)),
        Event("once", flags(60, 3)),
        Event("always", np.ones(60)),
    ]
    found = causes(slow, events)
    assert [(one.event.name, one.is_echo) for one in found] == [
        ("flush", False),
        ("written", True),
        ("queue", True),
    ]
    first = found[0]
    assert first.share == pytest.approx(505 / 555)
    assert first.intervals == 10
    assert first.usual == pytest.approx(10 / 60)
    assert first.lift == pytest.approx(first.share / first.usual)
    assert first.lift_low < first.lift < first.lift_high
    assert first.explained == pytest.approx((first.share - first.usual) / (1 - first.usual))
    assert first.chance == pytest.approx(1 / 54)


def test_a_second_cause_is_found_beside_the_first() -> None:
    others = (8, 22, 35, 46)
    slow = np.full(60, 1.0)
    slow[list(TIMES)] = 100.0
    slow[list(others)] = 60.0
    events = [Event("flush", flags(60, *TIMES)), Event("collection", flags(60, *others))]
    assert [(one.event.name, one.is_echo) for one in causes(slow, events)] == [
        ("flush", False),
        ("collection", False),
    ]


def test_signs_alone_and_short_series_explain_nothing() -> None:
    slow = np.full(60, 1.0)
    slow[list(TIMES)] = 100.0
    assert causes(slow, [Event("queue", flags(60, *TIMES), "sign")]) == []
    short = slice(0, INTERVALS_MIN - 1)
    assert causes(slow[short], [Event("flush", flags(60, *TIMES)[short])]) == []
    assert causes(np.zeros(60), [Event("flush", flags(60, *TIMES))]) == []


def test_unusual_is_far_above_what_is_usual() -> None:
    values = np.array([1.0, 1.1, 0.9, np.nan, 1.0, 1.2, 5.0, 1.4])
    assert list(np.flatnonzero(unusual(values))) == [6]
    assert unusual(values, least=6.0).max() == 0
    assert unusual(values)[6] == pytest.approx(5.0 - 1.0, abs=0.11)
    assert unusual(np.full(3, np.nan)).max() == 0


def test_the_largest_latency_is_told_with_what_stood_still(tmp_path_factory: pytest.TempPathFactory) -> None:
    raw = sample_trial(
        tmp_path_factory.mktemp("t"), Shape(slow_every_s=7, tail_share=0.002), workload(seconds=60)
    )

    measured = Measured.read(raw.context.ended(), raw.directory)
    lined_up = measured.lined_up
    inside = lined_up.within(measured.window)
    largest = np.where(inside, lined_up.values["publish_ms_max"], np.nan)
    at = int(np.nanargmax(largest))
    metric = OwnMetric(name="sync_ms", title="time spent in syncs", unit="ms", kind="counter", explains="x")

    def told(spent_ms: float) -> list[str]:
        values = np.full(len(lined_up), 1.0)
        values[at] = spent_ms
        found = tail(
            measured.intervals,
            lined_up,
            Window(measured.window.from_s, measured.window.until_s),
            metric="publish",
            phase="measure",
            cores=2,
            stops_ms=None,
            own=[OwnSeries(metric, "bookie-2", values, values)],
        )
        assert found is not None
        assert [one.name for one in own_events([OwnSeries(metric, "bookie-2", values, values)])] == [
            "bookie-2: time spent in syncs, unusually high"
        ]
        return sentences(raw.result().model_copy(update={"tail": found}))

    enough = float(largest[at]) + 12.0
    assert any("came with bookie-2: time spent in syncs" in one for one in told(enough))
    assert not any("came with" in one for one in told(2.0))


OTHERS = (11, 15, 22, 26, 33, 41)


class Seconds:
    """A second each, of latencies in ms."""

    def __init__(self, latencies_ms: Sequence[Sequence[float]]) -> None:
        self._histograms = [
            recorded((np.array(one) * 1e6).astype(np.int64), np.ones(len(one), np.int64))
            for one in latencies_ms
        ]

    def histogram(self, *_: str) -> Histogram:
        return merge(self._histograms)

    def histograms_by_interval(self, *_: str) -> dict[int, Histogram]:
        return dict(enumerate(self._histograms))


@pytest.mark.parametrize(
    ("slow_ms", "percentile"),
    [
        ({5: [80.0] * 40} | {at: [10.0 + ms for ms in range(40)] for at in OTHERS}, 99.5),
        ({at: [80.0] * 40 for at in (5, *OTHERS)}, 99.9),
        ({5: [80.0] * 400}, 99.9),
    ],
    ids=["the slowest are of one second", "they are spread", "there is nothing else"],
)
def test_a_tail_of_one_second_is_taken_from_further_down(
    slow_ms: dict[int, list[float]], percentile: float
) -> None:
    seconds = Seconds([[1.0] * (500 - len(slow_ms.get(at, []))) + slow_ms.get(at, []) for at in range(50)])
    axis = np.arange(50)
    lined_up = Series(axis, axis.astype(float), np.ones(50), {})
    found, above_ns, slow = _slowest(cast("Intervals", seconds), lined_up, "publish", "measure")
    assert found == percentile
    assert above_ns is not None
    assert set(np.flatnonzero(slow)) <= set(slow_ms)
