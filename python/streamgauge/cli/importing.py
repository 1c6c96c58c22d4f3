"""`streamgauge import`: results of the OpenMessaging Benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="OMB.json...", help="Result files of OMB.")],
) -> None:
    """Read results of the OpenMessaging Benchmark and print them as a table.

    They are marked as foreign: OMB makes no audit and judges no validity.
    """
    from rich.console import Console

    from streamgauge.report import export as exports
    from streamgauge.report import terminal

    results = [exports.read_omb(path) for path in files]
    terminal.print_summary(results, Console())
