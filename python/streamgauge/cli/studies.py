"""`streamgauge studies`: the studies that ship."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from streamgauge.cli.outputs import Outputs
from streamgauge.model.checked_study import experiment_study_names, read_study, study_names
from streamgauge.model.durability_study import DurabilityStudyFile, read_durability_study
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.format import plural


def studies(json: str | None) -> None:
    """The work of commands/study.py."""
    outputs = Outputs(json)
    outputs.check()
    found = []
    for name in study_names():
        study = read_study(name, systems())
        counts = {"cells": len(study.cells), "claims": len(study.written.claims)}
        found.append(_listed(name, "trials", study.written, counts))
    found += [
        _listed(
            name, "durability", written, {"cells": len(written.cells), "statements": len(written.statements)}
        )
        for name, written in _of_durability()
    ]
    width = max(len(one["name"]) for one in found)
    for one in found:
        counted = ", ".join(
            plural(one[key], key[:-1]) for key in ("cells", "claims", "statements") if key in one
        )
        line = f"{one['name']:<{width}}  {one['title']} ({one['publisher']}, {one['published']}): {counted}"
        typer.echo(line, err=outputs.on_stdout)
    outputs.write({"studies": found})


def _listed(name: str, kind: str, written: Any, counts: dict[str, int]) -> dict[str, Any]:
    source = written.source
    about = {"title": written.title, "publisher": source.publisher, "published": str(source.published)}
    return {"name": name, "kind": kind, **about, **counts}


def _of_durability() -> Iterator[tuple[str, DurabilityStudyFile]]:
    """Name and file of each study of durability that ships."""
    for name in experiment_study_names():
        found = read_durability_study(name, systems())
        if found is not None:
            yield name, found.written
