"""Events of a run as JSON lines, for programs.

Each line holds `unix_ms` and `event`: run_started, trial_started, phase, progress, interval, note, problem,
trial_ended, run_ended; the rest are facts whose names carry their units.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TextIO

from streamgauge.model.result import TrialResult
from streamgauge.runner.observer import Observer, Snapshot, TrialStart
from streamgauge.store.directory import event


class EventsObserver(Observer):
    """Writes one line per event and flushes it."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink
        self._trial = 0

    def _write(self, kind: str, **facts: Any) -> None:
        self._sink.write(json.dumps(event(kind, **facts), separators=(",", ":")) + "\n")
        self._sink.flush()

    def run_started(self, directory: Path, trials: int) -> None:
        """See Observer."""
        self._write("run_started", directory=str(directory), trials=trials)

    def trial_started(self, trial: TrialStart) -> None:
        """See Observer."""
        self._trial = trial.number
        self._write(
            "trial_started",
            trial=trial.number,
            trials=trial.trials,
            repeat=trial.repeat,
            system=trial.system,
            workload=trial.workload,
        )

    def phase_started(self, name: str, limit_s: float | None) -> None:
        """See Observer."""
        self._write("phase", trial=self._trial, name=name, limit_s=limit_s)

    def progress(self, text: str) -> None:
        """See Observer."""
        self._write("progress", trial=self._trial, text=text)

    def interval(self, snapshot: Snapshot) -> None:
        """See Observer."""
        self._write("interval", trial=self._trial, **dataclasses.asdict(snapshot))

    def note(self, text: str) -> None:
        """See Observer."""
        self._write("note", trial=self._trial, text=text)

    def problem(self, text: str) -> None:
        """See Observer."""
        self._write("problem", trial=self._trial, text=text)

    def trial_ended(self, result: TrialResult) -> None:
        """See Observer."""
        self._write(
            "trial_ended",
            trial=result.trial,
            status=result.status,
            valid=result.validity.valid,
            word=result.validity.called,
            reasons=result.validity.reasons,
            result=result.model_dump(
                include={f"{result.headline}_ms", "end_to_end_ms", "publish_rate_msgs_s", "audit"}
            ),
        )

    def run_ended(self, directory: Path, status: str) -> None:
        """See Observer."""
        self._write("run_ended", directory=str(directory), status=status)
