"""`streamgauge durability`: what an acknowledgement is worth."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.deferred import deferred
from streamgauge.cli.options import (
    OUT,
    DataOption,
    DurabilityOption,
    EventsOption,
    NodesOption,
    OutOption,
    QuietOption,
    SeedOption,
    TrustOption,
)
from streamgauge.vocabulary.choices import SURVIVORS


@deferred("streamgauge.cli.durability:durability")
def durability(
    systems: Annotated[
        str | None,
        typer.Argument(
            metavar="SYSTEM[,SYSTEM...]",
            autocompletion=complete.systems,
            help="Systems, by name or by system file.",
        ),
    ] = None,
    nodes: NodesOption = None,
    level: DurabilityOption = None,
    experiments: Annotated[
        str,
        typer.Option(
            "--experiments",
            metavar="dose,accounting,cuts",
            autocompletion=complete.listed(("dose", "accounting", "cuts")),
            help="Which experiments to make.",
        ),
    ] = "dose,accounting,cuts",
    cuts: Annotated[
        int, typer.Option("--cuts", metavar="N", min=1, max=10_000, help="Power cuts of each kind.")
    ] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer doses, shorter loads.")] = False,
    write_back: Annotated[
        str | None,
        typer.Option(
            "--write-back",
            metavar="TIME",
            help="Disks keep by themselves what is older, as a kernel does: 30s [default: nothing, the worst case].",
        ),
    ] = None,
    matrix: Annotated[
        bool,
        typer.Option(
            "--all", help="All systems and settings that publications dispute (docs/durability.md)."
        ),
    ] = False,
    seed: SeedOption = None,
    out: OutOption = OUT,
    data: DataOption = None,
    events: EventsOption = None,
    quiet: QuietOption = False,
    trust_file: TrustOption = None,
    survivors: Annotated[
        str | None,
        typer.Option(
            "--survivors",
            metavar="KIND",
            autocompletion=complete.listed(SURVIVORS),
            help="What every power cut leaves of the un-synced: none, torn-4096, ... [default: a seeded mix].",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="DEED#N/GLOB",
            help="Power cuts come at an operation on a file: 'rename#2/*.log' [default: at a random moment].",
        ),
    ] = None,
    replay: Annotated[
        int | None,
        typer.Option(
            "--replay",
            metavar="N",
            min=1,
            help="Make cut N alone, as it was made with the same --seed and --cuts.",
        ),
    ] = None,
) -> None:
    """Measure the durability level of a system: slow its disks, account for its syncs, cut its power.

    The level that settings declare is compared with the one that the experiments find. Exit status 1 when they
    differ.
    """
