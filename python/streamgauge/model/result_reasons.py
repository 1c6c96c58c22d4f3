"""What may explain the figures: patterns in time, the limit that binds, what coincides with the slowest messages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from streamgauge.model.result_base import Headline, Model


class Pattern(Model):
    """What a series does over the measured phase: its level changes, or something comes back (docs/method.md)."""

    kind: Literal["change", "period"]
    series: str
    """publish_rate (messages per second), publish_ms_p50, publish_ms_p99, publish_ms_max (or service_ms_...)."""
    at_s: float | None = None
    """Of a change: where, on the schedule's axis."""
    before: float | None = None
    after: float | None = None
    """Of a change: medians of the stretches before and after it."""
    period_s: float | None = None
    swing: float | None = None
    """Of a period: the highest part of it over the lowest one."""
    share: float | None = None
    """Of a period: share of the variation that it explains."""


class Limit(Model):
    """Something that may be what keeps a figure from being better, and how near it was."""

    name: Literal[
        "cpu", "thread", "disk_write", "disk_read", "fsync", "network", "client_window", "generator"
    ]
    share: float
    """Of the limit: 1 is all of it."""
    evidence: str
    """One sentence with the figures."""


class Bottleneck(Model):
    """Which limit binds a maximum."""

    applies: bool
    """Whether the system was at its most: a closed loop, a rate that was searched for, or one that was not achieved."""
    binding: str | None = None
    """Name of the limit that binds; None where nothing is near its limit, or the system was not at its most."""
    explanation: str
    limits: list[Limit] = Field(default_factory=list)
    """All that are known, the nearest first."""


class Coincidence(Model):
    """What happened in the intervals that hold a tail, compared with all intervals."""

    event: str
    lift: float
    """How much more often slow messages lie in intervals with the event than chance would have it; 1: as often."""
    intervals: int
    """With the event."""
    share: float
    """Of the slow messages, in such intervals."""
    chance: float
    """How probable it is that the best of all events fits as well when none has anything to do with it (the series shifted against each other)."""
    lift_low: float | None = None
    lift_high: float | None = None
    """95 %, over blocks of intervals; None for results of before."""
    explained: float | None = None
    """Of the slow messages, above what chance would give: 1 where all of them lie in such intervals."""
    is_echo: bool = False
    """Whether it went along with one named before it, and explains nothing beyond that: a queue that grows, say."""
    explanation: str


class Largest(Model):
    """The largest latency, where something stood still for a good part of it at that moment."""

    value_ms: float
    at_s: float
    """Begin of the interval in which it ended, on the schedule's axis."""
    event: str
    lasted_ms: float
    """What the event took above its usual, in this interval or the one before."""
    explanation: str


class Tail(Model):
    """The slowest messages, and what coincided with them."""

    metric: Headline = "publish"
    percentile: float = 99.9
    """Above which it lies: a lower one than p99.9 where what is slower than that lies in a few intervals alone."""
    above_ms: float
    """The percentile: what is slower than this is the tail."""
    msgs: int
    intervals: int
    """That hold any of it."""
    coincidences: list[Coincidence] = Field(default_factory=list)
    """Only those that chance does not explain; what explains most first, what went along with it last."""
    looked_at: list[str] = Field(default_factory=list)
    """All events that were looked for and that happened."""
    largest: Largest | None = None
    """None where nothing stood still that long, and in results of before."""
    explanation: str
