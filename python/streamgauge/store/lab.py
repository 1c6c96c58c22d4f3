"""Who works on a run: the process of its lab, as `lab.json` names it while the run goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from streamgauge.model.result_base import Model
from streamgauge.store.directory import RunDirectory
from streamgauge.store.files import write_atomically
from streamgauge.store.opened import read_model
from streamgauge.vocabulary.errors import InputError

NAME = "lab.json"


class Lab(Model):
    """A process, named for good: its machine since it booted, its namespace of processes, its id and its start."""

    boot_id: Annotated[str, Field(max_length=64)]
    """Of the kernel (/proc/sys/kernel/random/boot_id): random for each boot of each machine."""
    pid_namespace: Annotated[str, Field(max_length=64)]
    """Containers of one machine count their processes each for itself."""
    pid: Annotated[int, Field(ge=1, le=1 << 22)]
    started_ticks: Annotated[int, Field(ge=0)]

    @property
    def here(self) -> bool:
        """Whether it ran (or runs) where this process does, since the machine booted."""
        return self.boot_id != "" and (self.boot_id, self.pid_namespace) == _place()

    @property
    def alive(self) -> bool:
        """Whether it is still at work."""
        return self.here and process_start(self.pid) == self.started_ticks


def claim(run: RunDirectory) -> None:
    """Says who works on the directory, for `report` to tell a run that goes on from one that was killed."""
    boot_id, pid_namespace = _place()
    me = Lab(
        boot_id=boot_id,
        pid_namespace=pid_namespace,
        pid=os.getpid(),
        started_ticks=process_start(os.getpid()) or 0,
    )
    write_atomically(run.path / NAME, me.model_dump_json())


def release(run: RunDirectory) -> None:
    """Says that nobody works on it any more."""
    (run.path / NAME).unlink(missing_ok=True)


def lab_of(run: RunDirectory) -> Lab | None:
    """The lab that works on a run, or was killed at it; None where the run ended, or nothing usable is told."""
    try:
        return read_model(Lab, run.path / NAME)
    except InputError:
        return None


def is_running(run: RunDirectory) -> bool:
    """Whether the lab that made this run is still at work."""
    lab = lab_of(run)
    return lab is not None and lab.alive


def was_killed_here(run: RunDirectory) -> bool:
    """Whether the lab that made this run died on this machine since it booted: what it left behind is here, and nobody uses it."""
    lab = lab_of(run)
    return lab is not None and lab.here and not lab.alive


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (/proc/PID/stat, field 22): with the pid it names a
    process for good. None when there is no such process."""
    text = _said(Path(f"/proc/{pid}/stat"))
    return int(text.rpartition(")")[2].split()[19]) if text else None


def _place() -> tuple[str, str]:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return _said(Path("/proc/sys/kernel/random/boot_id")).strip(), namespace


def _said(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
