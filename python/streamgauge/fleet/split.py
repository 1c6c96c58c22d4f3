"""From the request of a whole trial to the requests of its workers (docs/fleet.md).

Producers and consumers are dealt out by the workers' capacity; every message, rate and partition of the whole
is in exactly one part, so that the parts together are the same load as one worker would drive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamgauge.vocabulary.choices import Topology

"""Producers and consumers on the same workers, or apart; or every worker reads everything and measures what it sent itself."""
Role = Literal["producers", "consumers"]
BUFFER_BYTES_MIN = 1 << 16
"""The least that a worker takes (docs/worker-api.md)."""


@dataclass(frozen=True)
class Capacity:
    """What a worker may be given."""

    name: str
    weight: float
    roles: frozenset[Role]


@dataclass(frozen=True)
class Part:
    """One worker's part of a trial; `request` is None when nothing is left for it."""

    name: str
    request: dict[str, Any] | None
    producers: int


def assign_roles(workers: Sequence[Capacity], topology: Topology) -> list[Capacity]:
    """With `split`, workers that may do both get one role: producers first, half of the capacity each."""
    if topology != "split":
        return list(workers)
    both = [worker for worker in workers if len(worker.roles) == 2]
    load = {
        role: sum(one.weight for one in workers if one.roles == frozenset({role}))
        for role in ("producers", "consumers")
    }
    chosen: dict[str, Role] = {}
    for worker in both:
        role: Role = "producers" if load["producers"] <= load["consumers"] else "consumers"
        load[role] += worker.weight
        chosen[worker.name] = role
    return [
        Capacity(worker.name, worker.weight, frozenset({chosen[worker.name]}))
        if worker.name in chosen
        else worker
        for worker in workers
    ]


def deal(count: int, weights: Sequence[float]) -> list[int]:
    """`count` things over weights, by largest remainder; earlier ones first where remainders are alike."""
    total = sum(weights)
    if total <= 0:
        return [0] * len(weights)
    exact = [count * weight / total for weight in weights]
    shares = [int(share) for share in exact]
    order = sorted(range(len(weights)), key=lambda at: (shares[at] - exact[at], at))
    for at in order[: count - sum(shares)]:
        shares[at] += 1
    return shares


def split(request: Mapping[str, Any], workers: Sequence[Capacity], *, swarm: bool = False) -> list[Part]:
    """One part per worker, in the same order. Rates are shared like the producers. `swarm`: every worker that sends has subscriptions of
    its own in place of a share of the common ones."""
    producers = list(request["producers"])
    sending = [worker.weight if "producers" in worker.roles else 0.0 for worker in workers]
    receiving = [worker.weight if "consumers" in worker.roles else 0.0 for worker in workers]
    counts = deal(len(producers), sending)
    if swarm:
        subscriptions = [
            _own_subscriptions(request, worker.name) if count else []
            for worker, count in zip(workers, counts, strict=True)
        ]
    else:
        subscriptions = _shared_subscriptions(request, receiving)
    parts, dealt = [], 0
    for at, worker in enumerate(workers):
        # Producers of a topic go to different workers, as far as there are some.
        mine = producers[dealt : dealt + counts[at]]
        dealt += counts[at]
        part = _part(request, mine, subscriptions[at])
        if swarm and part is not None:
            part["measure"] = "own"
        parts.append(Part(worker.name, part, len(mine)))
    return parts


def _own_subscriptions(request: Mapping[str, Any], worker: str) -> list[dict[str, Any]]:
    return [
        {**subscription, "name": f"{subscription['name']}-{worker}"}
        for subscription in request["subscriptions"]
    ]


def _shared_subscriptions(
    request: Mapping[str, Any], receiving: Sequence[float]
) -> list[list[dict[str, Any]]]:
    """Each consumer of a subscription on one worker, dealt out by `receiving`, the workers' weights."""
    subscriptions: list[list[dict[str, Any]]] = [[] for _ in receiving]
    turn = 0
    for subscription in request["subscriptions"]:
        consumers, first = int(subscription["consumers"]), 0
        # Fewer consumers than workers: the next subscription begins where this one ended.
        rotated = [(at + turn) % len(receiving) for at in range(len(receiving))]
        shares = deal(consumers, [receiving[at] for at in rotated])
        for at, share in zip(rotated, shares, strict=True):
            if share:
                shared = {**subscription, "consumer_from": first, "consumer_count": share}
                subscriptions[at].append(shared)
                first += share
        turn += sum(1 for share in shares if share)
    return subscriptions


def _part(
    request: Mapping[str, Any], producers: list[dict[str, Any]], subscriptions: list[dict[str, Any]]
) -> dict[str, Any] | None:
    if not producers and not subscriptions:
        return None
    part = {**request, "producers": producers, "subscriptions": subscriptions, "shared": True}
    share = len(producers) / len(request["producers"]) if request["producers"] else 0.0
    if not producers:
        # The schedule still tells when it ends and how much there is to receive, the payload whether there are stamps.
        return part
    schedule = dict(request["schedule"])
    if "rate_msgs_s" in schedule:
        schedule["rate_msgs_s"] *= share
    if "ramp" in schedule:
        schedule["ramp"] = {**schedule["ramp"], "to_msgs_s": schedule["ramp"]["to_msgs_s"] * share}
    if "changes" in schedule:
        changes = schedule["changes"]
        schedule["changes"] = [{**one, "rate_msgs_s": one["rate_msgs_s"] * share} for one in changes]
    part["schedule"] = schedule
    batch = dict(request.get("batch", {}))
    if "buffer_bytes" in batch:
        batch["buffer_bytes"] = max(int(batch["buffer_bytes"] * share), BUFFER_BYTES_MIN)
        part["batch"] = batch
    return part
