"""Cuts: power failures, kills and stops while messages are being acknowledged, and an audit of what is there after.

The reader reads nothing before the cut, and everything from the first message on after the recovery: what a tailing
consumer had received before the cut would hide what is lost.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.analysis.acks import Acks
from streamgauge.analysis.refusals import Silence, refused
from streamgauge.model.durability import FLOWING_S, Cut, Kind, LostRange, Scope
from streamgauge.model.power_cut import STRICT_NAMES, LostMessage, Place, mixed
from streamgauge.model.workload import Workload
from streamgauge.runner.durability.bench import Bench, Load, workload
from streamgauge.runner.durability.churn import Churn
from streamgauge.systems.base import parts as parts_of
from streamgauge.systems.base.parts import Part
from streamgauge.vocabulary.choices import Survivors
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.levels import SYNCED
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
COMPLAINS_S = 15.0
"""A system whose own check does not pass for so long, and which acknowledges, is taken to serve."""
CLEARS_S = 60.0
"""When everything has been read, its own check has so long to pass after all: it may have had much to recover, on a machine that is busy."""
ACKS_WITHIN_S = 90.0
AFTER_S = 0.7
"""Load that follows the recovery."""
SIZE_BYTES = 8192
"""So that a load of seconds fills segments of 1 to 16 MiB, and rolls them."""
FAILED_S = 1.5
"""Load after a sync has failed and before the power cut that shows what became of its data."""
PLACE_WITHIN_S = 15.0
PLACE_POLL_S = 0.005
REPLAYS_MAX = 2
FIND_RANGES_MAX = 4
LOG_BYTES_MAX = 256 * 1024
MAGIC = b"SGm1"
TIMELINE_POINTS = 400
POLL_S = 0.05


@dataclass(frozen=True)
class Planned:
    """One cut before it is made. All that chance decides follows from its seed, so that it can be made again."""

    number: int
    kind: Kind
    scope: Scope
    survivors: Survivors
    seed: int
    turn: int
    times: int


@dataclass(frozen=True)
class CutsAsked:
    """Which cuts are to be made."""

    count: int
    """Power cuts per scope."""
    quick: bool
    survivors: Survivors | None = None
    """Of all power cuts; None: a seeded mix."""
    place: Place | None = None
    """Where power cuts come; None: at a random moment."""
    only: int | None = None
    """The number of the only cut to make, of those that would be made; None: all."""


def planned(seed: int, scopes: Sequence[Scope], asked: CutsAsked, *, syncs: bool) -> list[Planned]:
    """All cuts, in order. `syncs`: whether the system declares to sync, so that a sync that fails is worth a look."""
    few = 1 if asked.quick else 3
    rows: list[tuple[Kind, Scope, int]] = [("kill", scope, min(few, asked.count)) for scope in scopes]
    rows += [("stop", scope, 1) for scope in scopes]
    rows += [("power cut", scope, asked.count) for scope in scopes]
    if syncs:
        rows.append(("failed sync", "all", few))
    plan: list[Planned] = []
    for kind, scope, times in rows:
        kinds = mixed(seed)
        for turn in range(times):
            number = len(plan) + 1
            survivors: Survivors = "none"
            if kind == "power cut":
                survivors = next(kinds) if asked.survivors is None else asked.survivors
            own = random.Random(f"{seed} {kind} {scope} {turn}").randrange(1 << 32)
            plan.append(Planned(number, kind, scope, survivors, own, turn, times))
    return [one for one in plan if asked.only in (None, one.number)]


def make_cuts(
    bench: Bench,
    asked: CutsAsked,
    *,
    keep: Callable[[Cut], None],
    learn: Callable[[float], None],
) -> None:
    """Power cuts per scope; kills, stops and failed syncs a few times. `keep` gets each as soon as it is known,
    `learn` the rate of the loads.

    A cut after which the system does not come back ends the experiment: there is nothing left to cut. That it says why is a finding; without
    a word it is SystemFailure. A loss that the declared level excludes is looked at again with the same seed.
    """
    rate_msgs_s = _calibrate(bench)
    learn(rate_msgs_s)
    scopes: list[Scope] = ["all"] if len(bench.nodes()) == 1 else ["one", "majority", "all"]
    syncs = bench.durability.declared in SYNCED
    plan = planned(bench.seed, scopes, asked, syncs=syncs)
    if not plan:
        raise SystemFailure(f"there is no cut {asked.only}; with these settings they have fewer numbers")
    replays = 0
    for one in plan:
        cut = _planned_cut(bench, one, asked.place, rate_msgs_s)
        keep(cut)
        if not _goes_on(cut):
            return
        if cut.kind == "power cut" and (cut.lost or cut.refused) and syncs and replays < REPLAYS_MAX:
            replays += 1
            again = _planned_cut(bench, one, asked.place, rate_msgs_s)
            again.replay_of = cut.number
            keep(again)
            if not _goes_on(again):
                return


def _goes_on(cut: Cut) -> bool:
    """Whether the system is there for another cut. Raises SystemFailure when it is not and did not say why."""
    if cut.failure is None:
        return True
    if not cut.refused:
        raise SystemFailure(f"after cut {cut.number} ({cut.kind} of {cut.scope}): {cut.failure}")
    return False


def _planned_cut(bench: Bench, one: Planned, place: Place | None, rate_msgs_s: float) -> Cut:
    chance = random.Random(one.seed)
    parts = _victims(bench, one.scope, chance)
    bench.observer.progress(
        f"{one.kind} of {one.scope} ({', '.join(part.name for part in parts)}), {one.turn + 1} of {one.times}"
    )
    return _cut(bench, one, parts, chance, rate_msgs_s, place if one.kind == "power cut" else None)


def cut_workload(rate_msgs_s: float, partitions: int) -> Workload:
    """The load of the cuts."""
    return workload(rate_msgs_s, partitions, size_bytes=SIZE_BYTES)


def _calibrate(bench: Bench) -> float:
    """The rate of the loads: a thousand a second, or half of what is acknowledged while disks are as slow as in cuts.
    What is behind would otherwise be read, and waited for, long after the cut.
    """
    bench.observer.progress("looking for a rate that is kept up on slow disks")
    load = bench.begin(cut_workload(RATE_MSGS_S, max(1, len(bench.nodes()))))
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
    one: Planned,
    parts: list[Part],
    chance: random.Random,
    rate_msgs_s: float,
    place: Place | None,
) -> Cut:
    bench.disks.delay_syncs((), 0.0)
    bench.disks.keep_names(strictly=one.survivors == STRICT_NAMES)
    load = bench.begin(cut_workload(rate_msgs_s, max(1, len(bench.nodes()))))
    names = [part.name for part in parts]
    written_before, failed_before = bench.disks.written_bytes(names), bench.disks.syncs_failed(names)
    churn = Churn(bench)
    logged: dict[str, int] = {}
    try:
        bench.disks.delay_syncs(bench.disks.names, SYNC_DELAY_S)
        churn.start()
        bench.wait(chance.uniform(*BEFORE_S) + load.start_s - time.monotonic())
        reached = place is None or _reach(bench, names, place)
        cut = Cut(
            number=one.number,
            kind=one.kind,
            scope=one.scope,
            parts=names,
            at_s=load.now_s,
            place=place,
            place_reached=reached,
        )
        cut.read_early = sum(sub.received_msgs for sub in load.client.counters(load.trial).subscriptions)
        cut.at_s = load.now_s
        if one.kind == "stop":
            _stop(bench, parts)
        else:
            _take_down(bench, one, cut, parts)
            cut.topics_made = churn.stop()
            cut.written_bytes = bench.disks.written_bytes(names) - written_before
            cut.syncs_failed = bench.disks.syncs_failed(names) - failed_before
            bench.disks.delay_syncs((), 0.0)
            logged = {part.name: _bytes_of(part.process.log) for part in parts}
            _bring_up(bench, load, cut, parts, logged)
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
            churn.clean()
            _audit(cut, load.finish(), rate_msgs_s)
            _find_lost(bench, cut, load.run)
            if cut.censored:
                cut.refused = list(bench.running.without_content(load.topic))
            cut.complaints = _complaints(bench, [part for part in parts if part.name in logged], logged)
        return cut
    finally:
        churn.stop()
        load.close()


def _reach(bench: Bench, names: Sequence[str], place: Place) -> bool:
    """Waits until a disk stands still at a place; False when none comes to it in time."""
    bench.disks.hold_at(names, place)

    def missing() -> str | None:
        if bench.disks.is_held(names):
            return None
        bench.check()
        return "a disk to stand still"

    if wait_until(missing, PLACE_WITHIN_S, PLACE_POLL_S) is None:
        return True
    bench.disks.release()
    return False


def _stop(bench: Bench, parts: Sequence[Part]) -> None:
    try:
        parts_of.pause_together(parts)
        bench.wait(STOPPED_S)
    finally:
        for part in parts:
            part.resume()


def _take_down(bench: Bench, one: Planned, cut: Cut, parts: Sequence[Part]) -> None:
    if one.kind == "kill":
        parts_of.kill_together(parts)
        return
    if one.kind == "failed sync":
        for part in parts:
            part.process.down_on_purpose = True  # To end is one of the right answers to it.
        bench.disks.set_faults(cut.parts, sync_error="EIO", sync_drops=True, times=1)
        bench.wait(FAILED_S)
        bench.disks.set_faults(cut.parts, sync_error=None, sync_drops=None, times=None)
    cut.power = bench.disks.cut_power(parts, one.survivors, one.seed)
    cut.dropped_bytes = cut.power.dropped_bytes


def _bring_up(bench: Bench, load: Load, cut: Cut, parts: Sequence[Part], logged: Mapping[str, int]) -> None:
    """Starts the parts again, each kind when the one before it serves. Enters why not, and with which words behind `logged` bytes of their
    logs, when they do not.
    """
    try:
        for stage in parts_of.stages(parts):
            for part in stage:
                part.restart()
            cut.failure = _await_all(bench, load, stage)
            if cut.failure is not None:
                break
    except SystemFailure as failure:
        cut.failure = str(failure)
    if cut.failure is not None:
        silent = [part for part in parts if part.process.ending() is not None or part.waits_for() is not None]
        cut.refused = refused(
            [
                Silence(part.name, part.process.ending(), _lines(part.process.log, logged[part.name]))
                for part in silent
            ]
        )


def _complaints(bench: Bench, parts: Sequence[Part], logged: Mapping[str, int]) -> list[str]:
    """What those say behind `logged` bytes of their logs who acknowledge and whose own check does not pass, though they have had their time."""
    waiting = list(parts)

    def missing() -> str | None:
        bench.check()
        waiting[:] = [part for part in waiting if part.waits_for() is not None]
        return waiting[0].name if waiting else None

    wait_until(missing, CLEARS_S, POLL_S)
    return refused(
        [Silence(part.name, None, _lines(part.process.log, logged[part.name])) for part in waiting]
    )


def _bytes_of(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _lines(log: Path, begin: int) -> list[str]:
    """The lines of a log behind a place, at most the last ones."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(begin, _bytes_of(log) - LOG_BYTES_MAX))
            return handle.read(LOG_BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return []


def _await_all(bench: Bench, load: Load, parts: Sequence[Part]) -> str | None:
    """None when all serve; else who does not, and what it waits for. A system that acknowledges again serves, whatever its own check says for how long."""
    waiting = list(parts)
    before = load.client.counters(load.trial).acked_msgs
    settled_s = time.monotonic() + COMPLAINS_S

    def missing() -> str | None:
        bench.check()
        if time.monotonic() > settled_s and load.client.counters(load.trial).acked_msgs > before:
            return None
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


def _find_lost(bench: Bench, cut: Cut, run: int) -> None:
    """Looks up where some of the lost messages had been: their stamps (crates/gauge-load/src/stamp.rs) among what the cut took."""
    if cut.power is None:
        return
    for lost in cut.lost_ranges[:FIND_RANGES_MAX]:
        for sequence in dict.fromkeys((lost.first, lost.first + lost.msgs - 1)):
            wanted = MAGIC + struct.pack("<II", run, lost.producer)
            stamp = f"{wanted.hex()}{'??' * 4}{struct.pack('<Q', sequence).hex()}"
            for file, offset in bench.disks.find_lost(cut.parts, stamp)[:1]:
                cut.lost_messages.append(
                    LostMessage(producer=lost.producer, sequence=sequence, offset=offset, file=file)
                )


def _thinned(seen: Acks) -> list[tuple[float, int]]:
    step = max(1, len(seen.at_s) // TIMELINE_POINTS)
    points = list(zip(seen.at_s, seen.acked_msgs, strict=True))
    return [(round(at_s, 3), acked) for at_s, acked in points[::step]]
