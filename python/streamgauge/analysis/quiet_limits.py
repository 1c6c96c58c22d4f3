"""How far to trust a percentile of quiet time: 95 % limits, and whether there is enough for a figure.

A limit of a percentile is a latency at which the share that survives is just not significantly different from what the percentile says (Brookmeyer and
Crowley 1982, who invert the test with Greenwood's variance, 1926). Two things differ here:

- Messages are late together: a stall of 5 ms is a hundred slow messages and one observation. So the variance of the curve is taken from what neighbouring
  blocks of time (an interval, 1 s, or several) add to it: the infinitesimal jackknife over blocks (Ying and Wei 1994). Where blocks resemble their
  neighbours, their first autocorrelation widens it further, as for an autoregressive series; and it is never below Greenwood's.
- The tail has few observations, for which no normal approximation holds. So the variance is turned into the number of independent messages that would
  have the same, and the test is that of a binomial count (mid-p) of so many (Korn and Graubard 1998), made smaller for the blocks being few or few of them
  making all the variance (Student's t). What skew there is beyond the binomial's is taken out by Hall's transformation (1992): who has seen few stalls
  thinks too well of the tail and of what is known of it.

Brookmeyer, R. and Crowley, J. (1982), A confidence interval for the median survival time, Biometrics 38, 29-41.
Greenwood, M. (1926), The natural duration of cancer, Reports on Public Health and Medical Subjects 33, HMSO, 1-26.
Hall, P. (1992), On the removal of skewness by transformation, J. R. Stat. Soc. B 54, 221-228.
Korn, E. L. and Graubard, B. I. (1998), Confidence intervals for proportions with small expected number of positive counts estimated from survey data,
Survey Methodology 24, 193-201.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from streamgauge.analysis.quiet import Curve, QuietInterval, Values, curve
from streamgauge.inference.estimates import CONFIDENCE
from streamgauge.vocabulary.histograms import Histogram, Whole, empty, merge

ONE_SIDED = (1.0 - CONFIDENCE) / 2.0
Z = float(-special.ndtri(ONE_SIDED))
BLOCKS_MAX = 120
"""More intervals than that are taken together with their neighbours: it costs less, and longer blocks are more independent."""
BLOCKS_MIN = 3
"""With fewer independent ones, nothing is known of how they vary. In shorter trials than a minute ten would leave hardly a figure, and its intervals held the
truth no more often (docs/quiet-time.md)."""
BLOCKS_LEAST = 1.5
"""So many independent ones must be worth those that resemble each other. Between this and BLOCKS_MIN limits grow wide, as degrees of freedom go down: none at
all for a median that wanders by 3 % would say less than is known."""
WANDER_MAX = 1.5
"""Blocks of a level that wanders differ by this factor at most."""
EVENTS_MIN = 3.7
"""So many independent messages must be expected above a percentile for an upper limit: to see none of them is no surprise below (exp(-3.7) is 2.5 %)."""
FREEDOM_MIN = 4.0
"""Degrees of freedom are hardly fewer where a few stalls make all the variance: that these are few is in the binomial already."""
ALIKE_DEVIATIONS = 1.0
"""By so many standard deviations of chance an autocorrelation must be above 0 to count."""
ALIKE_MAX = 0.95
SURELY = 0.02
"""Less than ONE_SIDED: what is as improbable is beyond a limit, whatever its skew."""
PIECE_BUCKETS = 64
"""So many are looked at at a time for a limit, which mostly lies near where the search begins."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Block:
    """A stretch of time."""

    ended: Histogram
    censored: Histogram
    beyond: int = 0
    """Messages that outlast all others."""


@dataclass(frozen=True)
class Limits:
    """A percentile with its limits, in ns."""

    value: float | None
    """None where the curve does not come down to it."""
    low: float
    """The percentile is at least that, with 97.5 %."""
    high: float | None
    """At most that, with 97.5 %; None where no limit can be had."""
    events: float
    """How many independent messages are worth what is expected above it."""
    blocks: float
    """How many independent blocks of time are worth those in which anything was seen."""

    filled: int
    """Blocks in which anything was seen."""

    @property
    def shortage(self) -> str:
        """Why this is no figure; empty where it is one. One that is not known well has a wide interval, or one without an upper end, and is no less the best
        guess: to give it only where it seems to be known well would prefer the trials that by chance saw few slow stretches."""
        if self.filled < BLOCKS_MIN:
            return f"anything was seen in {self.filled} blocks of time, {BLOCKS_MIN} are needed"
        if self.value is None:
            return "no message that lasted so long was seen to its end in quiet time"
        return ""


def quiet_blocks(intervals: Sequence[QuietInterval]) -> list[Block]:
    """Of quiet time, in the order of time."""
    return [Block(one.quiet, one.censored, one.beyond) for one in intervals]


def came_blocks(intervals: Sequence[QuietInterval]) -> list[Block]:
    """Of all messages as they came."""
    return [Block(one.came, empty(), one.came_beyond) for one in intervals]


@dataclass(frozen=True)
class _Trust:
    """How well a curve is known at each of its buckets."""

    worth: Values
    """How many independent messages would know it as well."""
    skew: Values
    """Of what blocks of time add to it."""
    blocks: Values
    """How many independent blocks are worth those that there are."""


class Estimate:
    """The curve of blocks of time, and how far it can be trusted."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        """`blocks`: all of a phase in the order of time, equally long; those in which nothing was seen belong to it."""
        self._grouped = _grouped(blocks)
        self.filled = sum(1 for one in self._grouped if one.ended.count + one.censored.count + one.beyond)
        self.curve: Curve = curve(
            merge(one.ended for one in self._grouped),
            merge(one.censored for one in self._grouped),
            sum(one.beyond for one in self._grouped),
        )

    @functools.cached_property
    def _trust(self) -> _Trust:
        return _trust(self.curve, self._grouped)

    @functools.cached_property
    def _of_blocks(self) -> list[Curve]:
        return [curve(one.ended, one.censored, one.beyond) for one in self._grouped]

    def percentile(self, percent: float) -> Limits:
        """With its limits. One of nothing is at least 0."""
        found = self.curve
        if not len(found.indices):
            return Limits(None, self.low(percent), None, 0.0, self.filled, self.filled)
        at = found.position(percent)
        return Limits(
            self.value(percent),
            self.low(percent),
            self.high(percent),
            self._events(percent, at),
            self._blocks(at),
            self.filled,
        )

    def value(self, percent: float) -> float | None:
        """The percentile alone, in ns; None where the curve does not come down so far."""
        at = self.curve.position(percent) if len(self.curve.indices) else None
        return None if at is None else float(self.curve.upper_ends[at])

    def low(self, percent: float) -> float:
        """The percentile is at least that, with 97.5 %, in ns."""
        found = self.curve
        if not len(found.indices):
            return found.known_ns if self.filled >= BLOCKS_MIN else 0.0
        at = found.position(percent)
        if self._tells_little(at):
            wandered = self._wandered(percent)
            return wandered[0] if wandered is not None else 0.0
        share, worth = _share(percent), self._trust.worth
        possible = np.flatnonzero(~surely_more(worth * found.surviving, worth, share))
        low = self._first(share, possible, lambda surprise: surprise <= Z)
        if low is None:
            return found.known_ns
        return float(found.lower_ends[low if at is None else min(low, at)])

    def high(self, percent: float) -> float | None:
        """At most that, with 97.5 %, in ns; None where no limit can be had."""
        found = self.curve
        at = found.position(percent) if len(found.indices) else None
        # No curve is worth more than the messages that it is of.
        if at is None or float(found.at_risk[0]) * _share(percent) < EVENTS_MIN:
            return None
        if self._tells_little(at):
            wandered = self._wandered(percent)
            return wandered[1] if wandered is not None else None
        if self._events(percent, at) < EVENTS_MIN:
            return None
        possible = np.arange(self._around(at)[0], len(found.indices))
        above = self._first(_share(percent), possible, lambda surprise: surprise < -Z)
        return None if above is None else float(found.upper_ends[max(above, at)])

    def _around(self, at: int | None) -> list[int]:
        """A percentile lies at a step of the curve: the worse of its two sides counts."""
        return [len(self.curve.indices) - 1] if at is None else sorted({max(at - 1, 0), at})

    def _blocks(self, at: int | None) -> float:
        return min(float(self.filled), *(float(self._trust.blocks[one]) for one in self._around(at)))

    def _tells_little(self, at: int | None) -> bool:
        """Whether blocks of time resemble each other so much that nothing is known of how they vary."""
        return self.filled < BLOCKS_MIN or self._blocks(at) < BLOCKS_LEAST

    def _wandered(self, percent: float) -> tuple[float, float] | None:
        """Limits of a level that wanders: the least and the largest percentile of a single block, and as far again to each side (in logarithms). That holds the
        level about which it wanders in 94 % of ten blocks and more where 95 % of what it is off are still there a block later. None where blocks are no
        measure of it: stalls make the percentile, and not a level."""
        if self.filled < BLOCKS_MIN:
            return None
        of_blocks = self._of_blocks
        if any(not len(one.indices) or one.at_risk[0] * _share(percent) < EVENTS_MIN for one in of_blocks):
            return None
        found = [one.percentile(percent) for one in of_blocks]
        known = [one for one in found if one is not None]
        if len(known) < len(found) or max(known) > WANDER_MAX * min(known):
            return None
        low, high = min(known), max(known)
        # A percentile of 0 in one block is 0 in all of them, by the line above.
        return (low**2 / high, high**2 / low) if low > 0 else (0.0, 0.0)

    def _events(self, percent: float, at: int | None) -> float:
        """How many independent messages are worth what is expected above a percentile."""
        return min(float(self._trust.worth[one]) for one in self._around(at)) * _share(percent)

    def _first(
        self, share: float, possible: npt.NDArray[np.intp], is_it: Callable[[Values], Flags]
    ) -> int | None:
        """The first of these buckets of whose surprise a predicate holds."""
        for start in range(0, len(possible), PIECE_BUCKETS):
            piece = possible[start : start + PIECE_BUCKETS]
            held = is_it(self._surprise(share, piece))
            if bool(held.any()):
                return int(piece[np.argmax(held)])
        return None

    def _surprise(self, share: float, part: npt.NDArray[np.intp]) -> Values:
        """By how many standard deviations the share that survives each bucket lies above `share`, for chance."""
        worth, surviving = self._trust.worth[part], self.curve.surviving[part]
        probability = mid_probability(worth * surviving, worth, share)
        z = special.ndtri(np.clip(probability, 1e-300, 1.0 - 1e-16))
        skew = np.maximum(self._trust.skew[part] - 1.0 / np.sqrt(np.maximum(worth * share, 1e-9)), 0.0)
        return np.asarray(z + skew * z**2 / 3.0 + skew**2 * z**3 / 27.0 + skew / 6.0, dtype=np.float64)


def _share(percent: float) -> float:
    """What lasts longer than a percentile."""
    return 1.0 - percent / 100.0


@dataclass(frozen=True)
class Spread:
    """How sums over blocks of time vary, one value for each sum."""

    variance: Values
    skew: Values
    blocks: Values
    """How many independent blocks are worth those that there are."""
    freedom: Values
    """Degrees of freedom of the variance: fewer where few blocks make most of it."""


def spread_over_blocks(parts: Values, alike_min: float = 0.0) -> Spread:
    """Of sums over blocks (first axis, in the order of time), each of mean 0, for all columns. Blocks that resemble their neighbours, or of which
    `alike_min` says that they do, count for less."""
    count = len(parts)
    squared = parts * parts
    squares = np.sum(squared, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        skew = np.nan_to_num(np.sum(squared * parts, axis=0) / squares**1.5)
        # 3 / count for normal parts, whose variance has count degrees of freedom.
        peaks = np.nan_to_num(np.sum(squared * squared, axis=0) / squares**2)
    even = np.minimum(2.0 / np.maximum(peaks - 1.0 / count, 2.0 / count), count)
    alike = np.maximum(likeness(parts), alike_min)
    longer = (1.0 + alike) / (1.0 - alike)
    worth = count / longer
    few = np.where(worth >= BLOCKS_LEAST, np.minimum((worth - 1.0) / (BLOCKS_MIN - 1.0), 1.0), 1.0)
    freedom = np.maximum(even / longer - 1.0, FREEDOM_MIN * few)
    return Spread(squares * longer * count / max(count - 1, 1), skew, worth, freedom)


def likeness(parts: Values) -> Values:
    """First autocorrelation of blocks (first axis) of mean 0; 0 where it may be chance."""
    count = len(parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.nan_to_num(np.sum(parts[1:] * parts[:-1], axis=0) / np.sum(parts * parts, axis=0))
    # The mean was taken off, which makes neighbours look less alike than they are (Marriott and Pope 1954).
    found = found + (1.0 + 4.0 * np.maximum(found, 0.0)) / count
    return np.where(found > ALIKE_DEVIATIONS / np.sqrt(count), np.minimum(found, ALIKE_MAX), 0.0)


def _grouped(blocks: Sequence[Block]) -> list[Block]:
    size = -(-len(blocks) // BLOCKS_MAX)
    if size <= 1:
        return list(blocks)
    groups = [blocks[start : start + size] for start in range(0, len(blocks), size)]
    return [
        Block(
            merge(one.ended for one in group),
            merge(one.censored for one in group),
            sum(one.beyond for one in group),
        )
        for group in groups
    ]


def _trust(found: Curve, blocks: Sequence[Block]) -> _Trust:
    """How well the curve is known at each of its buckets."""
    if not len(found.indices):
        nothing = np.zeros(0)
        return _Trust(nothing, nothing, nothing)
    surviving, remaining = found.surviving, (found.at_risk - found.events).astype(np.float64)
    parts = _parts(blocks, found, remaining)
    # Where the level wanders, half of the messages tell it best: in the tail there are too few.
    middle = min(int(np.argmax(surviving <= 0.5)), len(surviving) - 1)
    spread = spread_over_blocks(parts, float(likeness(parts[:, middle])))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Variances of the logarithm of the share that survives.
        greenwood = np.cumsum(found.events / (found.at_risk * remaining))
        widen = special.stdtrit(spread.freedom, ONE_SIDED) / special.ndtri(ONE_SIDED)
        variance = spread.variance * widen**2
        worth = (1.0 - surviving) / surviving / np.maximum(variance, greenwood)
    # Blocks that hardly vary may resemble each other as they like.
    blocks_worth = np.where(
        variance > np.nan_to_num(greenwood, nan=np.inf), spread.blocks, float(len(blocks))
    )
    worth, skew = np.minimum(worth, float(found.at_risk[0])), spread.skew
    # Where the curve ends at 0 it has no variance of its own: what holds one step above is taken.
    if surviving[-1] == 0.0:
        worth[-1] = worth[-2] if len(worth) > 1 else float(found.at_risk[0])
        skew[-1] = skew[-2] if len(skew) > 1 else 0.0
    return _Trust(worth, skew, blocks_worth)


def _parts(blocks: Sequence[Block], found: Curve, remaining: Values) -> Values:
    """What each block (first axis) adds to the logarithm of the curve at each bucket, over what it would add if it were like all: its influence on it."""
    indices, shape = found.indices, (len(blocks), len(found.indices))
    events = np.zeros(shape)
    for at, block in enumerate(blocks):
        events[at, np.searchsorted(indices, block.ended.indices)] = block.ended.counts
    seen = np.array([one.ended.count + one.censored.count + one.beyond for one in blocks], dtype=np.float64)
    # In one place: these are the largest arrays of a trial's analysis.
    parts = np.cumsum(events, axis=1)
    parts -= events
    np.subtract(seen[:, np.newaxis], parts, out=parts)
    if any(one.censored.count for one in blocks):
        parts -= _cut(blocks, indices)
    parts *= found.events / found.at_risk
    parts -= events
    parts /= np.maximum(remaining, 1.0)
    parts[:, remaining <= 0] = 0.0
    return np.cumsum(parts, axis=1, out=parts)


def _cut(blocks: Sequence[Block], indices: Whole) -> Values:
    """How many of each block were censored before each bucket. What is censored in a bucket is still there for the events of this bucket."""
    cut = np.zeros((len(blocks), len(indices) + 1))
    for at, block in enumerate(blocks):
        places = np.searchsorted(indices, block.censored.indices, side="right")
        cut[at] = np.bincount(places, block.censored.counts, len(indices) + 1)
    return np.asarray(np.cumsum(cut, axis=1)[:, :-1], dtype=np.float64)


def mid_probability(seen: Values, of: Values, share: float) -> Values:
    """How probable at most `seen` of `of` are, half of the chance of just so many counted, if each is with probability `share`. Both need not be whole."""
    rest = np.maximum(of - seen, 0.0)
    at_most = np.where(rest > 0, special.betainc(np.maximum(rest, 1e-300), seen + 1.0, 1.0 - share), 1.0)
    at_least = np.where(seen > 0, special.betainc(np.maximum(seen, 1e-300), rest + 1.0, share), 1.0)
    return np.asarray(0.5 * (at_most + 1.0 - at_least), dtype=np.float64)


def surely_more(seen: Values, of: Values, share: float) -> Flags:
    """Where `mid_probability` is certain to be above 1 - SURELY; where not, it may be. The chance of at least `seen` is the incomplete beta function, whose
    series (DLMF 8.17.8) lies below a geometric one; this takes a tenth of the time."""
    rest = np.maximum(of - seen, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first = seen * np.log(share) + (rest + 1.0) * np.log1p(-share) - np.log(seen)
        falls = (of + 1.0) * share / (seen + 1.0)
        at_least = np.exp(first - special.betaln(seen, rest + 1.0)) / (1.0 - falls)
    return np.asarray((falls < 1.0) & (at_least < SURELY), dtype=np.bool_)


def student(freedom: float) -> float:
    """Student's t that is exceeded with probability ONE_SIDED."""
    return -float(special.stdtrit(max(freedom, 1.0), ONE_SIDED))
