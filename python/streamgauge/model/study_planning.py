"""The plan of a study: its cells scaled to this machine, and its first rounds. A pure function of the study, the scale, the machine and the seed."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamgauge.model import scaling
from streamgauge.model.checked_study import Study, StudyCell, merged
from streamgauge.model.hooks_file import PlannedHooks
from streamgauge.model.scaling import Demand, Machine
from streamgauge.model.study_file import CellScale, ScaleFile, SystemOfStudy
from streamgauge.model.study_order import with_heating, with_rounds
from streamgauge.model.study_plan import (
    AROUND_S,
    NOT_ASKED_FOR,
    PlannedCell,
    PlannedLoad,
    StudyPlan,
    workload_of,
)
from streamgauge.model.study_told import told
from streamgauge.model.workload import Workload
from streamgauge.model.workload_file import read_rate
from streamgauge.vocabulary.choices import Restart, Scale
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.levels import Level
from streamgauge.vocabulary.units import format_duration, format_rate

PUBLISHED_NODES = 3
"""Of every system in every published study."""
PER_PARTITION_S = 0.004
PROBES = 8
PROBE_AROUND_S = 4.0
EXTENDED_SHARE = 1.5
"""Probes of a search are extended until they are conclusive."""


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for."""

    scale: Scale
    seed: int
    repeats: int | None = None
    """So many rounds and no more."""
    budget_s: float | None = None
    only: tuple[str, ...] = ()
    duration_s: float | None = None
    connect: Mapping[str, tuple[str, ...]] | None = None
    cluster_files: Mapping[str, str] = field(default_factory=dict)
    load: PlannedLoad | None = None
    hooks: PlannedHooks | None = None
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Cells that cannot be run anywhere here, and why (`study_versions`)."""


def plan_study(study: Study, wishes: Wishes, machine: Machine) -> StudyPlan:
    """The plan. Raises InputError when a cell's workload is none, or when `only` meets no cell."""
    scale = study.scale(wishes.scale)
    chosen, left_out = _chosen(study, scale, wishes)
    lacking = {**_without_machines(study, wishes), **wishes.lacking}
    left_out = {
        cell.name: left_out.get(cell.name) or lacking[cell.name]
        for cell in study.cells
        if cell.name in left_out or cell.name in lacking
    }
    chosen = [cell for cell in chosen if cell.name not in lacking]
    if not chosen:
        raise InputError("no cell is left to run: " + "; ".join(dict.fromkeys(left_out.values())))
    # What a scale sets of a workload counts from here on: the rate that is scaled is the one that is asked for here.
    wanted = [replace(cell, workload=merged(cell.workload, _own(scale, cell).workload)) for cell in chosen]
    rates = _rates(study, scale, wanted, machine)
    problems: list[Problem] = []
    cells = []
    for cell in wanted:
        if cell.tls and _is_connected(study.written.systems[cell.system], cell, wishes):
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
    plan = StudyPlan(
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
        cluster_files=dict(wishes.cluster_files),
        load=wishes.load,
        hooks=wishes.hooks,
        cells=cells,
        left_out=left_out,
        trials=[],
        budget_s=wishes.budget_s or (None if wishes.repeats else scale.budget),
    )
    plan = with_heating(plan, _restart(scale, wishes))
    return with_rounds(plan, max(cell.repeats for cell in cells))


def _restart(scale: ScaleFile, wishes: Wishes) -> Restart:
    """On clusters that run, systems are measured one after the other, as whoever set them up has done it."""
    return "block" if wishes.connect else scale.restart


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
            {cell.name: NOT_ASKED_FOR for cell in study.cells if cell.name not in chosen},
        )
    away = {cell.name for cell in study.matching(scale.leave_out)}
    because = f"left out at scale {wishes.scale}: {scale.because}"
    return (
        [cell for cell in study.cells if cell.name not in away],
        {cell.name: because for cell in study.cells if cell.name in away},
    )


def _without_machines(study: Study, wishes: Wishes) -> dict[str, str]:
    """Cells whose variant is made by machines that nobody has named, and why they are left out. One address for all of a system's variants names none."""
    systems = study.written.systems
    return {
        cell.name: f"it needs machines of its own ({systems[cell.system].machines}): name their cluster with --connect {cell.system}=..."
        for cell in study.cells
        if systems[cell.system].machines is not None and cell.system not in (wishes.connect or {})
    }


def _own(scale: ScaleFile, cell: StudyCell) -> CellScale:
    """What the scale sets for this cell; of several patterns the last that says something counts."""
    found: dict[str, Any] = {}
    for pattern, own in scale.cells.items():
        if fnmatch.fnmatchcase(cell.name, pattern):
            found = merged(found, own.model_dump(exclude_unset=True))
    return CellScale.model_construct(**{**CellScale().model_dump(), **found})


def _nodes(study: Study, scale: ScaleFile, cell: StudyCell) -> int:
    system = study.written.systems[cell.system]
    return system.nodes or _own(scale, cell).nodes or scale.nodes


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
        batching = cell.batching
        demands.append(Demand(rate, cell.message_bytes, nodes, cell.subscriptions, batching, weight, backlog))
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
    own, nodes = _own(scale, cell), _nodes(study, scale, cell)
    level = scaling.level_on(system.level, nodes)
    workload = dict(cell.workload)
    workload["name"] = cell.name
    scaled = _scale_nodes(system, nodes, level)
    scaled += _scale_workload(study.cell(cell.name).workload, cell.workload)
    scaled += _scale_rate(workload, rates)
    scaled += _scale_times(workload, scale, own, wishes)
    scaled += _scale_backlog(workload, scale)
    if scale.search is not None and workload.get("rate") == "sustainable":
        asked = scale.search.model_dump(exclude_unset=True)
        for key in ("probe", "publish_p99", "within"):
            if key in asked:
                asked[key] = format_duration(asked[key])
        if scale.search.first is not None:
            asked["first"] = scale.search.first.msgs_s
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
        nodes_asked=PUBLISHED_NODES if nodes != PUBLISHED_NODES and system.nodes is None else None,
        level=level,
        level_of_topics=study.kinds[system.system].level_of_topics,
        options=merged(system.options, own.options),
        machines=system.machines,
        vouched=list(system.vouched),
        tls=cell.tls,
        workload=workload,
        repeats=wishes.repeats or own.repeats or scale.repeats,
        limit_s=own.limit or scale.limit,
        paced_with=None if rates is None else _paced_with(cell, rates[0]),
        fresh=own.fresh or (scale.restart == "trial" and not _is_connected(system, cell, wishes)),
        scaled=scaled,
        trial_s=0.0,
        start_s=study.kinds[system.system].start_time.of(nodes),
    )
    checked = workload_of(planned)
    trial_s = min(_trial_s(checked), planned.limit_s)
    return planned.model_copy(update={"trial_s": trial_s})


def _is_connected(system: SystemOfStudy, cell: StudyCell, wishes: Wishes) -> bool:
    return bool({cell.system, system.system} & set(wishes.connect or {}))


def _paced_with(cell: StudyCell, rate_msgs_s: float) -> str:
    """What must stay comparable (scaling.py)."""
    backlog = ", with a backlog" if "backlog" in cell.workload else ""
    return f"{format_rate(rate_msgs_s)} of {cell.message_bytes} B{backlog}"


def _scale_nodes(system: SystemOfStudy, nodes: int, level: Level) -> list[str]:
    if nodes > 1 or system.nodes is not None:
        return []
    if level != system.level:
        return [f"1 node instead of {PUBLISHED_NODES}, hence {level} instead of {system.level}"]
    return [f"1 node instead of {PUBLISHED_NODES}"]


def _scale_workload(published: Mapping[str, Any], here: Mapping[str, Any], within: str = "") -> list[str]:
    """What this scale sets of a workload, as published and as run."""
    notes = []
    for key, value in here.items():
        before, name = published.get(key), f"{within}{key}"
        if isinstance(value, Mapping):
            notes += _scale_workload(before if isinstance(before, Mapping) else {}, value, f"{name}.")
        elif value != before:
            notes.append(f"{name} {value}" + ("" if before is None else f" instead of {before}"))
    return notes


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
        held_s = max(2 * workload.search.probe_s, workload.duration_s) + around_s
        total_s += min(probes_s, (workload.search.within_s or probes_s) + held_s)
    if workload.backlog is not None:
        rate = workload.rate_msgs_s or 1.0
        readers = workload.subscriptions_per_topic if workload.backlog.reader == "same" else 1
        built_s = workload.backlog.size_bytes / max(readers, 1) / workload.message_size_bytes / rate
        total_s += 1.3 * built_s + workload.backlog.after_s
    return total_s
