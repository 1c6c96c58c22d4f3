"""`streamgauge history`: one figure of one workload over all runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.run import OUT


def history(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="Name of a workload that was run.")],
    figure: Annotated[
        str, typer.Option("--figure", metavar="NAME", help="Which figure, by its name in result.json.")
    ] = "publish_ms.p99",
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="NAME", help="One system only [default: each by itself]."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")] = OUT,
) -> None:
    """Show a figure over all runs of a workload, oldest first, and where its level changed."""
    from rich.console import Console
    from rich.table import Table

    from streamgauge.analysis.history import histories
    from streamgauge.model.result_figures import check_figure

    console = Console()
    for one in histories(out, workload, check_figure(figure), system):
        console.print(f"\n{figure} of {workload} on {one.title}", markup=False, highlight=False)
        table = Table(box=None, pad_edge=False)
        for title in ("started", "run", "trials", "median", "95 % interval", ""):
            table.add_column(
                title, justify="right" if title in ("trials", "median", "95 % interval") else "left"
            )
        changes = {change.at: change for change in one.changes}
        for at, point in enumerate(one.points):
            started = time.strftime("%Y-%m-%d %H:%M", time.localtime(point.started_unix_ms / 1000))
            interval = "-" if point.interval is None else f"{point.interval[0]:.4g} - {point.interval[1]:.4g}"
            change = changes.get(at)
            mark = "" if change is None else f"<- changes: {change.before:.4g} to {change.after:.4g}"
            trials = f"{point.trials}" + ("" if point.valid else " (invalid)")
            table.add_row(started, point.run_id, trials, f"{point.median:.4g}", interval, mark)
        console.print(table)
        console.print(one.summary, markup=False, highlight=False)
