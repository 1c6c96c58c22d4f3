"""The number that a test asks about - a figure of a cell, or its ratio to another cell's - with its error, from rounds.

log figure = cell + start of the system + round + noise. Two cells are compared round by round: what a round has in common (the hour, the machine's mood, the
arrivals) falls out of the difference of their logarithms, and within one start what the start has in common, too. Across systems the starts remain as noise,
so that the rounds, each with starts of its own, are what counts as repeated. What differs with how much each trial was disturbed is taken out (covariate.py).

The differences' variance is moderated (spread.py). Within a start by that of all pairs of cells that share one, foremost of the same system. Between systems it
is what their starts differ by, the same for all, and the noise of both cells, which their differences within a start tell.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamgauge.inference.covariate import NONE, SLOPES_FREEDOM, Met, Slope, remainder_of, slope_of, together
from streamgauge.inference.experience import RUN_SHARE, spread_of
from streamgauge.inference.looks import ROUNDS_MIN
from streamgauge.inference.number import Bounded, Number
from streamgauge.inference.spread import Common, Own, common, highest

EXPERIENCE_FREEDOM = 4.0
"""How much the spreads of experience.py count where a study has too few cells to tell."""
PAIRS_ALIKE = 4.0 / 3.0
"""Squares of two differences that have a cell in common are correlated by 1/4, and so nearer to each other."""
LEAST_SHARE = 1e-9
"""Of the largest variance that was found: what stands for none."""
EXACT_SHARE, STEPS_MAX = 1e-6, 200


@dataclass(frozen=True)
class Value:
    """A figure of a trial."""

    value: float
    round: int
    start: int
    """Number of the start of the system on which the trial ran."""
    trial: int = 0
    """Its number: a start of a round may have gone through its cells more than once."""
    taken: float | None = None
    """Share of its time in which a CPU was not to be had; None where nobody watched."""


@dataclass(frozen=True)
class Between:
    """A figure of a trial of which only bounds are known: of what it would have been dropping the trial would tell a part, as one has no more than bounds for
    a reason (a maximum beyond what the generator can do)."""

    at_least: float
    """0 where nothing is known."""
    at_most: float
    """Infinite where nothing is known."""
    round: int
    start: int
    trial: int = 0
    taken: float | None = None

    def at(self, end: float) -> Value:
        """As if the figure were at this end."""
        return Value(end, self.round, self.start, self.trial, self.taken)


class Spreads:
    """How much a figure varies in a study: a cell alone from round to round, and the ratio of two."""

    def __init__(self, figure: str, samples: Mapping[str, Sequence[Value]], *, paced: bool = True) -> None:
        """`samples`: the figure's values of every cell of the study."""
        prior = spread_of(figure, paced=paced) ** 2
        self.start_variance = RUN_SHARE * prior
        """Between starts, from experience."""
        known = {cell: [one for one in values if one.value > 0] for cell, values in samples.items()}
        met = [
            Met(cell, (one.round, one.start), one.taken, math.log(one.value))
            for cell, values in known.items()
            for one in values
            if one.taken is not None
        ]
        all_met = len(met) == sum(map(len, known.values()))
        self.slope = slope_of(met) if all_met else NONE
        """By how much the figure's logarithm rises with how much a trial was disturbed."""
        logs = {
            cell: {
                one.round: (one.start, math.log(one.value) - self.slope.value * (one.taken or 0.0))
                for one in values
            }
            for cell, values in known.items()
        }
        self._systems = _systems(logs)
        starts = {(round_, start) for row in logs.values() for round_, (start, _) in row.items()}
        # Cells that share a start do not tell apart how starts differ.
        self._free = float(max(len(starts) - len({round_ for round_, _ in starts}), 1))
        # What is told of a cell by itself is told as it came.
        alone = [
            Own(self._systems[cell], *_variance([math.log(one.value) for one in values]))
            for cell, values in known.items()
        ]
        self._alone = common(alone, Common(prior, EXPERIENCE_FREEDOM))
        self._most = {
            cell: self.slope.inflation * highest(Own(None, *_variance([log for _, log in row.values()])))
            for cell, row in logs.items()
        }
        experience = Common(2.0 * prior, EXPERIENCE_FREEDOM)
        every = _apart(logs, self.slope.inflation)
        inside = [one for one in every if self._is_one(*one.cells)]
        within = [Own(self._systems[one.cells[0]], one.variance, one.freedom) for one in inside]
        # Of a system of one cell nothing is known within a start; it is taken to be as the others are.
        within += [Own(system, 0.0, 0.0) for system in self._systems.values()]
        self._within = common(within, experience, PAIRS_ALIKE)
        self._noise = self._noises(inside)
        between: dict[frozenset[int], list[tuple[float, float, float]]] = {}
        for one in every:
            if one.freedom > 0 and not self._is_one(*one.cells):
                systems = frozenset(self._systems[cell] for cell in one.cells)
                between.setdefault(systems, []).append((one.variance, self._noise_of(one.cells), one.freedom))
        # All pairs of two systems' cells have their starts in common: together they tell as much as one.
        pairs = [
            [statistics.fmean(column) for column in zip(*found, strict=True)] for found in between.values()
        ]
        self._starts, self._between = math.nan, experience
        if any(found > 0 for found, _, _ in pairs):
            self._starts = start_variance([(found, noise) for found, noise, _ in pairs])
            ratios = [Own(None, found / (self._starts + noise), freedom) for found, noise, freedom in pairs]
            # Of few pairs that is told by what it is about to judge, and counts for little. (Experience in its place was wrong of 8 to 12 studies of 100
            # whose starts differ more than it knows.)
            few = Common(1.0, float(min(len(pairs), EXPERIENCE_FREEDOM)))
            self._between = common(ratios, few, PAIRS_ALIKE)[None]

    def _noises(self, inside: Iterable[Apart]) -> dict[str, float]:
        """Of each cell the variance from round to round, beside what its start does: from its differences from the others of its system."""
        told: dict[int, list[tuple[tuple[str, str], float]]] = {}
        for one in inside:
            system = self._systems[one.cells[0]]
            moderated = self._within[system].moderate(one.variance, one.freedom)[0]
            told.setdefault(system, []).append((one.cells, moderated))
        noises = {}
        for cell, system in self._systems.items():
            usual = self._within[system].variance / 2.0
            mine = [variance for two, variance in told.get(system, ()) if cell in two]
            others = [variance for two, variance in told.get(system, ()) if cell not in two]
            # Each difference has the cell's own variance and another's; those among the others tell how much that is. A quiet one among loud ones may be quiet
            # by chance.
            louder = statistics.fmean(mine) - statistics.fmean(others) / 2.0 if others else usual
            # Alone it varies by its noise and by what its starts do, so that it is no noisier than that.
            noises[cell] = min(max(louder, usual), self._most[cell])
        return noises

    def _noise_of(self, two: Iterable[str]) -> float:
        return sum(self._noise[cell] for cell in two)

    def _is_one(self, one: str, other: str) -> bool:
        """Whether cells are of one system."""
        return self._systems[one] == self._systems[other]

    def alone(self, cell: str) -> Common:
        """Of the logarithm of a cell's figure."""
        return self._limited(self._alone[self._systems[cell]])

    def of(self, one: str, other: str) -> Common:
        """Of the difference of two cells' logarithms within a round."""
        if self._is_one(one, other):
            return self._within[self._systems[one]]
        if math.isnan(self._starts):
            return self._limited(self._between)
        expected = self._starts + self._noise_of((one, other))
        return self._limited(Common(self._between.variance * expected, self._between.freedom))

    def _limited(self, found: Common) -> Common:
        return Common(found.variance, min(found.freedom, self._free))


Row = Mapping[int, tuple[int, float]]
"""Of a cell: round -> start and logarithm."""


@dataclass(frozen=True)
class Apart:
    """Two cells, and the variance of the difference of their logarithms within rounds."""

    cells: tuple[str, str]
    variance: float
    freedom: float
    """0 with fewer than two rounds that both have."""


def _apart(rows: Mapping[str, Row], inflation: float) -> list[Apart]:
    """Of all pairs of cells, with variances so many times as they were found. At once: a study of 30 cells has 435 of them, at each look and of each figure."""
    rounds = {
        round_: at for at, round_ in enumerate(dict.fromkeys(itertools.chain.from_iterable(rows.values())))
    }
    logs = np.full((len(rows), len(rounds)), np.nan)
    for values, row in zip(logs, rows.values(), strict=True):
        for round_, (_, log) in row.items():
            values[rounds[round_]] = log
    first, second = np.triu_indices(len(rows), 1)
    differences = logs[first] - logs[second]
    both = ~np.isnan(differences)
    # From the largest of each pair, so that those that are all alike have a variance of 0 and not of a rounding.
    beside = differences - np.fmax.reduce(differences, axis=1, initial=-np.inf)[:, None]
    counts = both.sum(axis=1)
    means = np.where(both, beside, 0.0).sum(axis=1) / np.maximum(counts, 1)
    squares = np.where(both, beside - means[:, None], 0.0) ** 2
    freedom = np.maximum(counts - 1, 0)
    variances = squares.sum(axis=1) / np.maximum(freedom, 1)
    return [
        Apart(two, inflation * float(variance), float(free))
        for two, variance, free in zip(itertools.combinations(rows, 2), variances, freedom, strict=True)
    ]


def start_variance(pairs: Sequence[tuple[float, float]]) -> float:
    """Variance that is added to the noise where two systems are compared, as their starts differ: the most likely one that is the same for all. `pairs`: of two
    systems the variance that was found, and the noise in it."""
    # Fisher's scoring; halfway, so that it does not swing about what it looks for.
    least = max(found for found, _ in pairs) * LEAST_SHARE
    variance = max(found for found, _ in pairs)
    for _ in range(STEPS_MAX):
        weights = [(variance + noise) ** -2 for _, noise in pairs]
        beyond = math.fsum(w * (found - noise) for w, (found, noise) in zip(weights, pairs, strict=True))
        step = (max(beyond / math.fsum(weights), least) - variance) / 2.0
        variance += step
        if abs(step) <= EXACT_SHARE * variance:
            break
    return variance


def _systems(logs: Mapping[str, Row]) -> dict[str, int]:
    """Cells that share starts, by the number of the first of them."""
    first: dict[tuple[int, int], int] = {}
    found = {}
    for number, (cell, row) in enumerate(logs.items()):
        starts = [(round_, start) for round_, (start, _) in row.items()]
        found[cell] = min((first[one] for one in starts if one in first), default=number)
        first |= dict.fromkeys(starts, found[cell])
    return found


def _variance(values: Sequence[float]) -> tuple[float, float]:
    """With its degrees of freedom."""
    if len(values) < 2:
        return 0.0, 0.0
    # Not statistics.variance, whose exact fractions take ten times as long.
    middle = math.fsum(values) / len(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1), len(values) - 1.0


def single(cell: str, values: Sequence[Value | Between], spreads: Spreads) -> Number | Bounded | None:
    """A cell's figure; None with fewer than ROUNDS_MIN rounds."""
    low, high = _ends(values)
    if low is high:
        return _single(cell, low, spreads)
    found = Bounded(_single(cell, low, spreads), _single(cell, high, spreads))
    return None if found.low is None and found.high is None else found


def _ends(values: Sequence[Value | Between]) -> tuple[Sequence[Value], Sequence[Value]]:
    """What it is at least, and at most: the same where nothing has bounds, none where an end is open."""
    exact = [one for one in values if isinstance(one, Value)]
    if len(exact) == len(values):
        return exact, exact
    lows = [one if isinstance(one, Value) else one.at(one.at_least) for one in values]
    highs = [one if isinstance(one, Value) else one.at(one.at_most) for one in values]
    return (
        lows if all(one.value > 0 for one in lows) else [],
        highs if all(one.value < math.inf for one in highs) else [],
    )


def _single(cell: str, values: Sequence[Value], spreads: Spreads) -> Number | None:
    if len(values) < ROUNDS_MIN:
        return None
    plain = [one.value for one in values]
    if min(plain) <= 0:
        # No logarithm: the values as they are, with nothing known of them but themselves.
        count = len(plain)
        return Number(
            statistics.fmean(plain), statistics.stdev(plain), (count,), count - 1.0, logarithmic=False
        )
    logs = [math.log(value) for value in plain]
    starts = len({one.start for one in values})
    return _number(logs, spreads.alone(cell), spreads.start_variance if starts < len(values) else 0.0, starts)


def ratio(
    cells: Sequence[str],
    other: Sequence[Value | Between],
    base: Sequence[Value | Between],
    spreads: Spreads,
    of: Spreads | None = None,
) -> Number | Bounded | None:
    """Other over base, over the rounds that both have; None with fewer than ROUNDS_MIN, or where a figure is 0. `cells`: of other and base. `of`: the spreads
    of base's figure, where that is another one."""
    slopes = spreads.slope, (of or spreads).slope
    both = {one.round for one in other} & {one.round for one in base}
    (other_low, other_high), (base_low, base_high) = (
        _ends([one for one in side if one.round in both]) for side in (other, base)
    )
    if other_low is other_high and base_low is base_high:
        return _ratio(cells, other_low, base_low, spreads, slopes)
    found = Bounded(
        _ratio(cells, other_low, base_high, spreads, slopes),
        _ratio(cells, other_high, base_low, spreads, slopes),
    )
    return None if found.low is None and found.high is None else found


def of_rounds(every: Sequence[Value | Between]) -> tuple[Value | Between, ...]:
    """One of each round, where a start went through its cells more than once, as rounds are what counts as repeated: the geometric mean, or the plain one where
    a figure is 0. Of bounds their ends, which are open where one is."""
    rounds: dict[int, list[Value | Between]] = {}
    for one in every:
        rounds.setdefault(one.round, []).append(one)
    if len(rounds) == len(every):
        return tuple(one for _, (one,) in sorted(rounds.items()))
    found: list[Value | Between] = []
    for round_, ones in sorted(rounds.items()):
        start, watched = ones[0].start, [one.taken for one in ones if one.taken is not None]
        taken = statistics.fmean(watched) if len(watched) == len(ones) else None
        lows, highs = zip(*map(_edges, ones), strict=True)
        if all(isinstance(one, Value) for one in ones):
            middle = _middle(lows) if min(lows) > 0 else statistics.fmean(lows)
            found.append(Value(middle, round_, start, taken=taken))
        else:
            low = _middle(lows) if min(lows) > 0 else 0.0
            high = _middle(highs) if max(highs) < math.inf else math.inf
            found.append(Between(low, high, round_, start, taken=taken))
    return tuple(found)


def _middle(values: Sequence[float]) -> float:
    """A single one as it is."""
    return statistics.geometric_mean(values) if len(values) > 1 else values[0]


def quotients(
    other: Sequence[Value | Between], base: Sequence[Value | Between]
) -> tuple[Value | Between, ...]:
    """Other over base, trial by trial, where a trial has both and neither is 0: two figures of one trial have in common whatever the trial met, and how much
    their quotient varies is not told by how much either does."""
    bases = {(one.round, one.trial): one for one in base}
    found: list[Value | Between] = []
    for one in other:
        below = bases.get((one.round, one.trial))
        if below is None:
            continue
        if isinstance(one, Value) and isinstance(below, Value):
            if min(one.value, below.value) > 0:
                found.append(Value(one.value / below.value, one.round, one.start, one.trial))
            continue
        (low, high), (least, most) = _edges(one), _edges(below)
        if least > 0:
            found.append(Between(low / most, high / least, one.round, one.start, one.trial))
    return tuple(found)


def _edges(one: Value | Between) -> tuple[float, float]:
    return (one.value, one.value) if isinstance(one, Value) else (one.at_least, one.at_most)


def _ratio(
    cells: Sequence[str],
    other: Sequence[Value],
    base: Sequence[Value],
    spreads: Spreads,
    slopes: tuple[Slope, Slope],
) -> Number | None:
    bases = {one.round: one for one in base}
    pairs = [(one, bases[one.round]) for one in other if one.round in bases]
    if len(pairs) < ROUNDS_MIN or min(min(a.value, b.value) for a, b in pairs) <= 0:
        return None
    if NONE in slopes or any(one.taken is None for pair in pairs for one in pair):
        # Of one side alone nothing is taken out.
        slopes = NONE, NONE
    taken = [[one[side].taken or 0.0 for one in pairs] for side in (0, 1)]
    out = [slopes[0].value * of_a - slopes[1].value * of_b for of_a, of_b in zip(*taken, strict=True)]
    differences = [math.log(a.value / b.value) - more for (a, b), more in zip(pairs, out, strict=True)]
    starts = min(len({a.start for a, _ in pairs}), len({b.start for _, b in pairs}))
    shared = any(a.start != b.start for a, b in pairs) and starts < len(pairs)
    prior = spreads.of(cells[0], cells[1])
    found = _number(
        differences, prior, 2.0 * spreads.start_variance if shared else 0.0, starts, slopes[0].inflation
    )
    left = remainder_of(slopes, [statistics.fmean(one) for one in taken])
    return replace(
        found,
        # More rounds reduce the slope's error, too.
        spread=math.sqrt(found.spread**2 + len(pairs) * left.slope),
        fixed=found.fixed + left.own,
        freedom=together(
            (found.spread**2 / len(pairs) + found.fixed, found.freedom),
            (left.slope, min(one.freedom for one in slopes)),
            (left.own, SLOPES_FREEDOM),
        ),
        evened=statistics.fmean(out),
    )


def _number(
    logs: Sequence[float], prior: Common, start_variance: float, starts: int, inflation: float = 1.0
) -> Number:
    count, (own, free) = len(logs), _variance(logs)
    variance, freedom = prior.moderate(own * inflation, free, doubtful=True)
    return Number(
        statistics.fmean(logs),
        math.sqrt(variance),
        (count,),
        freedom,
        fixed=start_variance / starts,
        shared_start=start_variance > 0,
    )
