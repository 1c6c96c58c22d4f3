"""Plain lines: for logs, pipes and terminals that can do no more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TextIO

from streamgauge.cli import figures
from streamgauge.model.result import TrialResult
from streamgauge.runner.observer import Observer, Snapshot, TrialStart
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.units import format_duration

LINE_EVERY_S = 5.0
PROGRESS_EVERY_S = 5.0


class PlainObserver(Observer):
    """One line for what matters; intervals and progress at most every few seconds."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink
        self._began_s = time.monotonic()
        self._interval_s = -LINE_EVERY_S
        self._progress_s = -PROGRESS_EVERY_S
        self._progress_text = ""

    def _say(self, text: str) -> None:
        elapsed_s = time.monotonic() - self._began_s
        self._sink.write(f"{elapsed_s:7.1f}s  {text}\n")
        self._sink.flush()

    def run_started(self, directory: Path, trials: int) -> None:
        """See Observer."""
        self._say(f"run {directory} ({plural(trials, 'trial')})")

    def trial_started(self, trial: TrialStart) -> None:
        """See Observer."""
        where = f"{trial.number}/{trial.trials}"
        self._say(f"trial {where}: {trial.system}, {trial.workload} ({trial.summary})")

    def phase_started(self, name: str, limit_s: float | None) -> None:
        """See Observer."""
        limit = f" (up to {format_duration(round(limit_s))})" if limit_s else ""
        self._interval_s = -LINE_EVERY_S
        self._progress_s = -PROGRESS_EVERY_S
        self._say(f"{name}{limit}")

    def progress(self, text: str) -> None:
        """See Observer."""
        now_s = time.monotonic()
        # What is new is said at once; what only counts upwards every few seconds.
        kind = "".join(character for character in text if not character.isdigit())
        if kind != self._progress_text or now_s - self._progress_s >= PROGRESS_EVERY_S:
            self._progress_text, self._progress_s = kind, now_s
            self._say(f"  {text}")

    def interval(self, snapshot: Snapshot) -> None:
        """See Observer."""
        if snapshot.elapsed_s - self._interval_s < LINE_EVERY_S:
            return
        self._interval_s = snapshot.elapsed_s
        p50, p99 = snapshot.headline_ms
        trouble = f"  failed {snapshot.failed_msgs:,}" if snapshot.failed_msgs else ""
        if snapshot.errors:
            trouble += f"  errors {figures.errors(snapshot.errors)}"
        self._say(
            f"  {snapshot.elapsed_s:.0f}/{snapshot.total_s:.0f} s  {figures.rate(snapshot.acked_msgs_s)} "
            "msg/s"
            f"  {snapshot.headline} p50 {figures.ms(p50)} p99 {figures.ms(p99)} "
            "ms"
            f"  end-to-end p50 {figures.ms(snapshot.end_to_end_ms_p50)}"
            f" p99 {figures.ms(snapshot.end_to_end_ms_p99)} ms"
            f"  backlog {snapshot.backlog_msgs:,}{trouble}"
        )

    def note(self, text: str) -> None:
        """See Observer."""
        self._say(f"note: {text}")

    def problem(self, text: str) -> None:
        """See Observer."""
        self._say(f"problem: {text}")

    def trial_ended(self, result: TrialResult) -> None:
        """See Observer."""
        self._say(f"trial {result.trial} {figures.verdict(result)}")


class ProblemsObserver(Observer):
    """What went wrong, and nothing else."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink

    def problem(self, text: str) -> None:
        """See Observer."""
        self._sink.write(f"problem: {text}\n")
        self._sink.flush()
