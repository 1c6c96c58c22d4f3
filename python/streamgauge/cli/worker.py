"""`streamgauge worker`: a load worker."""

from __future__ import annotations

import typer

from streamgauge.cli.probe import become_gauge


def worker(context: typer.Context) -> None:
    """Run a load worker (options: --help); the lab starts its own on this machine."""
    become_gauge("worker", context.args)
