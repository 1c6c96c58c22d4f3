"""The systems of a study's cells: started here as the study sets them, or clusters that run, each reached as its owner says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamgauge.model.study_plan import PlannedCell, PlannedLoad, StudyPlan
from streamgauge.model.system_file import SystemChoice, SystemOverrides, choose_systems
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.trust import Trust
from streamgauge.store.private import with_home
from streamgauge.systems.base import System
from streamgauge.systems.registry import systems
from streamgauge.systems.support.network import own_address
from streamgauge.vocabulary.errors import InputError, SystemInputError

Clusters = Mapping[str, SystemRequest]
"""Clusters that run, as their system files say how they are reached, by the names under which a plan has their addresses."""
FILES = frozenset({".yaml", ".yml", ".json"})


def read_cluster(file: Path, kind: str, trust: Trust) -> SystemRequest:
    """How a cluster that runs is reached: addresses, security, metrics, agents, options of clients. Raises InputError for a file that says anything else."""
    (choice,) = choose_systems(str(file), SystemOverrides(trust=trust), systems())
    request = choice.request
    wrong = [key for key in ("version", "level") if getattr(request, key) is not None]
    if choice.system.name != kind:
        raise InputError(f"--connect: {file} is about {choice.system.name}, and the study's system is {kind}")
    if not request.connect:
        raise InputError(
            f"--connect: {file} names no cluster that runs: expected its addresses, as connect: [HOST:PORT, ...]"
        )
    if wrong or request.nodes != 1:
        key = {"level": "durability"}.get(wrong[0], wrong[0]) if wrong else "nodes"
        raise InputError(
            f"--connect: {file} sets {key}, which the study does for each of its variants: expected how a cluster that runs is reached "
            "(connect, security, metrics, agents, and what clients set)"
        )
    return request


def read_clusters(plan: StudyPlan, trust: Trust) -> dict[str, SystemRequest]:
    """Those of a plan that have a file. Raises InputError, also when a file names other addresses than when the plan was made."""
    found = {}
    for name, file in plan.cluster_files.items():
        kind = next(cell.kind for cell in plan.cells if name in (cell.system, cell.kind))
        request = read_cluster(with_home(file), kind, trust)
        if list(request.connect) != plan.connect[name]:
            raise InputError(
                f"{file} names {', '.join(request.connect)}, and the study was begun on {', '.join(plan.connect[name])}: start it anew"
            )
        found[name] = request
    return found


def cluster_of(plan: StudyPlan, cell: PlannedCell, clusters: Clusters) -> SystemRequest | None:
    """The cluster that a cell is measured on; None where its system is started."""
    name = plan.cluster_name(cell)
    if name is None:
        return None
    return clusters.get(name) or SystemRequest(connect=plan.addresses(cell))


def choice_of(
    cell: PlannedCell,
    cluster: SystemRequest | None = None,
    *,
    trusted: bool = False,
    load: PlannedLoad | None = None,
) -> SystemChoice[System]:
    """The system of a cell, not checked: what cannot run here is told when its turn comes. `load`: where it is started, if anywhere but on loopback."""

    at = load.at if load is not None and cluster is None else None
    system = systems()[cell.kind]
    request = SystemRequest(
        version=cell.version,
        nodes=cell.nodes,
        level=cell.level,
        options=cell.options,
        tls=cell.tls,
        trusted=trusted,
        placement=None if at is None else own_address(at),
        guarded=at is not None and load is not None and not load.insecure,
    )
    if cluster is not None:
        request = _attached(system, request, cluster)
    return SystemChoice(name=cell.system, system=system, request=request)


def _attached(system: System, request: SystemRequest, cluster: SystemRequest) -> SystemRequest:
    """What of it can be asked of a cluster that runs: what is set by clients and for topics; of some systems not even a level. What its owner says of it goes
    before what the study says."""
    request = dataclasses.replace(
        cluster,
        version=request.version,
        nodes=request.nodes,
        level=request.level,
        options=request.options,
        trusted=request.trusted or cluster.trusted,
    )
    bare = dataclasses.replace(request, options={}, level=None)
    kept = {
        key: value
        for key, value in request.options.items()
        if _is_accepted(system, dataclasses.replace(bare, options={key: value}))
    }
    asked = dataclasses.replace(request, options={**kept, **cluster.options})
    return asked if _is_accepted(system, asked) else dataclasses.replace(asked, level=None)


def _is_accepted(system: System, request: SystemRequest) -> bool:
    try:
        system.check(request)
    except SystemInputError:
        return False
    return True


def with_unverified(plan: StudyPlan, clusters: Clusters) -> StudyPlan:
    """A plan whose cells say what of their variant can be neither set on the cluster that runs nor read back from it: a level that cannot be asked, options
    that do not reach it and by which the study's variants of a system differ, and machines."""
    options: dict[str, list[dict[str, Any]]] = {}
    for cell in plan.cells:
        options.setdefault(cell.kind, []).append(cell.options)

    def differs(cell: PlannedCell, key: str) -> bool:
        return any(other.get(key) != cell.options.get(key) for other in options[cell.kind])

    cells = []
    for cell in plan.cells:
        cluster = cluster_of(plan, cell, clusters)
        if cluster is None:
            cells.append(cell)
            continue
        request = choice_of(cell, cluster).request
        lost = [
            key
            for key in cell.options
            if request.options.get(key) != cell.options[key] and differs(cell, key)
        ]
        level = ["durability"] if request.level is None else []
        machines = ["machines"] if cell.machines is not None else []
        cells.append(cell.model_copy(update={"unverified": [*level, *lost, *machines]}))
    return plan.model_copy(update={"cells": cells})
