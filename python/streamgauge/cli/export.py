"""`streamgauge export`: a run for other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.run import OUT


class Format(StrEnum):
    """What a run can be exported to."""

    csv = "csv"
    parquet = "parquet"
    omb = "omb"


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", autocompletion=complete.run, help="Directory or name of a run, or 'latest'."
        ),
    ],
    to: Annotated[
        Format, typer.Option("--to", help="csv, parquet, or omb (OpenMessaging Benchmark's results).")
    ],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="Where to write [default: RUN/export].")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")
    ] = OUT,
) -> None:
    """Write a run's figures in a format that other tools read."""
    from streamgauge.report import export as exports
    from streamgauge.store.directory import RunDirectory

    directory = RunDirectory.open(run, out).path
    target = into if into is not None else directory / "export"
    write = {Format.csv: exports.to_csv, Format.parquet: exports.to_parquet, Format.omb: exports.to_omb}[to]
    for path in write(directory, target):
        typer.echo(path)
