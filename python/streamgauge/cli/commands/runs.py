"""`streamgauge list`, `show` and `workloads`: what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT, JsonOption

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")]


@deferred("streamgauge.cli.runs:list_")
def list_(out: OutOption = OUT, json: JsonOption = None) -> None:
    """List runs, oldest first."""


@deferred("streamgauge.cli.shown_run:show")
def show(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", autocompletion=complete.run, help="Directory or name of a run.")
    ] = "latest",
    out: OutOption = OUT,
    json: JsonOption = None,
) -> None:
    """Print the table of a run."""


@deferred("streamgauge.cli.workloads:workloads")
def workloads(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=complete.workload,
            help="Print this one, as a file to start from.",
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List the workloads that ship with streamgauge, by groups, or print one of them."""
