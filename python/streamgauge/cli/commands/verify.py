"""`streamgauge verify`: whether results can be what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import OUT, JsonOption

ResultsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE|RUN...",
        autocompletion=complete.run,
        help="Files that `submit` has made, directories or names of runs.",
    ),
]


@deferred("streamgauge.cli.verify:verify")
def verify(
    results: ResultsArgument,
    json: JsonOption = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")
    ] = OUT,
) -> None:
    """Check results: every figure is computed again from the raw histograms, and everything is held against everything.

    Grades a result verified, consistent, not verifiable or contradicted. The rules are in docs/publishing.md.
    """
