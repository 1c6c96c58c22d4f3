"""Quiet time in a result: how disturbed the machine was, and what the system did while nobody took a CPU away (docs/quiet-time.md)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from streamgauge.model.result_base import Model


class Word(StrEnum):
    """What a trial is worth."""

    valid = "valid"
    disturbed = "disturbed"
    bounds_only = "bounds only"
    invalid = "invalid"

    @property
    def stands(self) -> bool:
        """Whether figures stand: those as they came, or those of quiet time."""
        return self in (Word.valid, Word.disturbed)


class Begin(StrEnum):
    """What may be said of when spans without a CPU begin: whether the load attracts them."""

    independent = "independent"
    attracted = "attracted"
    cannot_tell = "cannot tell"


class Bounded(Model):
    """A figure with its 95 % interval, or the bounds between which it lies."""

    value: float | None = None
    """None where only the bounds stand."""
    at_least: float = 0.0
    at_most: float | None = None
    """None where there is no upper bound."""
    why: str = ""
    """Why there is no value."""
    ends: tuple[float, float] | None = None
    """Where there is no value: what it lies between by the messages of this trial, without the error of their number (the lower one of a mean is an estimate,
    right on average). For who puts several trials together, which tell by themselves how much chance does. None where one is open, and in results of before."""


class QuietLatency(Model):
    """Percentiles of quiet time in ms, and how many messages they rest on."""

    mean: Bounded
    """Without an interval of its own: as exact as its percentiles. Where it has no value, what it lies between."""
    p50: Bounded
    p75: Bounded
    p90: Bounded
    p95: Bounded
    p99: Bounded
    p99_9: Bounded
    p99_99: Bounded
    quiet_msgs: int = 0
    """Due in quiet time and answered before the next disturbance."""
    censored_msgs: int = 0
    """Due in quiet time and under way when a disturbance began."""
    left_out_msgs: int = 0
    """Due in disturbed time."""

    def figures(self) -> dict[str, Bounded]:
        """By their names."""
        return {name: value for name, value in self if isinstance(value, Bounded)}

    def figure(self, name: str) -> Bounded | None:
        """By its name; None where quiet time has no figure of that name."""
        found = getattr(self, name, None)
        return found if isinstance(found, Bounded) else None


class QuietTime(Model):
    """How disturbed the measured phase was, and the figures of the rest of it."""

    watched: bool
    """Whether probes watched every CPU of the workers."""
    why_not: str | None = None
    """Why not, and what to grant."""
    seconds: float = 0.0
    """Of the measured phase, the mean over workers."""
    quiet_s: float | None = None
    disturbed_share: float | None = None
    away_share: float | None = None
    """Of the measured phase, in which a CPU was not to be had: without the recovery, and without what interrupts of the load took."""
    unseen_share: float | None = None
    """Of the time outside of windows, in which a CPU was away in pieces too short for windows, by the kernel's account of what the host took and by what
    short windows tell of those that were missed. None in results of before."""
    windows: int = 0
    """How often a CPU was not to be had."""
    longest_ms: float | None = None
    windows_s_by_cause: dict[str, float] = Field(default_factory=dict)
    """host, real-time, softirq, unknown: for how long."""
    steal_s: float | None = None
    """What the host took by the kernel's account, all CPUs together."""
    probes_cpu_share: float | None = None
    """What the probes cost: of one CPU, each."""
    probes_period_ms: float | None = None
    """How often they woke up: of several workers the longest."""
    stretches_s: float | None = None
    """For how long, over all CPUs, the kernel worked for programs of normal priority and let nothing else run, or threads of the system under test ran at
    real-time priority: no disturbance, and part of every figure. None: it could not be told from disturbance."""
    attraction: Begin | None = None
    """Whether disturbances began whenever they liked, or just when the system was slow."""
    why: str = ""
    """Why quiet time as a whole gives no figures; empty where it does."""
    publish_ms: QuietLatency | None = None
    service_ms: QuietLatency | None = None
    send_delay_ms: QuietLatency | None = None
    ack_delay_ms: QuietLatency | None = None
    receive_delay_ms: QuietLatency | None = None
    end_to_end_ms: QuietLatency | None = None
    end_to_end_by_subscription_ms: dict[str, QuietLatency] = Field(default_factory=dict)
    publish_rate_msgs_s: Bounded | None = None
    """Per second of quiet time; only where the system was at its most, as a schedule sets the rate itself."""
    consume_rate_msgs_s: Bounded | None = None
