"""`streamgauge import`: results of the OpenMessaging Benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT


@deferred("streamgauge.cli.importing:import_")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="OMB.json...", help="Result files of OMB.")],
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="RUN",
            autocompletion=complete.run,
            help="Show them beside this run's trials [default: a new report].",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")] = OUT,
) -> None:
    """Read results of the OpenMessaging Benchmark (OMB) and show them in a report.

    They are marked as foreign: OMB makes no audit and judges no validity, and its publish latency begins when
    a message is sent and not when it should have been.
    """
