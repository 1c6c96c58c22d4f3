"""`streamgauge compare`: two runs, or two systems, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer
from rich.console import Console
from rich.table import Table

from streamgauge.analysis import gates as judging
from streamgauge.analysis.cells import Cell
from streamgauge.analysis.compare import FIGURES, Comparison
from streamgauge.analysis.compare import compare as compare_cells
from streamgauge.analysis.match import match
from streamgauge.cli.carry_out import ended
from streamgauge.cli.gates import finish
from streamgauge.cli.options import Undecided
from streamgauge.cli.outputs import Asked, Outputs
from streamgauge.cli.sides import Side, ambiguous, read_side
from streamgauge.model.gate import read_gates
from streamgauge.report import comparison
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.exit_status import ExitStatus, most_urgent
from streamgauge.vocabulary.figures import check_figure


def compare(
    base: str,
    other: str | None,
    fail_if: list[str] | None,
    undecided: Undecided | None,
    figures: str | None,
    json: str | None,
    markdown: str | None,
    junit: str | None,
    out: Path,
) -> None:
    """The work of commands/compare.py."""
    outputs = Outputs(json, markdown, junit)
    outputs.check()
    gates = read_gates(fail_if or [], of_ratios=True)
    if not gates and (undecided is not None or junit is not None):
        option = "--junit" if undecided is None else "--undecided"
        raise InputError(f"{option} needs --fail-if: what must not be, such as 'publish_ms.p99 > 1.1'?")
    asked = [check_figure(name.strip()) for name in figures.split(",")] if figures else list(FIGURES)
    asked += [gate.figure for gate in gates if gate.figure not in asked]
    pairs, notes = _matched(base, other, out)
    console = Console(stderr=outputs.on_stdout)
    found = [compare_cells(left, right, asked) for left, right in pairs]
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
        comparisons=[comparison.as_json(one) for one in found],
    )
    # Who asks for no gate asks for no judgement: old runs may be looked at, whatever they lost.
    lost = bool(gates) and any(right.lost for _, right in pairs)
    raise typer.Exit(ended(most_urgent((gated, ExitStatus.LOST if lost else ExitStatus.DONE))))


def _matched(base: str, other: str | None, out: Path) -> tuple[list[tuple[Cell, Cell]], list[str]]:
    """Pairs of cells, and what of either side is in none. Raises InputError."""
    left = read_side(base, out)
    left, right = _two_systems(left) if other is None else (left, read_side(other, out))
    matching = match(left.traits, right.traits)
    why = ambiguous(matching, left.traits, right.traits)
    if why is not None:
        raise InputError(why)
    if not matching.pairs:
        raise InputError(
            f"nothing to compare: {left.asked} measured {left.names}, {right.asked} measured {right.names}; "
            "expected a workload (and, where there are several, a system) in common"
        )
    notes = [
        f"only {side.run_id} has {side.cells[at].name}"
        for side, alone in zip((left, right), matching.alone, strict=True)
        for at in alone
    ]
    for side in (left, right):
        if side.status not in ("complete", "imported"):
            notes.append(f"{side.run_id}: its status is '{side.status}': not everything in it was measured")
    return [(left.cells[i], right.cells[j]) for i, j in matching.pairs], notes


def _two_systems(run: Side) -> tuple[Side, Side]:
    """The two systems of one run. Raises InputError when it has not two."""
    systems = list(dict.fromkeys(cell.first.system for cell in run.cells))
    if len(systems) != 2:
        raise InputError(
            f"{run.asked} holds {', '.join(systems)}: expected two runs, or a run of two systems"
        )
    return run.only(systems[0]), run.only(systems[1])


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
    for note in comparison.warnings(found):
        console.print(f"warning: {note}", markup=False, highlight=False, soft_wrap=True)
