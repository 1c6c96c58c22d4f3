"""The plan of a study in the directory of its run (`study.json`).

A plan names systems with their options, addresses and files, and going on with a study does what its plan says. It is sealed
(store/ours.py), so that a plan that somebody else wrote, or changed, is read for a report and never carried out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from streamgauge.model.durability import StudyAsked
from streamgauge.model.study_plan import StudyPlan
from streamgauge.store.directory import DURABILITY_NAME, RunDirectory
from streamgauge.store.files import write_atomically
from streamgauge.store.opened import read_model
from streamgauge.store.ours import is_sealed, seal
from streamgauge.store.private import without_home
from streamgauge.vocabulary.errors import InputError, Problem

PLAN_NAME = "study.json"

PlanType = TypeVar("PlanType", StudyPlan, StudyAsked)


def write_plan(directory: RunDirectory, plan: StudyPlan) -> None:
    """Writes `study.json`, sealed."""
    hooks = plan.hooks
    if hooks is not None:
        told = {key: without_home(getattr(hooks, key)) for key in ("file", "directory")}
        hooks = hooks.model_copy(update=told)
    clusters = {name: without_home(file) for name, file in plan.cluster_files.items()}
    plan = plan.model_copy(
        update={"file": without_home(plan.file), "hooks": hooks, "cluster_files": clusters}
    )
    write_atomically(directory.path / PLAN_NAME, sealed(plan).model_dump_json(indent=1))


def read_plan(directory: Path) -> StudyPlan:
    """Reads `study.json`. Raises InputError when the run is no study of this version."""
    path = directory / PLAN_NAME
    if not path.exists():
        message = f"{directory} is no study (it has no {PLAN_NAME}): expected the run of one"
        raise InputError(message)
    return read_model(StudyPlan, path, "plan of a study")


def is_study(directory: Path) -> bool:
    """Whether the run in a directory is a study."""
    return (directory / PLAN_NAME).is_file()


def sealed(plan: PlanType) -> PlanType:
    """The plan with this user's seal."""
    return plan.model_copy(update={"seal": seal("plan", _text(plan))})


def check_ours(plan: StudyPlan | StudyAsked, directory: Path) -> None:
    """Whether this user's lab wrote the plan. Raises InputError."""
    if not is_sealed(plan.seal, "plan", _text(plan)):
        name = PLAN_NAME if isinstance(plan, StudyPlan) else DURABILITY_NAME
        message = (
            "this plan was not written by this user's lab on this machine, or it was changed since: going on with it would "
            "start what it says, with the options, addresses and files that it names; start the study anew from its file"
        )
        raise InputError(Problem(message, str(directory / name)))


def _text(plan: StudyPlan | StudyAsked) -> str:
    # Plans of before studies were stored resolved, of before they said what they rest on, and of before they ran in rounds,
    # were sealed without these keys.
    later: dict[str, Any] = {}
    if isinstance(plan, StudyPlan):
        if plan.told is None:
            later = {"told": True}
        elif not any([one.sources for one in plan.told.cells] + [one.source for one in plan.told.claims]):
            later = {"told": {"cells": {"__all__": {"sources"}}, "claims": {"__all__": {"source"}}}}
        if plan.told is not None:
            pages = {
                key
                for key in ("against", "overlay", "beside", "phase")
                if not any(getattr(one, key) for one in plan.told.pages)
            }
            if pages:
                later["told"] = {**later.get("told", {}), "pages": {"__all__": pages}}
        later |= {} if plan.rounds else {"budget_s": True, "trials": {"__all__": {"round"}}}
        unsaid = {
            key
            for key in ("machines", "unverified", "vouched", "level_of_topics")
            if not any(getattr(one, key) for one in plan.cells)
        }
        if unsaid:
            later["cells"] = {"__all__": unsaid}
        later |= {key: True for key in ("load", "hooks", "cluster_files") if not getattr(plan, key)}
    return plan.model_copy(update={"seal": None}).model_dump_json(exclude=later or None)
