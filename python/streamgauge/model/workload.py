"""A workload with every default filled in, every unit resolved and every range checked.

`model.resolve.read_workload` makes one from a file, or from the name of one that ships with streamgauge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.model.fault import describe
from streamgauge.model.result import BacklogAsked, FaultAsked, SearchAsked, WorkloadResult
from streamgauge.model.units import format_duration, format_size
from streamgauge.model.workload_file import Arrival, Compression, Keys


@dataclass(frozen=True)
class Workload:
    """A workload with every default filled in. Sizes in bytes, rates over all producers together."""

    name: str
    file: str | None
    topics: int
    partitions_per_topic: int
    message_size_bytes: int
    producers_per_topic: int
    subscriptions_per_topic: int
    consumers_per_subscription: int
    rate_msgs_s: float | None
    """None: closed loop, or to be found (`search`)."""
    arrival: Arrival
    burst_msgs: int | None
    ramp_to_msgs_s: float | None
    ramp_over_s: float | None
    keys: Keys
    key_count: int | None
    warmup_s: float
    duration_s: float
    batch_bytes: int
    linger_ms: float
    in_flight: int
    buffer_bytes: int
    compression: Compression
    idempotence: bool
    payload_random_ratio: float
    payload_pool: int
    payload_file: str | None
    drain_s: float
    lanes: Mapping[str, Any]
    search: SearchAsked | None = None
    """The rate is to be found."""
    backlog: BacklogAsked | None = None
    faults: tuple[FaultAsked, ...] = ()
    """Made on purpose while it is measured, in the order of their times."""
    notes: tuple[str, ...] = field(default=())
    """Where a key's effect differs from what its author may expect; shown before the run and kept with the
    result."""

    def at_rate(self, rate_msgs_s: float) -> Workload:
        """This workload at a rate that was found."""
        return dataclasses.replace(self, rate_msgs_s=rate_msgs_s, search=None)

    def payload(self) -> bytes | None:
        """The payload file's content, or None for generated payloads."""
        return Path(self.payload_file).read_bytes() if self.payload_file else None

    def result(self) -> WorkloadResult:
        """As it is written into results."""
        extra: dict[str, Any] = {
            "burst_msgs": self.burst_msgs,
            "ramp_to_msgs_s": self.ramp_to_msgs_s,
            "ramp_over_s": self.ramp_over_s,
            "idempotence": self.idempotence or None,
            "lanes": dict(self.lanes) or None,
            "notes": list(self.notes) or None,
        }
        return WorkloadResult(
            name=self.name,
            file=self.file,
            topics=self.topics,
            partitions_per_topic=self.partitions_per_topic,
            message_size_bytes=self.message_size_bytes,
            producers_per_topic=self.producers_per_topic,
            subscriptions_per_topic=self.subscriptions_per_topic,
            consumers_per_subscription=self.consumers_per_subscription,
            rate_msgs_s=self.rate_msgs_s,
            arrival=self.arrival,
            keys=self.keys,
            key_count=self.key_count,
            warmup_s=self.warmup_s,
            duration_s=self.duration_s,
            batch_bytes=self.batch_bytes,
            linger_ms=self.linger_ms,
            in_flight=self.in_flight,
            buffer_bytes=self.buffer_bytes,
            compression=self.compression,
            payload_random_ratio=self.payload_random_ratio,
            payload_file=self.payload_file,
            search=self.search,
            backlog=self.backlog,
            faults=list(self.faults),
            extra={key: value for key, value in extra.items() if value is not None},
        )

    def summary(self) -> str:
        """One line for people."""
        rate = "max rate" if self.rate_msgs_s is None else f"{self.rate_msgs_s:,.0f} msg/s"
        if self.search is not None:
            rate = "max sustainable rate"
        producers = self.producers_per_topic * self.topics
        consumers = self.consumers_per_subscription * self.subscriptions_per_topic
        return (
            (
                f"{rate}, {self.message_size_bytes} B, {_count(self.topics, 'topic')} x "
                f"{_count(self.partitions_per_topic, 'partition')}, {_count(producers, 'producer')}, "
                f"{_count(consumers, 'consumer')}, warm-up {format_duration(self.warmup_s)}, "
                f"{format_duration(self.duration_s)} measured"
            )
            + (f", backlog of {format_size(self.backlog.size_bytes)}" if self.backlog else "")
            + "".join(f", {describe(fault)}" for fault in self.faults)
        )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
