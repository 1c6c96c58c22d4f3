"""Systems that are kept from trial to trial by whoever runs the trials: where they live, and when they end."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from streamgauge.runner.observer import Observer
from streamgauge.runner.plan import TrialPlan
from streamgauge.store.aside import UNFINISHED, set_aside
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import was_killed_here
from streamgauge.store.ours import claim_directory, is_claimed, remove_made
from streamgauge.systems.kept import CheckedSystem, KeptSystem
from streamgauge.vocabulary.errors import InputError

SYSTEMS = "systems"


class Keeper:
    """Keeps the system of one block of trials at a time."""

    def __init__(self, directory: Path, observer: Observer) -> None:
        """`directory`: where systems are that are kept (`place_of_systems`)."""
        self._directory = directory
        self._observer = observer
        self._kept: tuple[int, KeptSystem] | None = None

    def on_system(self, plan: TrialPlan, block: int, *, fresh: bool = False) -> TrialPlan:
        """The trial on its block's system, or on one of its own (`fresh`)."""
        attached = bool(plan.choice.request.connect)
        if self._kept is not None and (fresh or self._kept[0] != block):
            self.end()
        directory = self._directory / f"block-{block:03d}"
        system: KeptSystem
        if fresh or attached:
            system = CheckedSystem.of(plan.choice.system, directory)
        elif self._kept is not None:
            system = self._kept[1]
        else:
            system = KeptSystem.of(plan.choice.system, directory)
            self._kept = (block, system)
        return dataclasses.replace(plan, choice=dataclasses.replace(plan.choice, system=system))

    def starts(self, plan: TrialPlan, block: int, *, fresh: bool = False) -> bool:
        """Whether the trial would begin a start that is kept for its block."""
        return (
            not fresh and not plan.choice.request.connect and (self._kept is None or self._kept[0] != block)
        )

    def end(self) -> None:
        """Stops the system that is kept, if there is one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._observer.progress("stopping the system of this block")
            kept[1].end()

    def close(self, run: Path) -> None:
        """Nothing is kept any more; `run`: its directory."""
        self.end()
        remove_made(self._directory, run)


def place_of_systems(directory: RunDirectory, data: Path | None) -> Path:
    """Where systems are that are kept from trial to trial, without what a killed lab left there. Raises InputError when something
    is there that this lab may not remove."""
    if data is None:
        path = directory.path / SYSTEMS
        if path.exists() and not was_killed_here(directory):
            set_aside(directory.path, path, UNFINISHED)
    else:
        path = data / f"{directory.run_id}-{SYSTEMS}"
        if path.exists() and not (was_killed_here(directory) and is_claimed(path, directory.path)):
            raise InputError(f"--data: {path} is there already: move it away")
    shutil.rmtree(path, ignore_errors=True)
    return path if data is None else claim_directory(path, directory.path)
