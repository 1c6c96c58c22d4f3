"""A study: the trials of a plan that was written to disk first, so that it can be interrupted and resumed.

What has ended is never run again and never lost, the order is that of the plan, and what cannot run is a result with
its reason: the study goes on. A system is restarted for each trial, or kept for the trials of a block. Where the plan has a
budget, what is left of it after the plan's rounds goes to further rounds of the cells of claims that are still in doubt.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge.analysis.drift import NEXT_TRIAL, drifts, next_trial
from streamgauge.analysis.study_again import after
from streamgauge.analysis.study_outcome import read_outcome
from streamgauge.analysis.study_rounds import claims_helped, claims_in_doubt, next_round
from streamgauge.fleet.choice import THIS_MACHINE, FleetChoice
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.model.result_hosts import ProbedDisk
from streamgauge.model.study_order import with_round
from streamgauge.model.study_plan import PlannedCell, PlannedTrial, StudyPlan, workload_of
from streamgauge.model.workload import Workload
from streamgauge.runner import machine
from streamgauge.runner.hooks import Hooks
from streamgauge.runner.interrupts import Interrupts
from streamgauge.runner.keeping import Keeper, place_of_systems
from streamgauge.runner.observer import Observer
from streamgauge.runner.plan import RunPlan, TrialPlan
from streamgauge.runner.recover import KILLED, clear_data
from streamgauge.runner.run import Run, Status, status_of
from streamgauge.runner.study_systems import Clusters, choice_of, cluster_of
from streamgauge.store.aside import REPEATED, UNFINISHED, repeated_note, set_aside
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import was_killed_here
from streamgauge.store.plan_file import write_plan
from streamgauge.systems.kept import WithheldSystem
from streamgauge.vocabulary.exit_status import ExitStatus, most_urgent
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.units import format_duration, round_rate

SEARCH_BEGINS_SHARE = 0.6
AGAIN_SHARE = 0.1
"""Of a budget, for trials that are made again."""
NEW_START = "the start that it heated has ended before the last trial of its block"
PROBES_AGAIN_MAX = 2
PROBE_AGAIN_AFTER_S = 5.0
PROBE_AGAIN_S = 15.0
"""With the pause before it."""


def finished(result: TrialResult) -> bool:
    """Whether a trial came to an end of its own: it was not interrupted, and its lab was not killed."""
    return result.status == "complete" or (result.status == "failed" and result.failure != KILLED)


def numbers_finished(directory: RunDirectory) -> set[int]:
    """The numbers of the trials that need not be run again."""
    return {result.trial for result in directory.results() if finished(result)}


def lasting(
    take: Callable[[], dict[str, Any]],
    before: Sequence[Mapping[str, Any]],
    again: int,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """A probe. One that differs too far from the one before voids a round, so it is made again a little later, up to so many times: what lasts is seen again,
    and what has passed was of that moment (what was so during a trial, the trial tells itself)."""
    found = take()
    for _ in range(again):
        if not any(drift.too_far for drift in drifts([*before, found])):
            break
        pause(PROBE_AGAIN_AFTER_S)
        found = take()
    return found


class StudyRun(Run):
    """Executes a study's plan, or what is left of it."""

    def __init__(
        self,
        plan: StudyPlan,
        observer: Observer,
        *,
        command: Sequence[str],
        out: Path,
        data: Path | None = None,
        gauge: Path | None = None,
        directory: RunDirectory | None = None,
        probes: Sequence[Mapping[str, Any]] = (),
        trusted: bool = False,
        fleet: FleetChoice = THIS_MACHINE,
        disks: Sequence[ProbedDisk] = (),
        clusters: Clusters | None = None,
    ) -> None:
        """`disks`: of the machines, probed before. `clusters`: those of the plan that have a file.
        `directory`: that of a study which is resumed. `probes`: those made before the plan was. `trusted`: whether the
        systems' options may run code; no plan can say that of itself. `fleet`: that of the plan's `load`.
        """
        self._study = plan
        self._trusted = trusted
        self._clusters = clusters or {}
        resumed = directory is not None
        if directory is None:
            directory = RunDirectory.create(out, f"{plan.study}-{plan.scale}")
            write_plan(directory, plan)
        self._keeper = Keeper(place_of_systems(directory, data), observer)
        self._hooks = Hooks(directory.path, observer)
        self._done = _put_in_order(directory) if resumed else set()
        trials = tuple(self._trial_plan(trial) for trial in plan.trials)
        run_plan = RunPlan(
            name=f"{plan.study}-{plan.scale}",
            command=tuple(command),
            trials=trials,
            seed=plan.seed,
            out=out,
            data=data,
            fleet=fleet,
        )
        super().__init__(run_plan, observer, gauge, directory)
        self._began_s = time.monotonic()
        self._spent_s = plan.estimate_s(sorted(self._done))
        """Before this lab went on with the study, as estimated."""
        self._again_s = 0.0
        """Spent on trials that were made again."""
        if resumed:
            self._go_on(directory.read_manifest())
        self._probes += [{**probe, NEXT_TRIAL: self._following()} for probe in probes]
        self._probed = bool(probes)
        self._manifest.disks += disks

    def _go_on(self, manifest: Manifest) -> None:
        """Takes over what the run has measured already."""
        self._results = [result for result in self._directory.results() if result.trial in self._done]
        update = {"status": "running", "ended_unix_ms": None}
        self._manifest = manifest.model_copy(update=update)
        self._probes = list(manifest.probes)
        self._manifest.trials = [self._named(number) for number in sorted(self._done)]
        self._manifest.notes.append(
            f"the study was resumed with {len(self._done)} of {plural(len(self._study.trials), 'trial')} done"
        )

    def _left(self) -> list[int]:
        done = self._done | {result.trial for result in getattr(self, "_results", [])}
        return [trial.number for trial in self._study.trials if trial.number not in done]

    def _trial_plan(self, trial: PlannedTrial) -> TrialPlan:
        cell = self._study.cell(trial.cell)
        return TrialPlan(
            number=trial.number,
            repeat=trial.repeat,
            choice=choice_of(
                cell,
                cluster_of(self._study, cell, self._clusters),
                trusted=self._trusted,
                load=self._study.load,
            ),
            workload=workload_of(cell),
            seed=trial.seed,
            limit_s=cell.limit_s,
        )

    def _probe(self, when: str) -> None:
        if when == "before" and self._probed:
            # Made for the plan, a moment ago.
            self._manifest.probes = list(self._probes)
            self._manifest.host = self._manifest.host or self._probes[-1].get("host", {})
            self._save()
            return
        if when == "after" and self._probes and next_trial(self._probes[-1]) > len(self._study.trials):
            # The last round has ended with one.
            self._probes[-1]["when"] = when
            return
        self._keeper.end()
        self._hooks.end()
        super()._probe(when)

    def _limits(self, when: str) -> dict[str, Any]:
        # A study that is resumed begins at another time.
        compares = when != "before"
        budget_s = self._study.budget_s
        has_time = budget_s is None or AGAIN_SHARE * budget_s >= PROBES_AGAIN_MAX * PROBE_AGAIN_S
        # What is as it was takes one look to see.
        takes = itertools.chain([machine.probe] if compares else [], itertools.repeat(machine.steady_probe))
        found = lasting(
            lambda: next(takes)(self._gauge, self._data_directory(), when),
            self._probes[-1:] if compares else (),
            PROBES_AGAIN_MAX if has_time else 1,
        )
        return {**found, NEXT_TRIAL: self._following()}

    def _following(self) -> int:
        """The number of the trial that comes next; one more than there are after the last."""
        return next(iter(self._left()), len(self._study.trials) + 1)

    def _trials(self) -> Iterator[TrialPlan]:
        at = 0
        while at < len(self._study.trials) or self._add_round():
            yield self._trial_plan(self._study.trials[at])
            at += 1

    def _count(self) -> int:
        return len(self._study.trials)

    def _add_round(self) -> bool:
        """One more round of the cells that are in doubt, if the budget has time for one."""
        budget_s = self._study.budget_s
        if budget_s is None or not any(one.status == "complete" for one in self._results):
            return False
        outcome = read_outcome(self._directory.path, self._study, self._manifest, self._results)
        wanted, turns = next_round(outcome, (budget_s - self._used_s()) / self._slowness())
        if not wanted:
            return False
        self._study = with_round(self._study, wanted, turns)
        write_plan(self._directory, self._study)
        doubtful, helped = claims_in_doubt(outcome), claims_helped(outcome, wanted)
        self._observer.note(
            f"{plural(doubtful, 'claim')} still in doubt: round {self._study.rounds}, of {plural(len(wanted), 'cell')}"
            + (f", {turns} times on each start" if turns > 1 else "")
            + (f", for {helped} of them" if helped < doubtful else "")
        )
        return True

    def _used_s(self) -> float:
        """Of the budget."""
        return self._spent_s + time.monotonic() - self._began_s

    def _left_s(self) -> float:
        # What trials have really taken corrects the estimate.
        return self._study.estimate_s(self._left()) * self._slowness()

    def _slowness(self) -> float:
        """Time that trials have really taken over what was estimated for them."""
        done = [one.trial for one in self._results if one.trial not in self._done]
        estimated_s = self._study.estimate_s(done) if done else 0.0
        return (time.monotonic() - self._began_s) / estimated_s if estimated_s > 0 else 1.0

    def _trial(self, plan: TrialPlan, interrupts: Interrupts) -> None:
        if plan.number in self._done:
            return
        trial = self._study.trials[plan.number - 1]
        cell = self._study.cell(trial.cell)
        plan = dataclasses.replace(plan, workload=self._searched_before(plan.workload))
        self._attempt(plan, cell, trial, interrupts)
        tries, same_again = 1, 0
        while not interrupts.requested:
            found = self._results[-1]
            following, again = after(
                self._study, found, self._results[:-1], tries=tries, same_again=same_again
            )
            slower = following is not self._study
            if slower:
                self._slow_down(following)
                plan = self._trial_plan(trial)
            if not again or not (slower or self._has_time_for(cell)):
                break
            # Whatever it has measured: a trial that cannot be used says nothing of the system.
            with interrupts.shielded():
                self._take_back(found, found.validity.why)
            tries, same_again = tries + 1, 0 if slower else same_again + 1
            began_s = time.monotonic()
            self._attempt(plan, cell, trial, interrupts)
            self._again_s += time.monotonic() - began_s
        if interrupts.requested:
            return
        self._say_remaining()
        if self._ends_round(trial) and not interrupts.requested:
            with interrupts.raising():
                self._probe(f"after round {trial.round}")

    def _ends_round(self, trial: PlannedTrial) -> bool:
        following = self._study.trials[trial.number : trial.number + 1]
        return not following or following[0].round != trial.round

    def _slow_down(self, plan: StudyPlan) -> None:
        """Goes on with lower rates."""
        changed = [
            one
            for one, earlier in zip(plan.cells, self._study.cells, strict=True)
            if not one.heats and one.workload["rate"] != earlier.workload["rate"]
        ]
        self._study = plan
        write_plan(self._directory, plan)
        for one in changed:
            self._observer.note(f"{one.cell}: {one.scaled[-1]}")

    def _has_time_for(self, cell: PlannedCell) -> bool:
        """Whether there is time for one more try of a cell. A study without a budget takes as long as it takes. Of one with a budget a tenth is for such
        tries, whatever the planned rounds take: a trial costs less than the round that it would spoil."""
        budget_s = self._study.budget_s
        if budget_s is None:
            return True
        wanted_s = cell.trial_s * self._slowness()
        if self._again_s + wanted_s <= AGAIN_SHARE * budget_s:
            return True
        return self._used_s() + self._left_s() + wanted_s <= budget_s

    def _searched_before(self, workload: Workload) -> Workload:
        """A later repeat's search begins below what the cell's last one found, so that its time goes into a narrow bracket
        instead of into doubling. Where it begins says nothing of where it ends: each repeat probes both sides itself."""
        found = [
            result.search.low_msgs_s
            for result in self._results
            if result.workload.name == workload.name and result.search is not None
        ]
        if workload.search is None or not found or found[-1] is None:
            return workload
        first = round_rate(SEARCH_BEGINS_SHARE * found[-1])
        return dataclasses.replace(
            workload, search=workload.search.model_copy(update={"first_msgs_s": first})
        )

    def _attempt(
        self, plan: TrialPlan, cell: PlannedCell, trial: PlannedTrial, interrupts: Interrupts
    ) -> None:
        if self._keeper.starts(plan, trial.block, fresh=cell.fresh):
            self._heat_again(trial, interrupts)
        with interrupts.shielded():
            plan = self._keeper.on_system(plan, trial.block, fresh=cell.fresh)
        with interrupts.raising():
            withheld = self._hooks.before(self._study, trial, cell)
        if withheld is not None:
            system = WithheldSystem.of(plan.choice.system, withheld)
            plan = dataclasses.replace(plan, choice=dataclasses.replace(plan.choice, system=system))
        super()._trial(plan, interrupts)
        if self._results[-1].status != "complete":
            # What a failed trial leaves behind is no ground for the next one.
            with interrupts.shielded():
                self._keeper.end()
            if withheld is None and not interrupts.requested:
                with interrupts.raising():
                    self._hooks.end()

    def _heat_again(self, following: PlannedTrial, interrupts: Interrupts) -> None:
        """Heats one more start of a block's system, where the one that was heated has ended before its last trial: one failed, or the study was resumed.
        `following`: the trial of the block that comes next."""
        heated = [one for one in self._results if self._heats_before(one, following)]
        # What has failed for one start fails for the next.
        if any(one.status != "complete" for one in heated):
            return
        for one in heated:
            with interrupts.shielded():
                self._take_back(one, NEW_START)
            trial = self._study.trials[one.trial - 1]
            self._attempt(self._trial_plan(trial), self._study.cell(trial.cell), trial, interrupts)
            self._results.sort(key=lambda one: one.trial)
            self._manifest.trials = [self._named(one.trial) for one in self._results]
            interrupts.check()

    def _heats_before(self, result: TrialResult, following: PlannedTrial) -> bool:
        trial = self._study.trials[result.trial - 1]
        return (
            trial.block == following.block
            and trial.number < following.number
            and self._study.cell(trial.cell).heats
        )

    def _take_back(self, result: TrialResult, why: str) -> None:
        """Makes room for another try of a trial."""
        self._results.remove(result)
        self._manifest.trials.remove(self._named(result.trial))
        set_aside(self._directory.path, self._directory.trial(result.trial).path, REPEATED)
        note = repeated_note(result.trial, result.workload.name, why)
        self._manifest.notes.append(note)
        self._observer.note(note)
        self._save()

    def _say_remaining(self) -> None:
        left = self._left()
        if not left:
            return
        done = len(self._study.trials) - len(left)
        self._observer.note(
            f"{done} of {plural(len(self._study.trials), 'trial')} done, about {shown(self._left_s())} left"
        )

    def _end(self, interrupts: Interrupts) -> Any:
        self._keeper.close(self._directory.path)
        self._hooks.close()
        self._manifest.notes += self._hooks.problems
        return super()._end(interrupts)

    def _status(self, interrupts: Interrupts) -> Status:
        return "interrupted" if interrupts.requested or self._left() else "complete"

    def _exit_status(self, status: Status) -> ExitStatus:
        """A cell that cannot run is a result of a study; one in which none can has failed."""
        found = {status_of([one for one in self._results if not self._study.cell(one.workload.name).heats])}
        if status == "interrupted":
            found.add(ExitStatus.INTERRUPTED)
        if self._results and all(result.status == "failed" for result in self._results):
            found.add(ExitStatus.FAILED)
        return most_urgent(found)


def _put_in_order(directory: RunDirectory) -> set[int]:
    """Sets trials aside that did not end; the numbers of those that did."""
    done, killed_here = numbers_finished(directory), was_killed_here(directory)
    for trial in directory.trials():
        if int(trial.path.name) in done:
            continue
        context = trial.read_context()
        clear_data(trial, context, killed_here=killed_here)
        set_aside(directory.path, trial.path, UNFINISHED)
    return done


def shown(seconds: float) -> str:
    """A duration that is an estimate: whole minutes, or tens of seconds."""
    if seconds >= 120:
        return format_duration(60.0 * round(seconds / 60))
    return format_duration(max(10.0 * round(seconds / 10), 10.0))
