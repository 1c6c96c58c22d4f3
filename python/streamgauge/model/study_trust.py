"""Options of studies that are done for a trusted file alone: refused before anything starts (docs/security.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge.model.checked_study import Study
from streamgauge.model.document import Location
from streamgauge.model.study_plan import StudyPlan
from streamgauge.model.system_kind import SystemKind
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.trust import Trust, untrusted
from streamgauge.model.untrusted import how_to_trust
from streamgauge.vocabulary.choices import SCALES
from streamgauge.vocabulary.errors import InputError, Problem


def refuse_untrusted_study(study: Study, trust: Trust, known: Mapping[str, SystemKind]) -> None:
    """Raises InputError for options of a study file that are done for a trusted file alone."""
    trusted = trust.covers(study.document.file)
    problems = [
        problem
        for kind, options, place in _options(study)
        for problem in untrusted(
            study.document, known[kind], SystemRequest(options=options, trusted=trusted), place
        )
    ]
    if problems:
        raise InputError(problems)


def _options(study: Study) -> Iterator[tuple[str, Mapping[str, Any], Location]]:
    """All options in the file, the system that they are of, and where they stand."""
    systems = study.written.systems
    for name, written in systems.items():
        yield written.system, written.options, ("systems", name, "options")
    for scale in SCALES:
        for pattern, own in study.scale(scale).cells.items():
            for kind in sorted({systems[cell.system].system for cell in study.matching([pattern])}):
                yield kind, own.options, ("scales", scale, "cells", pattern, "options")


def refuse_untrusted_plan(plan: StudyPlan, trust: Trust, file: Path, known: Mapping[str, SystemKind]) -> None:
    """As `refuse_untrusted_study`, for the plan in a run that is resumed, which may come from anybody: what counts is the
    run's own file, whatever study it says that it was made from.
    """
    if trust.covers(file):
        return
    lines = file.read_text("utf-8").splitlines()
    hooks = (
        []
        if plan.hooks is None
        else [Problem(f"hooks: commands that run with your account; {how_to_trust(str(file))}", str(file))]
    )
    problems = [
        Problem(
            f"cell '{cell.cell}': {one.sentence(str(file))}", str(file), _line(lines, cell.cell, one.written)
        )
        for cell in plan.cells
        if cell.kind in known and not plan.connect.get(cell.kind)
        for one in known[cell.kind].untrusted(SystemRequest(options=cell.options))
    ]
    if problems or hooks:
        raise InputError([*hooks, *problems])


def _line(lines: Sequence[str], cell: str, written: str) -> int | None:
    """The line of a plan on which a cell's option is written."""
    begins = f'"cell": {json.dumps(cell, ensure_ascii=False)}'
    is_within = False
    for number, line in enumerate(lines, start=1):
        is_within = is_within or begins in line
        if is_within and json.dumps(written, ensure_ascii=False) in line:
            return number
    return None
