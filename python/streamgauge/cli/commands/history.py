"""`streamgauge history`: one figure of one workload over all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT, HtmlOption, JsonOption, JunitOption, MarkdownOption
from streamgauge.vocabulary.figures import DEFAULT_FIGURE, RESULT_FIGURES


@deferred("streamgauge.cli.history:history")
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
            autocompletion=complete.words(*RESULT_FIGURES),
            help="Which figure, by its name in result.json or in queries.",
        ),
    ] = DEFAULT_FIGURE,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            metavar="NAME",
            autocompletion=complete.system_name,
            help="One system only [default: each by itself].",
        ),
    ] = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    html: HtmlOption = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")] = OUT,
) -> None:
    """Show a figure over all runs of a workload, oldest first, and where its level changed."""
