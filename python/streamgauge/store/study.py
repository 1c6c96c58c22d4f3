"""The plan of a study in the directory of its run (`study.json`)."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from streamgauge.model.errors import InputError, Problem
from streamgauge.model.study_plan import StudyPlan
from streamgauge.store.directory import RunDirectory
from streamgauge.store.files import write_atomically

PLAN_NAME = "study.json"


def write_plan(directory: RunDirectory, plan: StudyPlan) -> None:
    """Writes `study.json`."""
    write_atomically(directory.path / PLAN_NAME, plan.model_dump_json(indent=1))


def read_plan(directory: Path) -> StudyPlan:
    """Reads `study.json`. Raises InputError when the run is no study of this version."""
    path = directory / PLAN_NAME
    try:
        return StudyPlan.model_validate_json(path.read_text("utf-8"))
    except FileNotFoundError:
        message = f"{directory} is no study (it has no {PLAN_NAME}): expected the run of one"
        raise InputError(message) from None
    except (OSError, ValidationError) as error:
        message = f"cannot be read: {str(error).splitlines()[0]}; start the study anew"
        raise InputError(Problem(message, str(path))) from None


def is_study(directory: Path) -> bool:
    """Whether the run in a directory is a study."""
    return (directory / PLAN_NAME).is_file()
