"""The summary over systems and trials, as a table that becomes cards on a phone (templates/summary.html)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from streamgauge.analysis.cells import Cell, cells
from streamgauge.model.result import TrialResult
from streamgauge.report import colours, quiet_words, words
from streamgauge.report.foreign import ForeignResult
from streamgauge.report.run import Run
from streamgauge.vocabulary.format import capital, every, exact_size, percent, plural, rate, significant

Figure = Callable[[TrialResult], float | None]


@dataclass(frozen=True)
class Column:
    """One column of figures."""

    group: str
    title: str
    figure: Figure
    show: Callable[[float | None], str]
    foreign: Callable[[ForeignResult], float | None]
    latency: tuple[str, str] | None = None
    """Of a latency, its name and percentile: where it has no figure it may have bounds."""

    @property
    def begins(self) -> bool:
        """Whether it is the first of its group."""
        return self.title in ("rate msg/s", "p50", "gauge")


@dataclass(frozen=True)
class Row:
    """A cell, a trial or a foreign result; its colour is that of its system."""

    colour: str
    label: str
    about: str
    figures: Sequence[tuple[str, str]]
    """The text of each column, and what stands below it."""
    audit: words.Verdict
    validity: words.Verdict


Bodies = dict[str, list[Row]]
"""Rows by the title of their workload."""


def _latency(metric: str, name: str) -> Figure:
    return lambda trial: getattr(trial.standing_ms(metric), name)


def _foreign_latency(name: str) -> Callable[[ForeignResult], float | None]:
    return lambda foreign: getattr(foreign.end_to_end_ms, name)


def _nothing(_result: ForeignResult) -> float | None:
    return None


def _columns() -> list[Column]:
    columns = [
        Column(
            "",
            "rate msg/s",
            lambda t: t.standing_rate("publish_rate_msgs_s"),
            rate,
            lambda f: f.publish_rate_msgs_s,
        ),
        Column(
            "",
            "MB/s",
            lambda t: t.standing_rate("publish_rate_mb_s"),
            significant,
            lambda f: f.publish_rate_mb_s,
        ),
    ]
    percentiles = (("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9"), ("max", "max"))
    for name, title in percentiles:
        figure = _latency("publish_ms", name)
        columns.append(Column("publish ms", title, figure, significant, _nothing, ("publish_ms", name)))
    for name, title in percentiles:
        figure = _latency("end_to_end_ms", name)
        foreign = _foreign_latency(name)
        columns.append(Column("end-to-end ms", title, figure, significant, foreign, ("end_to_end_ms", name)))
    return [
        *columns,
        Column("CPU \u00b5s/msg", "gauge", lambda t: t.cpu.workers_us_per_msg, significant, _nothing),
        Column("CPU \u00b5s/msg", "system", lambda t: t.cpu.system_us_per_msg, significant, _nothing),
    ]


COLUMNS = _columns()
LINKS = {"publish ms": "publish", "end-to-end ms": "end_to_end", "CPU \u00b5s/msg": "cpu_per_message"}


def summary(run: Run, labels: Sequence[str]) -> dict[str, Any]:
    """The table over systems (medians where trials repeat), foreign results, and all trials below it."""
    found = run.cells
    repeated = any(len(cell.trials) > 1 for cell in found)
    bodies: Bodies = {}
    titles = {cell.first.workload.name: _workload_title(cell) for cell in reversed(found)}
    shades = colours.of_cells(found)
    others = colours.of([*(cell.first.system_title for cell in found), *(one.driver for one in run.foreign)])
    for index, (cell, label) in enumerate(zip(found, labels, strict=False)):
        bodies.setdefault(titles[cell.first.workload.name], []).append(
            _cell_row(cell, shades[index].css, label)
        )
    for colour, foreign in zip(others[len(found) :], run.foreign, strict=True):
        bodies.setdefault(titles.get(foreign.workload, foreign.workload), []).append(
            _foreign_row(foreign, colour.css)
        )
    return {
        "columns": COLUMNS,
        "groups": [
            (name, len(list(columns)), LINKS.get(name))
            for name, columns in groupby(COLUMNS, lambda column: column.group)
        ],
        "bodies": bodies,
        "repeated": repeated,
        "untold": words.untold(run.results),
        "foreign": run.foreign,
        "trials": _trials(run, labels) if repeated else None,
        "all_trials": capital(every(len(run.results), "trial")),
    }


def _workload_title(cell: Cell) -> str:
    workload = cell.first.workload
    if cell.of_a_curve:
        return (
            f"{workload.name}: messages of {exact_size(workload.message_size_bytes)}, {words.shape(workload)}"
        )
    return f"{workload.name}: {words.load(workload)}, {words.shape(workload)}"


def _cell_row(cell: Cell, colour: str, label: str) -> Row:
    trial = cell.first
    about = [words.system_name(trial), words.layout(trial)]
    if len(cell.trials) > 1:
        about.append(f"median of {plural(len(cell.counted), 'trial')}")
    figures = [_figure(cell, column) for column in COLUMNS]
    return Row(colour, label, ", ".join(about), figures, words.cell_audit(cell), words.cell_validity(cell))


def _figure(cell: Cell, column: Column) -> tuple[str, str]:
    middle = cell.middle(column.figure)
    text = column.show(None if middle is None else middle.median)
    if column.title == "rate msg/s":
        return text, _achieved(cell)
    if middle is None and column.latency is not None:
        return quiet_words.bounds_text(*quiet_words.bounds_ms(cell, *column.latency)) or text, ""
    if middle is None or middle.trials < 2 or not column.group:
        return text, ""
    low, high = (column.show(bound) for bound in middle.bounds)
    return text, "" if low == high else f"{low}\u2013{high}"


def _achieved(cell: Cell) -> str:
    if cell.first.search is not None:
        low = cell.middle(lambda trial: trial.search.low_msgs_s if trial.search else None)
        high = cell.middle(lambda trial: trial.search.high_msgs_s if trial.search else None)
        return f"bracket {rate(low.low if low else None)}\u2013{rate(high.high if high else None)}"
    share = cell.median(lambda trial: trial.achieved_share)
    if share is None:
        return "as fast as it goes" if cell.first.target_rate_msgs_s is None else ""
    return f"{percent(share, 1)} of {rate(cell.first.target_rate_msgs_s)}"


def _foreign_row(foreign: ForeignResult, colour: str) -> Row:
    figures = [(column.show(column.foreign(foreign)), "") for column in COLUMNS]
    none = words.Verdict("none", "Another tool's result: nothing was audited.", "plain")
    unknown = words.Verdict("foreign", "Another tool's result: its generator was not checked.", "plain")
    return Row(
        colour, foreign.driver, f"OpenMessaging Benchmark, {foreign.path.name}", figures, none, unknown
    )


def _trials(run: Run, labels: Sequence[str]) -> Bodies:
    """Every trial alone."""
    bodies: Bodies = {}
    found = run.cells
    for colour, cell, label in zip(colours.of_cells(found), found, labels, strict=False):
        for trial in cell.trials:
            row = _cell_row(cells([trial])[0], colour.css, f"{label}, trial {trial.trial}")
            bodies.setdefault(_workload_title(cell), []).append(row)
    return bodies
