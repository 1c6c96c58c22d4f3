"""`streamgauge workloads`: the workloads that ship."""

from __future__ import annotations

from pathlib import Path

import typer

from streamgauge.cli.outputs import Outputs
from streamgauge.model.library import groups, library_names, shipped_text
from streamgauge.model.named_workload import find_workload
from streamgauge.model.resolve import read_workload


def workloads(name: str | None, json: str | None) -> None:
    """The work of commands/runs.py."""
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
