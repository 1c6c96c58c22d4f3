"""`streamgauge compare`: two runs, or two systems, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamgauge.cli.run import OUT

if TYPE_CHECKING:
    from streamgauge.analysis.cells import Cell
    from streamgauge.analysis.compare import Comparison, GateResult

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="'FIGURE > NUMBER'",
        help="End with status 1 if so; a ratio to the baseline: 'publish_ms.p99 > 1.1'. Several are possible.",
    ),
]
SideArgument = Annotated[
    str, typer.Argument(metavar="BASE", help="RUN, or RUN:SYSTEM for one of its systems.")
]


def compare(
    base: SideArgument,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[OTHER]", help="RUN or RUN:SYSTEM [default: the other system of BASE's run]."
        ),
    ] = None,
    fail_if: FailIfOption = None,
    figures: Annotated[
        str | None,
        typer.Option(
            "--figures", metavar="NAME[,NAME...]", help="Figures to compare, by their names in result.json."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")
    ] = OUT,
) -> None:
    """Compare two runs, or two systems: ratios with 95 % intervals over the trials, and a verdict.

    A figure "differs" when chance does not explain it; else the verdict is "no difference shown".
    """
    from rich.console import Console

    from streamgauge.analysis.compare import FIGURES, judge_ratio
    from streamgauge.analysis.compare import compare as compare_cells
    from streamgauge.model.gate import read_gates
    from streamgauge.model.result_figures import check_figure

    gates = read_gates(fail_if or [])
    asked = [check_figure(name.strip()) for name in figures.split(",")] if figures else list(FIGURES)
    asked += [gate.figure for gate in gates if gate.figure not in asked]
    console = Console()
    results: list[GateResult] = []
    for left, right in matched(base, other, out):
        found = compare_cells(left, right, asked)
        print_comparison(found, console)
        results += [judge_ratio(gate, found) for gate in gates]
    if print_gates(results, console):
        raise typer.Exit(1)


def matched(base: str, other: str | None, out: Path) -> list[tuple[Cell, Cell]]:
    """Pairs of cells of the same workload (and system, where there are several). Raises InputError."""
    from streamgauge.model.errors import InputError

    left = _cells(base, out)
    if other is None:
        systems = list(dict.fromkeys(cell.first.system for cell in left))
        if len(systems) != 2:
            raise InputError(
                f"{base} holds {', '.join(systems) or 'nothing'}: expected two runs, or a run of two systems"
            )
        right = [cell for cell in left if cell.first.system == systems[1]]
        left = [cell for cell in left if cell.first.system == systems[0]]
    else:
        right = _cells(other, out)
    single = all(len({cell.first.system for cell in side}) == 1 for side in (left, right))

    def key(cell: Cell) -> tuple[str, str]:
        return (
            cell.first.workload.name,
            "" if single else f"{cell.first.system} {cell.first.durability.declared}",
        )

    by_key = {key(cell): cell for cell in right}
    pairs = [(cell, by_key[key(cell)]) for cell in left if key(cell) in by_key]
    if not pairs:
        raise InputError(
            f"nothing to compare: {base} measured {_names(left)}, {other or base} measured {_names(right)}; "
            "expected a workload (and, where there are several, a system) in common"
        )
    return pairs


def _cells(text: str, out: Path) -> list[Cell]:
    from streamgauge.analysis.cells import cells
    from streamgauge.model.errors import InputError, nearest
    from streamgauge.store.directory import RunDirectory

    name, _, system = text.partition(":")
    found = cells([one for one in RunDirectory.open(name, out).results() if one.status == "complete"])
    if not found:
        raise InputError(f"{name} holds no complete trial")
    if system:
        systems = sorted({cell.first.system for cell in found})
        found = [cell for cell in found if cell.first.system == system]
        if not found:
            hint = nearest(system, systems) or f"; expected one of {', '.join(systems)}"
            raise InputError(f"{name} did not measure '{system}'{hint}")
    return found


def _names(cells: list[Cell]) -> str:
    return ", ".join(dict.fromkeys(f"{cell.first.workload.name} on {cell.first.system}" for cell in cells))


def print_comparison(found: Comparison, console: object) -> None:
    """A table, and the verdict below it."""
    from rich.console import Console
    from rich.table import Table

    assert isinstance(console, Console)
    base, other = found.base, found.other
    sides = [
        f"{cell.first.system} {cell.first.system_version}{' with TLS' if cell.first.tls == 'on' else ''} "
        f"({cell.first.run_id})"
        for cell in (base, other)
    ]
    console.print(
        f"\n{base.first.workload.name}: {sides[1]}\n  against {sides[0]}", markup=False, highlight=False
    )
    table = Table(box=None, pad_edge=False)
    for title in ("figure", "base", "other", "ratio", "95 % interval", "effect", "verdict"):
        is_text = title in ("figure", "verdict")
        justify: Literal["left", "right"] = "left" if is_text else "right"
        table.add_column(title, justify=justify, overflow="fold", no_wrap=title != "verdict")
    for one in found.figures:
        ratio = one.ratio
        interval = "-" if ratio is None or ratio.low is None else f"{ratio.low:.3f} - {ratio.high:.3f}"
        effect = "-" if ratio is None or ratio.effect is None else f"{ratio.effect:+.1f} sd"
        value = "-" if ratio is None else f"{ratio.value:.3f}"
        table.add_row(one.figure, f"{one.base:.4g}", f"{one.other:.4g}", value, interval, effect, one.verdict)
    console.print(table)
    trials = f"{len(base.counted)} and {len(other.counted)} trials"
    console.print(f"verdict ({trials}): {found.verdict}", markup=False, highlight=False)
    notes = [
        f"{'base' if cell is base else 'other'}: no trial was valid"
        for cell in (base, other)
        if not cell.valid_count
    ]
    if base.first.durability.declared != other.first.durability.declared:
        notes.append(
            f"they differ in durability: {base.first.durability.declared} and {other.first.durability.declared}"
        )
    if base.first.tls != other.first.tls:
        notes.append(f"they differ in TLS: {base.first.tls} and {other.first.tls}")
    if base.first.authentication != other.first.authentication:
        ways = [cell.first.authentication or "none" for cell in (base, other)]
        notes.append(f"they differ in authentication: {' and '.join(ways)}")
    asked = [cell.first.workload.asked for cell in (base, other)]
    if asked[0] != asked[1]:
        keys = ", ".join(key for key in asked[0] if asked[0][key] != asked[1][key])
        notes.append(f"the workloads have one name and are not the same ({keys})")
    if base.first.client != other.first.client:
        notes.append(f"different clients drove them: {base.first.client} and {other.first.client}")
    notes += [f"not compared: {text}" for text in found.missing]
    if base.first.headline != other.first.headline:
        notes.append(
            "end-to-end latency begins when a message was due on one side, and with its send, in whole ms, on the other"
        )
    for note in notes:
        console.print(f"warning: {note}", markup=False, highlight=False)


def print_gates(results: list[GateResult], console: object) -> bool:
    """One line for each gate; whether one failed."""
    from rich.console import Console

    assert isinstance(console, Console)
    for one in results:
        word = "FAILED" if one.failed else "passed"
        console.print(f"gate {word}: fail if {one.gate}: {one.explanation}", markup=False, highlight=False)
    return any(one.failed for one in results)
