"""`streamgauge worker`: a load worker."""

from __future__ import annotations

import typer

from streamgauge.cli.probe import become_gauge


def worker(context: typer.Context) -> None:
    """The work of commands/worker.py."""
    become_gauge("worker", context.args)
