"""From a trial's request (docs/worker-api.md) to what each of OMB's workers is told to do: as OMB's leader deals it out."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

KEYS = {"none": "NO_KEY", "round_robin": "NO_KEY", "keyed": "KEY_ROUND_ROBIN"}
OMB_KEYS = 10_000
PAYLOAD_BYTES_MAX = 16 << 20
"""All payloads together go to each producing worker in one request."""
STAMP_BYTES = 32

Item = TypeVar("Item")


@dataclass(frozen=True)
class Work:
    """A trial as OMB's workers take it."""

    producers: list[str]
    """A topic for each producer."""
    consumers: list[tuple[str, str]]
    """Topic and subscription for each consumer."""
    subscriptions: list[str]
    """Names in the request."""
    payloads_base64: list[str]
    keys: str
    rate_msgs_s: float
    changes: list[tuple[float, float]]
    """Time on the schedule's axis, and the rate from then on."""
    stop_s: float | None
    cannot: list[str]

    @property
    def copies(self) -> int:
        """How many subscriptions receive each message."""
        return len(self.subscriptions)


def plan(request: Mapping[str, Any], topic: str = "{}") -> Work:
    """What is to be done. `topic`: how a name becomes what OMB's driver is given."""
    cannot: list[str] = []
    names = [str(one["name"]) for one in request["topics"]]
    schedule = request["schedule"]
    consumers = [
        # A group of its own for each topic, as OMB has them; its name is not another trial's.
        (topic.format(name), f"{name}-{one['name']}")
        for one in request["subscriptions"]
        for name in names
        for _ in range(int(one["consumers"]))
    ]
    if len(names) > 1:
        cannot.append(
            "consumers that share several topics: each topic has the subscription's number of consumers for itself"
        )
    return Work(
        producers=[topic.format(one["topic"]) for one in request["producers"]],
        consumers=consumers,
        subscriptions=[str(one["name"]) for one in request["subscriptions"]],
        payloads_base64=_payloads(request, cannot),
        keys=_keys(request, cannot),
        rate_msgs_s=float(schedule["rate_msgs_s"]),
        changes=[(float(one["at_s"]), float(one["rate_msgs_s"])) for one in schedule.get("changes", [])],
        stop_s=None if schedule.get("stop_s") is None else float(schedule["stop_s"]),
        cannot=cannot,
    )


def roles(workers: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Who produces and who consumes: the first half produces; a single one does both."""
    if len(workers) == 1:
        return list(workers), list(workers)
    half = len(workers) // 2
    return list(workers[:half]), list(workers[half:])


def deal(items: Sequence[Item], hands: int) -> list[list[Item]]:
    """One after the other, in turn."""
    return [list(items[at::hands]) for at in range(hands)]


def _payloads(request: Mapping[str, Any], cannot: list[str]) -> list[str]:
    payload = request["payload"]
    if "templates_base64" in payload:
        return list(payload["templates_base64"])
    sizes = payload.get("sizes_bytes")
    if sizes is None:
        pool = int(payload.get("pool", 64)) if payload.get("random_ratio", 0.0) else 1
        sizes = [int(payload["size_bytes"])] * pool
        kept = max(PAYLOAD_BYTES_MAX // max(int(payload["size_bytes"]), 1), 1)
        if kept < pool:
            cannot.append(
                f"{pool} different payloads: {kept} of them, to fit into one request to OMB's worker"
            )
            sizes = sizes[:kept]
    else:
        cannot.append("sizes in turn: OMB's workers take each message's payload at random")
    source = random.Random(int(request.get("seed", 0)))
    ratio = float(payload.get("random_ratio", 0.0))
    made = []
    for size in sizes:
        filled = round(int(size) * ratio)
        made.append(base64.b64encode(source.randbytes(filled) + bytes(int(size) - filled)).decode("ascii"))
    return made


def _keys(request: Mapping[str, Any], cannot: list[str]) -> str:
    kinds = {str(one["keys"]) for one in request["producers"]}
    kind = kinds.pop() if len(kinds) == 1 else "none"
    counts = {int(one["key_count"]) for one in request["producers"] if one.get("key_count") is not None}
    if kind == "keyed" and counts != {OMB_KEYS}:
        cannot.append(f"{'/'.join(map(str, sorted(counts)))} keys: OMB's workers have {OMB_KEYS}, in turn")
    return KEYS[kind]
