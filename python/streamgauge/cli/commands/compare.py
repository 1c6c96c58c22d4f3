"""`streamgauge compare`: runs, or systems, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import (
    OUT,
    FailIfOption,
    HtmlOption,
    JsonOption,
    JunitOption,
    MarkdownOption,
    UndecidedOption,
)
from streamgauge.vocabulary.figures import RESULT_FIGURES

SideArgument = Annotated[
    str,
    typer.Argument(
        metavar="BASE",
        autocompletion=complete.run,
        help="RUN, RUN:SYSTEM for one of its systems, or RUN:SYSTEM,TRAIT=VALUE (nodes, durability, version, ...).",
    ),
]


@deferred("streamgauge.cli.compare:compare")
def compare(
    base: SideArgument,
    others: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OTHER]...",
            autocompletion=complete.run,
            help="RUN or RUN:SYSTEM, each compared with BASE [default: the other systems of BASE's run].",
        ),
    ] = None,
    fail_if: FailIfOption = None,
    undecided: UndecidedOption = None,
    figures: Annotated[
        str | None,
        typer.Option(
            "--figures",
            metavar="NAME[,NAME...]",
            autocompletion=complete.listed(RESULT_FIGURES),
            help="Figures to compare, by their names in result.json or in queries.",
        ),
    ] = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    html: HtmlOption = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")
    ] = OUT,
) -> None:
    """Compare runs, or systems, with the first: ratios with 95 % intervals over the trials, and a verdict.

    A figure "differs" when chance does not explain it; else the verdict is "no difference shown". Gates (--fail-if) are on the ratio to BASE.
    """
