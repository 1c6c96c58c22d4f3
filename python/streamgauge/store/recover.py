"""Runs whose lab was killed: what was measured becomes tables, results and a manifest that says so."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path

from streamgauge.model.result import TrialResult
from streamgauge.store.context import TrialContext
from streamgauge.store.directory import RunDirectory, TrialDirectory
from streamgauge.store.files import read_lines, rescue_logs

KILLED = "the lab was killed before the trial ended; what had been measured until then was kept"
KILLED_EXPERIMENTS = (
    "the lab was killed before the experiments ended; what had been found until then was kept"
)


def is_running(run: RunDirectory) -> bool:
    """Whether the lab that made this run is still at work (its process id is in `lab.json`)."""
    try:
        pid, started = json.loads((run.path / "lab.json").read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False
    return process_start(int(pid)) == int(started)


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (/proc/PID/stat, field 22): with the pid it names a
    process for good. None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def recover(run: RunDirectory) -> list[TrialResult]:
    """Completes a run whose lab did not end it; the results that this made. Nothing is done to a run that
    ended by itself."""
    manifest = run.read_manifest()
    made = []
    for trial in run.trials():
        if not (trial.path / "result.json").is_file():
            result = _recover_trial(trial)
            if result is not None:
                made.append(result)
    _recover_durability(run)
    if manifest.status == "running":
        ended = [result.ended_unix_ms for result in run.results()]
        manifest = manifest.model_copy(
            update={
                "status": "failed",
                "ended_unix_ms": max(ended, default=time.time_ns() // 1_000_000),
                "notes": [
                    *manifest.notes,
                    "the lab was killed; the run was completed from what it had written",
                ],
                "trials": [str(trial.path.relative_to(run.path)) for trial in run.trials()],
            }
        )
        run.write_manifest(manifest)
        (run.path / "lab.json").unlink(missing_ok=True)
    return made


def _recover_durability(run: RunDirectory) -> None:
    """Judges what durability experiments had found until then."""
    from streamgauge.analysis.durability import judged

    report = run.read_durability()
    if report is None or all(result.status != "running" for result in report.results):
        return
    report.results = [
        judged(result.model_copy(update={"status": "failed", "failure": KILLED_EXPERIMENTS}))
        if result.status == "running"
        else result
        for result in report.results
    ]
    run.write_durability(report)


def _recover_trial(trial: TrialDirectory) -> TrialResult | None:
    from streamgauge.analysis.trial import analyse

    context = trial.read_context()
    if context is None:
        return None
    last_s, ended_unix_ms = 0.0, context.ended_unix_ms
    for line in read_lines(trial.path / "intervals.jsonl"):
        last_s = float(line["start_s"]) + float(line["duration_s"])
    for line in read_lines(trial.path / "events.jsonl"):
        ended_unix_ms = max(ended_unix_ms, int(line.get("unix_ms", 0)))
    if context.schedule_start_unix_ms is not None:
        ended_unix_ms = max(ended_unix_ms, context.schedule_start_unix_ms + int(last_s * 1000))
    if context.status == "running":
        context = _closed(context, last_s, ended_unix_ms)
    if context.data_directory is not None:
        _remove_data(Path(context.data_directory), trial)
    trial.seal()
    trial.write_context(context)
    result = analyse(context.raw(trial.path))
    trial.write_result(result)
    return result


def _remove_data(data: Path, trial: TrialDirectory) -> None:
    """What a killed lab could not wipe: its system died with it, its logs are kept."""
    if data.is_dir():
        rescue_logs(data, trial.logs)
        shutil.rmtree(data, ignore_errors=True)


def _closed(context: TrialContext, last_s: float, ended_unix_ms: int) -> TrialContext:
    """The context of a trial that nobody ended: measured as far as whole intervals were written."""
    until_s = min(context.measure_until_s, float(math.floor(last_s)))
    return context.model_copy(
        update={
            "status": "failed",
            "failure": KILLED,
            "fatal": [*context.fatal, KILLED],
            "ended_unix_ms": ended_unix_ms,
            "measure_until_s": max(until_s, context.measure_from_s),
        }
    )
