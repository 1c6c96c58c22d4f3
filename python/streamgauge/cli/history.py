"""`streamgauge history`: one figure of one workload over all runs."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from streamgauge.analysis.history import histories
from streamgauge.cli.outputs import Outputs
from streamgauge.report import history as shown
from streamgauge.report import history_page
from streamgauge.vocabulary.figures import check_figure


def history(
    workload: str,
    figure: str,
    system: str | None,
    json: str | None,
    markdown: str | None,
    junit: str | None,
    html: str | None,
    out: Path,
) -> None:
    """The work of commands/history.py."""
    outputs = Outputs(json, markdown, junit, html)
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
        history_page.render(found, figure, workload) if html is not None else "",
    )
