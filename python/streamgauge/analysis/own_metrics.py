"""What the system's processes told of themselves, lined up with the trial's intervals.

A counter becomes what it grew by per second between two readings that follow each other; where one is missing, or the process was started anew,
nothing is known of the second. A gauge is what it was at the end of the interval. Between readings that lie further apart only means are known: `level`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamgauge.analysis.intervals import Row, Series, Values
from streamgauge.model.own_metric import OwnMetric, OwnMetricFigures
from streamgauge.model.result_columns import METRIC_COLUMNS
from streamgauge.store.parquet import read_rows

APART_INTERVALS_MAX = 1
"""Readings further apart say what happened, and not when."""


@dataclass(frozen=True)
class OwnSeries:
    """A metric of one process, one value per interval; NaN where nothing is known."""

    metric: OwnMetric
    source: str
    values: Values
    """As it was told of each interval by itself."""
    level: Values
    """The same, and between readings that lie further apart what it was in the mean."""


def read_metrics(directory: Path) -> list[Row]:
    """Rows of `metrics.parquet` (METRIC_COLUMNS); none when the file is not there."""
    return read_rows(directory / "metrics.parquet", METRIC_COLUMNS)


def read(directory: Path, told: Sequence[OwnMetric], lined_up: Series) -> list[OwnSeries]:
    """All series of a trial, by metric in the order of `told` and by process."""
    return series(read_metrics(directory), told, lined_up) if told else []


def series(rows: Sequence[Row], told: Sequence[OwnMetric], lined_up: Series) -> list[OwnSeries]:
    """As `read`, of rows."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row["metric"]), str(row["source"])].append(row)
    place = {int(interval): at for at, interval in enumerate(lined_up.interval)}
    found = []
    for metric in told:
        for name, source in sorted(groups):
            if name == metric.name:
                mine = sorted(groups[name, source], key=lambda row: int(row["interval"]))
                values, level = _values(mine, place, len(lined_up), is_counter=metric.kind == "counter")
                found.append(OwnSeries(metric, source, values, level))
    by_name = {(one.metric.name, one.source): one for one in found}
    return [_divided(one, by_name) for one in found if one.metric.role != "count"]


def _divided(one: OwnSeries, by_name: dict[tuple[str, str], OwnSeries]) -> OwnSeries:
    """A metric that is told per operation; nothing is known where there was none."""
    if one.metric.per is None:
        return one
    count = by_name.get((one.metric.per, one.source))
    if count is None:
        unknown = np.full(len(one.values), np.nan)
        return replace(one, values=unknown, level=unknown)
    return replace(one, values=_per(one.values, count.values), level=_per(one.level, count.level))


def _per(whole: Values, count: Values) -> Values:
    values = np.full(len(whole), np.nan)
    is_known = np.nan_to_num(count) > 0
    values[is_known] = whole[is_known] / count[is_known]
    return values


def _values(
    rows: Sequence[Row], place: dict[int, int], length: int, *, is_counter: bool
) -> tuple[Values, Values]:
    """By interval, and with means in between."""
    values, level = np.full(length, np.nan), np.full(length, np.nan)
    before: Row | None = None
    for row in rows:
        at = place.get(int(row["interval"]))
        if row["value"] is None or row["at_s"] is None:
            continue
        told = _growth(before, row) if is_counter else float(row["value"])
        since = int(row["interval"]) if before is None else int(before["interval"]) + 1
        is_next = int(row["interval"]) - since < APART_INTERVALS_MAX
        if at is not None and (is_next or not is_counter):
            values[at] = told
        between = [place[one] for one in range(since, int(row["interval"]) + 1) if one in place]
        level[between] = told if is_counter or before is None else (float(before["value"]) + told) / 2.0
        if at is not None and not is_counter:
            level[at] = told
        before = row
    return values, level


def _growth(before: Row | None, row: Row) -> float:
    if before is None:
        return float("nan")
    passed_s, grown = float(row["at_s"]) - float(before["at_s"]), float(row["value"]) - float(before["value"])
    return grown / passed_s if passed_s > 0 and grown >= 0 else float("nan")


def together(found: Sequence[OwnSeries], *, by_interval: bool = False) -> Values:
    """The levels of one metric, its processes put together; NaN where none is known. `by_interval`: only what was told of each interval by itself."""
    values = np.array([one.values if by_interval else one.level for one in found])
    known = ~np.isnan(values).all(axis=0)
    whole = np.full(values.shape[1], np.nan)
    join = np.nansum if found[0].metric.together == "sum" else np.nanmax
    whole[known] = join(values[:, known], axis=0)
    return whole


def by_metric(found: Sequence[OwnSeries]) -> dict[str, list[OwnSeries]]:
    """Name -> its processes."""
    groups: dict[str, list[OwnSeries]] = defaultdict(list)
    for one in found:
        groups[one.metric.name].append(one)
    return dict(groups)


def figures(found: Sequence[OwnSeries], inside: npt.NDArray[np.bool_]) -> list[OwnMetricFigures]:
    """What a result tells of each metric."""
    told = []
    for group in by_metric(found).values():
        level, values = (together(group, by_interval=each)[inside] for each in (False, True))
        known, single = level[~np.isnan(level)], values[~np.isnan(values)]
        told.append(
            OwnMetricFigures(
                **group[0].metric.model_dump(),
                sources=[one.source for one in group],
                mean=float(known.mean()) if len(known) else None,
                max=float(single.max()) if len(single) else None,
            )
        )
    return told
