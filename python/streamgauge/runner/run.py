"""A run: its trials one after the other, the machine's limits before and after, the report at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streamgauge.analysis.trial import analyse_or_fail
from streamgauge.fleet.base import Fleet
from streamgauge.model.result import TrialResult
from streamgauge.runner import machine
from streamgauge.runner.interrupts import Interrupted, Interrupts
from streamgauge.runner.manifest import new_manifest
from streamgauge.runner.observer import Observer, TrialStart
from streamgauge.runner.plan import RunPlan, TrialPlan
from streamgauge.runner.time_left import TimeLeft
from streamgauge.runner.trial import TrialRunner
from streamgauge.store.context import TrialContext
from streamgauge.store.directory import RunDirectory, TrialDirectory
from streamgauge.store.lab import claim, release
from streamgauge.store.ours import claim_directory, remove_made
from streamgauge.vocabulary.exit_status import ExitStatus, most_urgent
from streamgauge.vocabulary.gauge_binary import find_gauge

Status = Literal["complete", "interrupted", "failed"]


@dataclass(frozen=True)
class RunOutcome:
    """What a run came to."""

    directory: RunDirectory
    results: list[TrialResult]
    exit_status: ExitStatus


def status_of(results: Sequence[TrialResult]) -> ExitStatus:
    """The exit status that trials call for. What a trial that was cut short did not read is not known to be lost."""
    found = {ExitStatus.INVALID for result in results if result.validity.is_invalid}
    found |= {
        ExitStatus.LOST for result in results if result.status == "complete" and result.audit.shows_lost
    }
    return most_urgent(found)


class Run:
    """Executes a plan."""

    def __init__(
        self,
        plan: RunPlan,
        observer: Observer,
        gauge: Path | None = None,
        directory: RunDirectory | None = None,
    ) -> None:
        """`directory`: an existing one; else a new one is made."""
        self._plan = plan
        self._observer = observer
        self._gauge = gauge or find_gauge()
        self._directory = directory or RunDirectory.create(plan.out, plan.name)
        self._results: list[TrialResult] = []
        self._probes: list[dict[str, Any]] = []
        self._input_error = False
        self._time_left = TimeLeft()
        self._pace_msgs_s: float | None = None
        """The rate that this machine can carry, as the first trial that was to find it has: all others have the same."""
        self._manifest = new_manifest(self._directory, plan.command, plan.seed, _distinct_workloads(plan))

    def execute(self) -> RunOutcome:
        """Runs all trials. Ctrl-C ends the trial that runs and leaves out the rest."""
        claim(self._directory)
        self._save()
        self._observer.run_started(self._directory.path, self._count())
        with Interrupts() as interrupts:
            try:
                with interrupts.raising():
                    self._probe("before")
                for trial in self._trials():
                    interrupts.check()
                    self._trial(trial, interrupts)
                with interrupts.raising():
                    self._probe("after")
            except Interrupted:
                self._observer.problem("stopped by the user")
            with interrupts.shielded():
                return self._end(interrupts)

    def _trials(self) -> Iterator[TrialPlan]:
        """The trials, each when the one before it has ended."""
        return iter(self._plan.trials)

    def _count(self) -> int:
        """How many trials there are, as far as is known."""
        return len(self._plan.trials)

    def _left_s(self) -> float:
        """About how long the trials take that are not done."""
        return self._time_left.left_s([_load_s(trial) for trial in self._plan.trials[len(self._results) :]])

    def _probe(self, when: str) -> None:
        """Every run stores what the machine can do; without it a figure cannot be put into proportion."""
        self._observer.phase_started(f"probe {when}", machine.PROBE_WITHIN_S)
        try:
            found = self._limits(when)
        except machine.ProbeFailure as error:
            text = f"the machine's limits were not measured ({when}): {error}"
            self._manifest.notes.append(text)
            self._observer.note(text)
            return
        self._probes.append(found)
        self._manifest.probes = list(self._probes)
        if not self._manifest.host and isinstance(found.get("host"), dict):
            self._manifest.host = found["host"]
        self._save()

    def _limits(self, when: str) -> dict[str, Any]:
        """The machine's limits. Raises machine.ProbeFailure."""
        return machine.probe(self._gauge, self._data_directory(), when)

    def _data_directory(self) -> Path:
        """Where systems keep their data."""
        if self._plan.data is None:
            return self._directory.path
        self._plan.data.mkdir(parents=True, exist_ok=True)
        return self._plan.data

    def _trial(self, plan: TrialPlan, interrupts: Interrupts) -> None:
        trial = self._directory.trial(plan.number)
        if plan.workload.pace_share is not None and self._pace_msgs_s is not None:
            plan = dataclasses.replace(plan, workload=plan.workload.at_rate(self._pace_msgs_s))
        self._time_left.trial_started(_load_s(plan))
        self._observer.remaining(self._left_s())
        self._observer.trial_started(
            TrialStart(
                number=plan.number,
                trials=self._count(),
                repeat=plan.repeat,
                system=plan.choice.name,
                workload=plan.workload.name,
                summary=plan.workload.summary(),
                title=plan.choice.system.title,
                rate_msgs_s=plan.workload.rate_msgs_s,
            )
        )
        outside = self._outside(plan, trial)
        runner = TrialRunner(
            plan,
            run_id=self._directory.run_id,
            directory=trial,
            data=(outside or trial.path) / "data",
            fleet=self._fleet(),
            interrupts=interrupts,
            observer=self._observer,
            probes=list(self._probes),
        )
        result = runner.run()
        if outside is not None:
            remove_made(outside, trial.path)
        self._input_error = self._input_error or runner.input_error
        self._results.append(result)
        if plan.workload.pace_share is not None and runner.context.warm_up is not None:
            self._pace_msgs_s = runner.context.rate_msgs_s
        with interrupts.shielded():
            self._manifest.trials.append(self._named(plan.number))
            self._manifest.systems = _with_system(self._manifest.systems, runner.context)
            self._save()
            self._observer.trial_ended(result)
            self._time_left.trial_ended()
            self._observer.remaining(self._left_s())

    def _named(self, number: int) -> str:
        """A trial, as the manifest lists it."""
        return str(self._directory.trial(number).path.relative_to(self._directory.path))

    def _outside(self, plan: TrialPlan, trial: TrialDirectory) -> Path | None:
        """Where the system's data goes when it is not to be in the run: marked, so that it can be removed should this lab be
        killed. Raises InputError."""
        if self._plan.data is None or plan.choice.request.connect:
            return None
        return claim_directory(self._plan.data / f"{self._directory.run_id}-{plan.number:03d}", trial.path)

    def _fleet(self) -> Fleet:
        return self._plan.fleet.make(self._gauge)

    def _end(self, interrupts: Interrupts) -> RunOutcome:
        """Judges the trials once more with the probe that came after them, and writes the report."""
        if any(probe.get("when") == "after" for probe in self._probes):
            self._observer.phase_started("report", None)
            self._results = self._with_last_probe()
        status = self._status(interrupts)
        self._manifest.status = status
        self._manifest.ended_unix_ms = machine.unix_ms()
        self._save()
        release(self._directory)
        self._observer.run_ended(self._directory.path, status)
        return RunOutcome(self._directory, self._results, self._exit_status(status))

    def _status(self, interrupts: Interrupts) -> Status:
        statuses = {result.status for result in self._results}
        if interrupts.requested or "interrupted" in statuses:
            return "interrupted"
        return "failed" if "failed" in statuses else "complete"

    def _with_last_probe(self) -> list[TrialResult]:
        """The limits of a result come from the probes before and after; the latter is known only now."""

        results = []
        for trial in self._directory.trials():
            context = trial.read_context()
            if context is None:
                continue
            self._observer.progress(f"trial {context.trial}: putting the figures beside the machine's limits")
            context = context.model_copy(update={"probes": list(self._probes)})
            context, result = analyse_or_fail(context, trial.path)
            trial.write_context(context)
            trial.write_result(result)
            results.append(result)
        return results

    def _exit_status(self, status: Status) -> ExitStatus:
        found = {status_of(self._results)}
        if status == "interrupted":
            found.add(ExitStatus.INTERRUPTED)
        if self._input_error:
            found.add(ExitStatus.WRONG_INPUT)
        if status == "failed":
            found.add(ExitStatus.FAILED)
        return most_urgent(found)

    def _save(self) -> None:
        self._directory.write_manifest(self._manifest)


def _distinct_workloads(plan: RunPlan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for trial in plan.trials:
        asked = trial.workload.result().model_dump()
        if asked not in found:
            found.append(asked)
    return found


def _with_system(systems: list[dict[str, Any]], context: TrialContext) -> list[dict[str, Any]]:
    """The manifest's list with this trial's system as it was found; a later trial of the same replaces it."""
    entry = {
        "name": context.system,
        "title": context.system_title,
        "version": context.system_version,
        "nodes": context.nodes,
        "attached": context.attached,
        "tls": context.tls,
        "authentication": context.authentication,
        "level": context.durability.declared or context.durability.asked,
        "configuration": context.configuration,
        "settings": context.durability.settings,
    }
    return [one for one in systems if one["name"] != context.system] + [entry]


def _load_s(plan: TrialPlan) -> float:
    """How long a trial's load takes, its warm-up at its longest."""
    return plan.workload.warmup_s + plan.workload.duration_s
