"""`streamgauge calibrate-verdicts`: how often verdicts are wrong here, on real pairs whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred


@deferred("streamgauge.cli.calibrate:calibrate_verdicts")
def calibrate_verdicts(
    system: Annotated[
        str,
        typer.Option(
            "--system",
            metavar="NAME",
            autocompletion=complete.system_name,
            help="What is compared with itself, under two names. Effects that are known need gauge-log, whose commits can be delayed.",
        ),
    ] = "gauge-log",
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="How long to go on making pairs, such as 2h.")
    ] = "30m",
    pair_budget: Annotated[
        str,
        typer.Option("--pair-budget", metavar="TIME", help="How long a pair may take to be decided."),
    ] = "4m",
    effects: Annotated[
        str | None,
        typer.Option(
            "--effects",
            metavar="PERCENT[,PERCENT...]",
            help="Delays to add to every commit of one side, in percent of the median latency, in turns; 0 is a pair of the same "
            "[default: 0,20,0,10,0,50 for gauge-log, else 0].",
        ),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", metavar="MSGS", help="Messages per second.")] = 1000.0,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Of orders and arrivals [default: random].")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Where pairs are kept; those that are there already are counted."
        ),
    ] = Path("runs/calibration"),
) -> None:
    """Compare a system with itself, and with itself made slower by a known amount, again and again, and print how often the verdicts were right."""
