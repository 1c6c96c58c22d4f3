"""Cuts: power failures, kills and stops while messages are being acknowledged, and an audit of what is there after.

The reader reads nothing before the cut, and everything from the first message on after the recovery: what a tailing
consumer had received before the cut would hide what is lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from streamgauge.analysis.acks import Acks
from streamgauge.model.durability import FLOWING_S, Cut, Kind, LostRange, Scope
from streamgauge.runner.durability.bench import Bench, Load, workload
from streamgauge.systems.base import parts as parts_of
from streamgauge.systems.base.parts import Part
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.waiting import wait_until

RATE_MSGS_S = 1000.0
RATE_MSGS_S_MIN = 20.0
ENOUGH_SHARE = 0.9
CALIBRATION_S = 3.0
"""Some systems sync every message by itself; on slow disks they acknowledge far less than the rate above."""
SYNC_DELAY_S = 0.005
"""Disks take so much longer for a sync than memory does; without it what is between an acknowledgement and a sync
that comes too late would be too short to be hit."""
BEFORE_S = (1.5, 3.0)
"""A cut comes at a random moment of this stretch of the load."""
STOPPED_S = 2.0
SERVES_WITHIN_S = 180.0
ACKS_WITHIN_S = 90.0
AFTER_S = 0.7
"""Load that follows the recovery."""
TIMELINE_POINTS = 400
POLL_S = 0.05


def make_cuts(
    bench: Bench,
    count: int,
    *,
    quick: bool,
    keep: Callable[[Cut], None],
    learn: Callable[[float], None],
) -> None:
    """Power cuts `count` times per scope; kills and stops a few times. `keep` gets each as soon as it is known,
    `learn` the rate of the loads.

    A cut after which the system does not come back ends the experiment: there is nothing left to cut.
    """
    chance = random.Random(bench.seed)
    rate_msgs_s = _calibrate(bench)
    learn(rate_msgs_s)
    scopes: list[Scope] = ["all"] if len(bench.nodes()) == 1 else ["one", "majority", "all"]
    few = 1 if quick else 3
    plans: list[tuple[Kind, Scope, int]] = [("kill", scope, min(few, count)) for scope in scopes]
    plans += [("stop", scope, 1) for scope in scopes]
    plans += [("power cut", scope, count) for scope in scopes]
    number = 0
    for kind, scope, times in plans:
        for turn in range(times):
            number += 1
            parts = _victims(bench, scope, chance)
            bench.observer.progress(
                f"{kind} of {scope} ({', '.join(part.name for part in parts)}), {turn + 1} of {times}"
            )
            cut = _cut(bench, number, kind, scope, parts, chance, rate_msgs_s)
            keep(cut)
            if cut.failure is not None:
                raise SystemFailure(f"after cut {number} ({kind} of {scope}): {cut.failure}")


def _calibrate(bench: Bench) -> float:
    """The rate of the loads: a thousand a second, or half of what is acknowledged while disks are as slow as in cuts.
    What is behind would otherwise be read, and waited for, long after the cut.
    """
    bench.observer.progress("looking for a rate that is kept up on slow disks")
    load = bench.begin(workload(RATE_MSGS_S, max(1, len(bench.nodes()))))
    try:
        bench.disks.delay_syncs(bench.disks.names, SYNC_DELAY_S)
        bench.wait(CALIBRATION_S)
        seen = load.watch.seen()
        last_s = seen.at_s[-1] if seen.at_s else 0.0
        acked = seen.rate_msgs_s(last_s - CALIBRATION_S / 2, last_s)
    finally:
        load.close()
        bench.disks.delay_syncs((), 0.0)
    return (
        RATE_MSGS_S if acked >= ENOUGH_SHARE * RATE_MSGS_S else max(RATE_MSGS_S_MIN, float(round(acked / 2)))
    )


def _victims(bench: Bench, scope: Scope, chance: random.Random) -> list[Part]:
    """The parts of some random nodes; everything for all."""
    if scope == "all":
        return list(bench.parts)
    nodes = bench.nodes()
    count = 1 if scope == "one" else len(nodes) // 2 + 1
    chosen = sorted(chance.sample(list(nodes), count))
    names = {part.name for node in chosen for part in nodes[node]}
    return [part for part in bench.parts if part.name in names]


def _cut(
    bench: Bench,
    number: int,
    kind: Kind,
    scope: Scope,
    parts: list[Part],
    chance: random.Random,
    rate_msgs_s: float,
) -> Cut:
    bench.disks.delay_syncs((), 0.0)
    load = bench.begin(workload(rate_msgs_s, max(1, len(bench.nodes()))))
    names = [part.name for part in parts]
    written_before = bench.disks.written_bytes(names)
    try:
        bench.disks.delay_syncs(bench.disks.names, SYNC_DELAY_S)
        bench.wait(chance.uniform(*BEFORE_S) + load.start_s - time.monotonic())
        cut = Cut(number=number, kind=kind, scope=scope, parts=names, at_s=load.now_s)
        cut.read_early = sum(one.received_msgs for one in load.client.counters(load.trial).subscriptions)
        cut.at_s = load.now_s
        if kind == "stop":
            _stop(bench, parts)
        else:
            _take_down(bench, kind, cut, parts)
            cut.written_bytes = bench.disks.written_bytes(names) - written_before
            bench.disks.delay_syncs((), 0.0)
            cut.failure = _bring_up(bench, parts)
        if cut.failure is None:
            cut.serving_s = load.now_s
            cut.acks_back_s = _acks_again(bench, load, cut.serving_s)
            bench.wait(AFTER_S)
        seen = load.watch.seen()
        cut.acked_before = seen.acked_between(cut.at_s - FLOWING_S, cut.at_s)
        gap = seen.gap(cut.at_s, seen.at_s[-1] if seen.at_s else cut.at_s)
        cut.unavailable_s = gap[1] - gap[0] if gap else None
        cut.acks = _thinned(seen)
        if cut.failure is None:
            _audit(cut, load.finish(), rate_msgs_s)
        return cut
    finally:
        load.close()


def _stop(bench: Bench, parts: Sequence[Part]) -> None:
    try:
        for part in parts:
            part.pause()
        bench.wait(STOPPED_S)
    finally:
        for part in parts:
            part.resume()


def _take_down(bench: Bench, kind: Kind, cut: Cut, parts: Sequence[Part]) -> None:
    if kind == "power cut":
        cut.dropped_bytes = bench.disks.cut_power(parts, bench.seed + cut.number)
    else:
        parts_of.kill_together(parts)


def _bring_up(bench: Bench, parts: Sequence[Part]) -> str | None:
    """Starts the parts again, each kind when the one before it serves; None when all serve, else why not."""
    try:
        for stage in parts_of.stages(parts):
            for part in stage:
                part.restart()
            missing = _await_all(bench, stage)
            if missing is not None:
                return missing
    except SystemFailure as failure:
        return str(failure)
    return None


def _await_all(bench: Bench, parts: Sequence[Part]) -> str | None:
    """None when all serve; else who does not, and what it waits for."""
    waiting = list(parts)

    def missing() -> str | None:
        bench.check()
        while waiting:
            awaited = waiting[0].waits_for()
            if awaited is not None:
                return f"{awaited} ({waiting[0].name} to serve again)"
            waiting.pop(0)
        return None

    return wait_until(missing, SERVES_WITHIN_S, POLL_S)


def _acks_again(bench: Bench, load: Load, since_s: float) -> float | None:
    """When messages were acknowledged again; None when they were not."""
    before = load.client.counters(load.trial).acked_msgs
    while load.now_s < since_s + ACKS_WITHIN_S:
        if load.client.counters(load.trial).acked_msgs > before:
            return load.now_s
        bench.wait(POLL_S)
    return None


def _audit(cut: Cut, answer: dict[str, Any], rate_msgs_s: float) -> None:
    """Enters what the reader found."""
    audit = answer.get("audit") or {}
    subscription = (audit.get("subscriptions") or [{}])[0]
    cut.sent, cut.acked = int(audit.get("sent", 0)), int(audit.get("acked", 0))
    for name in (
        "received",
        "lost",
        "lost_prefix",
        "lost_middle",
        "lost_tail",
        "duplicated",
        "reordered",
        "corrupted",
        "unexpected",
        "unknown",
        "recovered",
        "censored",
    ):
        setattr(cut, name, int(subscription.get(name, 0)))
    cut.balanced, cut.imbalance = bool(audit.get("balanced")), audit.get("imbalance")
    cut.lost_ranges = [
        LostRange(
            producer=int(found["producer"]),
            first=int(found["from"]),
            msgs=int(found["until"]) - int(found["from"]),
            from_s=int(found["from"]) / rate_msgs_s,
            until_s=(int(found["until"]) - 1) / rate_msgs_s,
            place=str(found["place"]),
        )
        for found in subscription.get("lost_ranges") or []
    ]
    if cut.lost_ranges:
        first = min(lost.from_s for lost in cut.lost_ranges)
        last = max(lost.until_s for lost in cut.lost_ranges)
        cut.window_ms = (last - first) * 1000


def _thinned(seen: Acks) -> list[tuple[float, int]]:
    step = max(1, len(seen.at_s) // TIMELINE_POINTS)
    points = list(zip(seen.at_s, seen.acked_msgs, strict=True))
    return [(round(at_s, 3), acked) for at_s, acked in points[::step]]
