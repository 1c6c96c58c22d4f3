"""What the page of a run that goes on shows (report/live.py), kept as it is told.

A browser asks for what is newer than what it has: everything carries the version at which it changed last, so that any number of viewers can come, go and
reload, and none of them costs more than its answers.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.analysis.cells import cells
from streamgauge.cli import figures
from streamgauge.cli.watch_feed import Second, SecondsObserver
from streamgauge.model.result import TrialResult
from streamgauge.report import charts, colours, words
from streamgauge.report.live import Curves, Point, point, so_far
from streamgauge.runner.observer import Snapshot, TrialStart
from streamgauge.vocabulary.phases import AFTER, BUILD, CATCH_UP, DRAIN, MEASURE

LINES_MAX = 80
"""Of the log."""
POINTS_MAX = 900
"""Of a trial, in the charts: the last quarter of an hour."""
DRAWN_MAX = 24
"""Trials whose charts are kept; the others are in the table alone until the report has them all."""
GATHER_S = 0.2
"""What changes within so long goes into one answer."""
LATER = (BUILD, CATCH_UP, AFTER)


@dataclass
class _Trial:
    """One trial in the charts."""

    index: int
    subject: int
    number: int
    repeat: int
    version: int = 0
    valid: bool | None = None
    counted: bool = True
    gone: bool = False
    """Made again, or too long ago: not drawn any more."""
    measure: list[float | None] | None = None
    later: list[list[Any]] = field(default_factory=list)
    load_end_s: float = math.inf
    points: deque[tuple[int, Point]] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    """With the version at which each came."""
    curves: Curves = field(default_factory=Curves)


@dataclass
class _Subject:
    """A line of the charts: a system under a workload at a rate."""

    key: tuple[str, str, float | None]
    title: str
    """Of its system."""
    label: str
    workload: int
    level: str = "unknown"
    trials: list[int] = field(default_factory=list)


class PageObserver(SecondsObserver):
    """Keeps what the page shows; `state` may be asked from any thread."""

    def __init__(self, cores: int) -> None:
        self._changed = threading.Condition()
        self._lab = secrets.token_hex(8)
        self._cores = cores
        self._version = 0
        self._directory: Path | None = None
        self._planned = 0
        self._phase: dict[str, Any] = {"name": "", "began_ms": _now_ms(), "limit_s": None, "progress": ""}
        self._start: TrialStart | None = None
        self._snapshot: Snapshot | None = None
        self._left: dict[str, float] | None = None
        self._lines: deque[tuple[int, list[Any]]] = deque(maxlen=LINES_MAX)
        self._results: dict[int, TrialResult] = {}
        self._rows: dict[int, tuple[int, dict[str, Any]]] = {}
        self._verdict: list[str] = []
        self._workloads: list[str] = []
        self._subjects: list[_Subject] = []
        self._subjects_version = 0
        self._trials: list[_Trial] = []
        self._ended: dict[str, Any] | None = None

    # What is told

    def run_started(self, directory: Path, trials: int) -> None:
        """See Observer."""
        with self._changed:
            self._directory, self._planned = directory, trials
            self._change()

    def trial_started(self, trial: TrialStart) -> None:
        """See Observer."""
        with self._changed:
            self._start, self._planned, self._snapshot = trial, trial.trials, None
            version = self._change()
            for one in self._trials:
                if one.number == trial.number and not one.gone:
                    self._forget(one, version)
            drawn = [one for one in self._trials if not one.gone]
            for one in drawn[: max(0, len(drawn) - DRAWN_MAX + 1)]:
                self._forget(one, version)
            subject = self._subject_of(trial)
            self._subjects[subject].trials.append(len(self._trials))
            self._trials.append(_Trial(len(self._trials), subject, trial.number, trial.repeat, version))
            self._subjects_version = version
            self._say(
                "trial",
                f"{trial.number} of {trial.trials}: {trial.system}, {trial.workload}: {trial.summary}",
            )

    def phase_started(self, name: str, limit_s: float | None) -> None:
        """See Observer."""
        with self._changed:
            self._phase = {"name": name, "began_ms": _now_ms(), "limit_s": limit_s, "progress": ""}
            self._place(name)
            self._say("phase", name)

    def progress(self, text: str) -> None:
        """See Observer."""
        with self._changed:
            self._phase["progress"] = text
            self._change()

    def interval(self, snapshot: Snapshot) -> None:
        """See Observer."""
        with self._changed:
            self._snapshot = snapshot
            self._change()

    def second(self, second: Second) -> None:
        """See SecondsObserver."""
        with self._changed:
            if not self._trials or self._trials[-1].gone:
                return
            trial = self._trials[-1]
            found = point(second.intervals, second.resources, second.headline, trial.load_end_s)
            trial.curves.add(second.intervals, second.headline)
            trial.version = self._change()
            trial.points.append((trial.version, found))

    def remaining(self, left_s: float) -> None:
        """See Observer."""
        with self._changed:
            self._left = {"told_ms": _now_ms(), "left_s": left_s}
            self._change()

    def note(self, text: str) -> None:
        """See Observer."""
        with self._changed:
            self._say("note", text)

    def problem(self, text: str) -> None:
        """See Observer."""
        with self._changed:
            self._say("problem", text)

    def trial_ended(self, result: TrialResult) -> None:
        """See Observer."""
        with self._changed:
            self._results[result.trial] = result
            version = self._change()
            self._rows[result.trial] = version, _row(result)
            if self._trials and not self._trials[-1].gone:
                trial = self._trials[-1]
                trial.valid = result.validity.valid
                trial.counted = not result.validity.is_invalid
                trial.version = version
                subject = self._subjects[trial.subject]
                found = cells(list(self._results.values()))
                cell = next(one for one in found if any(each is result for each in one.trials))
                subject.label, subject.level = charts.label(cell, found), words.level(result)
                self._subjects_version = version
            self._say("done", f"trial {result.trial}: {figures.verdict(result)}")
            self._judge()

    def run_ended(self, directory: Path, status: str) -> None:
        """See Observer."""
        with self._changed:
            self._ended = {"status": status, "report": None}
            self._left = None
            self._say("done", f"the run is over ({status}): {directory}")

    def reported(self, report: Path) -> None:
        """The report is there."""
        with self._changed:
            if self._ended is not None:
                self._ended = {**self._ended, "report": str(report)}
                self._change()

    # What is asked

    def state(self, since: int, within_s: float) -> bytes:
        """What is newer than a version, as JSON; waits so long for something that is."""
        with self._changed:
            newer = self._changed.wait_for(lambda: self._version > since, within_s)
        if newer and since:
            time.sleep(GATHER_S)
        with self._changed:
            found = self._told(since if since <= self._version else 0)
        return json.dumps(found, separators=(",", ":"), allow_nan=False).encode()

    def _told(self, since: int) -> dict[str, Any]:
        snapshot, start = self._snapshot, self._start
        return {
            "lab": self._lab,
            "since": since,
            "version": self._version,
            "now_ms": _now_ms(),
            "run": None if self._directory is None else str(self._directory),
            "planned": self._planned,
            "done": len(self._results),
            "phase": self._phase,
            "trial": None
            if start is None
            else {
                "number": start.number,
                "title": start.title or start.system,
                "workload": start.workload,
                "summary": start.summary,
            },
            "second": None if snapshot is None else _second(snapshot),
            "left": self._left,
            "verdict": self._verdict,
            "lines": [line for version, line in self._lines if version > since],
            "rows": [row for version, row in self._rows.values() if version > since],
            "ended": self._ended,
            "workloads": self._workloads,
            "subjects": self._told_subjects() if self._subjects_version > since else None,
            "trials": [_told_trial(one, since) for one in self._trials if one.version > since],
        }

    def _told_subjects(self) -> list[dict[str, Any]]:
        shades = colours.of([one.title for one in self._subjects])
        return [
            {
                "label": one.label,
                "slot": colour.slot,
                "variant": colour.variant,
                "colour": colour.css,
                "level": one.level,
                "workload": one.workload,
                "trials": one.trials,
                "median": one.trials[-1] if one.trials else 0,
                "target": one.key[2],
                "cores": self._cores,
                "foreign": False,
            }
            for one, colour in zip(self._subjects, shades, strict=True)
        ]

    # Small things

    def _change(self) -> int:
        """Something is new; its version."""
        self._version += 1
        self._changed.notify_all()
        return self._version

    def _say(self, kind: str, text: str) -> None:
        self._lines.append((self._change(), [_now_ms(), kind, text]))

    def _forget(self, trial: _Trial, version: int) -> None:
        trial.gone, trial.version = True, version
        trial.points.clear()
        trial.curves = Curves()
        self._subjects[trial.subject].trials.remove(trial.index)

    def _subject_of(self, trial: TrialStart) -> int:
        key = trial.system, trial.workload, trial.rate_msgs_s
        for index, one in enumerate(self._subjects):
            if one.key == key:
                return index
        if trial.workload not in self._workloads:
            self._workloads.append(trial.workload)
        others = any(one.key[:2] == key[:2] for one in self._subjects)
        title = label = trial.title or trial.system
        if others:
            label += " maximum rate" if trial.rate_msgs_s is None else f" {trial.rate_msgs_s:,.10g} msg/s"
        self._subjects.append(_Subject(key, title, label, self._workloads.index(trial.workload)))
        return len(self._subjects) - 1

    def _place(self, phase: str) -> None:
        """Where on the schedule's axis a phase begins: at the end of the last interval."""
        if not self._trials:
            return
        trial = self._trials[-1]
        at_s = 0.0 if self._snapshot is None else self._snapshot.elapsed_s
        if phase == MEASURE:
            trial.measure = [at_s, None]
        elif phase in LATER or phase == DRAIN:
            if trial.later and trial.later[-1][2] is None:
                trial.later[-1][2] = at_s
            if phase == DRAIN:
                trial.load_end_s = at_s
                if trial.measure is not None:
                    trial.measure[1] = at_s
            else:
                trial.later.append([phase, at_s, None])
        trial.version = self._change()

    def _judge(self) -> None:
        """What can be said by now. Whatever goes wrong in that ends no run."""
        assert self._directory is not None
        try:
            self._verdict = so_far(self._directory, list(self._results.values()))
        except Exception as error:
            self._say("problem", f"no verdict so far: {str(error) or type(error).__name__}")


def _told_trial(trial: _Trial, since: int) -> dict[str, Any]:
    found = [one for version, one in trial.points if version > since]
    return {
        "index": trial.index,
        "subject": trial.subject,
        "number": trial.number,
        "repeat": trial.repeat,
        "valid": trial.valid,
        "counted": trial.counted,
        "gone": trial.gone,
        "measure": trial.measure,
        "phases": [
            [name, from_s, from_s + 1e9 if until_s is None else until_s]
            for name, from_s, until_s in trial.later
        ],
        "points": [one.values for one in found],
        "away": [window for one in found for window in one.away],
        **trial.curves.told(),
    }


def _second(snapshot: Snapshot) -> dict[str, Any]:
    """The last second's figures."""
    p50, p99 = snapshot.headline_ms
    return {
        "elapsed_s": snapshot.elapsed_s,
        "total_s": snapshot.total_s,
        "target_msgs_s": snapshot.target_msgs_s,
        "sent_msgs_s": snapshot.sent_msgs_s,
        "acked_msgs_s": snapshot.acked_msgs_s,
        "received_msgs_s": snapshot.received_msgs_s,
        "headline": snapshot.headline,
        "p50_ms": p50,
        "p99_ms": p99,
        "end_to_end_p99_ms": snapshot.end_to_end_ms_p99,
        "backlog_msgs": snapshot.backlog_msgs,
        "failed_msgs": snapshot.failed_msgs,
        "errors": figures.errors(snapshot.errors),
    }


def _row(result: TrialResult) -> dict[str, Any]:
    """A trial that is over, in the table."""
    called = result.validity.called
    failed = result.status == "failed"
    return {
        "number": result.trial,
        "repeat": result.repeat,
        "system": result.system_title,
        "workload": result.workload.name,
        "word": result.status if result.status != "complete" else called,
        "tone": "bad" if failed or called == "invalid" else "good" if called == "valid" else "warn",
        "rate": figures.rate(result.standing_rate("publish_rate_msgs_s")),
        "p99": figures.ms(result.headline_ms.p99),
        "end_to_end_p99": figures.ms(result.standing_ms("end_to_end_ms").p99),
        "told": result.failure or " ".join(result.validity.reasons),
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
