"""A study that was run: its cells with their trials, its claims with their verdicts, and what may explain them."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgauge.analysis.drift import Drift, drifts
from streamgauge.analysis.limits import NEAR_LIMIT_SHARE
from streamgauge.analysis.quiet_cells import known_within, told_of_trial
from streamgauge.analysis.study_figures import MeasuredTrial, value
from streamgauge.inference.estimates import median_interval
from streamgauge.inference.samples import Bounded, Measured, Sample
from streamgauge.inference.study import Judged, Observed, judge, void_of
from streamgauge.model.checked_study import parse_study
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.model.study_file import ClaimFile
from streamgauge.model.study_plan import PlannedCell, StudyPlan
from streamgauge.model.study_told import ToldCell, ToldStudy, told

LIMITS = {"cpu": "CPU", "disk_write": "disk writes", "disk_read": "disk reads", "network": "loopback network"}


DRIFTED = "the machine changed while the study ran"


@dataclass(frozen=True)
class CellFigure:
    """A figure of a cell: median over its valid trials, and the 95 % interval with three trials or more."""

    median: float
    interval: tuple[float, float] | None
    trials: int


@dataclass(frozen=True)
class StudyOutcome:
    """Everything the report of a study shows."""

    plan: StudyPlan
    study: ToldStudy
    manifest: Manifest
    trials: tuple[MeasuredTrial, ...]

    @functools.cached_property
    def drifts(self) -> list[Drift]:
        """How the machine moved between the probes."""
        return drifts(self.manifest.probes)

    @property
    def drifted(self) -> list[Drift]:
        """What moved too far: the study is invalid."""
        return [drift for drift in self.drifts if drift.too_far]

    def planned(self, cell: str) -> PlannedCell | None:
        """A cell as it was to be run; None when it was left out."""
        return next((one for one in self.plan.cells if one.cell == cell), None)

    def of(self, cell: str) -> list[MeasuredTrial]:
        """All trials of a cell, by their order."""
        return [one for one in self.trials if one.result.workload.name == cell]

    def valid(self, cell: str) -> list[MeasuredTrial]:
        """Its valid trials."""
        return [one for one in self.of(cell) if one.result.validity.valid]

    def why_none(self, cell: str) -> str:
        """Why a cell has no valid trial, in one phrase."""
        if self.planned(cell) is None:
            return self.plan.left_out.get(cell, "not run")
        trials = self.of(cell)
        if not trials:
            return "not run yet"
        results = [one.result for one in trials]
        failed = next((result.failure for result in results if result.status == "failed"), None)
        if failed:
            return failed
        found = next((result.validity for result in results if not result.validity.valid), None)
        return f"{found.called}: {found.why}" if found is not None else "no valid trial"

    def place(self, trial: MeasuredTrial) -> tuple[int, str]:
        """The round of a trial, and the start of the system that it was measured on."""
        planned = self.plan.trials[trial.result.trial - 1]
        fresh = self.plan.cell(planned.cell).fresh
        return planned.repeat, f"trial {planned.number}" if fresh else f"block {planned.block}"

    def sample(self, cell: str, figure: str) -> Sample:
        """A figure of a cell, one value per valid trial, and its bounds where a trial has nothing else."""
        trials = self.of(cell)
        measured, bounded = [], []
        for one in trials:
            if one.result.validity.valid:
                found = value(one, figure)
                if found is not None:
                    measured.append(Measured(found, *self.place(one), known_within(one.result, figure)))
            elif one.result.validity.called == "bounds only":
                told_of_it = told_of_trial(one.result, figure)
                if told_of_it is not None:
                    bounded.append(Bounded(*self.place(one), told_of_it.at_least, told_of_it.at_most))
        why = None
        if not measured:
            valid = self.valid(cell)
            why = _why_no_figure(figure, valid) if valid else self.why_none(cell)
        return Sample(tuple(measured), tuple(bounded), why, len(trials))

    def why_no_figure(self, cell: str, figure: str) -> str:
        """Why a cell has no such figure, in one phrase."""
        return self.sample(cell, figure).why or self.why_none(cell)

    def figure(self, cell: str, figure: str) -> CellFigure | None:
        """A figure of a cell; of its invalid trials when it has no valid one (and then without an interval)."""
        found = [one.value for one in self.sample(cell, figure).measured]
        if found:
            return CellFigure(statistics.median(found), median_interval(found), len(found))
        others = [value(one, figure) for one in self.of(cell) if one.result.publish_ms.count]
        known = [one for one in others if one is not None]
        return CellFigure(statistics.median(known), None, 0) if known else None

    def printed(self, cell: str, figure: str) -> float | None:
        """A figure as printed, where it is a number."""
        found = self.study.cell(cell).published.get(figure)
        return None if found is None or isinstance(found, str) else float(found)

    @functools.cached_property
    def claims(self) -> list[Judged]:
        """Every claim, judged. A machine that drifted shows nothing."""
        cells = tuple(cell.cell for cell in self.plan.cells if not cell.heats)
        judged = judge(self.study.claims, Observed(self.sample, self.printed, cells))
        return [void_of(one, DRIFTED) for one in judged] if self.drifted else judged

    def cells(self, names: Sequence[str]) -> list[ToldCell]:
        """The study's cells of these names."""
        return [self.study.cell(name) for name in names]

    def explanation(self, claim: ClaimFile) -> list[str]:
        """What may explain a difference from the printed figures: versions, scaling, the limit that binds."""
        named = dict.fromkeys(cell for test in claim.tests for cell in test.cells)
        cells = [cell for name in named if (cell := self.planned(name)) is not None]
        return [*self._versions(cells), *_scalings(cells), *self._limits(cells), *self._loads(cells)]

    def _versions(self, cells: Sequence[PlannedCell]) -> list[str]:
        printed = self.study.source.versions
        found = {}
        for cell in cells:
            for one in self.of(cell.cell):
                found[cell.kind] = one.result
        return [
            f"{result.system_title} {result.system_version} here, {printed[kind]} there"
            for kind, result in found.items()
            if kind in printed
        ]

    def _limits(self, cells: Sequence[PlannedCell]) -> list[str]:
        """Of cells that had their system at its most: what bound it, of the first trial that says so."""
        sentences = []
        for cell in cells:
            found = [one.result.bottleneck for one in self.valid(cell.cell)]
            told = next((one.explanation for one in found if one is not None and one.applies), None)
            if told is not None:
                sentences.append(f"{cell.title}: {told}")
        return sentences

    def _loads(self, cells: Sequence[PlannedCell]) -> list[str]:
        """How much of the machine the cells used: the largest share, and who had the CPU."""
        results = [one.result for cell in cells for one in self.valid(cell.cell)]
        shares = [result.share_of_limit for result in results if result.share_of_limit is not None]
        sentences = []
        if shares:
            most = max(shares, key=lambda share: share.value)
            what = LIMITS.get(most.name, most.name)
            near = "" if most.value >= NEAR_LIMIT_SHARE else ": no limit of the machine was near"
            sentences.append(f"{what} used up to {100 * most.value:.0f} %{near}")
        systems = [result.cpu.system_share for result in results if result.cpu.system_share is not None]
        generators = [result.cpu.workers_share for result in results if result.cpu.workers_share is not None]
        if systems and generators:
            sentences.append(
                f"of all cores the system had {100 * statistics.median(systems):.0f} %, "
                f"the generator {100 * statistics.median(generators):.0f} % (medians)"
            )
        return sentences


def _why_no_figure(figure: str, trials: Sequence[MeasuredTrial]) -> str:
    search = trials[0].result.search
    if figure.startswith("sustained") and search is not None:
        return f"no maximum of the system: {search.explanation}"
    if figure.startswith(("period", "swing")):
        seconds = trials[0].result.workload.duration_s
        return f"no period that chance does not explain in {seconds:.0f} s"
    if figure.startswith("catch_up_max") and trials[0].result.catch_up is not None:
        return "the backlog was read in less than a second"
    if figure.startswith("catch_up.chase"):
        return "the backlog was not read to its end"
    return "no such figure was measured"


def _scalings(cells: Sequence[PlannedCell]) -> list[str]:
    return list(dict.fromkeys(phrase for cell in cells for phrase in cell.scaled))


def read_outcome(
    directory: Path, plan: StudyPlan, manifest: Manifest, results: Sequence[TrialResult]
) -> StudyOutcome:
    """From a run's directory and what was read of it. Raises InputError when the study of an older plan cannot be read."""
    return StudyOutcome(
        plan=plan,
        study=plan.told or told(parse_study(plan.text, plan.file, None), plan.scale),
        manifest=manifest,
        trials=tuple(
            MeasuredTrial(result, directory / "trials" / f"{result.trial:03d}") for result in results
        ),
    )
