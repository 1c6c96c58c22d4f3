"""Dose and response: whose disks, and whose copies, does an acknowledgement wait for?

One load at a low rate runs all the time, so that leaders stay where they are. While it runs, the syncs of one set of
nodes after the other are slowed, each dose in a phase of its own. All doses are given in each of several rounds, no dose
among them, every other round backwards: what the machine does besides, and how warm the system is, meets all doses alike,
and where rounds contradict each other a dose has told nothing. Then sets of nodes are stopped for a moment.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Sequence

from streamgauge.analysis.durability import WAITS_GAP_SHARE_MIN, conclude, node_sets, slopes
from streamgauge.fleet.client import WorkerClient
from streamgauge.model.durability import Dose, DoseResponse, Stop
from streamgauge.model.messages import Interval
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.runner.durability.bench import Bench, Load, workload
from streamgauge.systems.base.parts import Part, pause_together
from streamgauge.vocabulary.histograms import Histogram, decode, merge

RATE_MSGS_S = 10.0
"""Low enough that syncs of the highest dose do not overlap, even of a system that makes several for each message: an
acknowledgement waits for its own alone."""
DOSES_MS = (5.0, 10.0, 20.0)
QUICK_DOSES_MS = (20.0,)
ROUNDS = 4
QUICK_ROUNDS = 3
BLOCK_S = 1.0
"""Of a dose in a round."""
INTERVAL_S = 0.25
"""Phases begin with an interval, and between two doses one is left out."""
LEAD_S = 5.0
"""A system that has just been started is slow at first, and the doses are compared with what comes first."""
STOP_S = 1.5
REST_S = 2.0
STOP_RATE_MSGS_S = 100.0


def dose_response(bench: Bench, *, quick: bool) -> DoseResponse:
    """Both halves of the experiment."""
    sets = {nodes: _stateful(bench, nodes) for nodes in node_sets(list(bench.nodes()))}
    plans: list[tuple[list[str], float]] = [([], 0.0)]
    for parts in sets.values():
        names = [part.name for part in parts]
        plans += [(names, delay_ms) for delay_ms in (QUICK_DOSES_MS if quick else DOSES_MS)]
    rounds, leader = _rounds(bench, plans, QUICK_ROUNDS if quick else ROUNDS)
    found = [[_dose(plan, block) for plan, block in zip(plans, blocks, strict=True)] for blocks in rounds]
    response = DoseResponse(
        leader=leader,
        doses=[
            _dose(plan, merge(block for block in blocks if block.count))
            for plan, blocks in zip(plans, zip(*rounds, strict=True), strict=True)
        ],
        slopes=slopes(found, {nodes: [part.name for part in parts] for nodes, parts in sets.items()}),
    )
    if len(bench.nodes()) > 1:
        response.stops = _stops(bench, sets)
    return conclude(response, len(bench.nodes()))


def _stateful(bench: Bench, nodes: Sequence[str]) -> list[Part]:
    """The parts of these nodes that keep data."""
    return [part for node in nodes for part in bench.nodes()[node] if part.data]


def _rounds(
    bench: Bench, plans: Sequence[tuple[list[str], float]], rounds: int
) -> tuple[list[list[Histogram]], str | None]:
    """Publish latencies per round and dose, and who led the load's partition before and after."""
    load = bench.begin(workload(RATE_MSGS_S, 1), interval_s=INTERVAL_S, watched=False)
    try:
        bench.wait(LEAD_S)
        leader = bench.leader(load) if len(bench.nodes()) > 1 else None
        for number in range(rounds):
            order = range(len(plans)) if number % 2 == 0 else reversed(range(len(plans)))
            for done, at in enumerate(order):
                names, delay_ms = plans[at]
                bench.observer.progress(
                    f"round {number + 1} of {rounds}, dose {done + 1} of {len(plans)}: syncs of {', '.join(names) or 'nothing'} "
                    f"take {delay_ms:g} ms longer"
                )
                _give(bench, load, names, delay_ms, _phase(number, at))
        bench.disks.delay_syncs((), 0.0)
        if leader is not None and bench.leader(load) != leader:
            leader = None  # It moved: some doses are of the one, some of the other.
        load.finish()
        latencies = _publish_by_phase(load.client, load.trial)
    finally:
        load.close()
        bench.disks.delay_syncs((), 0.0)
    found = [
        [latencies.get(_phase(number, at), merge(())) for at in range(len(plans))] for number in range(rounds)
    ]
    return found, leader


def _phase(number: int, at: int) -> str:
    return f"round-{number}-dose-{at}"


def _give(bench: Bench, load: Load, names: Sequence[str], delay_ms: float, phase: str) -> None:
    """One dose: the delay is there before its phase begins, and until it has ended."""
    bench.disks.delay_syncs(names, delay_ms / 1000)
    begins_s = load.client.begin_phase(load.trial, phase)
    # A phase has to be asked for before it begins.
    bench.wait(begins_s + BLOCK_S - INTERVAL_S - load.now_s)
    ended_s = load.client.begin_phase(load.trial, f"after-{phase}")
    bench.wait(ended_s - load.now_s)


def _dose(plan: tuple[list[str], float], found: Histogram) -> Dose:
    def ms(percent: float) -> float | None:
        value = found.percentile(percent)
        return None if value is None else value / NS_PER_MS

    names, delay_ms = plan
    return Dose(
        parts=names,
        delay_ms=delay_ms,
        publish_ms_p10=ms(10.0),
        publish_ms_p50=ms(50.0),
        publish_ms_p99=ms(99.0),
        acked_msgs=found.count,
    )


def _publish_by_phase(client: WorkerClient, trial: str) -> dict[str, Histogram]:
    """Phase -> publish latencies of the messages that were due in it."""
    groups: dict[str, list[Histogram]] = defaultdict(list)
    since = 0
    while True:
        found = client.intervals(trial, since)
        if not found.intervals:
            return {phase: merge(group) for phase, group in groups.items()}
        since = found.next
        for value in found.intervals:
            for entry in Interval.model_validate(value).latencies:
                if entry.metric == "publish" and entry.histogram:
                    groups[entry.phase].append(decode(base64.b64decode(entry.histogram)))


def _stops(bench: Bench, sets: dict[tuple[str, ...], list[Part]]) -> list[Stop]:
    """Stops what keeps data on each set of nodes for a moment."""
    load = bench.begin(workload(STOP_RATE_MSGS_S, 1))
    windows: list[tuple[tuple[str, ...], list[Part], float, float]] = []
    try:
        bench.wait(LEAD_S)
        for nodes, parts in sets.items():
            bench.observer.progress(f"stopping {', '.join(nodes)} for {STOP_S:g} s")
            from_s = load.now_s
            try:
                pause_together(parts)
                bench.wait(STOP_S)
                until_s = load.now_s
            finally:
                for part in parts:
                    part.resume()
            windows.append((nodes, parts, from_s, until_s))
            _await_acks(bench, load)
            bench.wait(REST_S)
        seen = load.watch.seen()
        load.finish()
    finally:
        load.close()
    found = []
    for nodes, parts, from_s, until_s in windows:
        gap = seen.gap(from_s, until_s)
        within_s = max(0.0, min(gap[1], until_s) - max(gap[0], from_s)) if gap else 0.0
        waits = within_s >= WAITS_GAP_SHARE_MIN * (until_s - from_s)
        found.append(
            Stop(
                nodes=list(nodes),
                parts=[part.name for part in parts],
                stopped_s=until_s - from_s,
                gap_s=gap[1] - gap[0] if gap else 0.0,
                waits=waits,
            )
        )
    return found


def _await_acks(bench: Bench, load: Load, within_s: float = 60.0) -> None:
    """Until acknowledgements come again."""
    before = load.client.counters(load.trial).acked_msgs
    waited_s = 0.0
    while load.client.counters(load.trial).acked_msgs == before and waited_s < within_s:
        bench.wait(0.1)
        waited_s += 0.1
