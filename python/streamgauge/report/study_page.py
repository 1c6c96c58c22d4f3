"""The report of a study: its claims with verdicts first, then its own tables and plots, printed beside measured.

Whoever knows the original finds the same tests on the same axes. The ordinary report of all trials, with audits,
limits and settings, is a second file beside it (`trials.html`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamgauge.analysis.study_outcome import StudyOutcome, read_outcome
from streamgauge.inference.checks import Tested
from streamgauge.inference.claims import Judged
from streamgauge.model.study_file import PageFile
from streamgauge.model.study_told import ToldCell
from streamgauge.report import further, html, study_plots
from streamgauge.report.assets_of import page_script, policy
from streamgauge.report.changes import changes_of
from streamgauge.report.changes import told as told_changes
from streamgauge.report.forest import forest
from streamgauge.report.pages import inline
from streamgauge.report.pages import render as render_page
from streamgauge.report.run import Run, read_run
from streamgauge.report.verdict_words import asked, counted, decided_when, found, tone_of, void_rounds, why
from streamgauge.store.aside import split_notes
from streamgauge.store.files import write_atomically
from streamgauge.store.plan_file import read_plan
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.figures import Figure
from streamgauge.vocabulary.format import instant, joined, plural, significant
from streamgauge.vocabulary.phases import MEASURE
from streamgauge.vocabulary.units import format_duration

TRIALS_NAME = "trials.html"


def write(run_dir: Path) -> Path:
    """Writes `report.html` and `trials.html` into the directory of a study and returns the path of the former.

    Raises InputError when the directory is no run, InputError when its plan cannot be read.
    """
    run = read_run(run_dir)
    html.write(run_dir, TRIALS_NAME)
    path = run_dir / html.REPORT_NAME
    write_atomically(path, render(run))
    return path


def outcome_of(run: Run) -> StudyOutcome:
    """A run that is a study, with its claims. Raises InputError for a run that has lost its manifest."""
    if run.manifest is None:
        raise InputError(f"{run.directory}: manifest.json is missing; expected the directory of a study.")
    return read_outcome(run.directory, read_plan(run.directory), run.manifest, run.results)


def render(run: Run) -> str:
    """The page as text."""
    outcome = outcome_of(run)
    written = outcome.study
    changes = changes_of(outcome)
    script = page_script()
    repeated, others = split_notes(outcome.manifest.notes)
    return render_page(
        "study.html",
        title=written.title,
        policy=inline(policy(script)),
        source=written.source,
        facts=_facts(outcome),
        verdicts=counted(outcome),
        answers=found(outcome),
        forest=forest(outcome.asked),
        changes=changes,
        changed=told_changes(changes),
        notices=_notices(outcome) + others,
        repeated=repeated,
        claims=[_claim(outcome, judged) for judged in outcome.asked],
        evened=any(
            test.measured is not None and test.measured.evened for one in outcome.asked for test in one.tests
        ),
        pages=[_page(outcome, page) for page in _pages(outcome)],
        cells=[_cell(outcome, cell) for cell in outcome.study.cells],
        there=_there(outcome),
        here=_here(outcome),
        slips=written.slips,
        drifts=outcome.drifts,
        manifest=outcome.manifest,
        disks=outcome.manifest.disks,
        fsyncs=study_plots.fsync_over_time(outcome.manifest.disks),
        trials=TRIALS_NAME,
        script=inline(script),
    )


def _facts(outcome: StudyOutcome) -> list[str]:
    source, plan = outcome.study.source, outcome.plan
    host = outcome.manifest.host
    cores = plan.machine.get("cores")
    return [
        f"{source.publisher}, {source.published}",
        f"scale {plan.scale}: {plural(len([cell for cell in plan.cells if not cell.heats]), 'cell')}, "
        f"{plural(len(plan.trials), 'trial')}, seed {plan.seed}",
        f"here: {plural(int(cores), 'core') if cores else 'unknown cores'}"
        + (f", {host['cpu_model']}" if host.get("cpu_model") else ""),
        instant(outcome.manifest.started_unix_ms),
    ]


def _notices(outcome: StudyOutcome) -> list[str]:
    """What a reader must know before any figure."""
    told = []
    if outcome.old_design:
        told.append(
            "All repeats of a system ran on one start of it, as studies once did: how far starts differ is not measured here, and is taken from experience."
        )
    told += void_rounds(outcome)
    ended = {one.result.trial for one in outcome.trials}
    left = len(outcome.plan.trials) - len(ended)
    if left:
        told.append(
            f"{left} of {plural(len(outcome.plan.trials), 'trial')} not run yet: streamgauge study {outcome.plan.study} --resume"
        )
    measured = [one.result for one in outcome.trials if not outcome.heats(one.result)]
    invalid = [one for one in measured if one.validity.is_invalid]
    bounded = [one for one in measured if one.validity.bounds_only]
    if bounded:
        count = plural(len(bounded), "trial")
        told.append(
            f"Of {count} the machine left no more than bounds, which enter claims where both ends of a latency are known."
        )
    if invalid:
        names = list(dict.fromkeys(result.workload.name for result in invalid))
        told.append(
            f"{plural(len(invalid), 'trial')} of {plural(len(names), 'cell')} failed or were invalid and enter no claim: "
            f"{joined(names[:6])}{' ...' if len(names) > 6 else ''}. The reasons are with each cell."
        )
    return told


def _claim(outcome: StudyOutcome, judged: Judged) -> dict[str, Any]:
    return {
        "claim": judged.claim,
        "verdict": judged.verdict,
        "tone": tone_of(judged.verdict),
        "reasons": decided_when(outcome, judged) if judged.verdict.decided else [why(outcome, judged)],
        "unsteady": _unsteady(outcome, judged),
        "explanation": outcome.explanation(judged.claim),
        "tests": [_test(outcome.study.figures[test.test.figure], test) for test in judged.tests],
    }


def _test(figure: Figure, test: Tested) -> dict[str, Any]:
    return {
        "told": test,
        "subject": f"{figure.title}: {test.text}",
        "unit": figure.unit if test.test.value else "",
        "bound": asked(test),
        "tone": tone_of(test.verdict),
    }


def _unsteady(outcome: StudyOutcome, judged: Judged) -> str:
    """How many of the trials that a claim rests on were not steady."""
    cells = dict.fromkeys(cell for test in judged.tests for cell in test.test.cells)
    labels = [one.result.steadiness.label for cell in cells for one in outcome.valid(cell)]
    unsteady = sum(label not in ("steady", "too short") for label in labels)
    return (
        f"{unsteady} of {plural(len(labels), 'trial')} that it rests on were not steady" if unsteady else ""
    )


def _pages(outcome: StudyOutcome) -> list[PageFile]:
    """Those of which a cell is part of the plan; `_here` names the others."""
    return [page for page in outcome.study.pages if any(map(outcome.planned, page.cells))]


def _page(outcome: StudyOutcome, page: PageFile) -> dict[str, Any]:
    """A page of the original: its table, its bars or its charts."""
    cells, figures = outcome.cells(page.cells), outcome.study.figures
    shown: dict[str, Any] = {"written": page, "table": None, "bars": None, "charts": []}
    if page.table is not None:
        columns = [figures[name] for name in page.table]
        shown["table"] = {"columns": columns, "rows": [_row(outcome, cell, columns) for cell in cells]}
    elif page.bars is not None:
        shown["bars"] = study_plots.bars(outcome, cells, figures[page.bars])
    elif page.over_time is not None:
        figure, beside = figures[page.over_time], figures[page.beside] if page.beside else None
        shown["charts"] = (
            study_plots.overlaid(outcome, cells, figure)
            if page.overlay
            else study_plots.over_time(outcome, cells, figure, beside)
        )
    elif page.against is not None:
        shown["charts"] = study_plots.against(
            outcome, cells, figures[page.against.x], figures[page.against.y]
        )
    else:
        assert page.percentiles is not None
        phase = page.phase or MEASURE
        shown["charts"] = study_plots.percentiles(
            outcome, cells, page.percentiles, phase, overlay=page.overlay
        )
    return shown


def _row(outcome: StudyOutcome, cell: ToldCell, columns: Sequence[Figure]) -> dict[str, Any]:
    found = [outcome.figure(cell.name, one.name) for one in columns]
    planned = outcome.planned(cell.name)
    return {
        "title": cell.title,
        "scaled": "; ".join(planned.scaled) if planned else "",
        "printed": [_told(cell.published.get(one.name)) for one in columns],
        "here": found,
        "why_none": "" if any(found) else outcome.why_no_figure(cell.name, columns[0].name),
    }


def _told(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else significant(value)


def _cell(outcome: StudyOutcome, cell: ToldCell) -> dict[str, Any]:
    """What was asked of a cell, what is scaled, what became of its trials."""
    planned, trials = outcome.planned(cell.name), outcome.of(cell.name)
    valid = outcome.valid(cell.name)
    see = further.see([one.result for one in trials])
    if planned is None:
        state, tone, why = "left out", "plain", outcome.plan.left_out.get(cell.name, "")
    elif not trials:
        state, tone, why = "not run", "warn", outcome.why_none(cell.name)
    else:
        good = len(valid) == len(trials) == planned.repeats
        state = f"{len(valid)} of {plural(planned.repeats, 'trial')} valid"
        tone = "good" if good else "bad" if not valid else "warn"
        reasons = [
            one.result.failure or " ".join(one.result.validity.reasons) for one in trials if one not in valid
        ]
        why = "; ".join(dict.fromkeys(reasons))
    return {
        "title": cell.title,
        "name": cell.name,
        "system": outcome.study.systems[cell.system],
        "sources": cell.sources,
        "where": f"{plural(planned.nodes, 'node')}, {planned.level}" if planned else "",
        "scaled": "; ".join(planned.scaled) if planned else "",
        "state": state,
        "tone": tone,
        "why": why,
        "see": see,
    }


def _there(outcome: StudyOutcome) -> list[str]:
    """The set-up of the original."""
    written = outcome.study
    if not written.source.versions:
        return list(written.setup)
    return [
        *written.setup,
        joined([f"{name} {version}" for name, version in written.source.versions.items()]),
    ]


def _here(outcome: StudyOutcome) -> list[str]:
    """The set-up of this run."""
    plan, scale = outcome.plan, outcome.study
    here = []
    if scale.restart == "block":
        here.append(
            "Cells are measured in rounds. In each a system is started anew, heated until it is steady, by trials that are not counted, and kept for its cells "
            "of that round; each trial has topics of its own."
        )
    else:
        here.append(
            "A system is started anew for each trial, in an empty directory; the page cache is dropped."
        )
    if plan.load is not None:
        here.append(f"The load comes from {plan.load.told}.")
    if scale.duration_s is not None:
        here.append(f"Trials measure {format_duration(scale.duration_s)}; the study's went on for longer.")
    if scale.rates == "machine":
        here.append(
            "Rates above what this machine is expected to carry with ease are lowered, the same for all cells that the study "
            "ran at one rate."
        )
    for reason in dict.fromkeys(plan.left_out.values()):
        names = [name for name, why in plan.left_out.items() if why == reason]
        here.append(f"{plural(len(names), 'cell')} {reason}: {', '.join(names)}.")
    missing = [page.title for page in outcome.study.pages if page not in _pages(outcome)]
    if missing:
        here.append(
            f"Of the study's tables and plots {plural(len(missing), 'page')} without a cell that is part of it: {'; '.join(missing)}."
        )
    return here
