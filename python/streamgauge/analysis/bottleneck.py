"""Which limit binds a maximum, with its evidence.

A limit is near from NEAR_LIMIT_SHARE on. Of several that are near the nearest binds; the client's window only when no other is: it is full
whenever the system is slower than the generator, whatever makes the system slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from streamgauge.analysis.intervals import Row, total, total_s
from streamgauge.analysis.lanes import LaneUse
from streamgauge.analysis.limits import BINDING, NEAR_LIMIT_SHARE
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_base import Latency
from streamgauge.model.result_machine import Limits, Share, Thread
from streamgauge.model.result_reasons import Bottleneck, Limit
from streamgauge.vocabulary.format import capital, trimmed

TITLES = {
    "cpu": "the machine's CPU",
    "thread": "one thread of the system",
    "disk_write": "the disk's write bandwidth",
    "disk_read": "the disk's read bandwidth",
    "fsync": "the disk's flushes (fsync)",
    "network": "the network",
    "client_window": "the client's window",
    "generator": "the generator",
}
THREADS_MAX = 8


def threads(used: Sequence[Row]) -> list[Thread]:
    """The system's busiest threads over the rows of the measured window."""
    rows = [row for row in used if row["scope"] == "thread"]
    seconds = sum({float(row["start_s"]): float(row["duration_s"]) for row in rows}.values())
    if seconds <= 0:
        return []
    spent: dict[str, float] = defaultdict(float)
    for row in rows:
        spent[str(row["process"])] += float(row["cpu_s"] or 0.0)
    found = [
        Thread(process=name.partition("/")[0], name=name.partition("/")[2], core_share=cpu_s / seconds)
        for name, cpu_s in spent.items()
    ]
    return sorted(found, key=lambda one: -one.core_share)[:THREADS_MAX]


def fsync_limit(used: Sequence[Row], machine: Limits) -> Limit | None:
    """The share of the time for which the disk flushed its cache."""
    rows = [row for row in used if row["scope"] == "host" and row.get("flushes") is not None]
    seconds, count, spent_s = total_s(rows, "duration_s"), total(rows, "flushes"), total_s(rows, "flush_s")
    if not seconds or not count:
        return None
    evidence = (
        f"{count / seconds:,.0f} flushes of the disk's cache per second, {1e3 * spent_s / count:.2f} ms each"
    )
    if machine.fsync_ms_p50:
        # They are no two figures of one thing: the kernel times the flush alone, and the probe the call that a program waits for.
        evidence += (
            "; a whole fsync, which first writes data and the file system's journal, takes "
            f"{machine.fsync_ms_p50:.2f} ms on the idle disk"
        )
    return Limit(name="fsync", share=spent_s / seconds, evidence=evidence)


def window_limit(
    workload: WorkloadResult, service: Latency, rate_mb_s: float, held_share: float
) -> Limit | None:
    """How full the client's window was: by Little's law in a closed loop, by the time that producers were held in an open one."""
    producers = workload.topics * workload.producers_per_topic
    if not producers or service.mean is None:
        return None
    window = min(workload.in_flight * workload.batch_bytes * producers, workload.buffer_bytes)
    travelling = rate_mb_s * 1e6 * service.mean / 1e3
    if workload.arrival == "closed":
        return Limit(
            name="client_window",
            share=min(1.0, travelling / window),
            evidence=(
                f"{travelling / 1e6:.2f} MB were on their way at a time (rate times mean service time of {trimmed(service.mean)} ms); "
                f"{workload.in_flight} requests of {workload.batch_bytes:,} bytes per producer are {window / 1e6:.2f} MB"
            ),
        )
    held = "producers were never held back: their window was never full"
    if held_share > 0:
        told = "less than 1" if held_share < 0.01 else f"{100 * held_share:.0f}"
        held = f"producers were held back for {told} % of the time, because their window was full"
    return Limit(name="client_window", share=held_share, evidence=held)


def lane_limit(lanes: Sequence[LaneUse]) -> Limit | None:
    """The busiest thread of the generator, in the measured window."""
    busiest = max(lanes, key=lambda lane: lane.busy_share, default=None)
    if busiest is None:
        return None
    share = busiest.busy_share
    return Limit(
        name="generator",
        share=share,
        evidence=f"its thread {busiest.name} was busy for {100 * share:.0f} % of the time",
    )


def bottleneck(
    *,
    at_its_most: bool,
    shares: Sequence[Share],
    busiest: Sequence[Thread],
    others: Sequence[Limit | None],
    write_amplification: float | None,
) -> Bottleneck:
    """All limits that are known, and the one that binds. `at_its_most`: a maximum was measured."""
    found = [_of_share(share, write_amplification) for share in shares if share.name in BINDING]
    if busiest:
        first = busiest[0]
        evidence = f"{first.name} of {first.process} used {100 * first.core_share:.0f} % of a core"
        found.append(Limit(name="thread", share=first.core_share, evidence=evidence))
    found += [one for one in others if one is not None]
    found.sort(key=lambda one: -one.share)
    if not at_its_most:
        nearest = f"; the nearest limit is {TITLES[found[0].name]} ({_percent(found[0])})" if found else ""
        return Bottleneck(
            applies=False,
            explanation=f"The system did what was asked of it, so no limit binds{nearest}.",
            limits=found,
        )
    near = [one for one in found if one.share >= NEAR_LIMIT_SHARE]
    binding = next((one for one in near if one.name != "client_window"), near[0] if near else None)
    if binding is None:
        nearest = f" The nearest is {TITLES[found[0].name]} ({_percent(found[0])})." if found else ""
        return Bottleneck(
            applies=True,
            explanation=f"Nothing is near its limit: the bottleneck is unexplained.{nearest}",
            limits=found,
        )
    sentence = f"{capital(TITLES[binding.name])} binds ({_percent(binding)}): {binding.evidence}."
    also = [f"{TITLES[one.name]} ({_percent(one)})" for one in near if one is not binding]
    if also:
        sentence += f" Near its limit is also {', '.join(also)}."
    return Bottleneck(applies=True, binding=binding.name, explanation=sentence, limits=found)


def _of_share(share: Share, write_amplification: float | None) -> Limit:
    evidence = share.explanation
    if share.name == "disk_write" and write_amplification is not None:
        evidence += f"; {write_amplification:.2f} bytes written per byte published"
    return Limit.model_validate({"name": share.name, "share": share.value, "evidence": evidence})


def _percent(limit: Limit) -> str:
    return f"{100 * limit.share:.0f} % of it"
