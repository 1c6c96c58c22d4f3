"""The summary in the terminal: a table where it fits, cards where it does not, readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.curves import Curve, curves
from streamgauge.model.result import TrialResult
from streamgauge.report import curve, details, encryption, further, quiet_words, words
from streamgauge.vocabulary.format import count, percent, plural, rate, significant

FOLDED_COLUMNS_MIN = 10
"""The same for each column that folds: rich takes from the widest of them, whatever they need at least."""
UNBOUNDED_COLUMNS = 10_000
WARNINGS_MAX = 12
STYLES: dict[words.Tone, str] = {"good": "green", "warn": "yellow", "bad": "bold red", "plain": ""}
FIGURES = ("p50", "p99", "p99_9", "max")


def print_summary(results: Sequence[TrialResult], console: Console) -> None:
    """Prints all trials of a run: figures (medians where trials repeat), then what must be known to read
    them.
    """
    if not results:
        console.print("No trial has a result.")
        return
    doubt = words.doubtful_clocks(results)
    if doubt:
        console.print(Text(doubt, style=STYLES["bad"]))
    lines = curves(results)
    in_curves = {id(trial) for line in lines for trial in line.trials}
    others = [trial for trial in results if id(trial) not in in_curves]
    _print_curves(lines, console)
    for name, group in _by_workload(cells(others)).items():
        workload = group[0].first.workload
        console.print()
        console.print(Text.assemble((name, "bold"), f"  {words.load(workload)}, {words.shape(workload)}"))
        for meaning in words.meanings([cell.first for cell in group]):
            console.print(meaning, markup=False, highlight=False)
        table = _table(group)
        if _width_min(table, console) <= console.width:
            console.print(table)
        elif len(group) > 1 and (tables := _side_by_side(group, console)):
            for one in tables:
                console.print(one)
                console.print()
        else:
            for cell in group:
                _print_card(cell, console)
        for cell in group:
            if len(cell.trials) > 1:
                who = f"{words.system_name(cell.first)}: "
                console.print(Text.assemble((who, "bold"), words.spread(cell)))
    pairs = list(encryption.grids(cells(others)))
    if pairs:
        console.print()
    for grid in pairs:
        details.print_grid(grid, console)
    if others:
        _print_remarks(others, console)
    verdict = words.verdict(results)
    console.print(Text(verdict.sentence, style=STYLES[verdict.tone]))


def _print_curves(lines: Sequence[Curve], console: Console) -> None:
    """Curves workload by workload, and what the audits of their trials have found; all else of so many trials is in the report."""
    for name, group in curve.by_workload(lines).items():
        workload = group[0].first.workload
        console.print()
        console.print(Text.assemble((name, "bold"), f"  {curve.span(group)}, {words.shape(workload)}"))
        curve.print_curves(group, console)
    for trial in (trial for line in lines for trial in line.trials):
        audit = words.audit(trial.audit)
        if audit.tone in ("bad", "warn"):
            who = f"trial {trial.trial} ({words.system_name(trial)}): "
            console.print(Text.assemble(("audit ", STYLES[audit.tone]), who, audit.sentence))


def _by_workload(found: list[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        workload = cell.first.workload
        groups.setdefault(workload.name, []).append(cell)
    return groups


def _width_min(table: Table, console: Console) -> int:
    """What it needs: in less, figures are cut and the last columns are not shown at all."""
    return Measurement.get(console, console.options.update(width=UNBOUNDED_COLUMNS), table).minimum


def _table(group: list[Cell]) -> Table:
    table = Table(show_edge=False, pad_edge=False, header_style="bold", box=None, padding=(0, 1))
    table.add_column("system", overflow="fold", min_width=FOLDED_COLUMNS_MIN)
    table.add_column("level", no_wrap=True)
    table.add_column("rate\nmsg/s", justify="right", no_wrap=True)
    table.add_column("of\ntarget", justify="right", no_wrap=True)
    for title in (
        "publish ms\np50",
        "\np99",
        "\np99.9",
        "\nmax",
        "end-to-end ms\np50",
        "\np99",
        "\np99.9",
        "\nmax",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("\nMB/s", justify="right", no_wrap=True)
    table.add_column("CPU us/msg\ngauge", justify="right", no_wrap=True)
    table.add_column("\nsystem", justify="right", no_wrap=True)
    table.add_column("\naudit", overflow="fold", min_width=FOLDED_COLUMNS_MIN)
    table.add_column("\nverdict", overflow="fold", min_width=FOLDED_COLUMNS_MIN)
    for cell in group:
        table.add_row(*_cells_of(cell))
    for column in table.columns:
        if column.no_wrap:
            # What must not be broken is not to be cut either.
            texts = [column.header, *column.cells]
            column.min_width = max(cell_len(line) for text in texts for line in str(text).splitlines())
    return table


ROWS = (
    "level",
    "rate msg/s",
    "of target",
    *(
        f"{latency} {figure} ms"
        for latency in ("publish", "end-to-end")
        for figure in ("p50", "p99", "p99.9", "max")
    ),
    "MB/s",
    "CPU us/msg, gauge",
    "CPU us/msg, system",
    "audit",
    "verdict",
)
"""Of a table with a column for each system: what `_cells_of` has after the name."""


def _side_by_side(group: list[Cell], console: Console) -> list[Table]:
    """Figures as rows and systems as columns, in as few tables as the terminal has room for; empty where not even two systems have it."""
    for number in range(len(group), 1, -1):
        parts = [group[at : at + number] for at in range(0, len(group), number)]
        tables = [_upright(part) for part in parts]
        if all(_width_min(one, console) <= console.width for one in tables):
            return tables
    return []


def _upright(group: list[Cell]) -> Table:
    table = Table(show_edge=False, pad_edge=False, header_style="bold", box=None, padding=(0, 1))
    table.add_column("", no_wrap=True, min_width=max(map(len, ROWS)))
    found = [_cells_of(cell) for cell in group]
    for name, *values in found:
        # Words fold, and a figure is not broken.
        widest = max(cell_len(text.plain) for text in values[:-2])
        table.add_column(
            name.plain, justify="right", overflow="fold", min_width=max(widest, FOLDED_COLUMNS_MIN)
        )
    for at, title in enumerate(ROWS, start=1):
        table.add_row(Text(title), *(values[at] for values in found))
    return table


def _cells_of(cell: Cell) -> list[Text]:
    trial = cell.first
    name = words.system_name(trial)
    if trial.nodes != 1 or trial.attached:
        name += f", {words.layout(trial)}"
    if len(cell.trials) > 1:
        name += f", median of {len(cell.counted)}"
    plain = [
        name,
        words.level(trial),
        rate(cell.median(lambda result: result.standing_rate("publish_rate_msgs_s"))),
        percent(cell.median(lambda result: result.achieved_share), 1),
        *_latencies(cell),
        significant(cell.median(lambda result: result.standing_rate("publish_rate_mb_s"))),
        significant(cell.median(lambda result: result.cpu.workers_us_per_msg)),
        significant(cell.median(lambda result: result.cpu.system_us_per_msg)),
    ]
    audit, validity = words.cell_audit(cell), words.cell_validity(cell)
    return [
        *(Text(value) for value in plain),
        Text(audit.word, style=STYLES[audit.tone]),
        Text(validity.word, style=STYLES[validity.tone]),
    ]


def _latencies(cell: Cell) -> list[str]:
    # A latency that is not told stays empty: what stands for it is another one, and said below.
    return [
        quiet_words.latency_text(cell, metric, name)
        for metric in ("publish_ms", "end_to_end_ms")
        for name in FIGURES
    ]


def _print_card(cell: Cell, console: Console) -> None:
    """One system on a narrow terminal: label and value per line."""
    name, level, achieved, share, *rest = (text.plain for text in _cells_of(cell)[:-2])
    publish, through, (megabytes, workers, system) = rest[:4], rest[4:8], rest[8:]
    audit, validity = words.cell_audit(cell), words.cell_validity(cell)
    console.print(Text(f"{name}, {level}", style="bold"))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(
        "  rate", f"{achieved} msg/s, {megabytes} MB/s" + ("" if share == "-" else f", {share} of target")
    )
    grid.add_row("", "p50 / p99 / p99.9 / max")
    grid.add_row("  publish ms", " / ".join(publish))
    grid.add_row("  end-to-end ms", " / ".join(through))
    grid.add_row("  CPU us/msg", f"gauge {workers}, system {system}")
    grid.add_row("  audit", Text(audit.word, style=STYLES[audit.tone]))
    grid.add_row("  verdict", Text(validity.word, style=STYLES[validity.tone]))
    console.print(grid)


def _print_remarks(results: Sequence[TrialResult], console: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    several = len(results) > 1
    for trial in results:
        prefix = f"trial {trial.trial} ({words.system_name(trial)}): " if several else ""
        for reason in trial.validity.reasons:
            grid.add_row(Text("invalid", style=STYLES["bad"]), Text(prefix + reason))
        if trial.validity.not_as_it_came:
            told = (
                trial.validity.conclusion,
                quiet_words.quiet_sentence(trial),
                quiet_words.as_it_came(trial),
            )
            grid.add_row(
                Text(trial.validity.called, style=STYLES["warn"]), Text(prefix + " ".join(filter(None, told)))
            )
        audit = words.audit(trial.audit)
        if audit.tone in ("bad", "warn"):
            grid.add_row(Text("audit", style=STYLES[audit.tone]), Text(prefix + audit.sentence))
    missing = words.untold(results)
    if missing:
        grid.add_row(Text("missing", style=STYLES["warn"]), Text(missing))
    mixed = words.mixed_levels(results)
    if mixed:
        grid.add_row(Text("note", style=STYLES["warn"]), Text(mixed))
    remarks: dict[str, list[int]] = {}
    for trial in results:
        for warning in trial.validity.warnings:
            remarks.setdefault(warning, []).append(trial.trial)
    for warning, trials in list(remarks.items())[:WARNINGS_MAX]:
        where = f"trial {', '.join(map(str, trials))}: " if several and len(trials) < len(results) else ""
        grid.add_row(Text("note", style=STYLES["warn"]), Text(where + warning))
    if len(remarks) > WARNINGS_MAX:
        grid.add_row("note", f"{plural(len(remarks) - WARNINGS_MAX, 'more remark')} in the report")
    place = further.see(results)
    if place:
        grid.add_row("see", Text(place))
    for trial in results:
        prefix = f"trial {trial.trial} ({words.system_name(trial)}): " if several else ""
        if trial.search is not None:
            tone: words.Tone = "good" if trial.search.bound == "system" else "warn"
            grid.add_row(Text("search", style=STYLES[tone]), Text(prefix + words.search(trial.search)))
        if trial.bottleneck is not None and trial.bottleneck.applies:
            tone = "good" if trial.bottleneck.binding else "warn"
            grid.add_row(Text("binds", style=STYLES[tone]), Text(prefix + trial.bottleneck.explanation))
        if trial.tail is not None and trial.tail.coincidences:
            first = trial.tail.coincidences[0]
            grid.add_row("tail", Text(f"{prefix}{first.event}: {first.explanation}"))
        if trial.catch_up is not None:
            tone = "good" if trial.catch_up.caught_up else "warn"
            grid.add_row(Text("backlog", style=STYLES[tone]), Text(prefix + words.catch_up(trial.catch_up)))
    if not several:
        _add_evidence(results[0], grid)
    console.print()
    if not several:
        details.print_details(results[0], console)
    console.print(grid)


def _add_evidence(trial: TrialResult, grid: Table) -> None:
    """For a single trial there is room for the most used limit and the books."""
    limit, audited = trial.share_of_limit, trial.audit
    if limit is not None:
        grid.add_row(
            "limit", Text(f"{limit.name.replace('_', ' ')} {percent(limit.value)}: {limit.explanation}")
        )
    if audited.enabled:
        books = (
            f"sent {count(audited.sent)} = acked {count(audited.acked)} + failed {count(audited.failed)} "
            f"+ censored {count(audited.censored)}; received {count(audited.received)}"
        )
        grid.add_row("books", Text(books))
