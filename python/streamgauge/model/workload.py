"""A workload with every default filled in, every unit resolved and every range checked.

`model.resolve.read_workload` makes one from a file, or from the name of one that ships with streamgauge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from streamgauge.model.fault import describe
from streamgauge.model.result_asked import (
    BacklogAsked,
    FaultAsked,
    MessageSizes,
    RateStep,
    SearchAsked,
    WorkloadResult,
)
from streamgauge.vocabulary.bounds import QUIET_LIMIT
from streamgauge.vocabulary.choices import Arrival, Compression, Idle, Keys
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.sizes import SizeSpread
from streamgauge.vocabulary.units import format_duration, format_size


@dataclass(frozen=True)
class Workload:
    """A workload with every default filled in. Sizes in bytes, rates over all producers together."""

    name: str
    file: str | None
    topics: int
    partitions_per_topic: int
    message_size_bytes: int
    """The mean where sizes differ."""
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
    """With `warmup_auto`, at most."""
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
    idle: Idle = "halt"
    """What this machine's CPUs do that have nothing to do."""
    profile: bool = False
    """Whether it is sampled where the processes spend their time."""
    quiet_limit: float = QUIET_LIMIT
    """So many times as long as asked for the measured phase may last, until as much of it was quiet as was asked for."""
    pace_share: float | None = None
    """The rate is brought, while the load warms up (`warmup_auto`), to where this share of the CPU is used; at most to `rate_msgs_s`."""
    warmup_auto: bool = False
    """The warm-up ends as soon as the load is steady."""
    search: SearchAsked | None = None
    """The rate is to be found."""
    sweep: bool = False
    """The workload is measured at rates that are chosen while it is: a curve. `warmup_s` is that of a start, `duration_s` the time of all points of it."""
    backlog: BacklogAsked | None = None
    sizes: SizeSpread | None = None
    """The sizes where they differ."""
    steps: tuple[RateStep, ...] = ()
    """Changes of the rate, in order; they do not overlap."""
    zipf_exponent: float | None = None
    processing_ms_per_msg: float = 0.0
    processing_ms_per_fetch: float = 0.0
    read_topics: tuple[str, ...] = ()
    """Topics that exist and are read; nothing is produced, created or deleted."""
    start: Literal["earliest", "latest"] = "latest"
    """Where subscriptions begin."""
    faults: tuple[FaultAsked, ...] = ()
    """Made on purpose while it is measured, in the order of their times."""
    notes: tuple[str, ...] = field(default=())
    """Where a key's effect differs from what its author may expect; shown before the run and kept with the
    result."""

    def at_rate(self, rate_msgs_s: float) -> Workload:
        """This workload at a rate that was found."""
        return dataclasses.replace(self, rate_msgs_s=rate_msgs_s, search=None, pace_share=None)

    def closed_loop(self, duration_s: float) -> Workload:
        """A sweep's load that goes as fast as it can, with the warm-up of the start."""
        return dataclasses.replace(
            self, sweep=False, rate_msgs_s=None, arrival="closed", duration_s=duration_s
        )

    def point(self, rate_msgs_s: float, lead_s: float, duration_s: float) -> Workload:
        """A sweep's load at one rate."""
        return dataclasses.replace(
            self,
            sweep=False,
            rate_msgs_s=rate_msgs_s,
            warmup_s=lead_s,
            warmup_auto=False,
            duration_s=duration_s,
        )

    def warmed_up(self, warmup_s: float) -> Workload:
        """This workload with the warm-up that it turned out to need."""
        return dataclasses.replace(self, warmup_s=warmup_s, warmup_auto=False)

    @property
    def warmup(self) -> str | None:
        """`auto` where it has no fixed length."""
        return "auto" if self.warmup_auto else None

    @property
    def consumes_only(self) -> bool:
        """Whether nothing is produced."""
        return self.producers_per_topic == 0

    def payload(self) -> bytes | None:
        """The payload file's content, or None for generated payloads."""
        return Path(self.payload_file).read_bytes() if self.payload_file else None

    def result(self) -> WorkloadResult:
        """As it is written into results."""
        extra = {name: getattr(self, name) for name in EXTRA}
        return WorkloadResult(
            **{name: getattr(self, name) for name in SHARED},
            message_sizes=_sizes_result(self.sizes),
            extra={
                name: list(value) if isinstance(value, tuple) else value
                for name, value in extra.items()
                if value != EXTRA[name]
            },
        )

    def summary(self) -> str:
        """One line for people."""
        rate = "max rate" if self.rate_msgs_s is None else f"{self.rate_msgs_s:,.0f} msg/s"
        if self.search is not None:
            rate = "max sustainable rate"
        if self.sweep:
            rate = "a sweep of rates"
        if self.consumes_only:
            rate = "reading only"
        size = f"{self.message_size_bytes} B" if self.sizes is None else self.sizes.text
        producers = self.producers_per_topic * self.topics
        consumers = self.consumers_per_subscription * self.subscriptions_per_topic
        return (
            (
                f"{rate}, {size}, {plural(self.topics, 'topic')} x "
                f"{plural(self.partitions_per_topic, 'partition')}, {plural(producers, 'producer')}, "
                f"{plural(consumers, 'consumer')}, warm-up {'up to ' if self.warmup_auto else ''}"
                f"{format_duration(self.warmup_s)}, "
                f"{format_duration(self.duration_s)} measured"
            )
            + (f", backlog of {format_size(self.backlog.size_bytes)}" if self.backlog else "")
            + "".join(f", {describe(fault)}" for fault in self.faults)
        )


SHARED = WorkloadResult.model_fields.keys() & {one.name for one in dataclasses.fields(Workload)}
"""What a result tells as it stands here."""
EXTRA: Mapping[str, Any] = {
    "burst_msgs": None,
    "ramp_to_msgs_s": None,
    "ramp_over_s": None,
    "warmup": None,
    "idempotence": False,
    "idle": "halt",
    "profile": False,
    "zipf_exponent": None,
    "processing_ms_per_msg": 0.0,
    "processing_ms_per_fetch": 0.0,
    "read_topics": (),
    "start": "latest",
    "lanes": {},
    "notes": (),
}
"""What a result tells where it is not as usual -> what is usual."""


def _sizes_result(sizes: SizeSpread | None) -> MessageSizes | None:
    if sizes is None:
        return None
    return MessageSizes(
        text=sizes.text,
        min_bytes=min(sizes.sizes_bytes),
        mean_bytes=sizes.mean_bytes,
        max_bytes=max(sizes.sizes_bytes),
        sizes=len(sizes.sizes_bytes),
    )
