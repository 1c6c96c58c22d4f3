"""Do disturbed spans begin whenever they like, or more often while something is slow? The estimate of quiet time rests on the first (quiet.py).

Whoever takes CPUs away just when the system is slow hides its slowness: the slow messages are cut short there, and no other message tells of them. It shows
in how old the oldest message under way is: over moments of quiet time, and where spans begin. A span that begins whenever it likes finds what any moment of
quiet time finds (Wolff 1982); one that is attracted finds something old more often.

Three things must not be taken for attraction. A queue grows old *within* a window, so only the begins of whole spans count, which lie in quiet time, and
not those of windows within a span or its recovery. What is old must be looked at where the span began (the probe's last punctual wake-up) and not where it
was noticed, by when messages have already waited for it. And a busy system is preempted a little more often than an idle one: with a thief that is known
to be independent and with a host's own noise spans began up to thirteen times as often while something was older than 2 ms, with one that struck only
while the server was busy fifty to a hundred times. So it is called attraction only if it is beyond chance *and* RATIO_ATTRACTED times as often.

Wolff, R. W. (1982), Poisson arrivals see time averages, Operations Research 30, 223-231.
Przyborowski, J. and Wilenski, H. (1940), Homogeneity of results in testing samples from Poisson series, Biometrika 31, 313-323.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from streamgauge.analysis.quiet import Values
from streamgauge.inference.estimates import holm
from streamgauge.model.result_quiet import Begin
from streamgauge.vocabulary.format import plural, trimmed

CHANCE_MAX = 0.05
"""So probable at most must so many old begins be if spans begin whenever they like, over all thresholds (Holm 1979)."""
RATIO_ATTRACTED = 20.0
"""Odds of something old where spans begin, over those in quiet time."""
DOUBTED_MIN = 2
"""Old begins from which on it may be that it cannot be told: among thousands of independent ones there is nearly always one."""
ATTRACTED_MIN = 3
"""And from which on attraction may be shown. Two of six are beyond chance by the letter; they are one coincidence and another, and a trial of which it cannot
be told has figures whose intervals hold whatever those two may hide."""
ATTRACTED_FEW = 0.003
"""Of the time. Attracted spans that began while something was old, of no more than that, cannot hide a third of what lies above a p99: figures have intervals
that hold whatever they hide, as where it cannot be told. Three pieces of a host's in a row look like it, of which the first was too short to be seen."""
USUAL_SHARE = 0.5
"""What is older than a threshold for more of quiet time than that is not slow, but usual: spans find it there whenever they begin, and could hide it for less
than half of the disturbed time."""
UPPER = 0.95
"""One-sided: the ratio is below its upper limit with this probability."""


@dataclass(frozen=True)
class Ages:
    """How often the oldest message under way was older than a threshold."""

    threshold_ms: float
    samples: Sequence[int]
    """Moments of quiet time that were looked at, per interval in the order of time."""
    older: Sequence[int]
    """Of them, with something older."""
    begins: int
    """Disturbed spans."""
    begins_older: int
    """Of them, with something older where they began."""


@dataclass(frozen=True)
class Doubt:
    """The spans of which it cannot be told whether they began whenever they like, or that were attracted and are few: nothing else can have hidden slowness
    that showed before."""

    share: float
    """Of all disturbed time."""
    began: frozenset[int]
    """In which intervals of the phase, counted from 0."""


@dataclass(frozen=True)
class Attraction:
    """Whether spans are attracted by slowness, by the threshold that says most."""

    kind: Begin
    threshold_ms: float | None = None
    ratio: float | None = None
    """Odds where spans begin over those of quiet time. None where no span began while something was old."""
    ratio_high: float | None = None
    """Upper limit, 95 % one-sided."""
    chance: float = 1.0
    """How probable so many are for spans that begin whenever they like, corrected for the number of thresholds."""
    begins: int = 0
    begins_older: int = 0
    quiet_share: float = 0.0
    doubtful_ms: float | None = None
    """Where spans are not independent: the lowest threshold of which that is so, or may be."""
    doubt: Doubt | None = None
    """Where it cannot be told, or attracted spans are few (ATTRACTED_FEW), and is known how long the spans were that began while something was older than
    `doubtful_ms`."""

    @property
    def sentence(self) -> str:
        """For the reader."""
        if self.kind is Begin.independent:
            return "Nothing shows that the machine was disturbed more often while the system was slow."
        seen = (
            f"in {self.begins_older} of {plural(self.begins, 'time')} that a disturbance began, a message had been under way for more than "
            f"{trimmed(self.threshold_ms)} ms; in quiet time that is so for {trimmed(100 * self.quiet_share, 2)} %"
        )
        if self.kind is Begin.attracted:
            return (
                f"The machine was disturbed just when the system was slow, which hides its slowness: {seen}."
            )
        return f"Whether the machine was disturbed just when the system was slow cannot be told: {seen}."


def doubt_of(
    found: Attraction, old_s: float, disturbed_s: float, seconds: float, began: Collection[int]
) -> Doubt | None:
    """`old_s`: of spans that began while something was older than `doubtful_ms`, in the intervals `began`; of all spans; of the phase. None where there is no
    doubt, or more of it than intervals can hold."""
    if not disturbed_s or not began or found.kind is Begin.independent:
        return None
    if found.kind is Begin.attracted and old_s > ATTRACTED_FEW * seconds:
        return None
    return Doubt(min(old_s / disturbed_s, 1.0), frozenset(began))


@dataclass(frozen=True)
class _Weighed:
    """One threshold."""

    ages: Ages
    share: float
    ratio: float
    ratio_high: float
    chance: float


def attraction(thresholds: Sequence[Ages]) -> Attraction:
    """What all thresholds say together. A threshold above which no span began says nothing against independence: what was never cut was not hidden. Nor does
    one below what is usual."""
    began = [_weigh(one) for one in thresholds if one.begins_older]
    weighed = [one for one in began if one.share <= USUAL_SHARE]
    if not weighed:
        return Attraction(Begin.independent, begins=max((one.begins for one in thresholds), default=0))
    corrected = holm([one.chance for one in weighed])
    found = list(zip(weighed, corrected, strict=True))
    shown = [pair for pair in found if pair[1] < CHANCE_MAX and _is_much(pair[0])]
    open_ = [
        pair
        for pair in found
        if pair[0].ratio_high >= RATIO_ATTRACTED
        and (pair[0].ages.begins_older >= DOUBTED_MIN or pair[1] < CHANCE_MAX)
    ]
    if shown or open_:
        told = (
            _told(Begin.attracted, *min(shown, key=lambda pair: pair[1]))
            if shown
            else _told(Begin.cannot_tell, *max(open_, key=lambda pair: pair[0].ratio_high))
        )
        return replace(told, doubtful_ms=min(one.ages.threshold_ms for one, _ in shown + open_))
    return _told(Begin.independent, *max(found, key=lambda pair: pair[0].ratio))


def _is_much(one: _Weighed) -> bool:
    return one.ratio >= RATIO_ATTRACTED and one.ages.begins_older >= ATTRACTED_MIN


def _told(kind: Begin, one: _Weighed, chance: float) -> Attraction:
    ages = one.ages
    return Attraction(
        kind, ages.threshold_ms, one.ratio, one.ratio_high, chance, ages.begins, ages.begins_older, one.share
    )


def _weigh(ages: Ages) -> _Weighed:
    samples, older = (np.asarray(one, dtype=np.float64) for one in (ages.samples, ages.older))
    looked, old = float(samples.sum()), float(older.sum())
    alike = _alike(samples, older)
    # Half an independent moment more: never seen is not impossible.
    share = (old + 0.5 * alike) / (looked + alike)
    begin_share = ages.begins_older / ages.begins
    high = float(
        special.betaincinv(ages.begins_older + 1.0, max(ages.begins - ages.begins_older, 1e-9), UPPER)
    )
    return _Weighed(
        ages,
        old / looked if looked else 0.0,
        _odds(begin_share) / _odds(share),
        _odds(high) / _odds(share),
        _chance(ages, looked / alike, old / alike),
    )


def _odds(share: float) -> float:
    return share / max(1.0 - share, 1e-9)


def _alike(samples: Values, older: Values) -> float:
    """By how much moments of quiet time count for less because what is old stays old for a while: their variance over that of independent ones."""
    looked = float(samples.sum())
    share = float(older.sum()) / looked if looked else 0.0
    if not 0.0 < share < 1.0 or len(samples) < 2:
        return 1.0
    squares = float(((older - share * samples) ** 2).sum()) * len(samples) / (len(samples) - 1)
    return max(1.0, squares / (looked * share * (1.0 - share)))


def _chance(ages: Ages, moments: float, old: float) -> float:
    """Exact for two Poisson counts (Przyborowski and Wilenski 1940): given how many old moments there are on both sides together, how probable it is that
    so many of them are begins. `moments`, `old`: of quiet time, as so many independent ones."""
    if moments <= 0:
        return 1.0
    begins = float(ages.begins)
    return float(special.betainc(float(ages.begins_older), old + 1.0, begins / (begins + moments)))
