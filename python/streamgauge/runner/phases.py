"""The phases of a trial, as they happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgauge.model.result import Phase
from streamgauge.runner.observer import Observer


@dataclass
class _Entry:
    name: str
    begin_s: float
    end_s: float | None = None


class PhaseLog:
    """Which phase the trial is in, and how long each one took. Times are CLOCK_MONOTONIC seconds."""

    def __init__(self, observer: Observer, keep: Callable[[str, dict[str, Any]], None]) -> None:
        self._observer = observer
        self._keep = keep
        self._entries: list[_Entry] = []
        self._bounds_s: dict[str, tuple[float, float]] = {}
        self.start_s: float | None = None
        """When the schedule began."""

    @property
    def current(self) -> str:
        """Name of the phase; empty before the first."""
        return self._entries[-1].name if self._entries else ""

    def begin(self, name: str, limit_s: float | None = None, at_s: float | None = None) -> None:
        """Ends the phase before and begins another."""
        self.end(at_s)
        self._entries.append(_Entry(name, at_s if at_s is not None else time.monotonic()))
        self._keep("phase", {"name": name})
        self._observer.phase_started(name, limit_s)

    def end(self, at_s: float | None = None) -> None:
        """Ends the current phase."""
        if self._entries and self._entries[-1].end_s is None:
            entry = self._entries[-1]
            entry.end_s = max(at_s if at_s is not None else time.monotonic(), entry.begin_s)

    def set_bounds(self, name: str, from_s: float, until_s: float) -> None:
        """The exact place of a phase on the schedule's axis, where it is not the lab's clock that decides."""
        self._bounds_s[name] = (from_s, until_s)

    def phases(self) -> list[Phase]:
        """All phases so far on the schedule's axis: those before the schedule have negative times. A trial
        whose schedule never began has its axis begin where its last phase ended."""
        if not self._entries:
            return []
        now_s = time.monotonic()
        last = self._entries[-1]
        zero_s = self.start_s if self.start_s is not None else (last.end_s or now_s)
        result = []
        for entry in self._entries:
            end_s = entry.end_s if entry.end_s is not None else now_s
            bounds = self._bounds_s.get(entry.name, (entry.begin_s - zero_s, end_s - zero_s))
            result.append(
                Phase(
                    name=entry.name,
                    from_s=round(bounds[0], 3),
                    until_s=round(bounds[1], 3),
                    wall_s=round(end_s - entry.begin_s, 3),
                )
            )
        return result
