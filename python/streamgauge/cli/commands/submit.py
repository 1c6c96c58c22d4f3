"""`streamgauge submit`: a run as one file that can be passed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT


@deferred("streamgauge.cli.submit:submit")
def submit(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", autocompletion=complete.run, help="Directory or name of a run, or 'latest'."
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="Where to write it [default: RUN.streamgauge.zip, here]."
        ),
    ] = None,
    with_hosts: Annotated[
        bool, typer.Option("--with-hosts", help="Keep names and addresses of machines.")
    ] = False,
    with_logs: Annotated[
        bool, typer.Option("--with-logs", help="Pack the logs of systems and workers, too.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")
    ] = OUT,
) -> None:
    """Pack a run as one file that others can check (streamgauge verify).

    Names of machines and users, paths and credentials are left out, and so are logs; it is told what was. The same run gives the same file.
    """
