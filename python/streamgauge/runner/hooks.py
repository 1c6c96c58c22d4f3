"""Commands of the user around the blocks of a study on clusters that run: one system after the other on the same machines.

A block begins with `reconfigure` and `start`, each of its trials with `drop-caches`, and it ends with `stop`. A command that fails ends its block: what
would have been measured there is a trial that failed, with the command's last lines as its reason.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from streamgauge.model.hooks_file import PlannedHook
from streamgauge.model.study_plan import PlannedCell, PlannedTrial, StudyPlan
from streamgauge.runner.observer import Observer
from streamgauge.store.private import clear_logs, with_home
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.units import format_duration

FOLDER = "hooks"
LAST_LINES = 3


class Hooks:
    """The hooks of a study. `plan` is asked anew each time: further rounds are added to it."""

    def __init__(self, run: Path, observer: Observer) -> None:
        """`run`: directory of the run, in which the commands' output is kept."""
        self._run = run
        self._observer = observer
        self._current: tuple[StudyPlan, PlannedTrial, PlannedCell] | None = None
        """The first trial of the block whose system runs."""
        self._why: str | None = None
        """Why nothing is measured in the current block."""
        self.problems: list[str] = []
        """What failed without a trial that could tell it."""

    def before(self, plan: StudyPlan, trial: PlannedTrial, cell: PlannedCell) -> str | None:
        """Makes the cell's system ready for a trial; one sentence on why it is not, or None. Interrupted passes through."""
        if plan.hooks is None:
            return None
        if not plan.addresses(cell):
            self.end()
            return None
        is_another = self._current is None or self._current[1].block != trial.block
        if is_another or cell.fresh:
            self.end()
            self._current = (plan, trial, cell)
            self._why = self._begin("reconfigure") or self._begin("start")
        if self._why is None:
            self._why = self._called("drop-caches", plan, trial, cell)
        return self._why

    def _begin(self, name: str) -> str | None:
        assert self._current is not None, "a block has begun"
        return self._called(name, *self._current)

    def end(self) -> None:
        """Ends the current block, if there is one: its system is stopped by whoever has started it."""
        if self._current is None:
            return
        why = self._called("stop", *self._current)
        self._current, self._why = None, None
        if why is not None:
            self.problems.append(why)
            self._observer.problem(why)

    def close(self) -> None:
        """No trial follows."""
        self.end()
        if (self._run / FOLDER).is_dir():
            clear_logs(self._run / FOLDER)

    def _called(self, name: str, plan: StudyPlan, trial: PlannedTrial, cell: PlannedCell) -> str | None:
        """Runs a hook, if there is one for the system; one sentence on how it failed, or None."""
        assert plan.hooks is not None, "looked at before a block begins"
        hook = plan.hooks.of(name, cell.system)
        if hook is None:
            return None
        where = f"trial-{trial.number:03d}" if name == "drop-caches" else f"block-{trial.block:03d}"
        log = self._run / FOLDER / f"{where}-{name}.log"
        what = f"the hook '{name}' for {cell.system}"
        self._observer.progress(f"{what}, at most {format_duration(hook.timeout_s)}")
        environment = {
            **os.environ,
            **variables(name, plan, trial, cell),
            "STREAMGAUGE_RUN": str(self._run.resolve()),
        }
        try:
            how = _run(hook, Path(with_home(plan.hooks.directory)), log, environment)
        except SystemFailure as failure:
            how = str(failure)
        if how is None:
            return None
        said = " | ".join(processes.log_tail(log, LAST_LINES).splitlines())
        told = f"; its last lines: {said}" if said else ", and it said nothing"
        return f"not measured: {what} {how}{told} ({FOLDER}/{log.name})"


def variables(name: str, plan: StudyPlan, trial: PlannedTrial, cell: PlannedCell) -> dict[str, str]:
    """What a hook finds in its environment beside the lab's own."""
    return {
        "STREAMGAUGE_HOOK": name,
        "STREAMGAUGE_STUDY": plan.study,
        "STREAMGAUGE_SYSTEM": cell.system,
        "STREAMGAUGE_KIND": cell.kind,
        "STREAMGAUGE_VERSION": cell.version or "",
        "STREAMGAUGE_NODES": str(cell.nodes),
        "STREAMGAUGE_LEVEL": cell.level,
        "STREAMGAUGE_OPTIONS": json.dumps(cell.options, sort_keys=True),
        "STREAMGAUGE_ADDRESS": ",".join(plan.addresses(cell)),
        "STREAMGAUGE_CELL": cell.cell,
        "STREAMGAUGE_BLOCK": str(trial.block),
        "STREAMGAUGE_TRIAL": str(trial.number),
    }


def _run(hook: PlannedHook, directory: Path, log: Path, environment: dict[str, str]) -> str | None:
    """How a command failed, as the rest of a sentence; None when it did what it should."""
    program = hook.run[0]
    command = [str(directory / program) if "/" in program else program, *hook.run[1:]]
    process = processes.start(log.stem, command, log, environment=environment, directory=directory)
    try:
        ended = process.wait(time.monotonic() + hook.timeout_s)
    except BaseException:
        processes.kill([process])
        raise
    if not ended:
        processes.stop([process], 2.0)
        return f"took longer than {format_duration(hook.timeout_s)} and was ended"
    status = process.exit_status()
    # What a command leaves running, such as a broker, is no child of the lab's.
    processes.let_go(process)
    return None if status == 0 else str(process.ending())
