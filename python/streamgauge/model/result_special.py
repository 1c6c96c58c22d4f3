"""What faults, a search for the maximum, a backlog and an automatic warm-up found, as a result tells it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from streamgauge.model.power_cut import PowerCut
from streamgauge.model.result_asked import FaultAsked
from streamgauge.model.result_base import Model, PhaseFigures
from streamgauge.vocabulary.choices import Reader


class Fault(Model):
    """A fault that was made, and what followed. Times are on the schedule's axis."""

    asked: FaultAsked
    parts: list[str] = Field(default_factory=list)
    """What it hit."""
    from_s: float
    """When it began to be made."""
    done_s: float
    """When it was made: for kill, when the processes were gone; for restart, when they had been started."""
    ready_s: float | None = None
    """restart only: when all of them served again; None when they did not."""
    cut: PowerCut | None = None
    """power-cut only: what it left and took."""
    gap_s: float | None = None
    """The longest time without an acknowledgement that touches the time from this fault to the next."""
    rate_back_s: float | None = None
    """From this fault until acknowledgements came at the rate of before again, before the next one; None when
    they did not, or when nothing was known of the time before."""


class Faults(Model):
    """A trial with faults: how long the system was not available, and what its latencies were around them."""

    faults: list[Fault]
    resolution_s: float
    """Gaps and times are known to about this."""
    unavailable_s: float
    """The longest time without any acknowledgement from the first fault on."""
    recovered_s: float | None = None
    """From the first fault until the rate of before was back for good; None when it was not."""
    caught_up_s: float | None = None
    """From the first fault until everything that was due had been acknowledged as promptly as before; None when
    it had not, and for a load without a schedule."""
    phases: list[PhaseFigures] = Field(default_factory=list)
    """before, during (until caught up, or recovered), after: by the acknowledgements seen in whole intervals."""


class Probe(Model):
    """One rate that the search for the maximum tried, and what was seen."""

    rate_msgs_s: float
    seconds: float
    """Measured time; it grows while the growth of the backlog cannot be told from noise."""
    passed: bool
    by_generator: bool = False
    """It failed because of the generator: this says nothing about the system."""
    by_machine: bool = False
    """It failed by no more than CPUs were away for: the system may sustain it."""
    reasons: list[str] = Field(default_factory=list)
    """Why it did not pass."""
    achieved_share: float
    """Acknowledged rate over target rate."""
    growth_share: float
    """Slope of what was due and had not been received by the slowest subscription, as a share of the rate."""
    growth_share_low: float
    growth_share_high: float
    """95 % bounds of the slope, one-sided each."""
    growth_share_max: float = 0.001
    """What was allowed (docs/method.md)."""
    outstanding_msgs: int
    """Due and not received by the slowest subscription, at the end."""
    publish_ms_p99: float | None = None
    send_delay_ms_p99: float | None = None
    backpressured_share: float = 0.0
    """Share of the time for which producers were held back, the mean over producers."""
    workers_share: float = 0.0
    """CPU of the worker as a share of all cores."""
    busiest_lane_share: float = 0.0
    """CPU of the busiest thread of the worker as a share of a core."""
    steal_share: float = 0.0
    """Share of all cores' time that the host of the lab's machine took away."""
    disturbed_share: float | None = None
    """Share of the time in which a CPU was not to be had, or a load recovered from that; None where no probes watched."""
    away_share: float | None = None
    """Share of the time in which a CPU was not to be had, without the interrupts that the load makes; None likewise."""
    failed_msgs: int = 0
    errors: dict[str, int] = Field(default_factory=dict)


class Search(Model):
    """The search for the maximum sustainable rate: its bracket and every probe as evidence."""

    low_msgs_s: float | None = None
    """The highest rate that passed; the soak ran at it. None when none did."""
    high_msgs_s: float | None = None
    """The lowest rate that failed because of the system; None when none did."""
    width_percent: float | None = None
    bound: Literal["system", "generator", "machine", "range", "none"]
    """What ended it: the system did not sustain more; the generator could not send more; CPUs were away for as much as was missing; there was nothing
    more to try; or no rate was sustained."""
    explanation: str
    probes: list[Probe] = Field(default_factory=list)
    soak: Probe | None = None
    """The measured window, judged like a probe."""


class WarmUpResult(Model):
    """A warm-up that was to end as soon as the load was steady."""

    limit_s: float
    """It ends then, steady or not."""
    lasted_s: float
    steady: bool
    explanation: str = ""
    """Why it was not steady at its end."""


class Drain(Model):
    """How one subscription read its backlog. Times are on the schedule's axis."""

    subscription: str
    resumed_s: float
    backlog_msgs: int
    """When it was resumed."""
    backlog_bytes: int
    caught_up_s: float | None = None
    chase_s: float | None = None
    """From resumed to caught up; None when it did not catch up within its time."""
    read_msgs: int = 0
    """Received until it had caught up (or until the end), what came in meanwhile included."""
    mean_msgs_s: float | None = None
    mean_mb_s: float | None = None
    max_msgs_s: float | None = None
    """In the best whole second; None when reading took less than one."""
    max_mb_s: float | None = None


class CatchUp(Model):
    """A backlog that was built and read while producing went on."""

    reader: Reader
    size_bytes: int
    """Asked for, over all subscriptions that read it."""
    built_bytes: int
    built: bool
    """Whether it reached its size within its time."""
    build_s: float
    cache_dropped: bool
    """Whether the machine's page cache was dropped before it was read."""
    caught_up: bool
    chase_s: float | None = None
    """Until the last subscription had caught up."""
    drains: list[Drain] = Field(default_factory=list)
    phases: list[PhaseFigures] = Field(default_factory=list)
    """measure (before), build backlog, catch-up, after."""
