"""`--trust-file`: which files may do what runs code here, reads files elsewhere or takes secrets (docs/security.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamgauge.model.document import Document, Location
from streamgauge.model.errors import InputError, Problem
from streamgauge.systems.base import System, SystemRequest
from streamgauge.systems.base.untrusted import OPTION

if TYPE_CHECKING:
    from streamgauge.model.study import Study
    from streamgauge.model.study_plan import StudyPlan


@dataclass(frozen=True)
class Trust:
    """The files that the user trusts: no file can name itself, or another one."""

    files: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, texts: Sequence[str] | None) -> Trust:
        """From the command line. Raises InputError for a file that is not there."""
        for text in texts or ():
            if not Path(text).is_file():
                raise InputError(f"{OPTION} {text}: no such file; expected the file whose options you trust")
        return cls(tuple(Path(text).resolve() for text in texts or ()))

    def covers(self, file: str | Path) -> bool:
        """Whether the file is one of them, whatever it is called."""
        return Path(file).resolve() in self.files


NOBODY = Trust()


def is_beside(file: Path, base: Path) -> bool:
    """Whether a file, links followed, is below a directory and nothing on the way is hidden: keys in a home directory are."""
    found, below = file.resolve(), base.resolve()
    return found.is_relative_to(below) and not any(
        part.startswith(".") for part in found.relative_to(below).parts
    )


def untrusted(document: Document, system: System, request: SystemRequest, at: Location = ()) -> list[Problem]:
    """A problem, at its line, for each option that is done for a trusted file alone. `at`: where the options are."""
    if request.trusted:
        return []
    return [
        document.problem(one.sentence(document.file), (*at, *one.location))
        for one in system.untrusted(request)
    ]


def refuse_untrusted_study(study: Study, trust: Trust) -> None:
    """Raises InputError for options of a study file that are done for a trusted file alone."""
    from streamgauge.systems.registry import systems

    trusted = trust.covers(study.document.file)
    problems = [
        problem
        for name, written in study.written.systems.items()
        for problem in untrusted(
            study.document,
            systems()[written.system],
            SystemRequest(options=written.options, trusted=trusted),
            ("systems", name, "options"),
        )
    ]
    if problems:
        raise InputError(problems)


def refuse_untrusted_plan(plan: StudyPlan, trust: Trust, file: Path) -> None:
    """As `refuse_untrusted_study`, for the plan in a run that is resumed, which may come from anybody: what counts is the
    run's own file, whatever study it says that it was made from.
    """
    from streamgauge.systems.registry import systems

    known = systems()
    if trust.covers(file):
        return
    lines = file.read_text("utf-8").splitlines()
    problems = [
        Problem(
            f"cell '{cell.cell}': {one.sentence(str(file))}", str(file), _line(lines, cell.cell, one.written)
        )
        for cell in plan.cells
        if cell.kind in known and not plan.connect.get(cell.kind)
        for one in known[cell.kind].untrusted(SystemRequest(options=cell.options))
    ]
    if problems:
        raise InputError(problems)


def _line(lines: Sequence[str], cell: str, written: str) -> int | None:
    """The line of a plan on which a cell's option is written."""
    begins = f'"cell": {json.dumps(cell, ensure_ascii=False)}'
    is_within = False
    for number, line in enumerate(lines, start=1):
        is_within = is_within or begins in line
        if is_within and json.dumps(written, ensure_ascii=False) in line:
            return number
    return None
