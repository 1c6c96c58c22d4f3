"""Accounting: what reached the disks while a steady load was acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.model.durability import Account
from streamgauge.runner.durability.bench import Bench, workload

RATE_MSGS_S = 1000.0
MEASURE_S = 5.0
QUICK_MEASURE_S = 3.0
LEAD_S = 2.0
NS_PER_MS = 1e6
SUMMED = ("writes", "bytes_written", "syncs", "bytes_synced", "sync_ns_sum")


def accounts(bench: Bench, *, quick: bool) -> list[Account]:
    """One load at a thousand messages per second; an account for each part that keeps data."""
    asked = workload(RATE_MSGS_S, max(1, len(bench.nodes())))
    load = bench.begin(asked)
    names = bench.disks.names
    try:
        bench.observer.progress("accounting for what reaches the disks")
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
        load.finish()
    finally:
        load.close()
    seconds = until_s - from_s
    return [
        _account(
            name,
            seconds,
            after.acked_msgs - before.acked_msgs,
            after.acked_bytes - before.acked_bytes,
            after.batches - before.batches,
            told[name]["classes"],
            int(unsynced[name]),
        )
        for name in names
    ]


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
