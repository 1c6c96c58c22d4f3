"""`streamgauge history`: one figure of one workload over all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete, names
from streamgauge.cli.outputs import JsonOption, JunitOption, MarkdownOption, Outputs
from streamgauge.cli.run import OUT


def history(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD", autocompletion=complete.workload, help="Name of a workload that was run."
        ),
    ],
    figure: Annotated[
        str,
        typer.Option(
            "--figure",
            metavar="NAME",
            autocompletion=complete.words(*names.FIGURES),
            help="Which figure, by its name in result.json or in queries.",
        ),
    ] = "publish_ms.p99",
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            metavar="NAME",
            autocompletion=complete.words(*names.SYSTEMS),
            help="One system only [default: each by itself].",
        ),
    ] = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")] = OUT,
) -> None:
    """Show a figure over all runs of a workload, oldest first, and where its level changed."""
    from rich.console import Console
    from rich.table import Table

    from streamgauge.analysis.history import histories
    from streamgauge.report import history as shown
    from streamgauge.vocabulary.figures import check_figure

    outputs = Outputs(json, markdown, junit)
    outputs.check()
    console = Console(stderr=outputs.on_stdout)
    figure = check_figure(figure)
    found = histories(out, workload, figure, system)
    for one in found:
        console.print(
            f"\n{figure} of {workload} on {one.title}", markup=False, highlight=False, soft_wrap=True
        )
        table = Table(box=None, pad_edge=False)
        for title in shown.TITLES:
            is_number = title in ("trials", "median", "95 % interval")
            table.add_column(title, justify="right" if is_number else "left")
        for row in shown.rows(one, figure):
            table.add_row(*row)
        console.print(table)
        console.print(one.summary, markup=False, highlight=False, soft_wrap=True)
    outputs.write(
        {"workload": workload, "figure": figure, "histories": [shown.as_json(one, figure) for one in found]},
        shown.markdown(found, figure, workload),
        shown.junit(found, figure, workload),
    )
