"""Studies of durability: cells that go through the experiments of `streamgauge durability`, and statements that they
are to answer (docs/durability.md).

They lie in `studies/experiments`, beside the studies whose cells are trials, and are files of their own kind: a cell is
a system with settings, without a workload.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from streamgauge.model.checked_study import EXPERIMENTS, study_directory
from streamgauge.model.document import Document, FileModel, Location, parse_document, read_document
from streamgauge.model.durability import Experiment, Scope
from streamgauge.model.study_file import Link, SourceFile
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.system_kind import KindType, SystemKind
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.trust import NOBODY, Trust, untrusted
from streamgauge.vocabulary.errors import InputError, Problem, SystemInputError, nearest, no_system
from streamgauge.vocabulary.levels import Level

KIND_KEY = "experiments"
"""A file that has this key is a study of durability."""
DISPUTED = "durability"


class CellFile(FileModel):
    """A system with settings; `options` as in a system file. Without a level: the system's own default."""

    system: str
    title: str
    nodes: Literal[1, 3] = 1
    level: Level | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class ShowsFile(FileModel):
    """What must have been measured of every cell for a statement to hold: exactly one of these keys."""

    waits_for_disks: bool | None = None
    """An acknowledgement waits for syncs, or for none."""
    syncs_every_batch: bool | None = None
    """There are at least as many syncs as batches, and acknowledgements wait for them."""
    keeps: list[Scope] | None = None
    """Power cuts of these lose nothing."""
    loses: list[Scope] | None = None
    """Power cuts of these lose acknowledged messages."""
    faster_than: str | None = None
    """Publish latencies at the same load are below those of another cell."""
    slower_than: str | None = None
    same_level_as: str | None = None
    """The measured level is that of another cell."""

    def given(self) -> list[str]:
        """The keys that are there."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]

    @property
    def other(self) -> str | None:
        """The cell that is compared with."""
        return self.faster_than or self.slower_than or self.same_level_as


class StatementFile(FileModel):
    """A statement as printed, who made it, and what would show it."""

    statement: str
    by: str
    link: Link | None = None
    remark: str | None = None
    """How it is understood here."""
    cells: Annotated[list[str], Field(min_length=1)]
    shows: ShowsFile


class QuickFile(FileModel):
    """What `--quick` does less."""

    cuts: Annotated[int, Field(ge=1)] = 2
    leave_out: list[str] = Field(default_factory=list)
    because: str = ""


class DurabilityStudyFile(FileModel):
    """The whole file."""

    study: str
    title: str
    source: SourceFile
    experiments: list[Experiment]
    cuts: Annotated[int, Field(ge=1, le=10_000)] = 10
    cells: Annotated[dict[str, CellFile], Field(min_length=1)]
    quick: QuickFile = QuickFile()
    statements: list[StatementFile] = Field(default_factory=list)


@dataclass(frozen=True)
class DurabilityStudy:
    """A study of durability, checked."""

    document: Document
    written: DurabilityStudyFile
    trusted: bool = False
    """Whether the cells' options may run code."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.written.study

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """Names of the cells that patterns meet, in the order of the file. Raises InputError for one that meets none."""
        wanted = list(patterns)
        for pattern in wanted:
            if not fnmatch.filter(self.written.cells, pattern):
                hint = nearest(pattern, self.written.cells) or f"; cells: {', '.join(self.written.cells)}"
                raise InputError(f"--only {pattern}: no such cell in {self.name}{hint}")
        return [name for name in self.written.cells if any(fnmatch.fnmatchcase(name, one) for one in wanted)]

    def choice(self, cell: str, known: Mapping[str, KindType]) -> SystemChoice[KindType]:
        """A cell as a system to start."""
        asked = self.written.cells[cell]
        request = SystemRequest(
            nodes=asked.nodes, level=asked.level, options=dict(asked.options), trusted=self.trusted
        )
        return SystemChoice(name=cell, system=known[asked.system], request=request)


def read_durability_study(
    text: str, known: Mapping[str, SystemKind], trust: Trust = NOBODY
) -> DurabilityStudy | None:
    """A study of durability by path or by the name of one that ships; None when the text means something else (a study
    of trials, a name that does not exist). Raises InputError with every problem found.
    """
    path = Path(text)
    if path.suffix.lower() in {".yaml", ".yml"} or len(path.parts) > 1:
        if not path.is_file():
            return None
        document = read_document(path, text)
        return resolve(document, known, trusted=trust.covers(path)) if KIND_KEY in document.values else None
    shipped = _directory() / f"{text}.yaml"
    return (
        resolve(read_document(shipped, f"studies/experiments/{text}.yaml"), known)
        if shipped.is_file()
        else None
    )


def disputed(known: Mapping[str, SystemKind]) -> DurabilityStudy:
    """The one that holds the settings and statements that publications dispute."""
    study = read_durability_study(DISPUTED, known)
    assert study is not None, "it ships with streamgauge"
    return study


def parse_durability_study(
    text: str, file: str, known: Mapping[str, SystemKind] | None, *, trusted: bool = False
) -> DurabilityStudy:
    """A study from its text; as `resolve`. Raises InputError."""
    return resolve(parse_document(text, file), known, trusted=trusted)


def resolve(
    document: Document, known: Mapping[str, SystemKind] | None, *, trusted: bool = False
) -> DurabilityStudy:
    """From a document to a checked study; one that is not to be run is read without systems, whose options may be others by now.
    Raises InputError with every problem found."""
    written = document.validate(DurabilityStudyFile)
    study = DurabilityStudy(document, written, trusted)
    problems: list[Problem] = [] if known is None else _check_systems(study, known)
    for number, statement in enumerate(written.statements):
        problems += _check_statement(study, statement, ("statements", number))
    for pattern in written.quick.leave_out:
        if not fnmatch.filter(written.cells, pattern):
            problems.append(document.problem(f"no cell '{pattern}'", ("quick", "leave_out")))
    if problems:
        raise InputError(problems)
    return study


def _check_systems(study: DurabilityStudy, known: Mapping[str, SystemKind]) -> list[Problem]:
    document = study.document
    problems: list[Problem] = []
    for name, cell in study.written.cells.items():
        if cell.system not in known:
            problems.append(document.problem(no_system(cell.system, known), ("cells", name, "system")))
            continue
        choice = study.choice(name, known)
        unknown = [key for key in choice.request.options if key not in choice.system.option_keys]
        problems += [
            document.problem(
                f"unknown option '{key}' of {cell.system}{nearest(key, choice.system.option_keys)}",
                ("cells", name, "options", key),
            )
            for key in unknown
        ]
        refused = untrusted(document, choice.system, choice.request, ("cells", name, "options"))
        problems += refused
        if not unknown and not refused:
            try:
                choice.system.check(choice.request)
            except SystemInputError as error:
                problems.append(document.problem(str(error), ("cells", name)))
    return problems


def _check_statement(study: DurabilityStudy, statement: StatementFile, at: Location) -> list[Problem]:
    document, cells = study.document, study.written.cells
    names = [*statement.cells, *([statement.shows.other] if statement.shows.other else [])]
    problems = [
        document.problem(f"no cell '{name}'{nearest(name, cells)}", (*at, "cells"))
        for name in names
        if name not in cells
    ]
    if len(statement.shows.given()) != 1:
        known = ", ".join(ShowsFile.model_fields)
        problems.append(document.problem(f"shows: expected exactly one of {known}", (*at, "shows")))
    return problems


def _directory() -> Path:
    return study_directory() / EXPERIMENTS
