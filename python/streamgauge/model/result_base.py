"""What the parts of a result have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Headline = Literal["publish", "service"]
"""What stands for the latency of publishing: publish latency, and service time where it is not told (`TrialResult.untold`)."""


UNIX_MS_MAX = 253_402_300_799_999
"""The end of the year 9999: no calendar goes further."""
UnixMs = Annotated[int, Field(ge=0, le=UNIX_MS_MAX)]


class Model(BaseModel):
    """Base of everything written to disk: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class Latency(Model):
    """A latency distribution in ms over the messages that were intended in the measured phase (docs/method.md)."""

    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    p99_99: float | None = None
    max: float | None = None
    count: int = 0
    overflow: int = 0
    """Samples above 1 h; counted in `count`, included in max, in no percentile."""
    negative: int = 0
    """Samples below zero (clocks of two hosts); counted in `count`, included in min."""
    unanswered: int = 0
    """Messages without an end: never acknowledged, or never received. They rank above all others, and are not in `count`."""
    at_least: dict[str, float] = Field(default_factory=dict)
    """Percentiles that lie among the unanswered have no value, and are at least this."""


class PhaseFigures(Model):
    """One phase of load, by the messages that were due in it (latencies) and by what was seen in it (rates)."""

    name: str
    from_s: float
    until_s: float
    publish_rate_msgs_s: float
    publish_rate_mb_s: float
    achieved_share: float | None = None
    publish_ms: Latency
    service_ms: Latency | None = None
    """Where it stands for publish latency (`TrialResult.untold`)."""
    send_delay_ms: Latency
    end_to_end_by_subscription_ms: dict[str, Latency] = Field(default_factory=dict)
    consume_rate_by_subscription_msgs_s: dict[str, float] = Field(default_factory=dict)
