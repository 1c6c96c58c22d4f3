"""The versions that a study was made with, beside today's (`study --versions`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streamgauge.model.checked_study import Study, StudyCell
from streamgauge.model.study_file import CheckFile, ClaimFile, PageFile, ScaleFile, SystemOfStudy
from streamgauge.model.system_request import SystemRequest
from streamgauge.vocabulary.errors import InputError, SystemInputError, nearest

PUBLISHED, CURRENT = "published", "current"
SIDES = (PUBLISHED, CURRENT)


@dataclass(frozen=True)
class Versioned:
    """A study with its versions chosen."""

    study: Study
    left_out: dict[str, str]
    """Cell -> why its version cannot be had."""


def parse_versions(text: str) -> tuple[str, ...]:
    """`published`, `current` or both. Raises InputError."""
    sides = tuple(part.strip() for part in text.split(","))
    for side in sides:
        if side not in SIDES:
            raise InputError(
                f"--versions {text}: expected published, current or published,current{nearest(side, SIDES)}"
            )
    return tuple(side for side in SIDES if side in sides)


def with_versions(study: Study, sides: Sequence[str]) -> Versioned:
    """The study at the versions of these sides: with both, each system and cell twice, as `kafka@2.6.0` and `kafka@current`. Raises InputError when there is no
    published version that can be had."""
    if tuple(sides) == (CURRENT,):
        return Versioned(study, {})
    kinds = dict.fromkeys(one.system for one in study.written.systems.values())
    why = {kind: _why_not(study, kind) for kind in kinds}
    if all(why.values()):
        told = "; ".join(f"{kind}: {reason}" for kind, reason in why.items())
        raise InputError(
            f"--versions published: none of {study.name}'s can be had here: {told}; leave it out"
        )
    if tuple(sides) == (PUBLISHED,):
        found = _at(study, PUBLISHED)
        written = study.written.model_copy(update={"systems": found})
        return Versioned(replace(study, written=written), _lacking(study.cells, study, why))
    cells = [_cell(study, cell, side) for cell in study.cells for side in sides]
    systems = {
        _named(study, name, side): system.model_copy(
            update={"title": f"{system.title} ({_label(study, system.system, side)})"}
        )
        for side in sides
        for name, system in _at(study, side).items()
    }
    scales = {name: _scale(getattr(study.written.scales, name)) for name in ("full", "laptop", "quick")}
    written = study.written.model_copy(
        update={
            "systems": systems,
            "scales": study.written.scales.model_copy(update=scales),
            "claims": [_claim(study, claim, side) for claim in study.written.claims for side in sides],
            "pages": [_page(study, page, sides) for page in study.written.pages],
        }
    )
    lacking = _lacking(study.cells, study, why)
    left_out = {
        _cell_name(study, cell, PUBLISHED): lacking[cell.name] for cell in study.cells if cell.name in lacking
    }
    return Versioned(replace(study, written=written, cells=tuple(cells)), left_out)


def both_of(pattern: str) -> str:
    """A pattern of cells that means the cells of all versions, unless it names one."""
    return pattern if "@" in pattern else f"{pattern}@*"


def _why_not(study: Study, kind: str) -> str:
    """Why the published version of a system cannot be had; empty where it can."""
    found = study.written.versions.get(kind)
    if found is None:
        return "the study file names no version of it"
    if found.version is None:
        return found.cannot or ""
    try:
        study.kinds[kind].check(SystemRequest(version=found.version))
    except SystemInputError as error:
        return str(error)
    return ""


def _at(study: Study, side: str) -> dict[str, SystemOfStudy]:
    """The systems at the versions of a side; of today's each has what it has."""
    if side == CURRENT:
        return dict(study.written.systems)
    versions = study.written.versions
    return {
        name: one.model_copy(
            update={"version": versions[one.system].version if one.system in versions else None}
        )
        for name, one in study.written.systems.items()
    }


def _label(study: Study, kind: str, side: str) -> str:
    if side == CURRENT:
        return CURRENT
    found = study.written.versions.get(kind)
    return found.version if found is not None and found.version is not None else PUBLISHED


def pairs(cells: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Of cells by their names: what is there at both versions, without its version -> its cell at today's and at the published one."""
    versions: dict[str, dict[str, str]] = {}
    for name in cells:
        cell, separator, label = name.rpartition("@")
        if separator:
            versions.setdefault(cell, {})[label] = name
    return {
        cell: (labels[CURRENT], next(name for label, name in labels.items() if label != CURRENT))
        for cell, labels in versions.items()
        if CURRENT in labels and len(labels) > 1
    }


def _named(study: Study, system: str, side: str) -> str:
    return f"{system}@{_label(study, study.written.systems[system].system, side)}"


def _cell_name(study: Study, cell: StudyCell, side: str) -> str:
    return f"{cell.name}@{_label(study, study.written.systems[cell.system].system, side)}"


def _cell(study: Study, cell: StudyCell, side: str) -> StudyCell:
    label = _label(study, study.written.systems[cell.system].system, side)
    return replace(
        cell,
        name=_cell_name(study, cell, side),
        title=f"{cell.title} ({label})",
        system=_named(study, cell.system, side),
    )


def _lacking(cells: Sequence[StudyCell], study: Study, why: dict[str, str]) -> dict[str, str]:
    found = {cell.name: why[study.written.systems[cell.system].system] for cell in cells}
    return {
        name: f"its published version cannot be had: {reason}" for name, reason in found.items() if reason
    }


def _scale(scale: ScaleFile) -> ScaleFile:
    return scale.model_copy(
        update={
            "leave_out": [both_of(pattern) for pattern in scale.leave_out],
            "cells": {both_of(pattern): own for pattern, own in scale.cells.items()},
        }
    )


def _claim(study: Study, claim: ClaimFile, side: str) -> ClaimFile:
    tests = [_test(study, test, side) for test in claim.tests]
    return claim.model_copy(update={"claim": f"{claim.claim} ({side} versions)", "tests": tests})


def _test(study: Study, test: CheckFile, side: str) -> CheckFile:
    def renamed(name: str) -> str:
        return _cell_name(study, study.cell(name), side)

    lists = {
        key: [renamed(name) for name in names]
        for key in ("ratio", "spread", "rising", "falling")
        if (names := getattr(test, key)) is not None
    }
    single = {} if test.value is None else {"value": renamed(test.value)}
    return test.model_copy(update={**lists, **single})


def _page(study: Study, page: PageFile, sides: Sequence[str]) -> PageFile:
    cells = [_cell_name(study, cell, side) for cell in study.matching(page.cells) for side in sides]
    return page.model_copy(update={"cells": cells})
