"""`streamgauge compare`: runs, or systems, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer
from rich.console import Console
from rich.table import Table

from streamgauge.analysis import gates as judging
from streamgauge.analysis.compare import FIGURES, Comparison
from streamgauge.analysis.compare import compare as compare_cells
from streamgauge.analysis.sides import beside, read_sides
from streamgauge.cli.carry_out import ended
from streamgauge.cli.gates import finish
from streamgauge.cli.options import Undecided
from streamgauge.cli.outputs import Asked, Outputs
from streamgauge.model.gate import read_gates
from streamgauge.report import comparison, comparison_page, machines
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.exit_status import ExitStatus, most_urgent
from streamgauge.vocabulary.figures import check_figure


def compare(
    base: str,
    others: list[str] | None,
    fail_if: list[str] | None,
    undecided: Undecided | None,
    figures: str | None,
    json: str | None,
    markdown: str | None,
    junit: str | None,
    html: str | None,
    out: Path,
) -> None:
    """The work of commands/compare.py."""
    outputs = Outputs(json, markdown, junit, html)
    outputs.check()
    gates = read_gates(fail_if or [], of_ratios=True)
    if not gates and (undecided is not None or junit is not None):
        option = "--junit" if undecided is None else "--undecided"
        raise InputError(f"{option} needs --fail-if: what must not be, such as 'publish_ms.p99 > 1.1'?")
    asked = [check_figure(name.strip()) for name in figures.split(",")] if figures else list(FIGURES)
    asked += [gate.figure for gate in gates if gate.figure not in asked]
    sides = read_sides([base, *(others or [])], out)
    matched = [beside(sides[0], one) for one in sides[1:]]
    pairs = [pair for one in matched for pair in one.pairs]
    notes = list(dict.fromkeys(note for one in matched for note in one.notes))
    console = Console(stderr=outputs.on_stdout)
    found = [compare_cells(left, right, asked) for left, right in pairs]
    if apart := machines.apart(sides):
        console.print(apart, markup=False, highlight=False, soft_wrap=True)
    for one in found:
        print_comparison(one, console)
    questions = [judging.Question(gate, right, left) for left, right in pairs for gate in gates]
    for note in notes:
        console.print(f"warning: {note}", markup=False, highlight=False, soft_wrap=True)
    gated = finish(
        judging.judge(questions),
        Asked(undecided=undecided, outputs=outputs),
        console,
        notes,
        before=[comparison.markdown(one) for one in found],
        page=comparison_page.render(matched, found) if html is not None else "",
        comparisons=[comparison.as_json(one) for one in found],
    )
    # Who asks for no gate asks for no judgement: old runs may be looked at, whatever they lost.
    lost = bool(gates) and any(right.lost for _, right in pairs)
    raise typer.Exit(ended(most_urgent((gated, ExitStatus.LOST if lost else ExitStatus.DONE))))


def print_comparison(found: Comparison, console: Console) -> None:
    """What was found, the table that it rests on, and what has to be known of it."""
    for line in (f"\n{comparison.verdict(found)}", comparison.heading(found)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in comparison.TITLES:
        justify: Literal["left", "right"] = "left" if title in ("figure", "verdict") else "right"
        table.add_column(title, justify=justify, no_wrap=True)
    for one in found.figures:
        table.add_row(*comparison.row(one))
    if console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print(table, markup=False, highlight=False)
    else:
        # A table that is cut loses its verdicts first.
        for one in found.figures:
            for line in comparison.lines(one):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in (*comparison.bounds(found), *(f"warning: {note}" for note in comparison.warnings(found))):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
