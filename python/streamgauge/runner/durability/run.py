"""A run of durability experiments: one system after the other, each on fresh disks; what was found is written after
every step.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.analysis.durability import judged, returned, told_of
from streamgauge.analysis.limits import limits
from streamgauge.fleet.local import LocalFleet
from streamgauge.model.durability import (
    Conditions,
    Cut,
    DurabilityReport,
    DurabilityResult,
    Experiment,
    StudyAsked,
)
from streamgauge.model.power_cut import Place
from streamgauge.model.result import Durability
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.system_request import SystemRequest
from streamgauge.runner import machine
from streamgauge.runner.durability import cuts
from streamgauge.runner.durability.accounting import accounts
from streamgauge.runner.durability.bench import Bench, open_bench
from streamgauge.runner.durability.cuts import CutsAsked
from streamgauge.runner.durability.dose import dose_response
from streamgauge.runner.interrupts import Interrupted, Interrupts
from streamgauge.runner.manifest import new_manifest
from streamgauge.runner.observer import Observer, TrialStart
from streamgauge.runner.recover import KILLED_EXPERIMENTS
from streamgauge.runner.trial import FAILURES as TRIAL_FAILURES
from streamgauge.store.aside import UNFINISHED, set_aside
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import claim, release, was_killed_here
from streamgauge.store.ours import claim_directory, remove_claimed, remove_made
from streamgauge.systems.base import System
from streamgauge.vocabulary.choices import Survivors
from streamgauge.vocabulary.exit_status import ExitStatus
from streamgauge.vocabulary.format import plural, trimmed
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.phases import PROVISION

METADATA = "ordered"
DATA = "data"
FAILURES = (*TRIAL_FAILURES, OSError)


@dataclass(frozen=True)
class DurabilityPlan:
    """What is to be found out, of which systems."""

    name: str
    command: tuple[str, ...]
    choices: tuple[SystemChoice[System], ...]
    experiments: tuple[Experiment, ...]
    cuts: int
    quick: bool
    write_back: str | None
    seed: int
    out: Path
    data: Path | None
    study: StudyAsked | None = None
    survivors: Survivors | None = None
    """Of all power cuts; None: a seeded mix."""
    place: Place | None = None
    only: int | None = None
    """The number of the only cut to make."""


class DurabilityRun:
    """Executes a plan, or what is left of it."""

    def __init__(
        self,
        plan: DurabilityPlan,
        observer: Observer,
        gauge: Path | None = None,
        directory: RunDirectory | None = None,
    ) -> None:
        """`directory`: that of a study which is resumed."""
        self._plan = plan
        self._observer = observer
        self._gauge = gauge or find_gauge()
        resumed = directory is not None
        self.directory = directory or RunDirectory.create(plan.out, plan.name)
        self.report = DurabilityReport(study=plan.study)
        self._manifest = new_manifest(self.directory, plan.command, plan.seed)
        if resumed:
            self._go_on()

    def _go_on(self) -> None:
        """Takes over what has ended; what has not is set aside: its logs may say why."""
        before = self.directory.read_durability() or DurabilityReport()
        self.report.results = [one for one in before.results if ended(one)]
        done, killed_here = {one.name for one in self.report.results}, was_killed_here(self.directory)
        for number, choice in enumerate(self._plan.choices, start=1):
            left = self._directory_of(number, choice)
            if choice.name not in done and left.exists():
                if killed_here:
                    if self._plan.data is not None:
                        remove_claimed(self._outside(self._plan.data, number), left)
                    shutil.rmtree(left / DATA, ignore_errors=True)
                set_aside(self.directory.path, left, UNFINISHED)
        manifest = self.directory.read_manifest()
        self._manifest = manifest.model_copy(update={"status": "running", "ended_unix_ms": None})
        self._manifest.notes.append(
            f"the study was resumed with {len(done)} of {plural(len(self._plan.choices), 'cell')} done"
        )

    def execute(self) -> ExitStatus:
        """Runs all experiments; the exit status. Ctrl-C keeps what was found and leaves out the rest."""
        claim(self.directory)
        self._save()
        self._observer.run_started(self.directory.path, len(self._plan.choices))
        with Interrupts() as interrupts:
            try:
                self._probe(interrupts)
                done = {result.name for result in self.report.results}
                for number, choice in enumerate(self._plan.choices, start=1):
                    interrupts.check()
                    if choice.name not in done:
                        self._one(number, choice, interrupts)
            except Interrupted:
                self._observer.problem("stopped by the user")
            with interrupts.shielded():
                return self._end(interrupts)

    def _probe(self, interrupts: Interrupts) -> None:
        if self._manifest.probes:
            return  # A study that is resumed.
        try:
            with interrupts.raising():
                found = machine.probe(self._gauge, self.directory.path, "before")
        except machine.ProbeFailure as error:
            self._manifest.notes.append(f"the machine's limits were not measured: {error}")
            return
        self._manifest.probes, self._manifest.host = [found], found.get("host") or {}
        self._save()

    def _one(self, number: int, choice: SystemChoice[System], interrupts: Interrupts) -> None:
        """All experiments with one system; its result says how far they came."""
        plan, request = self._plan, choice.request
        result = DurabilityResult(
            run_id=self.directory.run_id,
            name=choice.name,
            system=choice.system.name,
            system_title=choice.system.title,
            system_version=choice.version,
            nodes=request.nodes,
            options=dict(request.options),
            started_unix_ms=machine.unix_ms(),
            seed=plan.seed,
            experiments=list(plan.experiments),
            durability=Durability(asked=request.level),
            conditions=_conditions(plan, choice),
        )
        self.report.results.append(result)
        self._observer.trial_started(
            TrialStart(number, len(plan.choices), 1, choice.name, "durability", ", ".join(plan.experiments))
        )
        bench: Bench | None = None
        try:
            with interrupts.raising():
                self._observer.phase_started(PROVISION, None)
                bench = self._open(number, choice, interrupts)
                result.system_version, result.parts = bench.running.version, [one.name for one in bench.parts]
                self._experiments(bench, result)
            result.status = "complete"
        except Interrupted:
            result.status, result.failure = "interrupted", "stopped by the user"
            raise
        except FAILURES as error:
            result.status, result.failure = "failed", str(error)
            self._observer.problem(str(error))
        finally:
            with interrupts.shielded():
                if bench is not None:
                    result.durability = bench.durability
                    bench.close()
                    if self._plan.data is not None:
                        remove_made(bench.data.parent, bench.directory)
                self._conclude(result)

    def _directory_of(self, number: int, choice: SystemChoice[System]) -> Path:
        return self.directory.path / f"{number:03d}-{choice.name}"

    def _outside(self, data: Path, number: int) -> Path:
        """Where a system's data is when it is not to be in the run."""
        return data / f"{self.directory.run_id}-{number:03d}"

    def _open(self, number: int, choice: SystemChoice[System], interrupts: Interrupts) -> Bench:
        directory = self._directory_of(number, choice)
        data = directory / DATA
        if self._plan.data is not None:
            data = claim_directory(self._outside(self._plan.data, number), directory) / DATA
        options = ["--metadata", METADATA]
        if self._plan.write_back is not None:
            options += ["--write-back", self._plan.write_back]
        small = choice.system.small_segments
        return open_bench(
            dataclasses.replace(choice, request=with_small_segments(choice.request, small)),
            gauge=self._gauge,
            fleet=LocalFleet(self._gauge),
            run_id=f"{self.directory.run_id}/{number}",
            seed=self._plan.seed,
            directory=directory,
            data=data.absolute(),
            disk_options=options,
            interrupts=interrupts,
            observer=self._observer,
        )

    def _experiments(self, bench: Bench, result: DurabilityResult) -> None:
        plan = self._plan
        if "dose" in plan.experiments:
            self._observer.phase_started("dose and response", None)
            result.response = dose_response(bench, quick=plan.quick)
            self._keep(bench, result)
        if "accounting" in plan.experiments:
            self._observer.phase_started("accounting", None)
            result.accounts, result.pace = accounts(bench, quick=plan.quick, sync_delay_ms=self._sync_ms())
            self._keep(bench, result)
        if "cuts" in plan.experiments:
            self._observer.phase_started("cuts", None)

            def keep(cut: Cut) -> None:
                result.cuts.append(cut)
                self._observer.note(_told(cut))
                self._keep(bench, result)

            def learn(rate_msgs_s: float) -> None:
                result.conditions = result.conditions.model_copy(update={"rate_msgs_s": rate_msgs_s})

            asked = CutsAsked(plan.cuts, plan.quick, plan.survivors, plan.place, plan.only)
            cuts.make_cuts(bench, asked, keep=keep, learn=learn)

    def _sync_ms(self) -> float:
        """What a sync takes on the disk of this machine, in the median; 0 when it was not probed."""
        found = limits(self._manifest.probes).fsync_ms_p50
        return 0.0 if found is None else found

    def _keep(self, bench: Bench, result: DurabilityResult) -> None:
        result.durability = bench.durability
        self._save()

    def _conclude(self, result: DurabilityResult) -> None:
        result.ended_unix_ms = machine.unix_ms()
        self.report.results[-1] = judged(result)
        self._save()

    def _end(self, interrupts: Interrupts) -> ExitStatus:
        statuses = {result.status for result in self.report.results}
        self._manifest.status = "complete"
        if interrupts.requested or "interrupted" in statuses:
            self._manifest.status = "interrupted"
        elif "failed" in statuses and (self._plan.study is None or "complete" not in statuses):
            self._manifest.status = "failed"
        self._manifest.ended_unix_ms = machine.unix_ms()
        self._save()
        release(self.directory)
        self._observer.run_ended(self.directory.path, self._manifest.status)
        if self._manifest.status == "interrupted":
            return ExitStatus.INTERRUPTED
        if self._plan.study is not None:
            return _study_status([result.status for result in self.report.results])
        if self._manifest.status == "failed":
            return ExitStatus.FAILED
        findings = [result.finding for result in self.report.results]
        wrong = [finding for finding in findings if finding.agrees is False or finding.against]
        return ExitStatus.INVALID if wrong else ExitStatus.DONE

    def _save(self) -> None:
        self.directory.write_durability(self.report)
        self.directory.write_manifest(self._manifest)


def ended(result: DurabilityResult) -> bool:
    """Whether experiments came to an end of their own: not interrupted, and their lab was not killed."""
    return result.status == "complete" or (result.status == "failed" and result.failure != KILLED_EXPERIMENTS)


def _study_status(statuses: Sequence[str]) -> ExitStatus:
    """A cell that fails is a result of a study, as is a level that is not the declared one."""
    if "complete" not in statuses:
        return ExitStatus.FAILED
    return ExitStatus.DONE if set(statuses) == {"complete"} else ExitStatus.INVALID


def _conditions(plan: DurabilityPlan, choice: SystemChoice[System]) -> Conditions:
    load = cuts.cut_workload(cuts.RATE_MSGS_S, max(1, choice.request.nodes))
    return Conditions(
        metadata=METADATA,
        write_back=plan.write_back,
        sync_delay_ms=cuts.SYNC_DELAY_S * 1000,
        rate_msgs_s=cuts.RATE_MSGS_S,
        message_size_bytes=load.message_size_bytes,
        partitions=load.partitions_per_topic,
        small_segments=dict(choice.system.small_segments),
    )


def with_small_segments(request: SystemRequest, small: Mapping[str, Any]) -> SystemRequest:
    """The request with options under which segments are rolled within seconds; what the user has set stays."""
    options = dict(request.options)
    for key, value in small.items():
        known = options.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            options[key] = {**value, **known}
        else:
            options.setdefault(key, value)
    return dataclasses.replace(request, options=options)


def _told(cut: Cut) -> str:
    """One line on a cut."""
    what = f"cut {cut.number}, {told_of(cut)}, at {cut.at_s:.3f} s"
    if cut.refused:
        return f"{what}: it {returned(cut)}: {' | '.join(cut.refused)}"
    if not cut.conclusive:
        return f"{what}: it tells nothing: {cut.inconclusive}"
    window = "" if cut.window_ms is None else f" over {cut.window_ms:,.0f} ms"
    others = "".join(
        f", {count:,} {name}"
        for name, count in (
            ("duplicated", cut.duplicated),
            ("reordered", cut.reordered),
            ("corrupted", cut.corrupted),
        )
        if count
    )
    gone = "" if cut.unavailable_s is None else f", no acknowledgement for {trimmed(cut.unavailable_s)} s"
    return f"{what}: {cut.lost:,} of {cut.acked:,} acknowledged messages lost{window}{others}{gone}"


def distinct(choices: Sequence[SystemChoice[System]]) -> str:
    """What the run's directory is called after its date."""
    names = list(dict.fromkeys(choice.name for choice in choices))
    return "durability-" + ("-".join(names) if len(names) <= 3 else f"{len(names)}-systems")
