"""Figures of quiet time; or, where none can be had, what bounds them.

**At most.** A disturbance only ever delays: a message that leaves earlier is never answered later. So each message as it came, from when it was due, took at
least as long as it would have undisturbed, and every percentile of all of them is at least the undisturbed one. Its upper limit is given (97.5 %).

**At least.** Where spans begin whenever they like, the lower limit of the estimate of quiet time. Where they may not, what no choice of spans can break: each
message that was cut is taken to have ended there, and each that was due in a disturbed span as faster than all others (after Manski 1990); the lower limit of
that percentile. Both suppose that recovery is over when quiet time begins: what is still waiting then waits for the disturbance.

**In between.** Where it cannot be told of a few spans whether they began whenever they like, figures are those of quiet time, and their intervals hold
whatever these spans may hide: the messages that they cut and those due in them are taken to be slower than all others for the upper end, and of no time
for the lower one. Where that leaves no upper end of its own that of all messages as they came stands.

**Unseen.** Where CPUs were away in pieces too short for probes that is in quiet time. Where it is much the interval's lower end allows for it: the messages
due then are taken to be the slowest of all, or to have been held up for the longest such piece, whichever says more.

**Another trial.** What a disturbed trial would have told undisturbed is what another trial would have, and trials of the same differ by more than their
messages tell, also on one start. The interval is wider by that.

Manski, C. F. (1990), Nonparametric bounds on treatment effects, American Economic Review 80, 319-323.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamgauge.analysis.quiet import QuietInterval
from streamgauge.analysis.quiet_away import ALL_SEEN, Unseen
from streamgauge.analysis.quiet_check import Attraction, Doubt
from streamgauge.analysis.quiet_limits import (
    BLOCKS_MIN,
    Block,
    Estimate,
    Limits,
    Z,
    came_blocks,
    quiet_blocks,
    spread_over_blocks,
    student,
)
from streamgauge.model.percentiles import NS_PER_MS, PERCENTS
from streamgauge.model.result_quiet import Begin
from streamgauge.vocabulary.bounds import DISTURBED_SHARE_MAX
from streamgauge.vocabulary.format import percent as percent_text
from streamgauge.vocabulary.histograms import empty, merge, recorded

QUIET_SHARE_MIN = 0.05
"""With less of the time quiet, recovery may never be over (with 0.2 % left, a p50 was 37 % too high)."""
MEAN_LEFT_MAX = 1e-4
"""Up to this share of messages that lasted longer than is known a mean is given."""
TRIALS_APART = 0.02
"""By so much (standard deviation of the logarithm) trials of the same on one start differ beyond what each knows of itself (docs/quiet-time.md)."""
CUT = "The slowest messages were under way when a disturbance began."
HIDDEN = "Disturbances of which it cannot be told why they began may hide as many messages as last that long."


@dataclass(frozen=True)
class Told:
    """A figure of quiet time with its 95 % interval, or its bounds. In the unit of the figure (ms; messages per second)."""

    value: float | None
    """None where only the bounds stand."""
    at_least: float
    """Lower end of the interval, or the lower bound; each holds with 97.5 %."""
    at_most: float | None
    """Upper end of the interval, or the upper bound; None where there is none."""
    why: str = ""
    """Why there is no value."""
    events: float | None = None
    """How many independent messages are worth what was seen above a percentile."""
    ends: tuple[float, float] | None = None
    """Where only bounds stand, those of this trial's messages, without the error of their number: the lower one of a mean is an estimate, right on average.
    Several trials tell by themselves how much chance does. None where one of them is open."""


@dataclass(frozen=True)
class Estimates:
    """Of one metric and phase, each made when it is asked for."""

    intervals: Sequence[QuietInterval]
    """All of the phase, in the order of time."""
    doubt: Doubt | None = None
    unseen: Unseen = ALL_SEEN
    apart: float = 0.0
    """Standard deviation of the logarithm by which the trial that is asked about differs from this one: TRIALS_APART where that is one without disturbance."""

    @functools.cached_property
    def quiet(self) -> Estimate:
        """Of quiet time."""
        return Estimate(quiet_blocks(self.intervals))

    @functools.cached_property
    def came(self) -> Estimate:
        """Of all messages as they came: not below the truth."""
        return Estimate(came_blocks(self.intervals))

    @functools.cached_property
    def fastest(self) -> Estimate:
        """Of the fastest that each message can have been: not above it."""
        return Estimate(fastest_blocks(self.intervals))

    @functools.cached_property
    def spared(self) -> Spared | None:
        """What doubtful spans cannot have hidden; None without doubt."""
        return None if self.doubt is None else spared(self.intervals, self.doubt)


def figures(
    found: Estimates, attracted: Attraction, disturbed_share: float, percents: Mapping[str, float] = PERCENTS
) -> dict[str, Told]:
    """Name -> percentile, in ms. `disturbed_share`: of the phase's time."""
    why_none = distrust(attracted, disturbed_share)
    return _in_order({name: _told(found, percent, why_none) for name, percent in percents.items()})


def mean(found: Estimates, attracted: Attraction, disturbed_share: float) -> Told:
    """In ms: where next to none of the messages were cut that of quiet time, which is as exact as its percentiles and has no limits of its own. Else what it
    lies between: the restricted mean of quiet time, less what doubtful spans may hide, or where quiet time is not trusted the mean of the fastest that messages
    can have been; and the mean of all as they came."""
    curve, why = found.quiet.curve, distrust(attracted, disturbed_share)
    # Nobody knows how long what was never answered would have taken.
    lasts = any(one.came_beyond for one in found.intervals)
    restricted = None if why or lasts else curve.mean
    # Doubtful spans may hide the slowest messages, of which a mean may consist.
    if restricted is not None and not attracted.doubt and curve.left <= MEAN_LEFT_MAX:
        return Told(restricted / NS_PER_MS, 0.0, None)
    fastest, least, _ = _mean_of(fastest_blocks(found.intervals))
    if found.spared is not None and restricted is not None:
        restricted = (1.0 - found.spared.hidden) * (found.spared.rest.curve.mean or 0.0)
    if restricted is not None:
        # It varies as the times vary that messages were seen to last, those that were cut included.
        middle, low, _ = _mean_of(
            [replace(one, ended=merge([one.ended, one.censored])) for one in quiet_blocks(found.intervals)]
        )
        least = max(least, restricted * low / middle if middle else 0.0)
    came, _, high = _mean_of(came_blocks(found.intervals))
    why = why or (attracted.sentence if attracted.doubt else CUT)
    # A mean of quiet time that is above that of all messages as they came was drawn from the slower ones.
    shortest = restricted if restricted is not None and fastest < restricted <= came else fastest
    ends = None if lasts else _ends(shortest, came)
    return Told(None, min(least, came) / NS_PER_MS, None if lasts else high / NS_PER_MS, why, ends=ends)


def _ends(low: float | None, high: float | None) -> tuple[float, float] | None:
    """Of ns, in ms."""
    if low is None or high is None or high <= 0:
        return None
    return min(low, high) / NS_PER_MS, high / NS_PER_MS


def _mean_of(blocks: Sequence[Block]) -> tuple[float, float, float]:
    """Of the messages that ended, with its 95 % interval over blocks of time."""
    ended = [one.ended for one in blocks]
    return _mean([(one.mean or 0.0) * one.count for one in ended], [float(one.count) for one in ended])


def _in_order(told: dict[str, Told]) -> dict[str, Told]:
    """What bounds a percentile bounds those beside it: a higher one from below, a lower one from above."""
    ordered: dict[str, Told] = {}
    least = 0.0
    for name, one in told.items():
        least = max(least, one.at_least)
        ordered[name] = replace(one, at_least=least if one.value is None else min(least, one.value))
    most: float | None = None
    for name, one in reversed(list(ordered.items())):
        known = [bound for bound in (most, one.at_most) if bound is not None]
        most = min(known, default=None)
        ordered[name] = replace(
            one, at_most=most if most is None or one.value is None else max(most, one.value)
        )
    return ordered


def distrust(attracted: Attraction, disturbed_share: float) -> str:
    """Why quiet time as a whole gives no figures; empty where it does."""
    if attracted.kind is not Begin.independent and attracted.doubt is None:
        return attracted.sentence
    if 1.0 - disturbed_share < QUIET_SHARE_MIN:
        left, least = percent_text(1.0 - disturbed_share, 1), percent_text(QUIET_SHARE_MIN)
        return f"Too little quiet time: {left} of the time, {least} are needed."
    return ""


def fastest_blocks(intervals: Sequence[QuietInterval]) -> list[Block]:
    """The fastest that each message can have been: those cut ended there, and those left out took no time."""
    return [
        Block(
            merge([one.quiet, one.censored, recorded(np.zeros(1, dtype=np.int64), np.array([one.left_out]))]),
            empty(),
            one.beyond,
        )
        for one in intervals
    ]


@dataclass(frozen=True)
class Spared:
    """What doubtful spans cannot have hidden, and how much they may have."""

    rest: Estimate
    """Of quiet time without the messages that they may have cut."""
    hidden: float
    """Share of messages that they may have cut, or that were due in them, of these and the rest."""

    def slower(self, percent: float) -> Limits | None:
        """The percentile if what is hidden is slower than all the rest; None where it lies in what is hidden."""
        of_rest = percent / (1.0 - self.hidden)
        found = self.rest.percentile(of_rest) if of_rest < 100.0 else None
        return found if found is not None and found.value is not None else None

    def low(self, percent: float) -> float:
        """Of the percentile if what is hidden takes no time."""
        return self.rest.low(100.0 * max(percent / 100.0 - self.hidden, 0.0) / (1.0 - self.hidden))


def spared(intervals: Sequence[QuietInterval], doubt: Doubt) -> Spared:
    """In which intervals spans began tells which messages they may have cut: those that were cut there or, as messages are told of when they are answered, in
    the next. How long they were tells how many were due in them."""
    may_cut = {later for at in doubt.began for later in (at, at + 1)}
    hidden = doubt.share * sum(one.left_out for one in intervals)
    blocks = []
    for at, one in enumerate(intervals):
        if at in may_cut:
            hidden += one.censored.count
            blocks.append(Block(one.quiet, empty(), one.beyond))
        else:
            blocks.append(Block(one.quiet, one.censored, one.beyond))
    left = sum(one.ended.count + one.censored.count + one.beyond for one in blocks)
    return Spared(Estimate(blocks), hidden / (hidden + left) if left else 0.0)


def _told(given: Estimates, percent: float, why_none: str) -> Told:
    found, spared = given.quiet.percentile(percent), given.spared
    slower = found if spared is None else spared.slower(percent)
    shortage = f"Too little quiet time: {found.shortage}." if found.shortage else ""
    why = why_none or shortage or (HIDDEN if slower is None else "")
    if not why and found.value is not None and slower is not None:
        low, high = found.low, slower.high
        if given.unseen.share > DISTURBED_SHARE_MAX:
            # Either all that were due in such pieces are the slowest, or each was held up for the longest of them.
            rest = given.quiet.low(percent * (1.0 - given.unseen.share))
            low = min(low, max(rest, low - given.unseen.longest_ms * NS_PER_MS))
        if spared is not None:
            low = min(low, spared.low(percent))
        if high is None or spared is not None:
            came = given.came.high(percent)
            high = min((one for one in (high, came) if one is not None), default=None)
        low, further = min(low, found.value), Z * given.apart
        return Told(
            found.value / NS_PER_MS,
            _further(low, found.value, -further) / NS_PER_MS,
            None if high is None else _further(max(high, found.value), found.value, further) / NS_PER_MS,
            events=found.events,
        )
    high = given.came.high(percent)
    least = given.fastest.low(percent)
    if not why_none and not given.doubt and (high is None or found.low <= high):
        least = max(least, found.low)
    return Told(
        None,
        least / NS_PER_MS,
        None if high is None else high / NS_PER_MS,
        why,
        found.events,
        _ends(given.fastest.value(percent), given.came.value(percent)),
    )


def _further(end: float, figure: float, by: float) -> float:
    """An end of an interval, further from its figure by that (a logarithm, below 0 for the lower end), as independent errors add up."""
    if by == 0 or min(end, figure) <= 0:
        return end
    return figure * math.exp(math.copysign(math.hypot(math.log(end / figure), by), by))


@dataclass(frozen=True)
class RateInterval:
    """What was counted in one interval."""

    quiet_msgs: int
    """Answered in quiet time."""
    quiet_s: float
    msgs: int
    """Answered."""
    seconds: float


def rate(intervals: Sequence[RateInterval], attracted: Attraction) -> Told:
    """Messages answered per second of quiet time, with its interval over blocks of time. Where there is too little of it: at least what was answered
    per second of all time, which a disturbance only ever lowers. Where the schedule sets the rate, what a disturbance held back is answered in its
    recovery, which is no quiet time."""
    seconds = sum(one.seconds for one in intervals)
    quiet_s = sum(one.quiet_s for one in intervals)
    quiet = [one for one in intervals if one.quiet_s > 0]
    why = distrust(attracted, 1.0 - quiet_s / seconds if seconds else 1.0)
    if not why and len(quiet) < BLOCKS_MIN:
        why = f"Too little quiet time: it lies in {len(quiet)} blocks of time, {BLOCKS_MIN} are needed."
    if why:
        _, low, _ = _mean([float(one.msgs) for one in intervals], [one.seconds for one in intervals])
        return Told(None, low, None, why)
    value, low, high = _mean([float(one.quiet_msgs) for one in intervals], [one.quiet_s for one in intervals])
    if attracted.doubt is not None:
        # As if the system had stood still in the spans that began while something was old.
        low *= quiet_s / (quiet_s + attracted.doubt.share * (seconds - quiet_s))
    return Told(value, low, high)


def _mean(counts: Sequence[float], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of two sums with its 95 % interval; 0 and unbounded where there is nothing to go by."""
    time = float(np.sum(seconds))
    if len(counts) < 2 or time <= 0:
        return 0.0, 0.0, float("inf")
    value = float(np.sum(counts)) / time
    parts = (np.asarray(counts, dtype=np.float64) - value * np.asarray(seconds, dtype=np.float64)) / time
    spread = spread_over_blocks(parts[:, np.newaxis])
    half = student(float(spread.freedom[0])) * float(np.sqrt(spread.variance[0]))
    return value, max(value - half, 0.0), value + half
