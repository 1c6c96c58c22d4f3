"""`streamgauge query`: SQL over all runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.run import OUT


class Format(StrEnum):
    """How an answer is printed."""

    table = "table"
    csv = "csv"
    json = "json"


def query(
    sql: Annotated[
        str | None,
        typer.Argument(metavar="[SQL]", help="A query [default: list the tables and their columns]."),
    ] = None,
    to: Annotated[Format, typer.Option("--to", help="table, csv or json.")] = Format.table,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")] = OUT,
) -> None:
    """Ask all runs at once, in SQL (DuckDB). Tables: runs, trials, intervals, resources (docs/results.md).

    Columns of trials are named as in result.json, with _ for the dots: publish_ms.p99 of a gate is publish_ms_p99 here.
    For example: select system, median(publish_ms_p99) from trials where validity_valid group by 1
    """
    from streamgauge.store.query import ask, describe

    answer = describe(out) if sql is None else ask(sql, out)
    if to is Format.table:
        _print_table(answer.columns, answer.rows)
        return
    if to is Format.csv:
        import csv
        import sys

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
        return
    import json

    for row in answer.rows:
        typer.echo(json.dumps(dict(zip(answer.columns, row, strict=True)), default=str))


def _print_table(columns: list[str], rows: list[tuple[object, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if value is None else _shown(value)) for value in row))
    Console().print(table)


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    # Not grouped and never "<0.0001" as in reports: it may be typed or copied into the next query.
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
