"""One figure of one workload over many runs, and where its level changed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.patterns import FALSE_ALARMS_PER_YEAR, HISTORY_CAUTION, Change, changes
from streamgauge.store.directory import RunDirectory, list_runs
from streamgauge.vocabulary.errors import InputError, nearest
from streamgauge.vocabulary.figures import figure
from streamgauge.vocabulary.format import joined, plural, signed

RUNS_MIN = 6
"""With fewer runs there is no telling a change from noise."""
CHANGE_SHARE_MIN = 0.02


@dataclass(frozen=True)
class Point:
    """A run."""

    run_id: str
    started_unix_ms: int
    trials: int
    valid: bool
    version: str
    """Of the system."""
    median: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class History:
    """A figure over the runs of a workload on one system at one durability level."""

    title: str
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    left_out: tuple[str, ...] = ()
    """Runs in which some trials that count know the figure, and others do not: the middle of the former is none of the run."""

    @property
    def enough(self) -> bool:
        """Whether there are runs enough to tell a change from noise."""
        return sum(point.valid for point in self.points) >= RUNS_MIN

    @property
    def summary(self) -> str:
        """A sentence or two."""
        if not self.left_out:
            return self._level
        return f"{self._level} Left out, because not all of their trials know the figure: {joined(list(self.left_out))}."

    @property
    def _level(self) -> str:
        valid = sum(point.valid for point in self.points)
        if not self.enough:
            return (
                f"{plural(valid, 'valid run')}: at least {RUNS_MIN} are needed to tell a change from noise."
            )
        if not self.changes:
            return f"No change of level shows in {valid} valid runs."
        last = self.changes[-1]
        percent = 100.0 * (last.after / last.before - 1.0)
        return (
            f"The level last changed with run {self.points[last.at].run_id}, by {signed(percent)} %. Noise alone, looked at every night, shows "
            f"a change at most {plural(FALSE_ALARMS_PER_YEAR, 'time')} a year."
        )


def histories(out: Path, workload: str, name: str, system: str | None = None) -> list[History]:
    """As `histories_of`, for the runs in a directory. Raises InputError."""
    return histories_of(list_runs(out), workload, name, system, place=str(out))


def histories_of(
    runs: Sequence[RunDirectory], workload: str, name: str, system: str | None = None, *, place: str
) -> list[History]:
    """A history for each system (and level, and number of nodes) that ran the workload. Runs that cannot be read are left out. `place`: where they were looked
    for. Raises InputError."""
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    left_out: dict[tuple[str, str], list[str]] = defaultdict(list)
    seen: set[str] = set()
    systems: set[str] = set()
    for run in runs:
        try:
            results = [one for one in run.results() if one.status == "complete"]
        except InputError:
            continue
        seen.update(one.workload.name for one in results)
        for cell in cells(results):
            if cell.first.workload.name != workload:
                continue
            systems.add(cell.first.system)
            if system not in (None, cell.first.system):
                continue
            # A workload that was run at another rate, or for another time, is another one.
            key = _title(cell), json.dumps(cell.first.workload.asked)
            point = _point(cell, name)
            if point is not None:
                groups[key].append(point)
            elif any(figure(trial, name) is not None for trial in cell.counted):
                left_out[key].append(cell.first.run_id)
    keys = list(dict.fromkeys([*groups, *left_out]))
    if not keys:
        _explain(place, workload, name, system, seen, systems)
    titles = _told_apart(keys)
    return [
        _history(title, groups[key], tuple(sorted(left_out[key])))
        for title, key in zip(titles, keys, strict=True)
    ]


def _told_apart(groups: Sequence[tuple[str, str]]) -> list[str]:
    """Titles of groups (title, what was asked as JSON); what else those of one title differ in is said."""
    asked = [json.loads(text) for _, text in groups]
    found = []
    for (title, _), mine in zip(groups, asked, strict=True):
        peers = [other for (name, _), other in zip(groups, asked, strict=True) if name == title]
        keys = [key for key in mine if any(other.get(key) != mine[key] for other in peers)]
        keys += [key for other in peers for key in other if key not in mine and key not in keys]
        told = [f"{key.replace('_', ' ')} {json.dumps(mine.get(key))}" for key in keys]
        found.append(", ".join([title, *told]))
    return found


def _title(cell: Cell) -> str:
    first = cell.first
    nodes = plural(first.nodes, "node")
    asked = first.workload
    rate = "max rate" if asked.rate_msgs_s is None else f"{asked.rate_msgs_s:,.0f} msg/s"
    if asked.search is not None:
        rate = "maximum sustainable rate"
    level = first.durability.declared or "level unknown"
    tls = ", TLS" if first.tls == "on" else ""
    # Another tool's generator makes another history.
    driven = f", {first.client}" if first.untold else ""
    return f"{first.system}, {nodes}, {level}{tls}, {rate}, {asked.message_size_bytes} B, {asked.duration_s:g} s{driven}"


def _point(cell: Cell, name: str) -> Point | None:
    middle = cell.middle(lambda trial: figure(trial, name))
    if middle is None:
        return None
    first = cell.first
    return Point(
        first.run_id,
        first.started_unix_ms,
        middle.trials,
        cell.valid_count > 0,
        first.system_version,
        middle.median,
        middle.interval,
    )


def _history(title: str, points: list[Point], left_out: tuple[str, ...]) -> History:
    points = sorted(points, key=lambda point: point.started_unix_ms)
    # Runs without a valid trial are listed, and decide nothing.
    places = [at for at, point in enumerate(points) if point.valid]
    found: list[Change] = []
    if len(places) >= RUNS_MIN and min(points[at].median for at in places) > 0:
        values = np.array([points[at].median for at in places])
        found = [
            replace(change, at=places[change.at])
            for change in changes(values, smallest=2, at_least=CHANGE_SHARE_MIN, caution=HISTORY_CAUTION)
        ]
    return History(title, tuple(points), tuple(found), left_out)


def _explain(
    out: str, workload: str, name: str, system: str | None, seen: set[str], systems: set[str]
) -> None:
    if workload not in seen:
        hint = nearest(workload, seen) or (f"; there are {', '.join(sorted(seen)[:10])}" if seen else "")
        raise InputError(f"no run of a workload '{workload}' in {out}{hint}")
    if system is not None and system not in systems:
        raise InputError(
            f"'{workload}' was not run on '{system}'; expected one of {', '.join(sorted(systems))}"
        )
    raise InputError(f"no run of '{workload}' in {out} knows the figure {name}")
