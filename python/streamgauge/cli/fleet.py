"""`streamgauge fleet`: what labs have placed in a cluster, or left at work."""

from __future__ import annotations

import typer

from streamgauge.fleet.choice import in_kubernetes
from streamgauge.fleet.kubernetes.api import Cluster
from streamgauge.fleet.kubernetes.leftovers import sweep
from streamgauge.fleet.omb.addresses import OmbWorkers, read_addresses
from streamgauge.fleet.omb.placed import stop_workers
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.exit_status import ExitStatus


def clean(fleet: str, everything: bool) -> None:
    """The work of commands/fleet.py."""
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
    found = stop_workers(workers)
    for url, problem in found.items():
        typer.echo(f"{url}: stopped" if problem is None else f"{url}: {problem}", err=problem is not None)
    if any(problem is not None for problem in found.values()):
        raise typer.Exit(ExitStatus.FAILED)
