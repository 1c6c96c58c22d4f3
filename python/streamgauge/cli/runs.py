"""`streamgauge list`, `show` and `workloads`: what there is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.run import OUT

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")]


def list_(out: OutOption = OUT) -> None:
    """List runs, oldest first."""
    from streamgauge.model.errors import InputError
    from streamgauge.store.directory import list_runs
    from streamgauge.store.recover import is_running

    for run in list_runs(out):
        try:
            manifest = run.read_manifest()
        except InputError as error:
            typer.echo(f"{run.run_id}  unreadable: {error.problems[0].message}")
            continue
        status = str(manifest.status)
        if status == "running" and not is_running(run):
            status = "killed (streamgauge report completes it)"
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.started_unix_ms / 1000))
        count = len(manifest.trials)
        typer.echo(f"{started}  {run.run_id}  {count} trial{'' if count == 1 else 's'}  {status}")


def show(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Directory or name of a run.")] = "latest",
    out: OutOption = OUT,
) -> None:
    """Print the table of a run."""
    from rich.console import Console

    from streamgauge.report import terminal
    from streamgauge.report.durability import print_report
    from streamgauge.store.directory import RunDirectory

    found = RunDirectory.open(run, out)
    durability = found.read_durability()
    if durability is not None:
        print_report(durability)
        return
    results = found.results()
    if not results:
        typer.echo(
            f"{found.run_id} holds no results; streamgauge report {run} completes a run that was killed"
        )
        return
    terminal.print_summary(results, Console())


def workloads(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print this one, as a file to start from.")
    ] = None,
) -> None:
    """List the workloads that ship with streamgauge, by groups, or print one of them."""
    from streamgauge.model.library import find_workload, groups, library_names, shipped_text
    from streamgauge.model.resolve import read_workload

    if name is not None:
        text = shipped_text(name)
        if text is None:
            # It says what was meant, or what is expected.
            find_workload(name)
            text = Path(name).read_text(encoding="utf-8")
        typer.echo(text.rstrip())
        return
    width = max(len(one) for one in library_names())
    for group, names in groups():
        typer.echo(f"{group}:")
        for one in names:
            typer.echo(f"  {one:<{width}}  {read_workload(one).summary()}")
