"""Accounting: what reached the disks while a steady load was acknowledged."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from streamgauge.fleet.client import WorkerClient
from streamgauge.model.durability import Account, Pace
from streamgauge.model.messages import Interval
from streamgauge.runner.durability.bench import Bench, workload
from streamgauge.vocabulary.histograms import Histogram, decode, merge

RATE_MSGS_S = 1000.0
MEASURE_S = 5.0
QUICK_MEASURE_S = 3.0
LEAD_S = 4.0
"""Java has not seen this rate before; its first seconds are those of a compiler."""
MS_PER_S = 1000.0
NS_PER_MS = 1e6
WHOLE_S = 0.9
"""An interval is a second unless it is the last one."""
ASIDE_S = 0.5
"""Seconds of the schedule and of the account do not begin together; so much of one may lie outside."""
SUMMED = ("writes", "bytes_written", "syncs", "bytes_synced", "sync_ns_sum")


def accounts(bench: Bench, *, quick: bool, sync_delay_ms: float) -> tuple[list[Account], Pace]:
    """One load at a thousand messages per second, while syncs take so much longer as on the disk of this machine: an
    account for each part that keeps data, and the latencies of the load.
    """
    asked = workload(RATE_MSGS_S, max(1, len(bench.nodes())))
    load = bench.begin(asked, watched=False)
    names = bench.disks.names
    try:
        bench.observer.progress("accounting for what reaches the disks")
        bench.disks.delay_syncs(names, sync_delay_ms / MS_PER_S)
        bench.wait(LEAD_S)
        marks = {name: int(answer["mark"]) for name, answer in bench.disks.ask(names, "accounts").items()}
        before, from_s = load.client.counters(load.trial), load.now_s
        bench.wait(QUICK_MEASURE_S if quick else MEASURE_S)
        after, until_s = load.client.counters(load.trial), load.now_s
        told = {name: bench.disks.ask([name], "accounts", since=marks[name])[name] for name in names}
        load.client.stop_schedule(load.trial)
        bench.wait(0.3)
        unsynced = {
            name: answer["unsynced_bytes"] for name, answer in bench.disks.ask(names, "status").items()
        }
        bench.disks.delay_syncs((), 0.0)
        load.finish()
        pace = _pace(load.client, load.trial, from_s, until_s)
    finally:
        load.close()
        bench.disks.delay_syncs((), 0.0)
    seconds = until_s - from_s
    acked_msgs = after.acked_msgs - before.acked_msgs
    pace.sync_delay_ms, pace.acked_share = sync_delay_ms, acked_msgs / (RATE_MSGS_S * seconds)
    return [
        _account(
            name,
            seconds,
            acked_msgs,
            after.acked_bytes - before.acked_bytes,
            after.batches - before.batches,
            told[name]["classes"],
            int(unsynced[name]),
        )
        for name in names
    ], pace


def _pace(client: WorkerClient, trial: str, from_s: float, until_s: float) -> Pace:
    """Publish latencies of each whole second between two moments of the schedule."""
    pace = Pace(rate_msgs_s=RATE_MSGS_S, sync_delay_ms=0.0, acked_share=0.0)
    since = 0
    while (found := client.intervals(trial, since)).intervals:
        since = found.next
        for value in found.intervals:
            interval = Interval.model_validate(value)
            begin_s, end_s = interval.start_s, interval.start_s + interval.duration_s
            within = from_s - ASIDE_S <= begin_s and end_s <= until_s + ASIDE_S
            published = _published(interval)
            if within and interval.duration_s >= WHOLE_S and published.count:
                pace.publish_ms_p50.append((published.percentile(50.0) or 0.0) / NS_PER_MS)
                pace.publish_ms_p99.append((published.percentile(99.0) or 0.0) / NS_PER_MS)
    return pace


def _published(interval: Interval) -> Histogram:
    entries = [entry for entry in interval.latencies if entry.metric == "publish" and entry.histogram]
    return merge([decode(base64.b64decode(entry.histogram)) for entry in entries])


def _account(
    part: str,
    seconds: float,
    acked_msgs: int,
    acked_bytes: int,
    batches: int,
    classes: Mapping[str, Mapping[str, Any]],
    unsynced_bytes: int,
) -> Account:
    sums = {key: sum(int(one.get(key, 0)) for one in classes.values()) for key in SUMMED}
    syncs = sums["syncs"]
    return Account(
        part=part,
        seconds=seconds,
        acked_msgs=acked_msgs,
        acked_bytes=acked_bytes,
        batches=batches,
        writes=sums["writes"],
        bytes_written=sums["bytes_written"],
        syncs=syncs,
        bytes_synced=sums["bytes_synced"],
        unsynced_bytes=unsynced_bytes,
        syncs_s=syncs / seconds if seconds else 0.0,
        bytes_per_sync=sums["bytes_synced"] / syncs if syncs else None,
        sync_ms_mean=sums["sync_ns_sum"] / syncs / NS_PER_MS if syncs else None,
        write_amplification=sums["bytes_written"] / acked_bytes if acked_bytes else None,
    )
