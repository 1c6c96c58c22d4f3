"""Gates of `run` and `compare`: read before anything is started, judged at the end, told to people and to programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from streamgauge.analysis import gates as judging
from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.gates import GateResult, status_of, subject_of
from streamgauge.analysis.match import RATE, Traits, asked_traits, match, traits_of
from streamgauge.analysis.sides import Side, ambiguous, read_side
from streamgauge.cli.options import Undecided
from streamgauge.cli.outputs import Asked
from streamgauge.model.gate import Gate, read_gates
from streamgauge.model.result import TrialResult
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.workload import Workload
from streamgauge.report import gates as told
from streamgauge.systems.base import System
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.exit_status import ExitStatus
from streamgauge.vocabulary.format import plural

Key = tuple[str, str, float | None]
"""System, workload and rate, by which a run tells its cells apart."""


@dataclass(frozen=True)
class Gating:
    """Gates of a run that is about to start. Its baseline, and which cell of it stands for which, are settled from now on."""

    asked: Asked
    gates: tuple[Gate, ...]
    planned: tuple[Traits, ...]
    baseline: Side | None
    bases: Mapping[Key, Cell]

    def judge(self, results: Sequence[TrialResult]) -> list[GateResult]:
        """What became of each gate on each cell that was to run."""
        found = cells([one for one in results if one.status == "complete"])
        ran = {_key(traits_of(cell)) for cell in found}
        questions: list[judging.Question] = []
        alone: list[GateResult] = []
        for cell in found:
            traits = traits_of(cell)
            base = self.bases.get(_key(traits))
            for gate in self.gates:
                if self.baseline is not None and base is None:
                    alone.append(self._undecided(gate, traits, self.unmatched))
                else:
                    questions.append(judging.Question(gate, cell, base))
        nothing = [
            self._undecided(gate, traits, "no trial was completed")
            for traits in self.planned
            if _key(traits) not in ran
            for gate in self.gates
        ]
        return judging.judge(questions) + alone + nothing

    def _undecided(self, gate: Gate, traits: Traits, why: str) -> GateResult:
        subject = subject_of(traits, of_a_curve=self._is_of_a_curve(traits))
        return judging.undecided(gate, subject, why)

    def _is_of_a_curve(self, traits: Traits) -> bool:
        return any(
            one["workload"] == traits["workload"] and one[RATE] != traits[RATE] for one in self.planned
        )

    @property
    def unmatched(self) -> str:
        """Why a cell has no baseline."""
        assert self.baseline is not None, "only then a cell can be without one"
        return f"the baseline {self.baseline.run_id} has nothing to compare it with"

    def about_baseline(self) -> list[str]:
        """Which run it is, and what of either side does not match: said before a run and after it."""
        if self.baseline is None:
            return []
        side = self.baseline
        trials = sum(len(cell.trials) for cell in side.cells)
        valid = sum(cell.valid_count for cell in side.cells)
        lines = [f"baseline: {side.run_id} ({plural(trials, 'trial')}, {valid} valid)"]
        if side.status not in ("complete", "imported"):
            lines.append(
                f"warning: the baseline's status is '{side.status}': not everything in it was measured"
            )
        used = [id(cell) for cell in self.bases.values()]
        for cell in side.cells:
            if id(cell) not in used:
                lines.append(f"warning: only the baseline has {cell.name}")
            elif not cell.valid:
                lines.append(
                    f"warning: {cell.name}: no trial of the baseline is valid, so its gates stay undecided"
                )
            if cell.lost:
                lines.append(f"warning: {cell.name}: the baseline lost {plural(cell.lost, 'message')}")
        lines += [
            f"warning: {subject_of(traits, of_a_curve=self._is_of_a_curve(traits))}: {self.unmatched}, so its gates stay undecided"
            for traits in self.planned
            if _key(traits) not in self.bases
        ]
        return lines


def prepare(
    asked: Asked, out: Path, workloads: Sequence[Workload], choices: Sequence[SystemChoice[System]]
) -> Gating | None:
    """Reads gates and settles their baseline, before anything is started; None where no gate was asked for. Raises InputError."""
    gates = read_gates(asked.fail_if, of_ratios=asked.baseline is not None)
    asked.outputs.check()
    if not gates:
        given = {
            "--baseline": asked.baseline,
            "--undecided": asked.undecided,
            "--json, --markdown or --junit": asked.outputs.any,
        }
        for option in (option for option, value in given.items() if value):
            raise InputError(f"{option} needs --fail-if: what must not be, such as 'publish_ms.p99 > 1.1'?")
        return None
    swept = next((workload.name for workload in workloads if workload.sweep), None)
    if swept is not None:
        raise InputError(
            f"--fail-if with --rate sweep ({swept}): a sweep chooses its rates while it runs and goes beyond what is sustained, so there is no telling "
            "beforehand what must hold; expected the rates at which it must: --rate 10k,20k,50k"
        )
    planned = tuple(_planned(choice, workload) for workload in workloads for choice in choices)
    if asked.baseline is None:
        return Gating(asked, gates, planned, None, {})
    side = read_side(asked.baseline, out)
    return Gating(asked, gates, planned, side, _bases(side, planned))


def finish(
    results: Sequence[GateResult],
    asked: Asked,
    console: Console,
    about: Sequence[str] = (),
    *,
    before: Sequence[str] = (),
    page: str = "",
    **document: Any,
) -> ExitStatus:
    """Tells what became of gates; the exit status that they call for. `about`: what has to be known of them, a line each. `before`: what else belongs into
    the Markdown; `page`: what --html writes; `document`: into the JSON."""
    for one in results:
        console.print(told.sentence(one), markup=False, highlight=False, soft_wrap=True)
    document |= {"about": list(about), "gates": [told.as_json(one) for one in results]}
    parts = [*before, *map(told.cell_text, about), *([told.markdown(results)] if results else [])]
    asked.outputs.write(document, "\n\n".join(parts) + "\n", told.junit(results), page)
    return status_of(results, undecided_passes=asked.undecided is Undecided.passes)


def _bases(side: Side, planned: Sequence[Traits]) -> dict[Key, Cell]:
    """The baseline's cell for each that is to run. Raises InputError when there is none, it is not clear which, or none has a valid trial."""
    matching = match(side.traits, planned)
    why = ambiguous(matching, side.traits, list(planned))
    if why is not None:
        raise InputError(f"--baseline {side.asked}: {why}")
    bases = {_key(planned[j]): side.cells[i] for i, j in matching.pairs}
    if not bases:
        will = ", ".join(f"{one['workload']} on {one['system']}" for one in planned)
        raise InputError(
            f"--baseline {side.asked}: nothing of it matches: {side.run_id} measured {side.names}; this run would measure {will}"
        )
    if not any(cell.valid for cell in bases.values()):
        raise InputError(
            f"--baseline {side.asked}: no trial of {side.run_id} that could be compared with is valid: expected a run with valid trials"
        )
    return bases


def _planned(choice: SystemChoice[System], workload: Workload) -> Traits:
    """What is known of a cell before it runs."""
    request = choice.request
    traits: dict[str, Any] = {"system": choice.name}
    if not request.connect:
        # Of a cluster that already runs only the cluster can tell.
        traits |= {"version": choice.version, "nodes": request.nodes, "tls": "on" if request.tls else "off"}
    if request.level is not None:
        traits["durability"] = request.level
    return traits | asked_traits(workload.result())


def _key(traits: Traits) -> Key:
    return traits["system"], traits["workload"], traits[RATE]
