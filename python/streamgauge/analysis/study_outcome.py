"""A study that was run: its cells with their trials, its claims with their verdicts, and what may explain them."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgauge.analysis.drift import Drift, around, drifts
from streamgauge.analysis.limits import NEAR_LIMIT_SHARE
from streamgauge.analysis.study_figures import MeasuredTrial, bounds, is_latency, taken_share, value
from streamgauge.inference.checks import Sample, Verdict
from streamgauge.inference.claims import Judged, Question, judge
from streamgauge.inference.contrast import Between, Value
from streamgauge.inference.estimates import median_interval
from streamgauge.model.checked_study import parse_study
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.model.study_file import CheckFile, ClaimFile
from streamgauge.model.study_plan import NOT_ASKED_FOR, PlannedCell, StudyPlan
from streamgauge.model.study_rates import counts
from streamgauge.model.study_told import ToldCell, ToldStudy, told
from streamgauge.model.study_versions import pairs

LIMITS = {"cpu": "CPU", "disk_write": "disk writes", "disk_read": "disk reads", "network": "loopback network"}


def _differ(one: PlannedCell, other: PlannedCell) -> bool:
    """Whether two cells are of different variants of a system."""
    return one.kind == other.kind and (one.level, one.options, one.nodes, one.machines) != (
        other.level,
        other.options,
        other.nodes,
        other.machines,
    )


def _states(trials: Sequence[MeasuredTrial]) -> set[str]:
    """What was read back of the cluster by each trial."""
    return {
        json.dumps(
            [one.result.durability.declared, one.result.durability.settings], sort_keys=True, default=str
        )
        for one in trials
    }


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
    def drifts(self) -> dict[int, list[Drift]]:
        """Round -> how the machine moved while it ran, by the probes around it."""
        rounds: dict[int, list[int]] = {}
        for trial in self.plan.trials:
            if not self.plan.cell(trial.cell).heats:
                rounds.setdefault(trial.round or trial.repeat, []).append(trial.number)
        probes = self.manifest.probes
        return {round_: drifts(around(probes, min(all_), max(all_))) for round_, all_ in rounds.items()}

    @functools.cached_property
    def drifted(self) -> dict[int, list[Drift]]:
        """Void round -> what moved too far in it."""
        return {
            round_: far
            for round_, found in self.drifts.items()
            if (far := [drift for drift in found if drift.too_far])
        }

    @property
    def rounds(self) -> int:
        """How many rounds there are that are not void."""
        return self.plan.rounds - len(self.drifted)

    @functools.cached_property
    def asked(self) -> list[Judged]:
        """The claims that were asked about: all whose cells were, where only some were named. Those that the scale cannot tell of come last."""
        found = [judged for judged in self.claims if NOT_ASKED_FOR not in self.left_out(judged)]
        return sorted(found, key=lambda judged: bool(self.outside(judged)))

    def left_out(self, judged: Judged) -> list[str]:
        """Why cells that a claim needs are not part of the plan, each reason once."""
        return list(dict.fromkeys(self.plan.lacking(judged.claim.tests).values()))

    def outside(self, judged: Judged) -> list[str]:
        """Why the scale cannot tell of a claim, each reason once; empty where it can."""
        if judged.verdict is not Verdict.not_shown:
            return []
        bars = self.plan.bars(judged.claim.tests)
        return self.left_out(judged) or ([bars] if bars else [])

    def planned(self, cell: str) -> PlannedCell | None:
        """A cell as it was to be run; None when it was left out."""
        return next((one for one in self.plan.cells if one.cell == cell), None)

    def heats(self, trial: TrialResult) -> bool:
        """Whether it was there to heat a start of its system, and is not counted."""
        planned = self.planned(trial.workload.name)
        return planned is not None and planned.heats

    def of(self, cell: str) -> list[MeasuredTrial]:
        """All trials of a cell, by their order."""
        return [one for one in self.trials if one.result.workload.name == cell]

    def valid(self, cell: str) -> list[MeasuredTrial]:
        """Its valid trials, at the rate that the study found it can be run with."""
        return [one for one in self._at_its_rate(cell) if one.result.validity.valid]

    def _at_its_rate(self, cell: str) -> list[MeasuredTrial]:
        return [one for one in self.of(cell) if counts(self.plan, cell, one.result.workload.rate_msgs_s)]

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

    def sample(self, cell: str, figure: str) -> Sample:
        """A figure of a cell, one value per valid trial, or its bounds where a disturbance leaves no more."""
        trials = self._usable(cell) if is_latency(figure) else self.valid(cell)
        if not trials:
            return Sample((), self.why_none(cell))
        if unlike := self.why_unlike(cell):
            return Sample((), unlike, len(self.of(cell)))
        found: list[Value] = []
        between: list[Between] = []
        for one in trials:
            number = value(one, figure) if one.result.validity.valid else None
            round_, start = self._place(one.result.trial)
            taken = taken_share(one.result, figure)
            if number is not None:
                found.append(Value(number, round_, start, one.result.trial, taken))
            elif (ends := bounds(one, figure)) is not None:
                between.append(Between(*ends, round_, start, one.result.trial, taken))
        known = tuple(one for one in found if one.round not in self.drifted)
        bounded = tuple(one for one in between if one.round not in self.drifted)
        why = None
        if not known and bounded and is_latency(figure):
            why = "a disturbance leaves no more than bounds"
        elif not known:
            has_moved = (found or between) and not bounded
            why = "the machine changed while it ran" if has_moved else self._why_no_figure(cell, figure)
        return Sample(known, why, len(self.of(cell)), bounded)

    def _usable(self, cell: str) -> list[MeasuredTrial]:
        """With those of which bounds alone stand."""
        return [
            one
            for one in self._at_its_rate(cell)
            if one.result.validity.valid or one.result.validity.bounds_only
        ]

    def _why_no_figure(self, cell: str, figure: str) -> str:
        trials = self.valid(cell)
        return _why_no_figure(figure, trials) if trials else self.why_none(cell)

    def why_unlike(self, cell: str) -> str:
        """Why a cell that was measured on a cluster of someone else's may not be the variant that it is called; empty where nothing is against it."""
        planned = self.planned(cell)
        if planned is None or not self.plan.addresses(planned):
            return ""
        declared = {one.result.durability.declared for one in self._usable(cell)}
        open_ = [
            name
            for name in planned.unverified
            if name not in planned.vouched and not (name == "durability" and declared == {planned.level})
        ]
        if open_:
            return f"the variant could not be verified on the cluster that runs: {', '.join(open_)}"
        states = _states(self._usable(cell))
        for other in self.plan.cells:
            is_same_cluster = self.plan.addresses(other) == self.plan.addresses(planned)
            if (
                other.heats
                or other.system == planned.system
                or not is_same_cluster
                or not _differ(planned, other)
            ):
                continue
            if states & _states(self._usable(other.cell)):
                return f"it was measured on the same cluster in the same state as {other.system_title}"
        return ""

    def _place(self, number: int) -> tuple[int, int]:
        """Round and start of a trial. In studies of before there were rounds a repeat is one, on the start that all repeats shared."""
        trial = self.plan.trials[number - 1]
        if self.plan.cell(trial.cell).fresh:
            # It has a start of its own for each of its trials.
            start = -number
        elif self._began_ms.get(number, 0) < self._heated_ms.get(trial.block, 0):
            # Its start has ended, and another one was heated for the rest of the block.
            start = -(len(self.plan.trials) + trial.block)
        else:
            start = trial.block
        return trial.round or trial.repeat, start

    @functools.cached_property
    def _began_ms(self) -> dict[int, int]:
        """Trial -> when it began."""
        return {one.result.trial: one.result.started_unix_ms for one in self.trials}

    @functools.cached_property
    def _heated_ms(self) -> dict[int, int]:
        """Block -> when the start that it ended with began to be heated."""
        heated: dict[int, int] = {}
        for trial in self.plan.trials:
            began_ms = self._began_ms.get(trial.number)
            if began_ms is not None and self.plan.cell(trial.cell).heats:
                heated[trial.block] = min(heated.get(trial.block, began_ms), began_ms)
        return heated

    def why_no_figure(self, cell: str, figure: str) -> str:
        """Why a cell has no such figure, in one phrase."""
        return self.sample(cell, figure).why or self.why_none(cell)

    def figure(self, cell: str, figure: str) -> CellFigure | None:
        """A figure of a cell; of its invalid trials when it has no valid one (and then without an interval)."""
        found = [one.value for one in self.sample(cell, figure).values]
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
        """Every claim, judged by the rounds that are not void."""
        return self.claims_after(math.inf)

    def claims_after(self, round_: float) -> list[Judged]:
        """The same with what came until this round."""
        question = Question(
            claims=self.study.claims,
            cells=[cell.cell for cell in self.plan.cells if not cell.heats],
            sample=lambda cell, figure: self.sample(cell, figure).until(round_),
            printed=self.printed,
            fixed=self.plan.budget_s is None,
            bars=self.plan.bars,
        )
        return judge(question)

    @functools.cached_property
    def changes(self) -> list[Judged]:
        """What has changed since, of cells that were measured at both versions (`--versions published,current`): for the figures that each is about,
        today's over the published version's. They have an error of 5 % of their own, and claims none of it."""
        measured = [cell.cell for cell in self.plan.cells if not cell.heats]
        claims = []
        for now, before in pairs(measured).values():
            label = now.rpartition("@")[2]
            title = self.study.cell(now).title.removesuffix(f" ({label})")
            claims += [
                ClaimFile(claim=title, tests=[CheckFile(figure=figure, ratio=[now, before], above=1.0)])
                for figure in _headlines(self.plan.cell(now))
            ]
        return judge(
            Question(
                claims=claims,
                cells=measured,
                sample=self.sample,
                printed=lambda _cell, _figure: None,
                fixed=self.plan.budget_s is None,
                bars=self.plan.bars,
            )
        )

    @property
    def old_design(self) -> bool:
        """Whether all repeats of a system shared one start of it, as they did before there were rounds."""
        return any(test.shared_start for one in self.claims for test in one.tests)

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


def _headlines(cell: PlannedCell) -> list[str]:
    """The figures that a cell is about."""
    of_rate = {"max": ["publish_rate_mb_s"], "sustainable": ["sustained_mb_s"]}
    found = of_rate.get(str(cell.workload.get("rate")), ["publish_ms.p99", "end_to_end_ms.p99"])
    return [*found, "catch_up_mean_mb_s"] if "backlog" in cell.workload else found


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
