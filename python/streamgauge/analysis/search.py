"""The search for the maximum sustainable rate: what makes a rate sustainable, and which rate is tried next.

A rate is sustainable when consumers keep up without an ever-growing backlog. What is *outstanding* is what the
schedule asked for and the slowest subscription has not received: it contains what producers were not allowed to
send, what waits for its acknowledgement and what waits to be read, so wherever a system falls behind, it grows. Its
slope has an interval of confidence: while that contains the bound, the probe goes on. `runner.search` makes the
probes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.analysis.shortage import may_explain
from streamgauge.inference import distributions
from streamgauge.model.result_asked import SearchAsked
from streamgauge.model.result_special import Probe, Search
from streamgauge.vocabulary.bounds import (
    ACHIEVED_SHARE_MIN,
    DISTURBED_SHARE_MAX,
    OWN_SHARE_MAX,
    PROBE_LANE_BUSY_SHARE_MAX,
    WORKERS_SHARE_MAX,
)
from streamgauge.vocabulary.format import percent, plural, trimmed
from streamgauge.vocabulary.units import RATE_MAX_MSGS_S, format_duration, format_rate, round_rate

GROWTH_SHARE_MAX = 0.001
"""METHOD: the upper 95 % bound of the slope may be this share of the rate."""
BATCH_BEAT = 1.5
"""What is outstanding is a saw as high as a batch: linger x rate. Where batches and intervals beat, the saw looks like a slope,
steepest where it is a step in the middle of the window: 1.5 x its height over the window's length."""
STEAL_SHARE_MIN = 0.01
"""Of the cores' time: with so much taken away by the host, a late generator may have been kept from running. Windows do not decide that: near the limit of a
machine the load itself makes them (interrupts, real-time threads), 10 to 20 % of the time, and each rate there would be tried in vain again and again."""
LATE_SHARE_MAX = 0.05
"""Send delay, as a share of the publish latency, both at p99: beyond, the generator may be why a rate was not held."""
LATE_MS_FLOOR = 1.0
"""Send delays below it are never held against a probe."""
HELD_BACK_SHARE_MIN = 0.5
"""Of the time for which the system held producers back: from here on what leaves late leaves late for that, if answers are read on time."""
GROWTH_MSGS_S_MIN = 1.0
"""A slope below one message per second cannot be told from the edges of intervals."""
CONFIDENCE = 0.95
REPEAT_ABOVE_SHARE = 0.75
"""A failure that achieved more than this may be an accident: it is tried once more."""
GUESS_SHARE = 0.8
"""Of what was achieved at a rate that did not hold for longer: where the search goes on."""
IDLE_LANE_SHARE = 0.25
"""A generator whose busiest thread had less to do than this was not at its end, however late it was."""
DISTURBED_TRIES_MAX = 5
"""Tries of a rate at which the generator was late although it has sent as much before, or its threads had little to do, or while the host took CPU time
away: something else was in the way."""
PROBES_MAX = 60
RATE_FLOOR_SHARE = 1 / 1024
"""Below this share of the first rate nothing is tried any more."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """What a probe, or a soak, has shown: one value per interval of its measured time."""

    rate_msgs_s: float
    producers: int
    end_s: Values
    """End of each interval on the schedule's axis."""
    acked_msgs: Values
    """Acknowledged since the schedule's start, at the end of each interval."""
    received_msgs: Values
    """Received by the slowest subscription since the start; acknowledged, where there is no subscription."""
    publish_ms_p99: float | None
    """Of messages due in this time; of all that were answered in it, where none of those was. None: none was answered. The delays likewise."""
    send_delay_ms_p99: float | None
    backpressured_share: float
    workers_share: float
    busiest_lane_share: float
    failed_msgs: int
    errors: dict[str, int]
    ack_delay_ms_p99: float | None = None
    """How late the generator was in reading acknowledgements, at the most; None where workers do not tell."""
    quiet_publish_ms_p99: float | None = None
    quiet_send_delay_ms_p99: float | None = None
    """Of quiet time, those that were cut included; None where nothing watched the CPUs."""
    linger_s: float = 0.0
    """How long a batch may wait."""
    steal_share: float = 0.0
    """Share of all cores' time that the host took away; 0 where it is not known."""
    disturbed_share: float | None = None
    """Share of the time in which a CPU was not to be had, or a load recovered from that; None where no probes watched."""
    away_share: float | None = None
    """Share of the time in which a CPU was not to be had, without the interrupts that the load makes. None likewise."""


def slope(times_s: Values, values: Values) -> tuple[float, float, float]:
    """Least-squares slope per second with its one-sided 95 % bounds (slope, low, high). With fewer than 3 points
    everything is possible."""
    if len(values) < 3:
        return 0.0, -math.inf, math.inf
    found, error = distributions.line(times_s, values)
    margin = distributions.student_quantile(CONFIDENCE, len(values) - 2) * error
    return found, found - margin, found + margin


def judge(seen: Seen, publish_ms_p99_max: float | None = None) -> tuple[Probe, bool]:
    """The verdict on a rate, and whether it is conclusive: one that is not may change with more time."""
    rate = seen.rate_msgs_s
    # Times at the ends of intervals; the counts of the first end are the base of the window.
    seconds = float(seen.end_s[-1] - seen.end_s[0]) if len(seen.end_s) > 1 else 0.0
    due_msgs = rate * seconds
    acked = float(seen.acked_msgs[-1] - seen.acked_msgs[0]) if seconds else 0.0
    achieved = acked / due_msgs if due_msgs else 0.0
    outstanding = rate * seen.end_s - seen.received_msgs
    growth, low, high = (value / rate for value in slope(seen.end_s, outstanding))
    bound = max(GROWTH_SHARE_MAX, GROWTH_MSGS_S_MIN / rate, BATCH_BEAT * seen.linger_s / max(seconds, 1e-9))
    reasons: list[str] = []
    # One message per producer for the edges of the window, as for every trial.
    if acked < ACHIEVED_SHARE_MIN * due_msgs - seen.producers:
        reasons.append(f"only {100 * achieved:.1f} % of the rate was acknowledged (99 % are needed)")
    certain = bool(reasons)
    if low > bound:
        certain = True
        reasons.append(
            f"what is due and not received grows by {trimmed(100 * growth, 2)} % of the rate "
            f"(95 % sure of more than {trimmed(100 * low, 2)} %; {trimmed(100 * bound, 2)} % are allowed)"
        )
    elif high > bound:
        reasons.append(
            f"what is due and not received may grow: by {trimmed(100 * growth, 2)} % of the rate, "
            f"up to {trimmed(100 * high, 2)} % (allowed are {trimmed(100 * bound, 2)} %)"
        )
    if seen.failed_msgs:
        certain = True
        reasons.append(f"{plural(seen.failed_msgs, 'message')} failed")
    p99 = seen.publish_ms_p99
    if publish_ms_p99_max is not None and (p99 is None or p99 > publish_ms_p99_max):
        reasons.append(
            f"the publish p99 is {'unknown' if p99 is None else f'{trimmed(p99)} ms'}; "
            f"at most {trimmed(publish_ms_p99_max)} ms were asked for"
        )
    generator = _generator(seen)
    if not reasons:
        generator = _own_lateness(seen) + generator
    elif not _held_back(seen, achieved):
        generator = _lateness(seen) + generator
    by_machine = (
        bool(reasons) and not generator and _machine_explains(seen, achieved, low - bound, publish_ms_p99_max)
    )
    probe = Probe(
        rate_msgs_s=rate,
        seconds=round(seconds, 3),
        passed=not reasons and not generator,
        by_generator=bool(generator),
        by_machine=by_machine,
        reasons=generator + reasons + (_away(seen) if by_machine else []),
        achieved_share=achieved,
        growth_share=growth,
        growth_share_low=_finite(low),
        growth_share_high=_finite(high),
        growth_share_max=_finite(bound),
        outstanding_msgs=max(round(float(outstanding[-1])), 0) if len(outstanding) else 0,
        publish_ms_p99=p99,
        send_delay_ms_p99=seen.send_delay_ms_p99,
        backpressured_share=seen.backpressured_share,
        workers_share=seen.workers_share,
        busiest_lane_share=seen.busiest_lane_share,
        steal_share=seen.steal_share,
        disturbed_share=seen.disturbed_share,
        away_share=seen.away_share,
        failed_msgs=seen.failed_msgs,
        errors=seen.errors,
    )
    return probe, certain or high <= bound


def _finite(share: float) -> float:
    """JSON has no infinity; a slope that nothing is known of is told as a large one."""
    return max(min(share, 1e9), -1e9)


def _late_ms_max(seen: Seen) -> float:
    return max(LATE_SHARE_MAX * (seen.publish_ms_p99 or 0.0), LATE_MS_FLOOR)


def _held_back(seen: Seen, achieved: float) -> bool:
    """Whether the system held producers back for so long that this alone is what is missing of the rate. Then messages leave late because many may leave at
    once when it lets them. Who reads answers late holds himself back."""
    nothing_to_read = seen.publish_ms_p99 is None
    on_time = seen.ack_delay_ms_p99 is not None and seen.ack_delay_ms_p99 <= _late_ms_max(seen)
    was_long = seen.backpressured_share >= max(1.0 - achieved, HELD_BACK_SHARE_MIN)
    return was_long and (nothing_to_read or on_time)


def _machine_explains(
    seen: Seen, achieved: float, growth_beyond: float, publish_ms_p99_max: float | None
) -> bool:
    """Whether the machine may have cost what is missing of a rate: no more than CPUs were away for, as for a trial."""
    away = seen.away_share or 0.0
    if max(seen.disturbed_share or 0.0, away) <= DISTURBED_SHARE_MAX or seen.failed_msgs:
        return False
    p99 = seen.publish_ms_p99 if seen.quiet_publish_ms_p99 is None else seen.quiet_publish_ms_p99
    is_slow = publish_ms_p99_max is not None and (p99 is None or p99 > publish_ms_p99_max)
    return may_explain(achieved, away) and growth_beyond <= away and not is_slow


def _away(seen: Seen) -> list[str]:
    share = percent(seen.away_share or 0.0, 1)
    return [f"a CPU was away for {share} of the time, which may be why"]


def _lateness(seen: Seen) -> list[str]:
    """Of a rate that was not held."""
    if seen.publish_ms_p99 is None:
        return ["the generator was late: nothing was acknowledged, and the system did not hold it back"]
    return _late(seen.send_delay_ms_p99, _late_ms_max(seen))


def _own_lateness(seen: Seen) -> list[str]:
    """Of a rate that was held: what leaves late comes in bursts, and that is no easier for the system. But at a rate at which the generator is late by itself
    nothing can be measured: it may be as late as in a trial."""
    quiet = seen.quiet_publish_ms_p99 is not None and seen.quiet_send_delay_ms_p99 is not None
    publish = seen.quiet_publish_ms_p99 if quiet else seen.publish_ms_p99
    delay = seen.quiet_send_delay_ms_p99 if quiet else seen.send_delay_ms_p99
    return _late(delay, max(OWN_SHARE_MAX * (publish or 0.0), LATE_MS_FLOOR))


def _late(delay_ms: float | None, bound_ms: float) -> list[str]:
    if delay_ms is None or delay_ms <= bound_ms:
        return []
    return [
        f"the generator was late (p99 of send delay {trimmed(delay_ms)} ms, allowed {trimmed(bound_ms)} ms)"
    ]


def _generator(seen: Seen) -> list[str]:
    """Signs that the generator had no more to give."""
    reasons = []
    if seen.workers_share > WORKERS_SHARE_MAX:
        reasons.append(f"the generator used {100 * seen.workers_share:.0f} % of all cores")
    if seen.busiest_lane_share > PROBE_LANE_BUSY_SHARE_MAX:
        reasons.append(
            f"a thread of the generator was busy {100 * seen.busiest_lane_share:.0f} % of the time"
        )
    return reasons


class Hunt:
    """Which rate is tried next: doubling until one fails, then bisecting until the bracket is narrow, then once
    more the lower edge for longer, `soak_s`.

    What a system takes for two seconds it may not take for twenty: caches fill up. When the lower edge does not hold for longer, no
    short probe says anything any more, and the rest of the search is made with long ones."""

    def __init__(self, asked: SearchAsked, soak_s: float | None = None) -> None:
        """`soak_s`: default, and least, twice the time of a probe."""
        self._asked = asked
        self._soak_s = max(2 * asked.probe_s, soak_s or 0.0)
        self._is_long = False
        self._is_over = False
        """Whether its time is over: what is left is to hold the lower edge for longer."""
        self._guess: float | None = None
        """Where long probes begin."""
        self._passed: list[float] = []
        self._high: float | None = None
        self._again: float | None = None
        self._confirmed: float | None = None
        self._generator: float | None = None
        self._machine: float | None = None
        self._system: list[float] = []
        self._ended_early = False
        self.probes: list[Probe] = []

    @property
    def low(self) -> float | None:
        """The highest rate that passed and lies below all that failed."""
        return max(self._passed, default=None)

    def next(self, elapsed_s: float = 0.0) -> tuple[float, float] | None:
        """Rate and measured seconds of the next probe; None when the search is over. `elapsed_s`: since it began."""
        if len(self.probes) >= PROBES_MAX:
            return None
        seconds = self._soak_s if self._is_long else self._asked.probe_s
        low, high = self.low, self._high
        within_s = self._asked.within_s
        self._is_over = within_s is not None and elapsed_s >= within_s and high is not None
        if self._is_over and low is not None:
            self._ended_early = self._confirmed == low
            # What does not hold for as long as is measured afterwards would cost the whole trial.
            return None if self._ended_early else (low, self._soak_s)
        if self._again is not None:
            return self._again, self._soak_s if self._again == low else seconds
        if low is None:
            guess, self._guess = self._guess, None
            rate = self._asked.first_msgs_s if high is None else guess or high / 2
            if rate < max(self._asked.first_msgs_s * RATE_FLOOR_SHARE, 1.0):
                return None
            return round_rate(rate), seconds
        if high is None:
            if low * 2 > RATE_MAX_MSGS_S:
                return None
            return round_rate(low * 2), seconds
        if high / low > 1 + self._asked.width_percent / 100:
            middle = round_rate(math.sqrt(low * high))
            if low < middle < high:
                return middle, seconds
        if self._confirmed != low:
            return low, self._soak_s
        return None

    def add(self, probe: Probe) -> None:
        """Takes in what a probe has shown."""
        rate, self._again = probe.rate_msgs_s, self._again if self._again != probe.rate_msgs_s else None
        confirming = rate == self.low
        self.probes.append(probe)
        if probe.passed:
            if confirming or self._is_long:
                self._confirmed = rate
            self._passed.append(rate)
            return
        if self._failures_in_a_row() < (1 if self._is_over else self._tries(probe)):
            self._again = rate
            return
        # Higher rates are out of reach, whoever failed; what lies below is still bisected, so that the rate that is
        # claimed is the highest that can be.
        if probe.by_generator:
            self._generator = rate
        elif probe.by_machine:
            self._machine = rate
        else:
            self._system.append(rate)
        self._high = rate
        self._passed = [one for one in self._passed if one < rate]
        if confirming and not self._is_long and (self._is_over or not probe.by_generator):
            self._is_long, self._passed = True, []
            self._guess = round_rate(GUESS_SHARE * probe.achieved_share * rate)

    def _failures_in_a_row(self) -> int:
        """How often the last rate was tried."""
        rate = self.probes[-1].rate_msgs_s
        same = itertools.takewhile(
            lambda one: one.rate_msgs_s == rate and not one.passed, reversed(self.probes)
        )
        return len(list(same))

    def _tries(self, failed: Probe) -> int:
        """How often a rate must fail as this probe did."""
        if failed.by_generator:
            coped = any(
                not one.by_generator
                and one.achieved_share * one.rate_msgs_s >= ACHIEVED_SHARE_MIN * failed.rate_msgs_s
                for one in self.probes
            )
            was_idle = failed.busiest_lane_share < IDLE_LANE_SHARE
            return DISTURBED_TRIES_MAX if coped or was_idle or failed.steal_share >= STEAL_SHARE_MIN else 2
        return 2 if failed.achieved_share > REPEAT_ABOVE_SHARE else 1

    def outcome(self) -> Search:
        """The bracket and why the search ended."""
        low = self.low
        # A rate at which the generator failed bounds the generator and says nothing of the system; nor does one that the machine may have cost.
        high = min(self._system, default=None)
        bounded = self._generator is not None and self._high == self._generator
        by_machine = self._machine is not None and self._high == self._machine
        width = None if low is None or high is None else 100 * (high / low - 1)
        if low is None:
            return Search(
                bound="generator" if bounded else "none",
                explanation=self._nothing(),
                high_msgs_s=high,
                probes=self.probes,
            )
        held = f"{format_rate(low)} were sustained"
        if high is not None:
            held += f", {format_rate(high)} were not"
        if self._ended_early:
            held += f" when the search's time of {format_duration(self._asked.within_s or 0.0)} was over"
        if bounded:
            at = format_rate(self._generator)
            text = (
                f"{held}; generator-bound at {at}: the system may sustain more ({self._why(self._generator)})"
            )
            return self._found("generator", text, high, width)
        if by_machine:
            at = format_rate(self._machine)
            text = f"{held}; the machine may be why {at} were not: the system may sustain more ({self._why(self._machine)})"
            return self._found("machine", text, high, width)
        if high is None:
            return self._found("range", f"{held}, and there was no higher rate to try", high, width)
        return self._found("system", f"{held}: {self._why(high)}", high, width)

    def _found(self, bound: str, text: str, high: float | None, width: float | None) -> Search:
        return Search.model_validate(
            {
                "bound": bound,
                "explanation": text,
                "low_msgs_s": self.low,
                "high_msgs_s": high,
                "width_percent": width,
                "probes": self.probes,
            }
        )

    def _why(self, rate: float | None) -> str:
        failed = [probe for probe in self.probes if probe.rate_msgs_s == rate and not probe.passed]
        return "; ".join(failed[-1].reasons) if failed else "the probe failed"

    def _nothing(self) -> str:
        if not self.probes:
            return "the search ended before its first probe"
        last = self.probes[-1]
        return f"no rate was sustained, down to {format_rate(last.rate_msgs_s)}: {'; '.join(last.reasons)}"


def slowest(received: Sequence[Values], acked: Values) -> Values:
    """The counts of the subscription that had received least at the end; those acknowledged without one."""
    return min(received, key=lambda counts: float(counts[-1])) if received else acked
