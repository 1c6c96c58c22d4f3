"""Latency of quiet time: the Kaplan-Meier estimate from histograms, exact to their buckets. Times are in ns.

Quiet time is when no CPU was taken away and nothing still recovers from it; the rest of the time is disturbed. Of a message due in quiet time either the end
is seen there (an event), or a disturbed span begins while it is under way: then it is only known to take longer than that (it is censored). To leave the
censored out would make the tail look better than it is, because slow messages are more often cut; to take them as they came would count the machine's
delay as the system's. The product-limit estimate (Kaplan and Meier 1958) does neither: the share of messages that survive a latency is the product, over all
smaller latencies, of the share that survived among those that were still looked at.

That is right while a span begins whenever it likes, and not because something is slow (quiet_check.py asks), and while recovery is over when quiet time
begins. Messages need not be independent for the estimate to be right (Ying and Wei 1994); for its interval that matters (quiet_limits.py).

Kaplan, E. L. and Meier, P. (1958), Nonparametric estimation from incomplete observations, J. Am. Stat. Assoc. 53, 457-481.
Ying, Z. and Wei, L. J. (1994), The Kaplan-Meier estimate for dependent failure time observations, J. Multivariate Anal. 50, 17-29.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamgauge.vocabulary.histograms import Histogram, HistogramError, Layout, Whole

Values = npt.NDArray[np.float64]

ROUNDING = 1e-9
"""The product over up to 33,000 buckets is as exact as 1e-12. A share is reached when it is met to this, relative to it; one message of a billion is more."""


@dataclass(frozen=True)
class QuietInterval:
    """What a worker tells of one metric, phase and interval: each message once in `came` or `came_beyond`, and once in `quiet`, `censored`, `left_out` or
    `beyond`."""

    quiet: Histogram
    """Due in quiet time and answered before the next disturbed span began: latencies."""
    censored: Histogram
    """Due in quiet time and under way when a span began: how long they were under way by then."""
    came: Histogram
    """All messages as they came, from the due time."""
    left_out: int
    """Due in a disturbed span."""
    beyond: int = 0
    """Due in quiet time and slower than every latency that is measured: failed, never answered, beyond the recorders' range."""
    came_beyond: int = 0
    """The same of all messages."""


@dataclass(frozen=True)
class Curve:
    """The share of messages that survive each latency at which one ended."""

    layout: Layout
    indices: Whole
    """Buckets in which messages ended, ascending."""
    events: Whole
    """How many ended in each, above 0."""
    at_risk: Whole
    """How many were seen to last at least as long as each bucket, those that are censored in it included: an event counts before a censoring."""
    surviving: Values
    """Share that lasts longer than each bucket; not rising, 0 only where the last message that was looked at ended."""
    known_ns: float
    """To where the curve is known: the lower end of the last bucket in which a message ended or was censored."""

    @property
    def left(self) -> float:
        """Share that lasts longer than the curve is known; 0 where the largest latency is an event."""
        return float(self.surviving[-1]) if len(self.surviving) else 1.0

    def position(self, percent: float) -> int | None:
        """Where in `indices` the percentile lies; None where the curve does not come down to it."""
        share = 1.0 - percent / 100.0
        reached = self.surviving <= share * (1.0 + ROUNDING)
        return int(np.argmax(reached)) if bool(reached.any()) else None

    def percentile(self, percent: float) -> float | None:
        """Smallest bucket end that at least `percent` % of messages do not exceed; None where the curve does not come down to it: then it is at
        least `known_ns`. Without censoring that is `Histogram.percentile`."""
        found = self.position(percent)
        return None if found is None else float(self.upper_ends[found])

    @property
    def mean(self) -> float | None:
        """Mean of the latency or of `known_ns`, whichever is less (the restricted mean): at most the mean, and the mean itself where `left` is 0. None
        when empty."""
        if not len(self.indices):
            return None
        falls = -np.diff(self.surviving, prepend=1.0)
        middles = self.lower_ends + (self.layout.widths(self.indices) >> 1)
        return float(np.dot(falls, middles)) + self.left * self.known_ns

    @property
    def longest(self) -> tuple[float, bool] | None:
        """The largest latency, and whether it is only a bound because a message was cut that had lasted longer. None when empty."""
        event = float(self.upper_ends[-1]) if len(self.indices) else -1.0
        if self.known_ns > max(event, 0.0):
            return self.known_ns, True
        return (event, False) if event >= 0 else None

    @functools.cached_property
    def lower_ends(self) -> Whole:
        """Of the buckets."""
        return self.layout.lower_ends(self.indices)

    @functools.cached_property
    def upper_ends(self) -> Whole:
        """Of the buckets."""
        return np.asarray(self.lower_ends + self.layout.widths(self.indices) - 1, dtype=np.int64)


def curve(ended: Histogram, censored: Histogram, beyond: int = 0) -> Curve:
    """The curve of messages whose end was seen, of those that were cut, and of `beyond` that last longer than all of them. Raises HistogramError when
    layouts differ."""
    if ended.layout != censored.layout:
        raise HistogramError(f"events in {ended.layout}, censoring times in {censored.layout}")
    before = np.concatenate(([0], np.cumsum(censored.counts)))
    cut = before[np.searchsorted(censored.indices, ended.indices)]
    gone = np.cumsum(ended.counts) - ended.counts
    at_risk = np.asarray(ended.count + censored.count + beyond - gone - cut, dtype=np.int64)
    with np.errstate(divide="ignore"):
        surviving = np.exp(np.cumsum(np.log1p(-ended.counts / at_risk)))
    return Curve(
        ended.layout, ended.indices, ended.counts, at_risk, surviving, _known(ended, censored, beyond)
    )


def _known(ended: Histogram, censored: Histogram, beyond: int) -> float:
    if beyond:
        return float(ended.layout.highest)
    last = [int(one.indices[-1]) for one in (ended, censored) if len(one.indices)]
    return float(ended.layout.lower_ends(np.array([max(last)], dtype=np.int64))[0]) if last else 0.0
