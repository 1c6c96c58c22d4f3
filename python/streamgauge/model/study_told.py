"""What the report of a study tells of it, resolved when the study is planned and stored with the plan, so that a report of yesterday's study does not depend
on what its names would mean today.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from streamgauge.model.checked_study import Study, StudyCell
from streamgauge.model.result_base import Model
from streamgauge.model.study_file import SOURCE, CheckFile, ClaimFile, PageFile, SourceFile
from streamgauge.vocabulary.choices import Restart
from streamgauge.vocabulary.figures import SERIES, Figure, study_figure, title_of, unit_of


class ToldCell(Model):
    """A cell as published."""

    name: str
    title: str
    system: str
    """Key in `ToldStudy.systems`."""
    published: dict[str, float | str]
    """Figure -> as printed; text where no number is printed."""
    sources: list[str] = Field(default_factory=list)
    """What its system, its workload and its figures rest on, one line each; none in plans of before it was stored."""


class ToldStudy(Model):
    """A study with every name in it looked up."""

    title: str
    source: SourceFile
    setup: list[str]
    slips: list[str]
    systems: dict[str, str]
    """Name within the study -> title."""
    cells: list[ToldCell]
    figures: dict[str, Figure]
    """Those that claims and pages name."""
    claims: list[ClaimFile]
    pages: list[PageFile]
    """With the names of cells for patterns."""
    restart: Restart
    duration_s: float | None
    """Measured time of trials where the scale sets it."""
    rates: Literal["published", "machine"]

    @model_validator(mode="after")
    def _fits_together(self) -> ToldStudy:
        naming = _naming(self.claims, self.pages)
        cells = [cell.name for cell in self.cells]
        _known("cell", (name for one in naming for name in one.cells), cells)
        _known("figure", (name for one in naming for name in one.figures), self.figures)
        _known("system", (cell.system for cell in self.cells), self.systems)
        return self

    def cell(self, name: str) -> ToldCell:
        """A cell by its name."""
        return next(cell for cell in self.cells if cell.name == name)


def told(study: Study, scale_name: str) -> ToldStudy:
    """What a report tells of a study at a scale."""
    written, scale = study.written, study.scale(scale_name)
    return ToldStudy(
        title=written.title,
        source=written.source,
        setup=written.setup,
        slips=[slip.text for slip in written.slips],
        systems={name: system.title for name, system in written.systems.items()},
        cells=[
            ToldCell(
                name=one.name,
                title=one.title,
                system=one.system,
                published=dict(one.published),
                sources=_sources(study, one),
            )
            for one in study.cells
        ],
        figures={
            name: study_figure(name)
            or SERIES.get(name)
            or Figure(name, title_of(name), unit_of(name), "neither")
            for one in _naming(written.claims, written.pages)
            for name in one.figures
        },
        claims=written.claims,
        pages=[
            page.model_copy(update={"cells": [cell.name for cell in study.matching(page.cells)]})
            for page in written.pages
        ],
        restart=scale.restart,
        duration_s=scale.duration,
        rates=scale.rates,
    )


def _sources(study: Study, cell: StudyCell) -> list[str]:
    said = {
        "system": study.written.systems[cell.system].source,
        "workload": cell.source or study.written.workload.get(SOURCE),
        "figures": cell.published_source,
    }
    return [f"{what}: {where}" for what, where in said.items() if where]


def _naming(claims: Iterable[ClaimFile], pages: Iterable[PageFile]) -> list[CheckFile | PageFile]:
    """All that names figures and cells."""
    return [*(test for claim in claims for test in claim.tests), *pages]


def _known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"no {what} '{name}'")
