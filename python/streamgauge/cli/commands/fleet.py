"""`streamgauge fleet`: what labs have placed in a cluster, or left at work."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgauge.cli.deferred import deferred

app = typer.Typer(
    help="Workers that labs have placed in a cluster (docs/fleet.md), or left at work (docs/omb-fleet.md).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


FleetArgument = Annotated[
    str,
    typer.Argument(
        metavar="kubernetes[:FILE]|omb:URL[,URL]",
        help="The cluster, as for --fleet; without FILE kubernetes.yaml. Or workers of the OpenMessaging Benchmark.",
    ),
]


@app.callback()
def _commands() -> None:
    pass


@app.command("clean")
@deferred("streamgauge.cli.fleet:clean")
def clean(
    fleet: FleetArgument = "kubernetes",
    everything: Annotated[
        bool, typer.Option("--all", help="Remove the workers of labs that are still at work, too.")
    ] = False,
) -> None:
    """Remove what labs have left in the cluster's namespace that were killed.

    The next run with --fleet kubernetes does the same by itself. Status 3: something could not be removed.
    Workers of the OpenMessaging Benchmark are told to stop whatever they do, for whomever.
    """
