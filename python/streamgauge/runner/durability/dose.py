"""Dose and response: whose disks, and whose copies, does an acknowledgement wait for?

One load at a low rate runs all the time, so that leaders stay where they are. While it runs, the syncs of one set of
nodes after the other are slowed, each dose in a phase of its own. Then sets of nodes are stopped for a moment.
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
from streamgauge.systems.base.parts import Part
from streamgauge.vocabulary.histograms import Histogram, decode, merge

RATE_MSGS_S = 10.0
"""Low enough that syncs of the highest dose do not overlap, even of a system that makes several for each message: an
acknowledgement waits for its own alone."""
DOSES_MS = (0.0, 5.0, 10.0, 20.0)
QUICK_DOSES_MS = (0.0, 20.0)
PHASE_S = 4.0
QUICK_PHASE_S = 3.0
LEAD_S = 5.0
"""A system that has just been started is slow at first, and the doses are compared with what comes first."""
STOP_S = 1.5
REST_S = 2.0
STOP_RATE_MSGS_S = 100.0


def dose_response(bench: Bench, *, quick: bool) -> DoseResponse:
    """Both halves of the experiment."""
    sets = {nodes: _stateful(bench, nodes) for nodes in node_sets(list(bench.nodes()))}
    doses, leader = _doses(
        bench, sets, QUICK_DOSES_MS if quick else DOSES_MS, QUICK_PHASE_S if quick else PHASE_S
    )
    response = DoseResponse(
        leader=leader,
        doses=doses,
        slopes=slopes(doses, {nodes: [part.name for part in parts] for nodes, parts in sets.items()}),
    )
    if len(bench.nodes()) > 1:
        response.stops = _stops(bench, sets)
    return conclude(response, len(bench.nodes()))


def _stateful(bench: Bench, nodes: Sequence[str]) -> list[Part]:
    """The parts of these nodes that keep data."""
    return [part for node in nodes for part in bench.nodes()[node] if part.data]


def _doses(
    bench: Bench, sets: dict[tuple[str, ...], list[Part]], delays_ms: Sequence[float], phase_s: float
) -> tuple[list[Dose], str | None]:
    """The doses, and who led the load's partition before and after."""
    load = bench.begin(workload(RATE_MSGS_S, 1))
    try:
        bench.wait(LEAD_S)
        leader = bench.leader(load) if len(bench.nodes()) > 1 else None
        plans: list[tuple[list[str], float]] = [([], 0.0)]
        for parts in sets.values():
            plans += [([part.name for part in parts], delay_ms) for delay_ms in delays_ms if delay_ms]
        phases: dict[str, tuple[list[str], float]] = {}
        for number, (names, delay_ms) in enumerate(plans):
            bench.observer.progress(
                f"dose {number + 1} of {len(plans)}: syncs of {', '.join(names) or 'nothing'} take {delay_ms:g} ms longer"
            )
            bench.disks.delay_syncs(names, delay_ms / 1000)
            name = f"dose-{number}"
            begins_s = load.client.begin_phase(load.trial, name)
            phases[name] = (names, delay_ms)
            bench.wait(begins_s + phase_s - load.now_s)
        load.client.begin_phase(load.trial, "after")
        bench.disks.delay_syncs((), 0.0)
        bench.wait(1.2)
        if leader is not None and bench.leader(load) != leader:
            leader = None  # It moved: some doses are of the one, some of the other.
        load.finish()
        latencies = _publish_by_phase(load.client, load.trial)
    finally:
        load.close()
        bench.disks.delay_syncs((), 0.0)
    doses = [_dose(names, delay_ms, latencies.get(phase)) for phase, (names, delay_ms) in phases.items()]
    return doses, leader


def _dose(names: list[str], delay_ms: float, found: Histogram | None) -> Dose:
    def ms(percent: float) -> float | None:
        value = found.percentile(percent) if found is not None else None
        return None if value is None else value / NS_PER_MS

    return Dose(
        parts=names,
        delay_ms=delay_ms,
        publish_ms_p50=ms(50.0),
        publish_ms_p99=ms(99.0),
        acked_msgs=found.count if found is not None else 0,
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
                for part in parts:
                    part.pause()
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
