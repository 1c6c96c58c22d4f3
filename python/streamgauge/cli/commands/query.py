"""`streamgauge query`: SQL over all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT, AnswerFormat


@deferred("streamgauge.cli.query:query")
def query(
    sql: Annotated[
        str | None,
        typer.Argument(metavar="[SQL]", help="A query [default: list the tables and their columns]."),
    ] = None,
    to: Annotated[AnswerFormat, typer.Option("--to", help="table, csv or json.")] = AnswerFormat.table,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")] = OUT,
) -> None:
    """Ask all runs at once, in SQL (DuckDB). Tables: runs, trials, intervals, resources (docs/results.md).

    Columns of trials are named as in result.json, with _ for the dots: publish_ms.p99 of a gate is publish_ms_p99 here.
    For example: select system, median(publish_ms_p99) from trials where validity_valid group by 1
    """
