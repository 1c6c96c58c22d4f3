"""`streamgauge list`: the runs that there are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from streamgauge.cli.outputs import Outputs
from streamgauge.store.directory import list_runs
from streamgauge.store.lab import is_running
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import plural


def list_(out: Path, json: str | None) -> None:
    """The work of commands/runs.py."""
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
