"""What workers and the sampler tell of an interval, put together: the live page and the metrics are made of it.

Intervals come from the main thread and resources from the sampler's, one a moment before the other. A second is told when both are there, or when the
next one makes clear that the other does not come.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.intervals import Intervals, Row
from streamgauge.model.messages import Interval
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Headline
from streamgauge.model.result_columns import INTERVAL_COLUMNS, RESOURCE_COLUMNS
from streamgauge.runner.observer import Observer, Observers, TrialStart
from streamgauge.store.tables import interval_rows


@dataclass(frozen=True)
class Second:
    """One interval of a trial, with everything that is known of it."""

    start_s: float
    duration_s: float
    headline: Headline
    intervals: Intervals
    """Of all workers."""
    resources: list[Row]
    """Empty where nothing was sampled."""


class SecondsObserver(Observer):
    """An observer that is told whole seconds, too."""

    def second(self, second: Second) -> None:
        """An interval is complete. From either thread, one at a time."""


class Feed(Observers):
    """Tells watchers what it is told, and puts seconds together for them."""

    def __init__(self, watchers: Sequence[SecondsObserver]) -> None:
        super().__init__(watchers)
        self._told = tuple(watchers)
        self._lock = threading.Lock()
        self._rows: dict[int, tuple[Headline, list[Row]]] = {}
        self._resources: dict[int, list[Row]] = {}

    def trial_started(self, trial: TrialStart) -> None:
        """See Observer."""
        with self._lock:
            self._rows, self._resources = {}, {}
        super().trial_started(trial)

    def trial_ended(self, result: TrialResult) -> None:
        """See Observer."""
        with self._lock:
            self._tell(all_of_them=True)
        super().trial_ended(result)

    def recorded(self, intervals: Sequence[Mapping[str, Any]]) -> None:
        """See Observer."""
        with self._lock:
            for value in intervals:
                interval = Interval.model_validate(value)
                self._rows.setdefault(interval.index, (interval.headline, []))[1].extend(
                    {name: row.get(name) for name in INTERVAL_COLUMNS}
                    for row in interval_rows(str(value["worker"]), interval)
                )
            self._tell()

    def sampled(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """See Observer."""
        with self._lock:
            for row in rows:
                filled = {name: row.get(name) for name in RESOURCE_COLUMNS}
                self._resources.setdefault(int(row["interval"]), []).append(filled)
            self._tell()

    def _tell(self, *, all_of_them: bool = False) -> None:
        """Tells the seconds that are complete, in their order."""
        last_recorded = max(self._rows, default=-1)
        last_sampled = max(self._resources, default=-1)
        for index in sorted(self._rows):
            if not (index <= last_sampled or index < last_recorded or all_of_them):
                break
            headline, rows = self._rows.pop(index)
            second = Second(
                start_s=float(rows[0]["start_s"]),
                duration_s=float(rows[0]["duration_s"]),
                headline=headline,
                intervals=Intervals(rows),
                resources=self._resources.pop(index, []),
            )
            for watcher in self._told:
                watcher.second(second)
