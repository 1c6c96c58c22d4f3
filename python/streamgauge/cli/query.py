"""`streamgauge query`: SQL over all runs."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamgauge.cli.options import AnswerFormat
from streamgauge.store.query import ask, describe


def query(sql: str | None, to: AnswerFormat, out: Path) -> None:
    """The work of commands/query.py."""
    answer = describe(out) if sql is None else ask(sql, out)
    if to is AnswerFormat.table:
        _print_table(answer.columns, answer.rows)
        return
    if to is AnswerFormat.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
        return

    for row in answer.rows:
        typer.echo(json.dumps(dict(zip(answer.columns, row, strict=True)), default=str))


def _print_table(columns: list[str], rows: list[tuple[object, ...]]) -> None:
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
