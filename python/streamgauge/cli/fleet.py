"""`streamgauge fleet`: what labs have placed in a cluster, or left at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.exit_status import ExitStatus

if TYPE_CHECKING:
    from streamgauge.fleet.omb.addresses import OmbWorkers

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
    from streamgauge.fleet.choice import in_kubernetes
    from streamgauge.fleet.kubernetes.api import Cluster
    from streamgauge.fleet.kubernetes.leftovers import sweep
    from streamgauge.fleet.omb.addresses import read_addresses

    theirs = read_addresses(fleet)
    if theirs is not None:
        _stop_omb(theirs)
        return
    settings = in_kubernetes(fleet)
    if settings is None:
        raise InputError(
            f"fleet clean {fleet}: expected kubernetes, kubernetes:FILE or omb:URL[,URL...]; hosts are left running"
        )
    cluster = Cluster(settings.written.context, settings.written.namespace)
    swept = sweep(cluster, everything=everything)
    where = f"namespace {cluster.namespace} of {cluster.server}"
    if not swept:
        typer.echo(f"nothing is left in {where}")
    for one in swept:
        if not one.removed:
            typer.echo(f"{one.placed.name}: left, {one.placed.whose} works with it (--all removes it)")
        elif one.left:
            typer.echo(f"{one.placed.name}: could not be removed: {', '.join(one.left)}", err=True)
        else:
            typer.echo(f"{one.placed.name}: removed from {where} ({one.placed.whose} had left it)")
    if any(one.left for one in swept):
        raise typer.Exit(ExitStatus.FAILED)


def _stop_omb(workers: OmbWorkers) -> None:
    """Status 3 when one could not be stopped."""
    from streamgauge.fleet.omb.placed import stop_workers

    found = stop_workers(workers)
    for url, problem in found.items():
        typer.echo(f"{url}: stopped" if problem is None else f"{url}: {problem}", err=problem is not None)
    if any(problem is not None for problem in found.values()):
        raise typer.Exit(ExitStatus.FAILED)
