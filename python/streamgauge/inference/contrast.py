"""The number that a test asks about - a figure of a cell, or its ratio to another cell's - with its error, from rounds.

log figure = cell + start of the system + round + noise. Two cells are compared round by round: what a round has in common (the hour, the machine's mood, the
arrivals) falls out of the difference of their logarithms, and within one start what the start has in common, too. Across systems the starts remain as noise, so
that the rounds, each with starts of its own, are what counts as repeated. The differences' variance is moderated (spread.py) by that of all cells of the study.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from streamgauge.inference.experience import RUN_SHARE, spread_of
from streamgauge.inference.looks import ROUNDS_MIN
from streamgauge.inference.number import Number
from streamgauge.inference.spread import Common, common

EXPERIENCE_FREEDOM = 4.0
"""How much the spreads of experience.py count where a study has too few cells to tell."""
Group = TypeVar("Group", int, tuple[int, int])


@dataclass(frozen=True)
class Value:
    """A figure of a trial."""

    value: float
    round: int
    start: int
    """Number of the start of the system on which the trial ran."""


class Spreads:
    """How much a figure varies in a study: `alone` from round to round, `between` systems within a round, and `within` a start."""

    def __init__(self, figure: str, samples: Mapping[str, Sequence[Value]], *, paced: bool = True) -> None:
        """`samples`: the figure's values of every cell of the study."""
        prior = spread_of(figure, paced=paced) ** 2
        fallback = Common(prior, EXPERIENCE_FREEDOM)
        logs = [
            [(one, math.log(one.value)) for one in values if one.value > 0] for values in samples.values()
        ]
        starts = _by_start(logs)
        rounds = {one.round for row in logs for one, _ in row}
        # Cells that share a start do not tell apart how starts differ.
        free = float(max(len(starts) - len(rounds), 1))
        self.alone = _common([[log for _, log in row] for row in logs], 1.0, free, fallback)
        self.between = _common(*_less_rounds(logs), free, fallback)
        self.within = _common(*_less_starts(logs), math.inf, fallback)
        self.start_variance = RUN_SHARE * prior
        """Between starts, from experience."""

    def of(self, same_start: bool) -> Common:
        """What one side of a comparison varies by."""
        return self.within if same_start else self.between


def _common(rows: Sequence[Sequence[float]], scale: float, at_most: float, fallback: Common) -> Common:
    """`at_most`: degrees of freedom."""
    known = [row for row in rows if len(row) > 1]
    variances = [statistics.variance(row) * scale for row in known]
    found = common(variances, [len(row) - 1.0 for row in known], fallback)
    return Common(found.variance, min(found.freedom, at_most))


Row = Sequence[tuple[Value, float]]
"""Of a cell: its values with their logarithms."""


def _less_starts(rows: Sequence[Row]) -> tuple[list[list[float]], float]:
    """Each cell's logarithms less the mean of their start, and by how much that makes their variance too small."""
    return _centred(rows, _by_start(rows), lambda one: (one.round, one.start))


def _less_rounds(rows: Sequence[Row]) -> tuple[list[list[float]], float]:
    """Each cell's logarithms less what their round has in common: the mean over its starts, each of which counts as one."""
    rounds: dict[int, list[float]] = {}
    for (round_, _), logs in _by_start(rows).items():
        rounds.setdefault(round_, []).append(statistics.fmean(logs))
    return _centred(rows, rounds, lambda one: one.round)


def _by_start(rows: Sequence[Row]) -> dict[tuple[int, int], list[float]]:
    """Logarithms by round and start."""
    starts: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        for one, log in row:
            starts.setdefault((one.round, one.start), []).append(log)
    return starts


def _centred(
    rows: Sequence[Row], groups: Mapping[Group, Sequence[float]], group_of: Callable[[Value], Group]
) -> tuple[list[list[float]], float]:
    shared = {name: statistics.fmean(members) for name, members in groups.items() if len(members) > 1}
    left = [[log - shared[group_of(one)] for one, log in row if group_of(one) in shared] for row in rows]
    sizes = [len(groups[name]) for name in shared]
    mean_size = statistics.fmean(sizes) if sizes else 2.0
    return left, mean_size / (mean_size - 1.0)


def single(values: Sequence[Value], spreads: Spreads) -> Number | None:
    """A cell's figure; None with fewer than ROUNDS_MIN rounds."""
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
    return _number(logs, spreads.alone, spreads.start_variance if starts < len(values) else 0.0, starts)


def ratio(other: Sequence[Value], base: Sequence[Value], spreads: Spreads) -> Number | None:
    """Other over base, over the rounds that both have; None with fewer than ROUNDS_MIN, or where a figure is 0."""
    bases = {one.round: one for one in base}
    pairs = [(one, bases[one.round]) for one in other if one.round in bases]
    if len(pairs) < ROUNDS_MIN or min(min(a.value, b.value) for a, b in pairs) <= 0:
        return None
    differences = [math.log(a.value / b.value) for a, b in pairs]
    same_start = all(a.start == b.start for a, b in pairs)
    starts = min(len({a.start for a, _ in pairs}), len({b.start for _, b in pairs}))
    side = spreads.of(same_start)
    both = Common(2.0 * side.variance, side.freedom)
    shared = not same_start and starts < len(pairs)
    return _number(differences, both, 2.0 * spreads.start_variance if shared else 0.0, starts)


def _number(logs: Sequence[float], prior: Common, start_variance: float, starts: int) -> Number:
    count = len(logs)
    variance, freedom = prior.moderate(statistics.variance(logs), count - 1.0)
    return Number(
        statistics.fmean(logs),
        math.sqrt(variance),
        (count,),
        freedom,
        fixed=start_variance / starts,
        shared_start=start_variance > 0,
    )
