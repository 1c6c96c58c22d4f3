"""`streamgauge report`: the table and the HTML report of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT

RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN...]",
        autocompletion=complete.run,
        help="Directories or names of runs [default: the latest].",
    ),
]


OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")]


@deferred("streamgauge.cli.report:report")
def report(runs: RunsArgument = None, out: OutOption = OUT) -> None:
    """Write the HTML report of runs anew and print their tables.

    A run whose lab was killed is completed first, from what it had written until then.
    """
