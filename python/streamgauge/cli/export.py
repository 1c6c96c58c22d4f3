"""`streamgauge export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path

import typer

from streamgauge.cli.options import ExportFormat
from streamgauge.report import export as exports
from streamgauge.store.directory import RunDirectory


def export(run: str, to: ExportFormat, into: Path | None, out: Path) -> None:
    """The work of commands/export.py."""
    directory = RunDirectory.open(run, out).path
    target = into if into is not None else directory / "export"
    write = {
        ExportFormat.csv: exports.to_csv,
        ExportFormat.parquet: exports.to_parquet,
        ExportFormat.omb: exports.to_omb,
    }[to]
    for path in write(directory, target):
        typer.echo(path)
