"""Where the processes of a trial spent their time, as its result tells it (docs/causes.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from streamgauge.model.result_base import Headline, Model


class StandsOut(Model):
    """A function that is on the stack more often in the slowest seconds."""

    function: str
    share_slowest: float
    """Of the process's samples in the slowest seconds, those with it on the stack."""
    share_rest: float
    """Of those in the rest of the measured phase."""
    chance: float
    """How probable it is that the best of all functions stands out as much when none has anything to do with it (the slow seconds shifted)."""
    explanation: str


class Profile(Model):
    """The samples of one process in the measured phase, of one state."""

    process: str
    role: Literal["system", "worker"]
    state: str
    """cpu: CPU time, seen by perf; java: a JVM's threads that ran; native: those that were in native code, at work there or waiting."""
    period_ms: float
    samples: int
    samples_slowest: int
    """In the slowest seconds."""
    stands_out: list[StandsOut] = Field(default_factory=list)
    """Only what chance does not explain."""
    explanation: str


class Profiled(Model):
    """What profiles say of a trial; the samples are in profile.parquet."""

    metric: Headline
    above_ms: float | None = None
    """p99.9 of it: what is slower is the tail."""
    intervals: int
    """Of the measured phase."""
    slowest_s: list[float] = Field(default_factory=list)
    """Where the slowest ones begin, on the schedule's axis: the tenth of them that holds most of the tail."""
    profiles: list[Profile] = Field(default_factory=list)
    """The system's processes first."""
