"""`streamgauge worker`: a load worker."""

from __future__ import annotations

import typer

from streamgauge.cli.deferred import deferred


@deferred("streamgauge.cli.worker:worker")
def worker(context: typer.Context) -> None:
    """Run a load worker (options: --help); the lab starts its own on this machine."""
