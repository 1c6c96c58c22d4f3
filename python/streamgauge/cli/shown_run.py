"""`streamgauge show`: the table of a run."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from streamgauge.cli.outputs import Outputs
from streamgauge.report import terminal
from streamgauge.report.durability import print_report
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import is_running


def show(run: str, out: Path, json: str | None) -> None:
    """The work of commands/runs.py."""
    outputs = Outputs(json)
    outputs.check()
    console = Console(stderr=outputs.on_stdout)
    found = RunDirectory.open(run, out)
    durability = found.read_durability()
    results = found.results() if durability is None else []
    if durability is not None:
        print_report(durability, console)
    elif results:
        terminal.print_summary(results, console)
        if is_running(found):
            console.print("This run goes on: more trials follow.", markup=False, highlight=False)
    else:
        what = (
            "no trial of it has ended yet, and it goes on"
            if is_running(found)
            else f"it holds no results; streamgauge report {run} completes a run that was killed"
        )
        typer.echo(f"{found.run_id}: {what}", err=outputs.on_stdout)
    outputs.write(
        {
            "run": found.run_id,
            "path": str(found.path),
            "durability": None if durability is None else durability.model_dump(mode="json"),
            "trials": [one.model_dump(mode="json") for one in results],
        }
    )
