"""`streamgauge report`: the table and the HTML report of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli import complete
from streamgauge.cli.run import OUT

RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN...]",
        autocompletion=complete.run,
        help="Directories or names of runs [default: the latest].",
    ),
]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are looked up by name.")]


def report(runs: RunsArgument = None, out: OutOption = OUT) -> None:
    """Write the HTML report of runs anew and print their tables.

    A run whose lab was killed is completed first, from what it had written until then.
    """
    from streamgauge.cli.execute import show_outcome
    from streamgauge.runner.recover import recover
    from streamgauge.store.directory import LATEST, RunDirectory
    from streamgauge.store.lab import is_running
    from streamgauge.vocabulary.errors import InputError

    found = [RunDirectory.open(text, out) for text in runs or [LATEST]]
    for run in found:
        if is_running(run):
            raise InputError(f"{run.path}: this run is still going on; its report comes at its end")
        for result in recover(run) if run.ours else []:
            print(f"recovered trial {result.trial} of {run.run_id}: {result.failure}", file=sys.stderr)
        show_outcome(run.path)
