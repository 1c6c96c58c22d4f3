"""`streamgauge export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT, ExportFormat


@deferred("streamgauge.cli.export:export")
def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", autocompletion=complete.run, help="Directory or name of a run, or 'latest'."
        ),
    ],
    to: Annotated[
        ExportFormat, typer.Option("--to", help="csv, parquet, or omb (OpenMessaging Benchmark's results).")
    ],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="Where to write [default: RUN/export].")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")
    ] = OUT,
) -> None:
    """Write a run's figures in a format that other tools read."""
