"""All rules, applied to a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.analysis.books import unread_of
from streamgauge.analysis.intervals import Intervals
from streamgauge.analysis.trial import NOT_COMPUTED, analyse, analyse_or_fail
from streamgauge.analysis.verify import figures, machine, planned, raw
from streamgauge.analysis.verify.machine import ToldLevel
from streamgauge.analysis.verify.publishing import requirements
from streamgauge.analysis.verify.rules import RAW, Finding, Verification, found
from streamgauge.model.result import TrialResult
from streamgauge.store.context import EventTime, TrialContext
from streamgauge.store.directory import RunDirectory, TrialDirectory
from streamgauge.store.files import read_lines
from streamgauge.store.plan_file import is_study, read_plan
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.version import version

TABLES = ("intervals.parquet", "resources.parquet")


@dataclass(frozen=True)
class Read:
    """A trial as it was read."""

    number: int
    directory: Path
    context: TrialContext
    result: TrialResult
    stored: Mapping[str, Any]
    intervals: Intervals
    events: tuple[int, ...]


def verify(
    run: RunDirectory, told_level: ToldLevel, wrong_files: Sequence[str] | None = None
) -> Verification:
    """Applies every rule to a run. `wrong_files`: what of a packed run's files is not as listed; None: it was not packed.

    Raises InputError when a file of the run is damaged beyond reading, and HistogramError for a damaged histogram.
    """
    manifest = run.read_manifest()
    study = read_plan(run.path) if is_study(run.path) else None
    trials, without = _read(run)
    contexts = [one.context for one in trials]
    findings: list[Finding] = []
    if wrong_files is not None:
        findings += found("digests", wrong_files)
    findings += [Finding(RAW, "unknown", why, number) for number, why in without]
    findings += planned.plan(
        manifest, contexts, [one.number for one in trials] + [number for number, _ in without], study
    )
    findings += planned.asked(manifest, contexts)
    findings += planned.seeds(manifest, contexts, study)
    findings += planned.copies(
        manifest, contexts, {one.number: raw.fingerprints(one.intervals) for one in trials}
    )
    rows = {
        one.number: [
            (str(row["worker"]), float(row["start_s"]), float(row["start_s"]) + float(row["duration_s"]))
            for row in one.intervals.counters()
        ]
        for one in trials
    }
    findings += planned.times(manifest, contexts, rows, {one.number: one.events for one in trials})
    findings += machine.probes(manifest.probes, contexts, manifest.host)
    for one in trials:
        same_version = manifest.streamgauge_version == version()
        findings += _trial(one, told_level, same_version=same_version, paced=planned.paced(manifest))
    if manifest.streamgauge_version != version():
        why = f"made with streamgauge {manifest.streamgauge_version}, and checked with {version()}"
        findings.append(Finding("judgement", "unknown", why))
    return Verification(
        run_id=manifest.run_id,
        made_with=manifest.streamgauge_version,
        trials=len(trials) + len(without),
        findings=tuple(findings),
        publishing=requirements(manifest, [one.result for one in trials]),
    )


def _read(run: RunDirectory) -> tuple[list[Read], list[tuple[int, str]]]:
    """The trials, and those whose raw data are not there: number and why."""
    trials, without = [], []
    for trial in run.trials():
        number = int(trial.path.name)
        context = trial.read_context()
        if context is None:
            without.append(
                (number, "there is no trial.json: what the runner knew is needed to compute figures")
            )
        elif not trial.ended:
            without.append((number, "there is no result.json: nothing is claimed"))
        elif context.schedule_start_unix_ms is not None and not (trial.path / TABLES[0]).is_file():
            without.append(
                (number, "there is no intervals.parquet: the raw histograms are needed to compute figures")
            )
        else:
            trials.append(_read_trial(number, trial, context))
    return trials, without


def _read_trial(number: int, trial: TrialDirectory, context: TrialContext) -> Read:
    events = tuple(event.unix_ms for event in read_lines(trial.path / "events.jsonl", EventTime))
    intervals = Intervals.read(trial.path, unread_of(context.finish))
    stored = trial.read_stored_result()
    result = trial.as_result(stored)
    if context.trial != number:
        # As read_result has it for results.
        raise InputError(Problem(f"is the record of trial {context.trial}", str(trial.path / "trial.json")))
    return Read(number, trial.path, context, result, stored, intervals, events)


def _trial(one: Read, told_level: ToldLevel, *, same_version: bool, paced: bool) -> Iterator[Finding]:
    # Of the same rows: what is decoded of them for the figures is let go with each trial.
    rows = Intervals(one.intervals.rows, one.intervals.unread)
    if (one.context.failure or "").startswith(NOT_COMPUTED):
        _, computed = analyse_or_fail(one.context, one.directory, rows)
    else:
        computed = analyse(one.context, one.directory, rows)
    yield from figures.compare(one.stored, computed, same_version=same_version)
    yield from raw.schedule(one.context, one.intervals, paced=paced)
    yield from raw.books(one.context, one.intervals)
    yield from raw.parts(one.context, one.intervals)
    yield from raw.extremes(one.context, one.intervals)
    yield from machine.level(one.context, computed, told_level)
    yield from machine.machine(one.context, computed)
