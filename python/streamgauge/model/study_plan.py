"""What a study does at a scale on a machine: which trials, in which order, how long it takes.

It is written to disk before anything starts. Where a scale has a budget, further rounds of the cells that are still in doubt are added, each before it begins;
a study that is resumed follows what is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from streamgauge.model.document import parse_document
from streamgauge.model.hooks_file import PlannedHooks
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import resolve_workload
from streamgauge.model.result_base import Model
from streamgauge.model.study_file import CheckFile
from streamgauge.model.study_told import ToldStudy
from streamgauge.model.workload import Workload
from streamgauge.model.workload_file import read_rate
from streamgauge.vocabulary.choices import OnLoss, Scale, Topology
from streamgauge.vocabulary.figures import study_figure
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.levels import Level
from streamgauge.vocabulary.units import format_duration, parse_duration

NOT_ASKED_FOR = "not asked for (--only)"
"""Why a cell is left out that was not among those that were named."""
AROUND_S = 4.0
"""Of a trial, besides starting a system and the load: settling, topics, assignment, drain, audit, figures."""


class PlannedCell(Model):
    """A cell as it will be run."""

    cell: str
    title: str
    system: str
    system_title: str
    kind: str
    """The name of the system."""
    version: str | None
    nodes: int
    nodes_asked: int | None = None
    """As the study has it, where the scale has another number."""
    level: Level
    level_of_topics: bool = False
    """One start of its system serves cells of other levels, too."""
    options: dict[str, Any]
    tls: bool = False
    machines: str | None = None
    """What its machines are that makes it a variant."""
    unverified: list[str] = Field(default_factory=list)
    """On a cluster that runs already: options (or `durability`, or `machines`) that make the variant and can be neither set there nor read back."""
    vouched: list[str] = Field(default_factory=list)
    """Those of them for which the study file vouches."""
    workload: dict[str, Any]
    """Keys of a workload file."""
    repeats: int
    limit_s: float
    fresh: bool
    """The system is started for each trial."""
    scaled: list[str]
    """What differs from the published cell, one phrase each; printed beside its figures."""
    heats: bool = False
    """Not a cell of the study: the first trial of a block, on a system that has just started. It is not counted."""
    paced_with: str | None = None
    """Cells with the same text here are run at one rate, as the study did; None where the rate is not set."""
    rates_before: list[float] = Field(default_factory=list)
    """In msg/s: too high for a system here; trials at them count no more."""
    trial_s: float
    """Estimate for a trial, without the start of the system."""
    start_s: float


class PlannedTrial(Model):
    """One place in the order."""

    number: int
    cell: str
    repeat: int
    round: int | None = None
    """A round holds each of its cells once; None in plans of before there were rounds, where all repeats of a cell shared one start of its system."""
    block: int
    """Trials of a block follow each other, on one start of a system that is kept unless the cell wants it fresh."""
    seed: int


class PlannedLoad(Model):
    """Where the load comes from, as the options of the same names said it; files by their absolute paths."""

    fleet: str | None = None
    workers: int | None = None
    topology: Topology = "same"
    on_worker_loss: OnLoss = "end"
    at: str | None = None
    """Where systems are started that are started here; None: on loopback."""
    insecure: bool = False

    @property
    def told(self) -> str:
        """For the report: who makes the load."""
        who = (
            f"workers of {self.fleet}"
            if self.fleet
            else f"{plural(self.workers or 1, 'worker')} on this machine"
        )
        first = f", the first {self.workers}" if self.fleet and self.workers else ""
        how = "" if self.topology == "same" else f", topology {self.topology}"
        return f"{who}{first}{how}"


class StudyPlan(Model):
    """`study.json` in the directory of a run."""

    format: int = 1
    study: str
    file: str
    text: str
    """The study file as it was read."""
    told: ToldStudy | None = None
    """What the report tells of it; None in plans of before it was stored."""
    scale: Scale
    seed: int
    machine: dict[str, Any]
    connect: dict[str, list[str]] = Field(default_factory=dict)
    """Addresses of clusters that run, by names of the study's systems, or by systems."""
    cluster_files: dict[str, str] = Field(default_factory=dict)
    """Of those that a system file says more of than addresses: its path, by the same names."""
    load: PlannedLoad | None = None
    """None where one worker on this machine makes the load."""
    hooks: PlannedHooks | None = None
    """Commands of the user around blocks on clusters that run."""
    cells: list[PlannedCell]
    left_out: dict[str, str] = Field(default_factory=dict)
    trials: list[PlannedTrial]
    budget_s: float | None = None
    """How long the study may take, all in all; None where it is over with the rounds that were planned at its start."""
    seal: str | None = None
    """Of the lab that wrote it (store/plan_file.py)."""

    @model_validator(mode="after")
    def _fits_together(self) -> StudyPlan:
        names = [cell.cell for cell in self.cells]
        if len(set(names)) != len(names):
            raise ValueError("two cells have one name")
        for number, trial in enumerate(self.trials, start=1):
            if trial.number != number:
                raise ValueError(f"trial {trial.number} stands at place {number}")
            if trial.cell not in names:
                raise ValueError(f"trial {number} is of a cell that is not in the plan")
        return self

    def addresses(self, cell: PlannedCell) -> tuple[str, ...]:
        """Of the cluster that it is measured on; none where its system is started."""
        name = self.cluster_name(cell)
        return () if name is None else tuple(self.connect[name])

    def cluster_name(self, cell: PlannedCell) -> str | None:
        """The name in `connect` of the cluster that it is measured on; None where its system is started. A variant's own cluster goes before that of its
        system."""
        return next((name for name in (cell.system, cell.kind) if self.connect.get(name)), None)

    def unlike(self, names: Sequence[str]) -> str:
        """Why cells cannot be held against each other, where the scale alone makes them differ; empty where nothing is against it."""
        cells = [cell for cell in self.cells if cell.cell in names and not self.addresses(cell)]
        if (
            len({cell.nodes for cell in cells}) < 2
            or len({cell.nodes_asked or cell.nodes for cell in cells}) > 1
        ):
            return ""
        told = ", ".join(f"{cell.cell} has {plural(cell.nodes, 'node')}" for cell in cells)
        return f"at scale {self.scale} {told}: not alike, as they are in the study"

    def lacking(self, tests: Sequence[CheckFile]) -> dict[str, str]:
        """Cells that such tests name and that are left out, and why each is."""
        names = [name for test in tests for name in test.cells]
        return {name: self.left_out[name] for name in names if name in self.left_out}

    def bars(self, tests: Sequence[CheckFile]) -> str:
        """Why a claim of such tests is no part of it, although its cells are; empty where nothing is against it."""
        return next((why for test in tests if (why := self.unlike(test.cells) or self._too_short(test))), "")

    def _too_short(self, test: CheckFile) -> str:
        figure = study_figure(test.figure)
        if figure is None:
            return ""
        for cell in self.cells:
            lasts = str(cell.workload.get("duration", ""))
            if cell.cell in test.cells and lasts and parse_duration(lasts) < figure.needs_s:
                return f"{figure.title}: it takes trials of {format_duration(figure.needs_s)} at least, and at scale {self.scale} they have {lasts}"
        return ""

    def rate_of(self, cell: str) -> float | None:
        """The rate in msg/s at which a cell is run; None where none is set, or there is no such cell."""
        planned = next((one for one in self.cells if one.cell == cell), None)
        if planned is None or planned.paced_with is None:
            return None
        return read_rate(planned.workload["rate"]).msgs_s

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return max((trial.round or 0 for trial in self.trials), default=0)

    def cell(self, name: str) -> PlannedCell:
        """A cell by its name."""
        return next(cell for cell in self.cells if cell.cell == name)

    def estimate_s(self, numbers: Sequence[int] | None = None) -> float:
        """How long the trials (all, or those with these numbers) take."""
        wanted = None if numbers is None else set(numbers)
        total_s, before = 0.0, None
        for trial in self.trials:
            if wanted is not None and trial.number not in wanted:
                continue
            cell = self.cell(trial.cell)
            starts = cell.fresh or before is None or before.block != trial.block
            total_s += cell.trial_s + (cell.start_s if starts else 0.0)
            before = trial
        return total_s


def workload_of(cell: PlannedCell) -> Workload:
    """A planned cell's workload, checked. Raises InputError."""
    document = parse_document(json.dumps(cell.workload), cell.cell)
    return resolve_workload(document, Path(f"{cell.cell}.yaml"), Overrides())
