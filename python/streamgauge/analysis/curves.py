"""Curves: the cells of a run that differ in nothing but their rate, as points of latency over throughput, with the knee of each.

A *point* is a cell at one rate. It is *sustained* when a trial of it is valid; *not sustained* when its rate was not achieved or its consumers fell behind, and
the generator was not why; with *bounds* where the machine was disturbed too much for figures; anything else says nothing of the system and has *no figure*.
Points with a figure and those that were not sustained tell the knee (`inference.knee`). A closed loop beside them is the most that the system took.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from streamgauge.analysis.cells import Cell, Key, cells, headline_p99
from streamgauge.analysis.quiet_bounds import Told
from streamgauge.analysis.quiet_cells import prior_spread, told
from streamgauge.inference.experience import TAIL_SPREAD, number_of
from streamgauge.inference.knee import Knee, Point, find_knee
from streamgauge.inference.number import Number
from streamgauge.model.result import TrialResult
from streamgauge.vocabulary.bounds import ACHIEVED_SHARE_MIN

FIGURE = "p99"
POINTS_MIN = 2
"""With one rate there is no curve."""
DIFFERS = ("rate_msgs_s", "arrival", "warmup_s", "duration_s")
"""In what the points of a curve, and the closed loop beside them, are asked differently."""

Worth = Literal["sustained", "not sustained", "bounds", "no figure"]


@dataclass(frozen=True)
class CurvePoint:
    """A cell as a point. Rates in msg/s, latencies in ms."""

    cell: Cell
    asked_msgs_s: float
    achieved_msgs_s: float
    worth: Worth
    p50_ms: float | None
    p99_ms: float | None
    """The median over its valid trials; of any other point over all of them, as they came: how long messages waited. None where only bounds stand, and where
    not all of these trials know it."""
    bounds: Told | None
    """Of p99, where that is None; None where nothing is known."""

    @property
    def drawn_ms(self) -> float | None:
        """Where it stands in a drawing; a bound where there is no figure."""
        if self.p99_ms is not None:
            return self.p99_ms
        return None if self.bounds is None else self.bounds.at_least or self.bounds.at_most


@dataclass(frozen=True)
class Curve:
    """The points of one system under one workload, from the lowest rate to the highest."""

    points: tuple[CurvePoint, ...]
    closed: Cell | None
    """The closed loop, where there was one."""
    knee: Knee | None

    @property
    def first(self) -> TrialResult:
        """The trial that stands for what is the same in all of them."""
        return self.points[0].cell.first

    @property
    def sustained(self) -> tuple[CurvePoint, ...]:
        """Points at which the system kept up."""
        return tuple(point for point in self.points if point.worth == "sustained")

    @property
    def most(self) -> CurvePoint | None:
        """The highest rate that was sustained."""
        return self.sustained[-1] if self.sustained else None

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """Of all points, and of the closed loop."""
        closed = () if self.closed is None else self.closed.trials
        return (*(trial for point in self.points for trial in point.cell.trials), *closed)


def curves(results: Sequence[TrialResult]) -> list[Curve]:
    """The curves of a run, in the order in which they first ran; empty where no workload was measured at several rates."""
    groups: dict[Key, list[Cell]] = {}
    for cell in cells(results):
        if _is_of_a_curve(cell):
            groups.setdefault(_key_of(cell), []).append(cell)
    found = [_curve(group) for group in groups.values() if len(group) >= POINTS_MIN]
    return [curve for curve in found if curve is not None]


def _is_of_a_curve(cell: Cell) -> bool:
    """Whether it has a rate that could be another: no search, no change on the way, and something is produced."""
    asked = cell.first.workload
    return not (asked.consumes_only or asked.search is not None or asked.rate_changes)


def _key_of(cell: Cell) -> Key:
    """What the points of a curve have in common."""
    asked = dict(cell.first.workload.asked)
    for name in DIFFERS:
        asked.pop(name)
    asked["extra"] = {
        name: value for name, value in asked["extra"].items() if name not in ("warmup", "notes")
    }
    return (*cell.key[:-1], json.dumps(asked))


def _curve(group: Sequence[Cell]) -> Curve | None:
    paced = sorted(
        (cell for cell in group if cell.first.workload.rate_msgs_s is not None),
        key=lambda cell: cell.first.workload.rate_msgs_s or 0.0,
    )
    if not paced:
        return None
    points = tuple(_point(cell) for cell in paced)
    closed = next((cell for cell in group if cell.first.workload.arrival == "closed"), None)
    return Curve(points, closed, knee_of(points))


def _point(cell: Cell) -> CurvePoint:
    latency = f"{cell.first.headline}_ms"
    bounds = _bounds(cell, f"{latency}.{FIGURE}")
    worth = _worth(cell, bounds)
    has_figures = worth != "bounds"
    p99 = cell.median(lambda trial: getattr(trial.standing_ms(latency), FIGURE)) if has_figures else None
    return CurvePoint(
        cell=cell,
        asked_msgs_s=cell.first.workload.rate_msgs_s or 0.0,
        achieved_msgs_s=cell.median(lambda trial: trial.standing_rate("publish_rate_msgs_s")) or 0.0,
        worth=worth,
        p50_ms=cell.median(lambda trial: trial.standing_ms(latency).p50) if has_figures else None,
        p99_ms=p99,
        bounds=bounds if p99 is None else None,
    )


def _bounds(cell: Cell, name: str) -> Told | None:
    found = told(cell, name)
    return None if found is None or found.value is not None else found


def _worth(cell: Cell, bounds: Told | None) -> Worth:
    if any(_kept_up(trial) for trial in cell.valid):
        return "sustained"
    if any(_fell_behind(trial) for trial in cell.trials):
        return "not sustained"
    if bounds is not None and (bounds.at_least > 0 or bounds.at_most is not None):
        return "bounds"
    return "no figure"


def _kept_up(trial: TrialResult) -> bool:
    """Whether what was acknowledged was received meanwhile, too: less means a backlog that grows by so much a second."""
    subscriptions = trial.workload.subscriptions_per_topic
    wanted = ACHIEVED_SHARE_MIN * subscriptions * trial.publish_rate_msgs_s
    return not subscriptions or trial.consume_rate_msgs_s >= wanted


def _fell_behind(trial: TrialResult) -> bool:
    """Whether the system did not keep up. An invalid trial is *disturbed* where the generator or the machine was why."""
    if trial.status != "complete" or trial.validity.disturbed:
        return False
    if trial.validity.valid:
        return not _kept_up(trial)
    share = trial.achieved_share
    return trial.validity.is_invalid and share is not None and share < ACHIEVED_SHARE_MIN


def knee_of(points: Sequence[CurvePoint]) -> Knee | None:
    """Where their p99 bends; None where that cannot be said."""
    known = [
        Point(point.asked_msgs_s, values, point.worth == "sustained")
        for point in points
        if (values := headline_p99(point.cell.counted)) or point.worth == "not sustained"
        if point.worth in ("sustained", "not sustained")
    ]
    told_by = [point.cell for point in points if point.worth == "sustained"]
    if not told_by:
        return None
    return find_knee(known, prior_spread(f"{told_by[0].first.headline}_ms.{FIGURE}", *told_by))


@dataclass(frozen=True)
class Beside:
    """Two curves at the rates that both sustained."""

    ratios: tuple[tuple[float, float], ...]
    """Rate in msg/s, and p99 of the second curve over that of the first, from the lowest rate to the highest."""
    number: Number
    """The ratio over all of these rates together, with its error: a start of each system is one value, as what its points have in common is no chance of a
    point."""

    @property
    def decided(self) -> bool:
        """Whether one of them is lower at all of these rates, and runs of the same do not differ by as much."""
        low, high = self.number.interval()
        return (low > 1 and all(ratio > 1 for _, ratio in self.ratios)) or (
            high < 1 and all(ratio < 1 for _, ratio in self.ratios)
        )


def beside(one: Curve, other: Curve) -> Beside | None:
    """How the p99 of `other` compares with that of `one`; None where they have no sustained rate in common."""
    sides = [
        {point.asked_msgs_s: point for point in curve.sustained if point.p99_ms} for curve in (one, other)
    ]
    rates = sorted(sides[0].keys() & sides[1].keys())
    if not rates:
        return None
    cells_of = [[side[rate].cell for rate in rates] for side in sides]
    starts = [_by_start(side) for side in cells_of]
    if not all(starts):
        return None
    prior = max(TAIL_SPREAD, prior_spread(f"{one.first.headline}_ms.{FIGURE}", *cells_of[0], *cells_of[1]))
    ratios = tuple((rate, (sides[1][rate].p99_ms or 0.0) / (sides[0][rate].p99_ms or 1.0)) for rate in rates)
    return Beside(ratios, number_of(starts[1], starts[0], prior, one_run=True))


def _by_start(cells_at: Sequence[Cell]) -> list[float]:
    """The geometric mean of p99 over these cells, for each repeat that has a valid trial of all of them; of all trials together where none has."""
    values = [
        dict(zip((trial.repeat for trial in cell.valid), headline_p99(cell.valid), strict=False))
        for cell in cells_at
    ]
    if not all(values):
        return []
    shared = set.intersection(*(set(one) for one in values))
    if not shared:
        return [statistics.geometric_mean([statistics.geometric_mean(one.values()) for one in values])]
    return [statistics.geometric_mean([one[repeat] for one in values]) for repeat in sorted(shared)]
