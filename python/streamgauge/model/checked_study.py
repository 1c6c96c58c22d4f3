"""Studies: a study file with its cells expanded and every name in it checked.

A cell is one workload on one system. Cells are referred to by name or by pattern (`kafka-*-16`); a name that meets no
cell is an error at its line, as is a figure that does not exist.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streamgauge.model.document import Document, Location, parse_document, read_document
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import resolve_workload
from streamgauge.model.scaling import Batching
from streamgauge.model.study_file import SOURCE, CellScale, ClaimFile, PageFile, ScaleFile, StudyFile
from streamgauge.model.system_kind import SystemKind
from streamgauge.model.workload_file import BatchFile, WorkloadFile
from streamgauge.vocabulary.choices import SCALES
from streamgauge.vocabulary.errors import InputError, Problem, else_known, nearest, no_system
from streamgauge.vocabulary.figures import SERIES, STUDY_FIGURES
from streamgauge.vocabulary.sizes import parse_message_size

EXPERIMENTS = "experiments"
"""The folder beside the studies of trials in which the others are."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_VARIABLE = re.compile(r"\{(\w+)\}")
MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class StudyCell:
    """One workload on one system, as published."""

    name: str
    title: str
    system: str
    """Key in `StudyFile.systems`."""
    workload: Mapping[str, Any]
    """Keys of a workload file."""
    published: Mapping[str, float | str]
    """Figure -> as printed; text where no number is printed."""
    location: Location
    """Where the cell stands in the file."""
    tls: bool = False
    """Whether clients speak TLS with the system."""
    source: str = ""
    """What its workload rests on."""
    published_source: str = ""
    """Where its figures are printed."""

    @property
    def message_bytes(self) -> int:
        """Size of a message; the mean where sizes differ."""
        found = parse_message_size(self.workload.get("messageSize", MESSAGE_BYTES))
        return found if isinstance(found, int) else round(found.mean_bytes)

    @property
    def subscriptions(self) -> int:
        """Subscriptions that read every message; a further one that reads a backlog counts."""
        backlog = self.workload.get("backlog")
        extra = isinstance(backlog, Mapping) and backlog.get("reader") == "extra"
        return int(self.workload.get("subscriptionsPerTopic", 1)) + extra

    @property
    def batching(self) -> Batching:
        """How its messages are gathered, where what it says of that can be read; else as by default, for who checks the workload says what is wrong."""
        try:
            batch = BatchFile.model_validate(self.workload.get("batch", {}))
        except ValidationError:
            batch = BatchFile()
        producers = int(self.workload.get("producersPerTopic", 1))
        return Batching(batch.linger, batch.bytes, self.partitions * max(producers, 1))

    @property
    def partitions(self) -> int:
        """Partitions of all topics together."""
        return int(self.workload.get("partitionsPerTopic", 1)) * int(self.workload.get("topics", 1))


@dataclass(frozen=True)
class Study:
    """A study, checked."""

    document: Document
    written: StudyFile
    cells: tuple[StudyCell, ...]
    kinds: Mapping[str, SystemKind] = field(repr=False)
    """The systems that there are, by name."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.written.study

    def scale(self, name: str) -> ScaleFile:
        """One of SCALES."""
        found: ScaleFile = getattr(self.written.scales, name)
        return found

    def cell(self, name: str) -> StudyCell:
        """A cell by its name."""
        return next(cell for cell in self.cells if cell.name == name)

    def matching(self, patterns: Iterable[str]) -> list[StudyCell]:
        """The cells that patterns meet, in the order of the patterns and then of the file."""
        found: dict[str, StudyCell] = {}
        for pattern in patterns:
            for cell in self.cells:
                if fnmatch.fnmatchcase(cell.name, pattern):
                    found.setdefault(cell.name, cell)
        return list(found.values())


def study_directory() -> Path:
    """Where the studies that ship are."""
    return Path(__file__).resolve().parent.parent / "studies"


def study_names() -> list[str]:
    """Names of the studies that ship with streamgauge."""
    return sorted(path.stem for path in study_directory().glob("*.yaml"))


def experiment_study_names() -> list[str]:
    """Names of those that ship whose cells are no trials (durability_study.py)."""
    return sorted(path.stem for path in (study_directory() / EXPERIMENTS).glob("*.yaml"))


def read_study(text: str, known: Mapping[str, SystemKind]) -> Study:
    """A study by path or by the name of one that ships. Raises InputError with every problem found."""
    path = Path(text)
    if path.suffix.lower() in {".yaml", ".yml"} or len(path.parts) > 1:
        return resolve_study(read_document(path, text), known)
    shipped = study_directory() / f"{text}.yaml"
    if shipped.is_file():
        return resolve_study(read_document(shipped, f"studies/{text}.yaml"), known)
    names = [*study_names(), *experiment_study_names()]
    hint = nearest(text, names) or f"; expected a file (path/to/x.yaml) or one of {', '.join(names)}"
    raise InputError(f"no study '{text}'{hint}")


def parse_study(text: str, file: str, known: Mapping[str, SystemKind] | None) -> Study:
    """A study from its text; as `resolve_study`. Raises InputError."""
    return resolve_study(parse_document(text, file), known)


def resolve_study(document: Document, known: Mapping[str, SystemKind] | None) -> Study:
    """From a document to a checked study; one that is not to be run is read without systems, whose options may be others by now.
    Raises InputError with every problem found."""
    written = document.validate(StudyFile)
    problems: list[Problem] = []
    cells = _expand(document, written, problems)
    study = Study(document, written, tuple(cells), known or {})
    _check_systems_of_cells(study, problems)
    if known is not None:
        _check_systems(study, known, problems)
        _check_workloads(study, problems)
    _check_published(study, problems)
    _check_scales(study, problems)
    for number, claim in enumerate(written.claims):
        _check_claim(study, claim, ("claims", number), problems)
    for number, page in enumerate(written.pages):
        _check_page(study, page, ("pages", number), problems)
    if problems:
        raise InputError(sorted(problems, key=lambda problem: problem.line or 0))
    return study


def _expand(document: Document, written: StudyFile, problems: list[Problem]) -> list[StudyCell]:
    found: dict[str, StudyCell] = {}
    for number, template in enumerate(written.cells):
        location: Location = ("cells", number)
        for values in itertools.product(*template.each.values()):
            variables = dict(zip(template.each, values, strict=True))
            try:
                name = str(_filled(template.cell, variables))
                workload = {**written.workload, **_filled(template.workload, variables)}
                workload.pop(SOURCE, None)
                figures = dict(written.published.get(name, {}))
                printed_in = figures.pop(SOURCE, "")
                cell = StudyCell(
                    name=name,
                    title=str(_filled(template.title or template.cell, variables)),
                    system=str(_filled(template.system, variables)),
                    workload=workload,
                    published=_flat(figures),
                    location=location,
                    tls=_switch(document, _filled(template.tls, variables), (*location, "tls"), problems),
                    source=str(_filled(template.source or "", variables)),
                    published_source=str(printed_in),
                )
            except KeyError as error:
                known = ", ".join(template.each) or "none"
                message = f"no value for {{{error.args[0]}}}: 'each' of this cell names {known}"
                problems.append(document.problem(message, location))
                break
            if not _NAME.fullmatch(name):
                message = f"cell '{name}': expected a name of small letters, digits, dots and hyphens"
                problems.append(document.problem(message, (*location, "cell")))
            elif name in found:
                problems.append(document.problem(f"two cells are called '{name}'", (*location, "cell")))
            found[name] = cell
    return list(found.values())


def _switch(document: Document, value: Any, location: Location, problems: list[Problem]) -> bool:
    known = {True: True, False: False, "on": True, "off": False}
    if value not in known:
        problems.append(document.problem(f"tls: expected true, false, on or off, found {value}", location))
        return False
    return known[value]


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    """A value with its variables replaced; one that is nothing but a variable keeps the variable's type."""
    if isinstance(value, str):
        whole = _VARIABLE.fullmatch(value)
        if whole:
            return variables[whole.group(1)]
        return _VARIABLE.sub(lambda match: str(variables[match.group(1)]), value)
    if isinstance(value, Mapping):
        return {key: _filled(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, variables) for one in value]
    return value


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values with changes: a mapping within replaces only what it names."""
    found = dict(values)
    for key, value in changes.items():
        before = found.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            found[key] = merged(before, value)
        else:
            found[key] = value
    return found


def _flat(values: Mapping[str, Any]) -> dict[str, float | str]:
    """`{publish_ms: {p99: 4}}` as `{"publish_ms.p99": 4}`."""
    found: dict[str, float | str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": one for name, one in value.items()}
        else:
            found[key] = value
    return found


def _check_systems_of_cells(study: Study, problems: list[Problem]) -> None:
    for cell in study.cells:
        if cell.system not in study.written.systems:
            hint = nearest(cell.system, study.written.systems)
            message = f"cell '{cell.name}': no system '{cell.system}' under systems{hint}"
            problems.append(study.document.problem(message, (*cell.location, "system")))


def _check_systems(study: Study, known: Mapping[str, SystemKind], problems: list[Problem]) -> None:
    for name, written in study.written.systems.items():
        system = known.get(written.system)
        if system is None:
            message = no_system(written.system, known)
            problems.append(study.document.problem(message, ("systems", name, "system")))
            continue
        for key in written.options:
            if key not in system.option_keys:
                hint = else_known(key, sorted(system.option_keys), "options")
                message = f"unknown option '{key}' of {written.system}{hint}"
                problems.append(study.document.problem(message, ("systems", name, "options", key)))
    used = {one.system for one in study.written.systems.values()}
    for kind_name in study.written.versions:
        if kind_name not in used:
            message = f"versions: no system of the study is of {kind_name}{nearest(kind_name, used)}"
            problems.append(study.document.problem(message, ("versions", kind_name)))
    for cell in study.cells:
        written_system = study.written.systems.get(cell.system)
        kind = None if written_system is None else known.get(written_system.system)
        if cell.tls and kind is not None and not kind.encrypts:
            message = f"cell '{cell.name}': {kind.title} cannot be measured over TLS"
            problems.append(study.document.problem(message, (*cell.location, "tls")))


def _check_workloads(study: Study, problems: list[Problem]) -> None:
    """Each problem at the line of its key, and once where all cells have it from the study."""
    told: set[str] = set()
    for cell in study.cells:
        for message in _workload_problems(cell, cell.workload):
            key = _key_of(message)
            own = study.written.cells[int(cell.location[1])].workload
            if key in own or key not in study.written.workload:
                location = (*cell.location, "workload", key)
                problems.append(study.document.problem(f"cell '{cell.name}': {message}", location))
            elif message not in told:
                told.add(message)
                problems.append(study.document.problem(message, ("workload", key)))


def _workload_problems(cell: StudyCell, workload: Mapping[str, Any]) -> list[str]:
    """What is wrong with a workload of a cell."""
    document = parse_document(json.dumps({"name": cell.name, **workload}), cell.name)
    try:
        resolve_workload(document, Path(f"{cell.name}.yaml"), Overrides())
    except InputError as error:
        return [problem.message for problem in error.problems]
    return []


def _key_of(message: str) -> str:
    """The key of a workload that a message is about: it begins with it, or says that it does not know it."""
    found = re.match(r"(?:unknown key ')?(\w+)", message)
    return found.group(1) if found else ""


def _check_published(study: Study, problems: list[Problem]) -> None:
    names = [cell.name for cell in study.cells]
    for name, figures in study.written.published.items():
        location: Location = ("published", name)
        if name not in names:
            message = f"no cell '{name}'{nearest(name, names)}"
            problems.append(study.document.problem(message, location))
        for figure, value in _flat({key: one for key, one in figures.items() if key != SOURCE}).items():
            _check_figure(study, figure, (*location, figure.partition(".")[0]), problems)
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                message = f"{name}: {figure}: expected a number or text, found {value}"
                problems.append(study.document.problem(message, location))


def _check_figure(study: Study, figure: str, location: Location, problems: list[Problem]) -> None:
    if study.kinds and figure not in STUDY_FIGURES:
        hint = else_known(figure, STUDY_FIGURES, "figures")
        problems.append(study.document.problem(f"no figure '{figure}'{hint}", location))


def _check_cells(study: Study, patterns: Iterable[str], location: Location, problems: list[Problem]) -> None:
    names = [cell.name for cell in study.cells]
    for pattern in patterns:
        if not study.matching([pattern]):
            hint = nearest(pattern, names)
            problems.append(study.document.problem(f"'{pattern}' meets no cell{hint}", location))


def _check_scales(study: Study, problems: list[Problem]) -> None:
    for name in SCALES:
        scale = study.scale(name)
        location: Location = ("scales", name)
        _check_cells(study, scale.leave_out, (*location, "leave_out"), problems)
        _check_cells(study, scale.cells, (*location, "cells"), problems)
        if scale.leave_out and scale.because is None:
            message = f"scale {name} leaves cells out: say why (key 'because')"
            problems.append(study.document.problem(message, (*location, "leave_out")))
        for pattern, own in scale.cells.items():
            _check_own(study, own, study.matching([pattern]), (*location, "cells", pattern), problems)


def _check_own(
    study: Study, own: CellScale, cells: Iterable[StudyCell], location: Location, problems: list[Problem]
) -> None:
    """Keys of a workload and options that a scale sets for its cells are those that there are, and fit the first such cell of each system."""
    if not study.kinds:
        return
    known = [one for one in cells if one.system in study.written.systems]
    firsts = {study.written.systems[one.system].system: one for one in reversed(known)}
    for kind in sorted(firsts.keys() & study.kinds.keys()):
        for key in own.options:
            if key not in study.kinds[kind].option_keys:
                hint = else_known(key, sorted(study.kinds[kind].option_keys), "options")
                message = f"unknown option '{key}' of {kind}{hint}"
                problems.append(study.document.problem(message, (*location, "options", key)))
    for key in own.workload:
        if key not in WorkloadFile.model_fields:
            hint = nearest(key, WorkloadFile.model_fields)
            message = f"unknown key '{key}' of a workload{hint}"
            problems.append(study.document.problem(message, (*location, "workload", key)))
            return
    for cell in firsts.values() if own.workload else ():
        # What is wrong without the scale is told where it is.
        without = _workload_problems(cell, cell.workload)
        problems.extend(
            study.document.problem(f"cell '{cell.name}': {message}", (*location, "workload"))
            for message in _workload_problems(cell, merged(cell.workload, own.workload))
            if message not in without
        )


def _check_claim(study: Study, claim: ClaimFile, location: Location, problems: list[Problem]) -> None:
    for number, test in enumerate(claim.tests):
        place: Location = (*location, "tests", number)
        for key, figure in zip(("figure", "of"), test.figures, strict=False):
            _check_figure(study, figure, (*place, key), problems)
        names = [cell.name for cell in study.cells]
        problems.extend(
            study.document.problem(f"no cell '{name}'{nearest(name, names)}", place)
            for name in test.cells
            if name not in names
        )
        cells = {name: study.cell(name) for name in test.cells if name in names}
        for number_, (name, cell) in enumerate(cells.items()):
            figure = test.of if test.of is not None and number_ == 1 else test.figure
            if why := _lacking(study, cell, figure):
                problems.append(
                    study.document.problem(f"'{figure}' of cell '{name}' is never measured: {why}", place)
                )


def _check_page(study: Study, page: PageFile, location: Location, problems: list[Problem]) -> None:
    drawn = {key: name for key in ("over_time", "beside") if (name := getattr(page, key)) is not None}
    for key, name in drawn.items():
        if study.kinds and name not in SERIES:
            message = f"{key}: '{name}' is no series{nearest(name, SERIES) or '; expected one such as publish_ms.p99, consume_rate_mb_s, backlog_msgs'}"
            problems.append(study.document.problem(message, (*location, key)))
    others = [name for name in page.figures if name not in drawn.values()]
    for figure in others:
        _check_figure(study, figure, location, problems)
    _check_cells(study, page.cells, (*location, "cells"), problems)
    cells = study.matching(page.cells)
    needed = [
        ("catch_up" if page.phase is not None else "", f"phase {page.phase}"),
        *((one, one) for one in others),
    ]
    for figure, told in needed:
        lacking = {why for cell in cells if (why := _lacking(study, cell, figure))}
        if cells and all(_lacking(study, cell, figure) for cell in cells):
            message = f"'{told}': none of its cells has it: {'; '.join(sorted(lacking))}"
            problems.append(study.document.problem(message, location))


def _lacking(study: Study, cell: StudyCell, figure: str) -> str:
    """Why a cell never has a figure, at no scale; empty where it may."""
    asked = [cell.workload]
    for name in SCALES:
        own = [
            one for pattern, one in study.scale(name).cells.items() if fnmatch.fnmatchcase(cell.name, pattern)
        ]
        asked += [merged(cell.workload, one.workload) for one in own]
    if figure.startswith(("catch_up", "before_publish")) and not any(one.get("backlog") for one in asked):
        return "it is of cells with a backlog"
    if figure.startswith("sustained") and not any(one.get("rate") == "sustainable" for one in asked):
        return "it is of cells at the rate sustainable"
    return ""
