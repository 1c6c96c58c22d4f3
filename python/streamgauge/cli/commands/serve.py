"""`streamgauge serve`: runs in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT


@deferred("streamgauge.cli.serve:serve")
def serve(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where runs are.")] = OUT,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="ADDRESS:PORT", help="Where it is; beyond loopback it needs --token-file."
        ),
    ] = "127.0.0.1:8642",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with a secret, which every reader must give as the password.",
        ),
    ] = None,
) -> None:
    """Show runs in a browser: a list with filters, reports, and comparisons of what is ticked. It reads, and changes nothing."""
