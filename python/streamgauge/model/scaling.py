"""How a published study is scaled to the machine that runs it (docs/studies.md says it in words).

Three estimates bound a rate: what the cores carry of messages and of batches - every one is handled once per node that
stores it and once per subscription that reads it - and what the disk takes, twice per node, because a journal and the
data may both be written. They are deliberately low: a latency is to be measured well below the maximum. All cells that a study ran at
one rate are run at one rate here, too (those with a backlog by themselves): the smallest that any of them allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.vocabulary.levels import Level

HANDLED_MSGS_S_PER_CORE = 50_000.0
HANDLED_BYTES_S_PER_CORE = 25e6
HANDLED_BATCHES_S_PER_CORE = 12_500.0
"""Half of what two cores carried of Kafka's batches of one message (three nodes, one subscription, 12,000 msg/s)."""
DISK_SHARE_MAX = 0.25
WRITES_PER_NODE = 2
ONE_NODE_LEVELS: dict[Level, Level] = {"L1": "L3", "L2": "L4", "L3": "L3", "L4": "L4"}
"""One node keeps one copy: what is left of a level is whether it is fsynced."""


@dataclass(frozen=True)
class Machine:
    """What the rules need to know of this machine."""

    cores: int
    memory_bytes: int
    disk_write_mb_s: float | None
    """None where it was not probed: the disk then bounds nothing."""


@dataclass(frozen=True)
class Batching:
    """How messages are gathered."""

    linger_s: float
    batch_bytes: int
    lists: int
    """Places where batches are gathered: partitions of each producer."""

    def rate_of(self, batches_s: float, message_bytes: int) -> float:
        """The rate in msg/s at which so many batches leave; infinite where they grow with the rate for ever.

        A batch leaves when it is full, or its first message is `linger_s` old, with those that came meanwhile: 1 + linger_s * rate / lists.
        """
        by_age = 1 - batches_s * self.linger_s / self.lists
        lingered = batches_s / by_age if by_age > 0 else math.inf
        full = batches_s * max(self.batch_bytes / message_bytes, 1.0)
        return min(lingered, full)


@dataclass(frozen=True)
class Demand:
    """What a cell asks of the machine at a rate."""

    rate_msgs_s: float
    message_bytes: int
    nodes: int
    subscriptions: int
    batching: Batching
    weight: float = 1.0
    with_backlog: bool = False
    """A backlog is built at the rate: such cells are compared with each other and not with the rest."""


def rate_bound(demand: Demand, machine: Machine) -> float:
    """The rate in msg/s that the machine is expected to carry with ease, whatever was published."""
    handlings = demand.weight * demand.nodes + demand.subscriptions
    bounds = [
        machine.cores * HANDLED_MSGS_S_PER_CORE / handlings,
        machine.cores * HANDLED_BYTES_S_PER_CORE / demand.message_bytes / handlings,
        demand.batching.rate_of(machine.cores * HANDLED_BATCHES_S_PER_CORE / handlings, demand.message_bytes),
    ]
    if machine.disk_write_mb_s:
        written = demand.message_bytes * demand.nodes * WRITES_PER_NODE
        bounds.append(machine.disk_write_mb_s * 1e6 * DISK_SHARE_MAX / written)
    return min(bounds)


def scaled_rates(demands: Sequence[Demand], machine: Machine) -> list[float]:
    """A rate for each demand: as published where the machine carries it, else two significant digits below what it
    carries; the same for all that were published at the same rate and message size (with a backlog, or without)."""
    groups: dict[tuple[float, int, bool], float] = {}
    for demand in demands:
        key = _group(demand)
        groups[key] = min(groups.get(key, demand.rate_msgs_s), rate_bound(demand, machine))
    rates = [groups[_group(demand)] for demand in demands]
    return [
        rate if rate >= demand.rate_msgs_s else round_down(rate)
        for demand, rate in zip(demands, rates, strict=True)
    ]


def _group(demand: Demand) -> tuple[float, int, bool]:
    """What must stay comparable."""
    return demand.rate_msgs_s, demand.message_bytes, demand.with_backlog


def round_down(value: float) -> float:
    """To two significant digits; 1 at least."""
    if value < 1:
        return 1.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return max(math.floor(value / step + 1e-9) * step, 1.0)


def level_on(level: Level, nodes: int) -> Level:
    """What a level of three nodes becomes on so many."""
    return level if nodes > 1 else ONE_NODE_LEVELS[level]
