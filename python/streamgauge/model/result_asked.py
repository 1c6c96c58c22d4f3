"""What a trial was asked to do, as its result tells it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from streamgauge.model.power_cut import Place
from streamgauge.model.result_base import Model
from streamgauge.vocabulary.choices import Arrival, FaultAction, Keys, Reader, Survivors


class SearchAsked(Model):
    """How the maximum sustainable rate was to be looked for."""

    first_msgs_s: float
    width_percent: float
    probe_s: float
    publish_ms_p99_max: float | None = None
    within_s: float | None = None
    """After this time the search ends with the bracket that it has, as soon as it has one."""


class BacklogAsked(Model):
    """The backlog that was to be built and read."""

    size_bytes: int
    """Payload, over all subscriptions that do not read it meanwhile."""
    reader: Reader
    """same: the subscriptions are paused and then read it; extra: they go on, and a further one reads from the
    earliest message."""
    producing: bool = True
    """Whether producing goes on while it is read."""
    drain_share: float
    """It counts as read when this share of it is."""
    within_s: float
    after_s: float


class FaultAsked(Model):
    """A fault that is made on purpose."""

    action: FaultAction
    target: str | None = None
    """A node's number, a part's name, "leader", "followers" or "all"; None: whatever is broken."""
    at_s: float
    """After the measured phase began."""
    amount_s: float | None = None
    """The delay of fsync-delay."""
    survivors: Survivors | None = None
    """power-cut: what of the un-synced is left; None: drawn by the trial's seed."""
    place: Place | None = None
    """power-cut: the operation at which it comes, counted from `at_s` on; None: at once."""


class MessageSizes(Model):
    """Sizes that differ from message to message."""

    text: str
    min_bytes: int
    mean_bytes: float
    max_bytes: int
    sizes: int
    """So many sizes stand for the distribution; messages take them in turn."""


class RateStep(Model):
    """A planned change of the rate: from `at_s` on the schedule's axis, over `over_s` (0: at once)."""

    at_s: float
    rate_msgs_s: float
    over_s: float = 0.0


class WorkloadResult(Model):
    """What was asked of the generator, after defaults; sizes in bytes, times in seconds."""

    name: str
    file: str | None = None
    topics: int
    partitions_per_topic: int
    message_size_bytes: int
    """The mean where sizes differ (`message_sizes`)."""
    producers_per_topic: int
    """0: topics that exist are read, and nothing is produced."""
    subscriptions_per_topic: int
    consumers_per_subscription: int
    rate_msgs_s: float | None
    """Target over all producers; None: as fast as the batch policy lets through (closed loop), or to be found."""
    arrival: Arrival
    keys: Keys
    key_count: int | None = None
    warmup_s: float
    duration_s: float
    batch_bytes: int
    linger_ms: float
    in_flight: int
    buffer_bytes: int = 64 << 20
    """What waits or travels at most, over all producers; beyond it the schedule is held back."""
    compression: str
    payload_random_ratio: float
    payload_file: str | None = None
    search: SearchAsked | None = None
    """Set where the rate was to be found; `rate_msgs_s` is then None."""
    backlog: BacklogAsked | None = None
    message_sizes: MessageSizes | None = None
    steps: list[RateStep] = Field(default_factory=list)
    """Planned changes of the rate."""
    faults: list[FaultAsked] = Field(default_factory=list)
    extra: dict[str, Any] = Field(default_factory=dict)

    @property
    def consumes_only(self) -> bool:
        """Whether topics are read that exist, and nothing is produced."""
        return self.producers_per_topic == 0

    @property
    def has_extra_reader(self) -> bool:
        """Whether a further subscription reads the backlog while the others tail."""
        return self.backlog is not None and self.backlog.reader == "extra"

    @property
    def rate_changes(self) -> bool:
        """Whether the rate changes on the way."""
        return bool(self.extra.get("ramp_to_msgs_s") or self.steps)

    @property
    def asked(self) -> dict[str, Any]:
        """What makes two workloads the same, whatever file they came from and wherever the search for their rate began."""
        return self.model_dump(mode="json", exclude={"file": True, "search": {"first_msgs_s"}})
