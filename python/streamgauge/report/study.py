"""The report of a study: its claims with verdicts first, then its own tables and plots, printed beside measured.

Whoever knows the original finds the same tests on the same axes. The ordinary report of all trials, with audits,
limits and settings, is a second file beside it (`trials.html`).
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from html import escape
from pathlib import Path

from streamgauge.analysis.claims import Judged, Tested, bounds
from streamgauge.analysis.study import CellFigure, StudyOutcome, read_outcome
from streamgauge.model.figures import Figure, figures
from streamgauge.model.study import StudyCell
from streamgauge.model.units import format_duration
from streamgauge.report import html, study_plots
from streamgauge.report.assets_of import asset
from streamgauge.report.files import write_page
from streamgauge.report.format import instant, joined, plural, significant, trimmed
from streamgauge.report.run import ReportError, Run, read_run
from streamgauge.store.aside import split_notes
from streamgauge.store.study import read_plan

TRIALS_NAME = "trials.html"
TONES = {"holds": "good", "does not hold": "bad", "not shown": "warn"}
SEVERAL = {"holds": "hold", "does not hold": "do not hold"}
FIGURES = figures()


def write(run_dir: Path) -> Path:
    """Writes `report.html` and `trials.html` into the directory of a study and returns the path of the former.

    Raises ReportError when the directory is no run, InputError when its plan cannot be read.
    """
    run = read_run(run_dir)
    html.write(run_dir, TRIALS_NAME)
    return write_page(run_dir / html.REPORT_NAME, render(run))


def outcome_of(run: Run) -> StudyOutcome:
    """A run that is a study, with its claims. Raises ReportError for a run that has lost its manifest."""
    if run.manifest is None:
        raise ReportError(f"{run.directory}: manifest.json is missing; expected the directory of a study.")
    return read_outcome(run.directory, read_plan(run.directory), run.manifest, run.results)


def render(run: Run) -> str:
    """The page as text."""
    outcome = outcome_of(run)
    written = outcome.study.written
    return string.Template(asset("study.html")).substitute(
        title=escape(written.title),
        css=asset("report.css"),
        study_css=asset("study.css"),
        js=asset("study.js"),
        masthead=_masthead(outcome),
        claims=_claims(outcome),
        pages="".join(_page(outcome, number) for number in range(len(written.pages))),
        cells=_cells(outcome),
        setup=_setup(outcome),
        machine=_machine(outcome),
        footer=html.footer(run),
        trials=TRIALS_NAME,
    )


def _masthead(outcome: StudyOutcome) -> str:
    source, plan = outcome.study.written.source, outcome.plan
    title = escape(outcome.study.written.title)
    link = f'<a href="{escape(source.link)}" rel="noopener">{title}</a>' if source.link else title
    verdicts = [judged.verdict for judged in outcome.claims]
    counted = ", ".join(
        f"{verdicts.count(verdict)} {SEVERAL.get(verdict, verdict) if verdicts.count(verdict) != 1 else verdict}"
        for verdict in TONES
        if verdict in verdicts
    )
    host = outcome.manifest.host
    cores = plan.machine.get("cores")
    facts = [
        f"{source.publisher}, {source.published}",
        f"scale {plan.scale}: {plural(len([cell for cell in plan.cells if not cell.heats]), 'cell')}, "
        f"{plural(len(plan.trials), 'trial')}, seed {plan.seed}",
        f"here: {plural(int(cores), 'core') if cores else 'unknown cores'}"
        + (f", {host['cpu_model']}" if host.get("cpu_model") else ""),
        instant(outcome.manifest.started_unix_ms),
    ]
    notices = _notices(outcome)
    return (
        f"<h1>{link}</h1>"
        f'<ul class="facts">{"".join(f"<li>{escape(fact)}</li>" for fact in facts)}</ul>'
        f'<p class="verdict {"warn" if notices else "good"}">{html.icon("warn" if notices else "good")}<span>'
        f"<strong>{escape(plural(len(verdicts), 'claim'))}: {escape(counted or 'none')}.</strong> "
        "Ratios and shapes are compared; absolute figures of another machine are shown, and prove nothing.</span></p>"
        + "".join(f'<p class="notice warn">{escape(notice)}</p>' for notice in notices)
        + _repeated(outcome)
    )


def _notices(outcome: StudyOutcome) -> list[str]:
    """What a reader must know before any figure."""
    found = []
    for drift in outcome.drifted:
        found.append(
            f"This study is invalid, and no claim is shown by it: the machine changed while it ran. {drift.title.capitalize()} "
            f"went from {significant(drift.before)} to {significant(drift.after)} "
            f"(a factor of {trimmed(drift.factor_max)} is allowed)."
        )
    ended = {one.result.trial for one in outcome.trials}
    left = len(outcome.plan.trials) - len(ended)
    if left:
        found.append(
            f"{left} of {len(outcome.plan.trials)} trials have not been run: streamgauge study {outcome.plan.study} --resume"
        )
    invalid = [one.result for one in outcome.trials if not one.result.validity.valid]
    if invalid:
        names = list(dict.fromkeys(result.workload.name for result in invalid))
        found.append(
            f"{plural(len(invalid), 'trial')} of {plural(len(names), 'cell')} failed or were invalid and enter no claim: "
            f"{joined(names[:6])}{' ...' if len(names) > 6 else ''}. The reasons are with each cell."
        )
    # A resumed study, a probe that could not be made.
    return found + split_notes(outcome.manifest.notes)[1]


def _repeated(outcome: StudyOutcome) -> str:
    """Trials that were repeated: one line that unfolds, because there may be many."""
    notes, _ = split_notes(outcome.manifest.notes)
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<details class="notice warn"><summary>{plural(len(notes), "trial")} repeated because the generator was late</summary>'
        f"<ul>{items}</ul></details>"
    )


def _claims(outcome: StudyOutcome) -> str:
    rows = "".join(_claim(outcome, judged) for judged in outcome.claims)
    return (
        '<div class="scroll"><table class="claims"><thead><tr><th>claim</th><th>printed</th><th>here, with 95 % interval</th>'
        f"<th>verdict</th></tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="hint">A number is a median over valid trials, or a ratio of medians; its interval is of the '
        "median over trials (docs/method.md). A claim holds when the interval of each of its numbers lies within the bound as a whole, does not hold when "
        "one lies outside as a whole, and is not shown otherwise.</p>"
    )


def _claim(outcome: StudyOutcome, judged: Judged) -> str:
    tone = TONES[judged.verdict]
    printed = "".join(f"<li>{_printed_number(test)}</li>" for test in judged.tests)
    if judged.claim.printed:
        printed = f"<li>{escape(judged.claim.printed)}</li>"
    here = "".join(f"<li>{_measured_number(test)}</li>" for test in judged.tests)
    explanation = outcome.explanation(judged.claim)
    reasons = [judged.why] if judged.why and judged.verdict == "not shown" else []
    if outcome.drifted:
        reasons = ["the machine changed while the study ran"]
    note = f"<small>{escape(judged.claim.note)}</small>" if judged.claim.note else ""
    told = "".join(f"<small>{escape(reason)}</small>" for reason in reasons)
    details = (
        f"<details><summary>what may explain it</summary><ul>{''.join(f'<li>{escape(one)}</li>' for one in explanation)}</ul></details>"
        if explanation
        else ""
    )
    return (
        f'<tr><th scope="row">{escape(judged.claim.claim)}{note}</th>'
        f'<td data-label="printed"><ul>{printed}</ul></td><td data-label="here"><ul>{here}</ul></td>'
        f'<td data-label="verdict" class="{tone}"><b>{html.icon(tone)} {judged.verdict}</b>{told}{details}</td></tr>'
    )


def _subject(test: Tested) -> str:
    figure = FIGURES[test.test.figure]
    return f"{escape(figure.title)}: {escape(test.text)}"


def _printed_number(test: Tested) -> str:
    if test.test.printed:
        return escape(test.test.printed)
    if test.printed is None:
        return "no figure printed"
    return f"<b>{significant(test.printed)}</b> <small>{_subject(test)}</small>"


def _measured_number(test: Tested) -> str:
    unit = FIGURES[test.test.figure].unit if test.test.value else ""
    bound = f"<small>{escape(_bound(test))}</small>"
    if test.measured is None:
        return f"<b>-</b> <small>{_subject(test)}</small> {bound}"
    interval = ""
    if test.measured.interval is not None:
        low, high = test.measured.interval
        interval = f" [{significant(low)}, {significant(high)}]"
    return (
        f"<b>{significant(test.measured.value)}</b>{escape(interval)} {escape(unit)} "
        f'<small>{_subject(test)}</small> {bound} <i class="dot {TONES[test.verdict]}" title="{test.verdict}"></i>'
    )


def _bound(test: Tested) -> str:
    low, high = bounds(test.test)
    if test.test.between is not None:
        return f"asked: {trimmed(low)} to {trimmed(high)}"
    return f"asked: above {trimmed(low)}" if test.test.above is not None else f"asked: below {trimmed(high)}"


def _page(outcome: StudyOutcome, number: int) -> str:
    page = outcome.study.written.pages[number]
    cells = outcome.cells(page.cells)
    note = f'<p class="lead">{escape(page.note)}</p>' if page.note else ""
    if page.table is not None:
        body = _table(outcome, cells, [FIGURES[name] for name in page.table])
    elif page.bars is not None:
        body = study_plots.bars(outcome, cells, FIGURES[page.bars])
    elif page.over_time is not None:
        body = study_plots.over_time(outcome, cells, FIGURES[page.over_time])
    else:
        assert page.percentiles is not None
        body = study_plots.percentiles(outcome, cells, page.percentiles)
    return f'<section id="page-{number}"><h2>{escape(page.title)}</h2>{note}{body}</section>'


def _table(outcome: StudyOutcome, cells: Sequence[StudyCell], columns: Sequence[Figure]) -> str:
    head = "".join(
        f'<th class="number">{escape(column.title)}<small>{escape(column.unit)}{", " if column.unit else ""}{escape(column.hint)}</small></th>'
        for column in columns
    )
    rows = "".join(_row(outcome, cell, columns) for cell in cells)
    return (
        '<div class="scroll" tabindex="0"><table class="figures"><thead><tr><th>cell</th><th></th>'
        f"{head}</tr></thead>{rows}</table></div>"
    )


def _row(outcome: StudyOutcome, cell: StudyCell, columns: Sequence[Figure]) -> str:
    printed = "".join(f'<td class="number">{_told(cell.published.get(one.name))}</td>' for one in columns)
    found = [outcome.figure(cell.name, one.name) for one in columns]
    if not any(found):
        here = f'<td colspan="{len(columns)}" class="none">{escape(outcome.why_no_figure(cell.name, columns[0].name))}</td>'
    else:
        here = "".join(f'<td class="number">{_figure(one)}</td>' for one in found)
    planned = outcome.planned(cell.name)
    scaled = f"<small>{escape('; '.join(planned.scaled))}</small>" if planned and planned.scaled else ""
    return (
        f'<tbody><tr class="printed"><th rowspan="2" scope="rowgroup">{escape(cell.title)}{scaled}</th><td>printed</td>{printed}</tr>'
        f"<tr><td>here</td>{here}</tr></tbody>"
    )


def _told(value: float | str | None) -> str:
    if value is None:
        return ""
    return escape(value) if isinstance(value, str) else escape(significant(value))


def _figure(found: CellFigure | None) -> str:
    if found is None:
        return "-"
    text = escape(significant(found.median))
    if not found.trials:
        return f'<span class="invalid" title="no valid trial">{text}</span><small>invalid</small>'
    if found.interval is None:
        return f"<b>{text}</b>"
    low, high = found.interval
    return f"<b>{text}</b><small>{significant(low)}\u2013{significant(high)}</small>"


def _cells(outcome: StudyOutcome) -> str:
    """Every cell of the study: what was asked, what is scaled, what became of its trials."""
    rows = []
    for cell in outcome.study.cells:
        planned, trials = outcome.planned(cell.name), outcome.of(cell.name)
        valid = outcome.valid(cell.name)
        if planned is None:
            state, tone, why = "left out", "plain", outcome.plan.left_out.get(cell.name, "")
        elif not trials:
            state, tone, why = "not run", "warn", outcome.why_none(cell.name)
        else:
            good = len(valid) == len(trials) == planned.repeats
            state, tone = (
                f"{len(valid)} of {planned.repeats} trials valid",
                "good" if good else "bad" if not valid else "warn",
            )
            reasons = [
                one.result.failure or " ".join(one.result.validity.reasons)
                for one in trials
                if one not in valid
            ]
            why = "; ".join(dict.fromkeys(reasons))
        scaled = "; ".join(planned.scaled) if planned else ""
        where = f"{plural(planned.nodes, 'node')}, {planned.level}" if planned else ""
        rows.append(
            f'<tr><th scope="row">{escape(cell.title)}<small><code>{escape(cell.name)}</code></small></th>'
            f'<td data-label="system">{escape(outcome.study.written.systems[cell.system].title)}<small>{escape(where)}</small></td>'
            f'<td data-label="scaled">{escape(scaled) or "as published"}</td>'
            f'<td data-label="state" class="{tone}">{escape(state)}<small>{escape(why)}</small></td></tr>'
        )
    return (
        '<div class="scroll"><table class="claims"><thead><tr><th>cell</th><th>system</th><th>scaled</th><th>trials</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _setup(outcome: StudyOutcome) -> str:
    written, plan = outcome.study.written, outcome.plan
    there = "".join(f"<li>{escape(one)}</li>" for one in written.setup)
    if written.source.versions:
        versions = joined([f"{name} {version}" for name, version in written.source.versions.items()])
        there += f"<li>{escape(versions)}</li>"
    scale = outcome.study.scale(plan.scale)
    here = []
    if scale.restart == "block":
        here.append(
            "A system is started once per block of trials and kept; each trial has topics of its own, and the first of a block "
            "warms the system up and is not counted."
        )
    else:
        here.append(
            "A system is started anew for each trial, in an empty directory; the page cache is dropped."
        )
    if scale.duration is not None:
        here.append(f"Trials measure {format_duration(scale.duration)}; the study's went on for longer.")
    if scale.rates == "machine":
        here.append(
            "Rates above what this machine is expected to carry with ease are lowered, the same for all cells that the study "
            "ran at one rate."
        )
    for reason in dict.fromkeys(plan.left_out.values()):
        names = [name for name, why in plan.left_out.items() if why == reason]
        here.append(f"{plural(len(names), 'cell')} {reason}: {', '.join(names)}.")
    slips = ""
    if written.slips:
        items = "".join(f"<li>{escape(one)}</li>" for one in written.slips)
        slips = f"<h3>Where the study's text and its tables disagree</h3><ul>{items}</ul>"
    return (
        f"<h3>There</h3><ul>{there}</ul>"
        f"<h3>Here</h3><ul>{''.join(f'<li>{escape(one)}</li>' for one in here)}</ul>{slips}"
    )


def _machine(outcome: StudyOutcome) -> str:
    if not outcome.drifts:
        return '<p class="hint">The machine was not probed both before and after, so that its drift is not known.</p>'
    rows = "".join(
        f'<tr><th scope="row">{escape(drift.title)}</th><td class="number">{significant(drift.before)}</td>'
        f'<td class="number">{significant(drift.after)}</td>'
        f'<td class="number {"bad" if drift.too_far else "good"}">{significant(drift.factor)}'
        f"<small>{'too far' if drift.too_far else 'within'} {trimmed(drift.factor_max)}</small></td></tr>"
        for drift in outcome.drifts
    )
    return (
        '<div class="scroll"><table><thead><tr><th>probe (MB/s; fsync in ms)</th><th class="number">before</th>'
        f'<th class="number">after</th><th class="number">factor</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )
