"""The summary over systems and trials, as a table that becomes cards on a phone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from streamgauge.analysis.cells import Cell, cells
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Latency
from streamgauge.report import words
from streamgauge.report.foreign import ForeignResult
from streamgauge.report.format import percent, plural, rate, significant
from streamgauge.report.run import Run

Figure = Callable[[TrialResult], float | None]


@dataclass(frozen=True)
class Column:
    """One column of figures."""

    group: str
    title: str
    figure: Figure
    show: Callable[[float | None], str]
    foreign: Callable[[ForeignResult], float | None]


def _latency(figures: Callable[[TrialResult], Latency], name: str) -> Figure:
    return lambda trial: getattr(figures(trial), name)


def _nothing(_result: ForeignResult) -> float | None:
    return None


def _columns() -> list[Column]:
    columns = [
        Column("", "rate msg/s", lambda t: t.publish_rate_msgs_s, rate, lambda f: f.publish_rate_msgs_s),
        Column("", "MB/s", lambda t: t.publish_rate_mb_s, significant, lambda f: f.publish_rate_mb_s),
    ]
    for name, title in (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9"), ("max", "max")):
        columns.append(
            Column("publish ms", title, _latency(lambda t: t.publish_ms, name), significant, _nothing)
        )
    for name, title in (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9"), ("max", "max")):
        columns.append(
            Column(
                "end-to-end ms",
                title,
                _latency(lambda t: t.end_to_end_ms, name),
                significant,
                lambda f, name=name: getattr(f.end_to_end_ms, name),  # type: ignore[misc]
            )
        )
    return [
        *columns,
        Column("CPU \u00b5s/msg", "gauge", lambda t: t.cpu.workers_us_per_msg, significant, _nothing),
        Column("CPU \u00b5s/msg", "system", lambda t: t.cpu.system_us_per_msg, significant, _nothing),
    ]


COLUMNS = _columns()
SHORT_WORD_CHARACTERS = 12
LINKS = {
    "publish ms": "publish",
    "end-to-end ms": "end_to_end",
    "CPU \u00b5s/msg": "cpu_per_message",
}


def summary(run: Run, labels: Sequence[str]) -> str:
    """The table over systems (medians where trials repeat), foreign results, and all trials below it."""
    found = run.cells
    repeated = any(len(cell.trials) > 1 for cell in found)
    bodies: dict[str, list[str]] = {}
    titles = {cell.first.workload.name: _workload_title(cell) for cell in reversed(found)}
    for index, (cell, label) in enumerate(zip(found, labels, strict=False)):
        bodies.setdefault(titles[cell.first.workload.name], []).append(_cell_row(cell, index, label))
    for index, foreign in enumerate(run.foreign, start=len(found)):
        bodies.setdefault(titles.get(foreign.workload, foreign.workload), []).append(
            _foreign_row(foreign, index)
        )
    note = ""
    if repeated:
        note = (
            '<p class="hint">Figures are <a href="#term-median">medians over valid trials</a>; '
            "below each, the 95 % interval of the median (over trials; with fewer than three trials, "
            "the smallest and the largest).</p>"
        )
    missing = words.untold(run.results)
    if missing:
        note += f'<p class="hint">{escape(missing)}</p>'
    if run.foreign:
        note += (
            '<p class="hint">Foreign results come from another tool: no audit, no validity. Their publish '
            "latency starts "
            'at the actual send, which is our <a href="#term-service">service latency</a>, so it is not in '
            "the publish "
            f"columns: {_foreign_service(run)}.</p>"
        )
    return _table(bodies, "All systems") + note + (_all_trials(run, labels) if repeated else "")


def _workload_title(cell: Cell) -> str:
    workload = cell.first.workload
    return f"{workload.name}: {words.load(workload)}, {words.shape(workload)}"


def _table(bodies: dict[str, list[str]], caption: str) -> str:
    groups: list[tuple[str, int]] = []
    for column in COLUMNS:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    upper = "".join(
        f'<th colspan="{span}" scope="colgroup"{_group_class(name)}>{_linked(name)}</th>'
        for name, span in groups
    )
    lower = "".join(
        f'<th scope="col" class="number{" first" if _begins_group(index) else ""}">'
        f"{escape(column.title)}</th>"
        for index, column in enumerate(COLUMNS)
    )
    several = len(bodies) > 1
    body = ""
    for name, rows in bodies.items():
        heading = ""
        if several:
            heading = (
                f'<tr class="workload"><th colspan="{len(COLUMNS) + 3}" scope="rowgroup">'
                f"{escape(name)}</th></tr>"
            )
        body += f"<tbody>{heading}{''.join(rows)}</tbody>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table '
        'class="summary"><thead>'
        f'<tr><th rowspan="2" scope="col">system</th>{upper}<th rowspan="2" scope="col"><a '
        'href="#term-audit">audit</a></th>'
        f'<th rowspan="2" scope="col"><a href="#term-valid">verdict</a></th></tr><tr>{lower}</tr></thead>'
        f"{body}</table></div>"
    )


def _group_class(name: str) -> str:
    return ' class="group"' if name else ""


def _begins_group(index: int) -> bool:
    return index == 0 or COLUMNS[index].group != COLUMNS[index - 1].group


def _linked(group: str) -> str:
    term = LINKS.get(group)
    return f'<a href="#term-{term}">{escape(group)}</a>' if term else escape(group)


def _cell_row(cell: Cell, index: int, label: str) -> str:
    trial = cell.first
    about = [words.system_name(trial), words.layout(trial)]
    if len(cell.trials) > 1:
        about.append(f"median of {plural(len(cell.counted), 'trial')}")
    figures = ""
    for column_index, column in enumerate(COLUMNS):
        middle = cell.middle(column.figure)
        text = column.show(None if middle is None else middle.median)
        spread = ""
        if (
            middle is not None
            and middle.trials > 1
            and column.group
            and column.show(middle.low) != column.show(middle.high)
        ):
            low, high = middle.interval or (middle.low, middle.high)
            spread = (
                f'<small class="spread">{escape(column.show(low))}\u2013{escape(column.show(high))}</small>'
            )
        if column.title == "rate msg/s":
            spread = _achieved(cell)
        figures += _number(column, column_index, text, spread)
    return _row(index, label, ", ".join(about), figures, words.cell_audit(cell), words.cell_validity(cell))


def _achieved(cell: Cell) -> str:
    if cell.first.search is not None:
        low = cell.middle(lambda trial: trial.search.low_msgs_s if trial.search else None)
        high = cell.middle(lambda trial: trial.search.high_msgs_s if trial.search else None)
        bracket = f"{rate(low.low if low else None)}\u2013{rate(high.high if high else None)}"
        return f'<small class="spread">bracket {bracket}</small>'
    share = cell.median(lambda trial: trial.achieved_share)
    if share is None:
        return (
            '<small class="spread">as fast as it goes</small>'
            if cell.first.target_rate_msgs_s is None
            else ""
        )
    return f'<small class="spread">{percent(share, 1)} of {rate(cell.first.target_rate_msgs_s)}</small>'


def _number(column: Column, index: int, text: str, below: str) -> str:
    begins = _begins_group(index)
    # On a phone rows become cards; the group's name then stands above its figures.
    heading = ""
    if begins and column.group:
        heading = f'<td class="phone" aria-hidden="true">{escape(column.group)}</td>'
    first = " first" if begins else ""
    wide = "" if column.group.endswith(" ms") else " wide"
    return (
        f'{heading}<td class="number{first}{wide}" data-label="{escape(column.title)}">'
        f"<span>{escape(text)}</span>{below}</td>"
    )


def _row(
    index: int, label: str, about: str, figures: str, audit: words.Verdict, validity: words.Verdict
) -> str:
    return (
        f'<tr style="--c:var(--series-{index % 8})"><th scope="row"><i class="swatch"></i>'
        f"<span>{escape(label)}<small>{escape(about)}</small></span></th>"
        f"{figures}{_word('audit', audit)}{_word('verdict', validity)}</tr>"
    )


def _word(name: str, verdict: words.Verdict) -> str:
    short = " short" if len(verdict.word) <= SHORT_WORD_CHARACTERS else ""
    return (
        f'<td data-label="{name}" class="word {verdict.tone}{short}" title="{escape(verdict.sentence)}">'
        f"{escape(verdict.word)}</td>"
    )


def _foreign_row(foreign: ForeignResult, index: int) -> str:
    figures = "".join(
        _number(column, position, column.show(column.foreign(foreign)), "")
        for position, column in enumerate(COLUMNS)
    )
    none = words.Verdict("none", "Another tool's result: nothing was audited.", "plain")
    unknown = words.Verdict("foreign", "Another tool's result: its generator was not checked.", "plain")
    return _row(
        index, foreign.driver, f"OpenMessaging Benchmark, {foreign.path.name}", figures, none, unknown
    )


def _foreign_service(run: Run) -> str:
    return "; ".join(
        f"{escape(foreign.driver)} p50 {significant(foreign.service_ms.p50)}, p99 "
        f"{significant(foreign.service_ms.p99)}, "
        f"max {significant(foreign.service_ms.max)} ms"
        for foreign in run.foreign
    )


def _all_trials(run: Run, labels: Sequence[str]) -> str:
    bodies: dict[str, list[str]] = {}
    for index, (cell, label) in enumerate(zip(run.cells, labels, strict=False)):
        for trial in cell.trials:
            one = cells([trial])[0]
            row = _cell_row(one, index, f"{label}, trial {trial.trial}")
            bodies.setdefault(_workload_title(cell), []).append(row)
    return (
        f'<details class="all"><summary>All {plural(len(run.results), "trial")}, one by one</summary>'
        f"{_table(bodies, 'All trials')}</details>"
    )
