"""Probes of the search for the maximum sustainable rate: each is a short load.

They come before the measured trial, on the same running system, and none of their messages is in its figures. What they showed is kept as evidence
(`analysis.search`). A probe goes on with the topics of the one before, unless that one has left messages in them, and new topics are written to at an
easy rate first: what a topic costs at its beginning (a system that maps and fills its files, opens its ledgers) can be more than a probe measures.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.quiet_away import worker_away_s
from streamgauge.analysis.search import PROBES_MAX, Hunt, Seen, judge, slowest
from streamgauge.fleet.base import WorkerCalls
from streamgauge.model.messages import Interval
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.model.result_asked import SearchAsked
from streamgauge.model.result_special import Probe, Search
from streamgauge.model.workload import Workload
from streamgauge.runner import machine
from streamgauge.runner.observer import Observer
from streamgauge.runner.request import LEASE_S
from streamgauge.vocabulary.errors import SystemFailure, WorkerLost, WorkerRefused
from streamgauge.vocabulary.histograms import decode, merge
from streamgauge.vocabulary.phases import MEASURE
from streamgauge.vocabulary.units import format_rate
from streamgauge.vocabulary.waiting import wait_until

LEAD_S = 2.0
"""Before the measured time of a probe: connections warm up and buffers fill."""
INTERVAL_MS = 100
"""Shorter than a trial's: the slope of what is outstanding needs many points in little time."""
EXTEND_TIMES = 3
"""A probe that is not conclusive goes on until it is so many times as long."""
SOAK_S_MAX = 30.0
POLL_S = 0.5
READY_POLL_S = 0.05
TOUCH_S = 4.0
"""For so long new topics are written to at an easy rate."""
EASY_SHARE = 0.5
"""Of the first rate of a search."""
DRAIN_S = 5.0
"""After a probe: what it has sent is received."""
QUIET_S = 1.0
"""A drain that receives nothing for so long has come to its end."""
REST_S = 1.0
"""After a probe that has left messages behind."""
OVERDUE_S = 10.0


@dataclass(frozen=True)
class Bench:
    """What a probe needs of the trial around it."""

    client: WorkerCalls
    workload: Workload
    cores: int
    make_topics: Callable[[int], None]
    """Makes topics for the n-th probe and those that go on with them."""
    request: Callable[[Workload, int], dict[str, Any]]
    """The worker's request for this workload as the n-th probe, on the topics that were made last."""
    delete_topics: Callable[[], None]
    """Deletes them."""
    failure: Callable[[], str | None]
    """One sentence when the system or the worker is gone."""
    ready_within_s: float


def search(bench: Bench, asked: SearchAsked, observer: Observer, keep: Callable[[Search], None]) -> Search:
    """Makes probes until the bracket is found. `keep` gets the evidence after each of them.

    Raises SystemFailure when the system dies, and what the client raises when the worker does.
    """

    # As long as what is measured afterwards, within reason: a maximum that does not hold that long is none.
    hunt = Hunt(asked, min(bench.workload.duration_s, SOAK_S_MAX))
    began_s = time.monotonic()
    has_topics = False
    try:
        while (wanted := hunt.next(time.monotonic() - began_s)) is not None:
            rate_msgs_s, seconds = wanted
            number = len(hunt.probes) + 1
            observer.progress(f"probe {number}: {format_rate(rate_msgs_s)}{_bracket(hunt.outcome())}")
            if not has_topics:
                bench.make_topics(number)
                has_topics = True
                # Its messages carry a mark of their own: some systems drop what they take for a repetition.
                _touch(bench, EASY_SHARE * min(rate_msgs_s, asked.first_msgs_s), PROBES_MAX + number)
            probe, has_topics = _probe(bench, rate_msgs_s, seconds, number, asked)
            hunt.add(probe)
            keep(hunt.outcome())
            verdict = "sustained" if probe.passed else f"not sustained: {'; '.join(probe.reasons)}"
            observer.progress(f"probe {number}: {format_rate(rate_msgs_s)} {verdict}")
            if not has_topics:
                _delete_topics(bench)
                time.sleep(REST_S)
    finally:
        if has_topics:
            _delete_topics(bench)
    found = hunt.outcome()
    keep(found)
    return found


def _bracket(found: Search) -> str:
    if found.low_msgs_s is None and found.high_msgs_s is None:
        return ""
    low = "0" if found.low_msgs_s is None else format_rate(found.low_msgs_s)
    high = "?" if found.high_msgs_s is None else format_rate(found.high_msgs_s)
    return f" (bracket {low} to {high})"


def _delete_topics(bench: Bench) -> None:
    with contextlib.suppress(WorkerLost, WorkerRefused):
        bench.delete_topics()


def _probe(
    bench: Bench, rate_msgs_s: float, seconds: float, number: int, asked: SearchAsked
) -> tuple[Probe, bool]:
    """What the probe has shown, and whether nothing that it has sent is left in its topics."""
    request = bench.request(bench.workload.at_rate(rate_msgs_s), number)
    request["phases"] = [{"name": "lead", "from_s": 0.0}, {"name": MEASURE, "from_s": LEAD_S}]
    request["schedule"]["stop_s"] = LEAD_S + EXTEND_TIMES * seconds + LEASE_S
    with _load(bench, request) as trial:
        probe = _watch(bench, trial, rate_msgs_s, seconds, asked)
        return probe, _drain(bench, trial)


def _touch(bench: Bench, rate_msgs_s: float, number: int) -> None:
    """Writes to new topics."""
    request = bench.request(bench.workload.at_rate(rate_msgs_s), number)
    request["phases"] = [{"name": "lead", "from_s": 0.0}]
    request["schedule"]["stop_s"] = TOUCH_S
    with _load(bench, request) as trial:
        until_s = time.monotonic() + TOUCH_S
        while time.monotonic() < until_s:
            _check(bench)
            time.sleep(POLL_S)
        _drain(bench, trial)


@contextlib.contextmanager
def _load(bench: Bench, request: dict[str, Any]) -> Iterator[str]:
    """The load that is asked for, from its start on; it ends with what is done beside it."""
    client = bench.client
    trial: str | None = None
    try:
        trial = client.create_trial({**request, "interval_ms": INTERVAL_MS}).id
        _await_ready(bench, trial)
        client.start(trial, 100)
        yield trial
    finally:
        if trial is not None:
            with contextlib.suppress(WorkerLost, WorkerRefused):
                client.abort(trial)


def _drain(bench: Bench, trial: str) -> bool:
    """Ends the load. Whether everything that it has sent was received."""
    return bench.client.finish(trial, DRAIN_S, QUIET_S).get("drained") is True


def _await_ready(bench: Bench, trial: str) -> None:
    def missing() -> str | None:
        status = bench.client.status(trial)
        if status.state == "ready":
            return None
        if status.ended:
            raise SystemFailure(f"a probe could not be started: {status.error or status.state}")
        _check(bench)
        return "a probe's consumers to be ready"

    late = wait_until(missing, bench.ready_within_s, READY_POLL_S)
    if late is not None:
        raise SystemFailure(late)


def _check(bench: Bench) -> None:
    died = bench.failure()
    if died:
        raise SystemFailure(died)


def _watch(bench: Bench, trial: str, rate_msgs_s: float, seconds: float, asked: SearchAsked) -> Probe:
    """Pulls intervals until the verdict is conclusive, or the probe has been extended enough."""

    intervals: list[Interval] = []
    began_s, stolen_before_s = time.monotonic(), machine.stolen_s()
    until_s = LEAD_S + seconds
    # A long probe has had its time.
    at_most_s = LEAD_S + max(EXTEND_TIMES * asked.probe_s, seconds)
    moved_s = time.monotonic()
    while True:
        found = bench.client.intervals(trial, len(intervals))
        intervals += [Interval.model_validate(value) for value in found.intervals]
        if found.intervals:
            moved_s = time.monotonic()
        elif time.monotonic() - moved_s > OVERDUE_S:
            raise WorkerLost(f"the worker has had no new interval of a probe for {OVERDUE_S:g} s")
        reached_s = intervals[-1].start_s + intervals[-1].duration_s if intervals else 0.0
        if reached_s >= until_s:
            cores_s = (time.monotonic() - began_s) * bench.cores
            steal_share = (machine.stolen_s() - stolen_before_s) / max(cores_s, 1e-9)
            seen = _seen(intervals, rate_msgs_s, steal_share, bench)
            probe, conclusive = judge(seen, asked.publish_ms_p99_max)
            if conclusive or until_s >= at_most_s:
                return probe
            until_s = min(until_s + seconds / 2, at_most_s)
        _check(bench)
        status = bench.client.status(trial)
        if status.ended:
            raise SystemFailure(f"a probe ended early: {status.error or status.state}")
        time.sleep(min(POLL_S, max(until_s - reached_s, 0.05)))


def _seen(intervals: list[Interval], rate_msgs_s: float, steal_share: float, bench: Bench) -> Any:
    import numpy as np

    measured = np.array([one.start_s + one.duration_s >= LEAD_S - 1e-6 for one in intervals])
    inside = [one for one, wanted in zip(intervals, measured, strict=True) if wanted]
    elapsed_s = sum(one.duration_s for one in inside) or 1.0

    def counts(values: list[int]) -> Any:
        return np.cumsum(np.array(values, dtype=np.float64))[measured]

    acked = counts([one.acked_msgs for one in intervals])
    names = [one.name for one in intervals[0].subscriptions]
    received = [
        counts([one.subscriptions[place].received_msgs for one in intervals]) for place in range(len(names))
    ]

    def p99_ms(metric: str, *, quiet: bool = False) -> float | None:
        entries = [entry for one in inside for entry in one.latencies if entry.metric == metric]
        # Far beyond what is taken, what is answered by the end was due before the measured time.
        due = [entry for entry in entries if entry.phase == MEASURE]
        if not any(entry.count for entry in due):
            due = entries
        texts = [
            part.histogram
            for entry in due
            for part in ((entry.quiet, entry.censored) if quiet else (entry,))
            if part
        ]
        value = merge(decode(base64.b64decode(text)) for text in texts if text).percentile(99.0)
        return None if value is None else value / NS_PER_MS

    lanes = [sum(shares) / elapsed_s for shares in zip(*(one.lanes_cpu_s for one in inside), strict=False)]
    errors: dict[str, int] = {}
    for one in intervals:
        _add(errors, one.errors)
    producers = bench.workload.topics * bench.workload.producers_per_topic
    told = [one.disturbance for one in inside]
    watched = [one for one in told if one is not None and one.disturbed_s is not None]
    is_watched = bool(watched) and len(watched) == len(told)
    disturbed_s = sum(one.disturbed_s or 0.0 for one in watched)
    return Seen(
        rate_msgs_s=rate_msgs_s,
        producers=producers,
        end_s=np.array([one.start_s + one.duration_s for one in inside]),
        acked_msgs=acked,
        received_msgs=slowest(received, acked),
        publish_ms_p99=p99_ms("publish"),
        send_delay_ms_p99=p99_ms("send_delay"),
        ack_delay_ms_p99=p99_ms("ack_delay"),
        quiet_publish_ms_p99=p99_ms("publish", quiet=True),
        quiet_send_delay_ms_p99=p99_ms("send_delay", quiet=True),
        backpressured_share=sum(one.backpressured_s or 0.0 for one in inside) / elapsed_s / producers,
        workers_share=sum(one.cpu_s or 0.0 for one in inside) / elapsed_s / bench.cores,
        busiest_lane_share=max(lanes, default=0.0),
        failed_msgs=sum(one.failed_msgs for one in intervals),
        errors=errors,
        linger_s=bench.workload.linger_ms / 1e3,
        steal_share=steal_share,
        disturbed_share=disturbed_s / elapsed_s if is_watched else None,
        away_share=worker_away_s(watched) / elapsed_s if is_watched else None,
    )


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, count in more.items():
        sums[kind] = sums.get(kind, 0) + count
