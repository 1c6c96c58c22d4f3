"""What a study will do at a scale on a machine: which trials, in which order, how long it takes.

The plan is made once, written to disk before anything starts, and never made again: a study that is resumed follows
the same order. It is a pure function of the study, the scale, the machine and the seed.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from streamgauge.model import scaling
from streamgauge.model.checked_study import Study, StudyCell
from streamgauge.model.document import parse_document
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import resolve_workload
from streamgauge.model.result_base import Model
from streamgauge.model.scaling import Demand, Machine
from streamgauge.model.study_file import CellScale, ScaleFile, SystemOfStudy
from streamgauge.model.study_told import ToldStudy, told
from streamgauge.model.workload import Workload
from streamgauge.model.workload_file import read_rate
from streamgauge.vocabulary.choices import Scale
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.levels import Level
from streamgauge.vocabulary.units import format_duration, format_rate

HEATING_S = 15.0
HEATING_MSGS_S = 5000.0

AROUND_S = 6.0
"""Of a trial, besides starting a system and the load: settling, topics, assignment, drain, audit, figures."""
PER_PARTITION_S = 0.004
PROBES = 8
PROBE_AROUND_S = 4.0
EXTENDED_SHARE = 1.5
"""Probes of a search are extended until they are conclusive."""


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
    level: Level
    options: dict[str, Any]
    tls: bool = False
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
    trial_s: float
    """Estimate for a trial, without the start of the system."""
    start_s: float


class PlannedTrial(Model):
    """One place in the order."""

    number: int
    cell: str
    repeat: int
    block: int
    """Trials of a block follow each other, on a system that is kept unless the cell wants it fresh."""
    seed: int


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
    cells: list[PlannedCell]
    left_out: dict[str, str] = Field(default_factory=dict)
    trials: list[PlannedTrial]
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


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for."""

    scale: Scale
    seed: int
    repeats: int | None = None
    only: tuple[str, ...] = ()
    duration_s: float | None = None
    connect: Mapping[str, tuple[str, ...]] | None = None


def plan_study(study: Study, wishes: Wishes, machine: Machine) -> StudyPlan:
    """The plan. Raises InputError when a cell's workload is none, or when `only` meets no cell."""
    scale = study.scale(wishes.scale)
    wanted, left_out = _chosen(study, scale, wishes)
    rates = _rates(study, scale, wanted, machine)
    problems: list[Problem] = []
    cells = []
    for cell in wanted:
        if cell.tls and study.written.systems[cell.system].system in (wishes.connect or {}):
            message = (
                f"cell '{cell.name}': tls is for systems that streamgauge starts, and --connect names a cluster that runs; "
                "leave the cell out with --only"
            )
            problems.append(study.document.problem(message, cell.location))
            continue
        try:
            cells.append(_planned(study, cell, scale, wishes, rates.get(cell.name)))
        except InputError as error:
            for problem in error.problems:
                message = f"cell '{cell.name}': {problem.message}"
                problems.append(study.document.problem(message, cell.location))
    if problems:
        raise InputError(problems)
    heating, trials = _ordered(cells, scale, wishes.seed)
    return StudyPlan(
        study=study.name,
        file=study.document.file,
        text=study.document.text,
        told=told(study, wishes.scale),
        scale=wishes.scale,
        seed=wishes.seed,
        machine={
            "cores": machine.cores,
            "memory_bytes": machine.memory_bytes,
            "disk_write_mb_s": machine.disk_write_mb_s,
        },
        connect={name: list(addresses) for name, addresses in (wishes.connect or {}).items()},
        cells=cells + heating,
        left_out=left_out,
        trials=trials,
    )


def workload_of(cell: PlannedCell) -> Workload:
    """A planned cell's workload, checked. Raises InputError."""
    document = parse_document(json.dumps(cell.workload), cell.cell)
    return resolve_workload(document, Path(f"{cell.cell}.yaml"), Overrides())


def _chosen(study: Study, scale: ScaleFile, wishes: Wishes) -> tuple[list[StudyCell], dict[str, str]]:
    """The cells to run, and why the others are not."""
    if wishes.only:
        for pattern in wishes.only:
            if not study.matching([pattern]):
                names = ", ".join(cell.name for cell in study.cells)
                raise InputError(f"--only {pattern}: meets no cell of {study.name}; its cells: {names}")
        chosen = {cell.name for cell in study.matching(wishes.only)}
        return (
            [cell for cell in study.cells if cell.name in chosen],
            {cell.name: "not asked for (--only)" for cell in study.cells if cell.name not in chosen},
        )
    away = {cell.name for cell in study.matching(scale.leave_out)}
    because = f"left out at scale {wishes.scale}: {scale.because}"
    return (
        [cell for cell in study.cells if cell.name not in away],
        {cell.name: because for cell in study.cells if cell.name in away},
    )


def _own(study: Study, scale: ScaleFile, cell: StudyCell) -> CellScale:
    """What the scale sets for this cell; of several patterns the last that says something counts."""
    merged: dict[str, Any] = {}
    for pattern, own in scale.cells.items():
        if cell in study.matching([pattern]):
            merged |= own.model_dump(exclude_unset=True)
    return CellScale.model_construct(**{**CellScale().model_dump(), **merged})


def _nodes(study: Study, scale: ScaleFile, cell: StudyCell) -> int:
    system = study.written.systems[cell.system]
    return system.nodes or _own(study, scale, cell).nodes or scale.nodes


def _rates(
    study: Study, scale: ScaleFile, cells: Sequence[StudyCell], machine: Machine
) -> dict[str, tuple[float, float]]:
    """Cell -> rate as published and as run, for cells at a rate."""
    paced: list[StudyCell] = []
    demands: list[Demand] = []
    for cell in cells:
        try:
            rate = read_rate(cell.workload.get("rate", 50_000)).msgs_s
        except ValueError as error:
            message = f"cell '{cell.name}': rate: {error}"
            raise InputError(study.document.problem(message, cell.location)) from None
        if rate is None:
            continue
        paced.append(cell)
        weight = study.written.systems[cell.system].weight
        nodes = _nodes(study, scale, cell)
        backlog = "backlog" in cell.workload
        demands.append(Demand(rate, cell.message_bytes, nodes, cell.subscriptions, weight, backlog))
    rates = [demand.rate_msgs_s for demand in demands]
    if scale.rates == "machine":
        rates = scaling.scaled_rates(demands, machine)
    return {
        cell.name: (demand.rate_msgs_s, rate)
        for cell, demand, rate in zip(paced, demands, rates, strict=True)
    }


def _planned(
    study: Study, cell: StudyCell, scale: ScaleFile, wishes: Wishes, rates: tuple[float, float] | None
) -> PlannedCell:
    system = study.written.systems[cell.system]
    own, nodes = _own(study, scale, cell), _nodes(study, scale, cell)
    level = scaling.level_on(system.level, nodes)
    workload = dict(cell.workload)
    workload["name"] = cell.name
    scaled = _scale_nodes(system, nodes, level)
    scaled += _scale_rate(workload, rates)
    scaled += _scale_times(workload, scale, own, wishes)
    scaled += _scale_backlog(workload, scale)
    if scale.search is not None and workload.get("rate") == "sustainable":
        asked = scale.search.model_dump(exclude_unset=True)
        for key in ("probe", "publish_p99", "within"):
            if key in asked:
                asked[key] = format_duration(asked[key])
        if "first" in asked:
            asked["first"] = asked["first"].msgs_s
        # What a cell says of its own search (where to begin) counts more.
        workload["search"] = {**asked, **(workload.get("search") or {})}
    planned = PlannedCell(
        cell=cell.name,
        title=cell.title,
        system=cell.system,
        system_title=system.title,
        kind=system.system,
        version=system.version,
        nodes=nodes,
        level=level,
        options=dict(system.options),
        tls=cell.tls,
        workload=workload,
        repeats=wishes.repeats or own.repeats or scale.repeats,
        limit_s=own.limit or scale.limit,
        fresh=scale.restart == "trial" or own.fresh,
        scaled=scaled,
        trial_s=0.0,
        start_s=study.kinds[system.system].start_time.of(nodes),
    )
    checked = workload_of(planned)
    trial_s = min(_trial_s(checked), planned.limit_s)
    return planned.model_copy(update={"trial_s": trial_s})


def _scale_nodes(system: SystemOfStudy, nodes: int, level: Level) -> list[str]:
    if nodes > 1 or system.nodes is not None:
        return []
    if level != system.level:
        return [f"1 node instead of 3, hence {level} instead of {system.level}"]
    return ["1 node instead of 3"]


def _scale_rate(workload: dict[str, Any], rates: tuple[float, float] | None) -> list[str]:
    if rates is None or rates[0] == rates[1]:
        return []
    workload["rate"] = rates[1]
    return [f"{format_rate(rates[1])} instead of {format_rate(rates[0])}"]


def _scale_times(workload: dict[str, Any], scale: ScaleFile, own: CellScale, wishes: Wishes) -> list[str]:
    notes = []
    duration_s = wishes.duration_s or own.duration or scale.duration
    if duration_s is not None:
        text = format_duration(duration_s)
        if workload.get("duration") not in (None, text):
            notes.append(f"{text} measured instead of {workload['duration']}")
        workload["duration"] = text
    warmup_s = own.warmup if own.warmup is not None else scale.warmup
    if warmup_s is not None:
        workload["warmup"] = format_duration(warmup_s)
    return notes


def _scale_backlog(workload: dict[str, Any], scale: ScaleFile) -> list[str]:
    asked = workload.get("backlog")
    if not isinstance(asked, Mapping):
        return []
    changed = dict(asked)
    notes = []
    if scale.after is not None:
        changed["after"] = format_duration(scale.after)
    if scale.backlog is not None:
        published = changed.pop("size", None) or changed.pop("traffic", None)
        changed["traffic"] = format_duration(scale.backlog)
        notes.append(f"a backlog of {changed['traffic']} of traffic instead of {published}")
    workload["backlog"] = changed
    return notes


def _trial_s(workload: Workload) -> float:
    partitions = workload.topics * workload.partitions_per_topic
    total_s = AROUND_S + PER_PARTITION_S * partitions + workload.warmup_s + workload.duration_s
    if workload.search is not None:
        around_s = PROBE_AROUND_S + PER_PARTITION_S * partitions
        probes_s = PROBES * (EXTENDED_SHARE * workload.search.probe_s + around_s)
        total_s += min(probes_s, workload.search.within_s or probes_s)
    if workload.backlog is not None:
        rate = workload.rate_msgs_s or 1.0
        readers = workload.subscriptions_per_topic if workload.backlog.reader == "same" else 1
        built_s = workload.backlog.size_bytes / max(readers, 1) / workload.message_size_bytes / rate
        total_s += 1.3 * built_s + workload.backlog.after_s
    return total_s


def _ordered(
    cells: Sequence[PlannedCell], scale: ScaleFile, seed: int
) -> tuple[list[PlannedCell], list[PlannedTrial]]:
    """Seeded random order. A system that is restarted for each trial: all cells once, in random order, then all
    again. One that is kept: a block per system, in random order, and the same within each block, after a trial that
    warms the system up. Those trials' cells come first in the answer."""
    shuffler = random.Random(seed)
    blocks: list[list[tuple[PlannedCell, int]]] = []
    heating: list[PlannedCell] = []
    if scale.restart == "trial":
        blocks = [[one] for one in _rounds(cells, shuffler)]
    else:
        groups: dict[str, list[PlannedCell]] = {}
        for cell in cells:
            groups.setdefault(_instance(cell), []).append(cell)
        for group in groups.values():
            kept = [cell for cell in group if not cell.fresh]
            # What wants a system of its own comes last, so that the kept one is not interrupted.
            block = _rounds(kept, shuffler) + _rounds([cell for cell in group if cell.fresh], shuffler)
            if kept:
                heating.append(_heating(min(kept, key=_effort)))
                block.insert(0, (heating[-1], 1))
            blocks.append(block)
        shuffler.shuffle(blocks)
    trials: list[PlannedTrial] = []
    for number, members in enumerate(blocks, start=1):
        for cell, repeat in members:
            trials.append(
                PlannedTrial(
                    number=len(trials) + 1,
                    cell=cell.cell,
                    repeat=repeat,
                    block=number,
                    # The same for all cells of a repeat, so that they meet the same arrivals.
                    seed=zlib.crc32(f"{seed}/{repeat}".encode()),
                )
            )
    return heating, trials


def _instance(cell: PlannedCell) -> str:
    """What makes two cells meet the same system: L1 and L3 are one and the same on one node."""
    return json.dumps(
        [cell.kind, cell.version, cell.nodes, cell.level, cell.options, cell.tls], sort_keys=True
    )


def _effort(cell: PlannedCell) -> tuple[bool, int]:
    """Warming up wants a plain load; on how many partitions matters less."""
    plain = "backlog" not in cell.workload and cell.workload.get("rate") not in ("max", "sustainable")
    return not plain, int(cell.workload.get("partitionsPerTopic", 1))


def _heating(cell: PlannedCell) -> PlannedCell:
    """A trial that warms up the system of a block: the load of one of its cells for a while."""
    name = f"warming-up-for-{cell.cell}"
    left_out = ("backlog", "search")
    workload = {key: value for key, value in cell.workload.items() if key not in left_out}
    workload |= {"name": name, "warmup": "0s", "duration": format_duration(HEATING_S)}
    if workload.get("rate") in ("max", "sustainable"):
        workload["rate"] = HEATING_MSGS_S
    return cell.model_copy(
        update={
            "cell": name,
            "title": f"{cell.system_title}: warming up",
            "workload": workload,
            "repeats": 1,
            "heats": True,
            "trial_s": AROUND_S + HEATING_S,
            "scaled": [],
        }
    )


def _rounds(cells: Sequence[PlannedCell], shuffler: random.Random) -> list[tuple[PlannedCell, int]]:
    found: list[tuple[PlannedCell, int]] = []
    for repeat in range(1, max((cell.repeats for cell in cells), default=0) + 1):
        once = [cell for cell in cells if repeat <= cell.repeats]
        shuffler.shuffle(once)
        found += [(cell, repeat) for cell in once]
    return found
