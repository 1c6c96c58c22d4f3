"""`streamgauge list`, `show` and `workloads`: what there is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgauge.cli import complete
from streamgauge.cli.outputs import JsonOption, Outputs
from streamgauge.cli.run import OUT
from streamgauge.vocabulary.format import plural

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are.")]


def list_(out: OutOption = OUT, json: JsonOption = None) -> None:
    """List runs, oldest first."""
    from streamgauge.store.directory import list_runs
    from streamgauge.store.lab import is_running
    from streamgauge.vocabulary.errors import InputError

    outputs = Outputs(json)
    outputs.check()
    runs = list_runs(out)
    found: list[dict[str, Any]] = []
    if not runs:
        typer.echo(f"no runs in {out}: streamgauge run makes one, --out DIR looks elsewhere", err=True)
    for run in runs:
        try:
            manifest = run.read_manifest()
        except InputError as error:
            message = error.problems[0].message
            typer.echo(f"{run.run_id}  unreadable: {message}", err=outputs.on_stdout)
            found.append(
                {"run": run.run_id, "path": str(run.path), "status": "unreadable", "message": message}
            )
            continue
        status = str(manifest.status)
        if status == "running" and not is_running(run):
            status = "killed"
        said = f"{status} (streamgauge report completes it)" if status == "killed" else status
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.started_unix_ms / 1000))
        trials = plural(len(manifest.trials), "trial")
        typer.echo(f"{started}  {run.run_id}  {trials}  {said}", err=outputs.on_stdout)
        found.append(
            {
                "run": run.run_id,
                "path": str(run.path),
                "status": status,
                "started_unix_ms": manifest.started_unix_ms,
                "trials": len(manifest.trials),
            }
        )
    outputs.write({"runs": found})


def show(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", autocompletion=complete.run, help="Directory or name of a run.")
    ] = "latest",
    out: OutOption = OUT,
    json: JsonOption = None,
) -> None:
    """Print the table of a run."""
    from rich.console import Console

    from streamgauge.report import terminal
    from streamgauge.report.durability import print_report
    from streamgauge.store.directory import RunDirectory

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
    else:
        typer.echo(
            f"{found.run_id} holds no results; streamgauge report {run} completes a run that was killed",
            err=outputs.on_stdout,
        )
    outputs.write(
        {
            "run": found.run_id,
            "path": str(found.path),
            "durability": None if durability is None else durability.model_dump(mode="json"),
            "trials": [one.model_dump(mode="json") for one in results],
        }
    )


def workloads(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=complete.workload,
            help="Print this one, as a file to start from.",
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List the workloads that ship with streamgauge, by groups, or print one of them."""
    from streamgauge.model.library import find_workload, groups, library_names, shipped_text
    from streamgauge.model.resolve import read_workload

    outputs = Outputs(json)
    outputs.check()
    if name is not None:
        text = shipped_text(name)
        if text is None:
            # It says what was meant, or what is expected.
            find_workload(name)
            text = Path(name).read_text(encoding="utf-8")
        typer.echo(text.rstrip(), err=outputs.on_stdout)
        outputs.write({"workloads": [{"name": name, "summary": read_workload(name).summary(), "text": text}]})
        return
    found = []
    width = max(len(one) for one in library_names())
    for group, names in groups():
        typer.echo(f"{group}:", err=outputs.on_stdout)
        for one in names:
            summary = read_workload(one).summary()
            typer.echo(f"  {one:<{width}}  {summary}", err=outputs.on_stdout)
            found.append({"name": one, "group": group, "summary": summary})
    outputs.write({"workloads": found})
