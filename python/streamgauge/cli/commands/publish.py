"""`streamgauge publish`: a site of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.commands.verify import ResultsArgument
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT


@deferred("streamgauge.cli.publish:publish")
def publish(
    results: ResultsArgument,
    to: Annotated[
        Path,
        typer.Option("--to", metavar="DIR", help="Where to write: a new or an empty directory, or a site."),
    ],
    with_hosts: Annotated[
        bool, typer.Option("--with-hosts", help="Keep names and addresses of machines.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")
    ] = OUT,
) -> None:
    """Build a site of results: a list with filters, reports, comparisons of any two or more, workloads over versions and time.

    It is files alone, and works from a disk, too. Each result is packed, checked and shown as `submit` and `verify` do it; its file is in the site.
    """
