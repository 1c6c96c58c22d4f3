"""Runs whose lab was killed: what was measured becomes tables, results and a manifest that says so."""

from __future__ import annotations

import math
import shutil
import time

from streamgauge.analysis.durability import judged
from streamgauge.analysis.trial import analyse_or_fail
from streamgauge.model.messages import Interval
from streamgauge.model.result import TrialResult
from streamgauge.runner.keeping import SYSTEMS
from streamgauge.store.context import EventTime, TrialContext
from streamgauge.store.directory import RunDirectory, TrialDirectory
from streamgauge.store.files import read_lines
from streamgauge.store.lab import was_killed_here
from streamgauge.store.ours import is_claimed, remove_claimed
from streamgauge.store.private import with_home
from streamgauge.store.tables import seal
from streamgauge.vocabulary.files import rescue_logs

KILLED = "the lab was killed before the trial ended; what had been measured until then was kept"
KILLED_EXPERIMENTS = (
    "the lab was killed before the experiments ended; what had been found until then was kept"
)


def recover(run: RunDirectory) -> list[TrialResult]:
    """Completes a run whose lab did not end it; the results that this made. Nothing is done to a run that
    ended by itself."""
    manifest = run.read_manifest()
    killed_here = was_killed_here(run)
    made = []
    for trial in run.trials():
        if not trial.ended:
            result = _recover_trial(trial, killed_here=killed_here)
            if result is not None:
                made.append(result)
    if killed_here:
        _clear_kept(run)
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
    return made


def _clear_kept(run: RunDirectory) -> None:
    """Removes the data of systems that were kept from trial to trial within the run, after their logs were kept with the trial that ran last."""
    kept, trials = run.path / SYSTEMS, run.trials()
    if kept.is_dir() and not kept.is_symlink():
        if trials:
            rescue_logs(kept, trials[-1].logs)
        shutil.rmtree(kept, ignore_errors=True)


def _recover_durability(run: RunDirectory) -> None:
    """Judges what durability experiments had found until then."""

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


def _recover_trial(trial: TrialDirectory, *, killed_here: bool) -> TrialResult | None:

    context = trial.read_context()
    if context is None:
        return None
    last_s, ended_unix_ms = 0.0, context.ended_unix_ms
    for interval in read_lines(trial.path / "intervals.jsonl", Interval):
        last_s = interval.start_s + interval.duration_s
    for event in read_lines(trial.path / "events.jsonl", EventTime):
        ended_unix_ms = max(ended_unix_ms, event.unix_ms)
    if context.schedule_start_unix_ms is not None:
        ended_unix_ms = max(ended_unix_ms, context.schedule_start_unix_ms + int(last_s * 1000))
    if context.status == "running":
        context = _closed(context, last_s, ended_unix_ms)
    left = clear_data(trial, context, killed_here=killed_here)
    if left is not None:
        context = context.model_copy(update={"notes": [*context.notes, left]})
    seal(trial)
    context, result = analyse_or_fail(context, trial.path)
    trial.write_context(context)
    trial.write_result(result)
    return result


def clear_data(trial: TrialDirectory, context: TrialContext | None, *, killed_here: bool) -> str | None:
    """Removes what a killed lab could not wipe, after its logs were kept; a sentence about what is left where it is, because
    nothing shows that the lab of this user made it, or that nobody uses it.

    A run may come from anybody and name any directory: only `data` within the trial, and a directory that carries the seal of
    this user's lab for this trial, are ever removed.
    """
    inside = trial.path / "data"
    told = with_home(context.data_directory) if context is not None and context.data_directory else None
    # As the lab lays it out: the system's data in a directory that is marked.
    outside = told.parent if told is not None and told.resolve() != inside.resolve() else None
    left = []
    if inside.is_dir() and not inside.is_symlink():
        if killed_here:
            rescue_logs(inside, trial.logs)
            shutil.rmtree(inside, ignore_errors=True)
        else:
            left.append(str(inside))
    if outside is not None:
        if killed_here and is_claimed(outside, trial.path):
            rescue_logs(outside, trial.logs)
            remove_claimed(outside, trial.path)
        else:
            left.append(str(told))
    if not left:
        return None
    return (
        f"data of a system was left where it is ({', '.join(left)}): the lab removes only what it made itself, on this machine "
        "since it booted; remove it if it is yours"
    )


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
