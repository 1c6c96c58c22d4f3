"""How many claims of a study would be decided with another budget: its rounds are played again from what a run of it has measured.

    .venv/bin/python benches/replays.py RUN [--budgets 15m,20m,30m] [--times 60] [--seed 1]

What is true is what the run has found: each cell's mean of each figure's logarithm. A trial that is played differs from it as one trial of the
run did from its own cell's mean, in all figures at once: one of the same cell, or as often one of any cell of its system. Rounds are chosen as a
study chooses them, and take what the run's took. Starts that differ, disturbances, void rounds and trials that are not valid do not come.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.analysis.study_rounds import next_round
from streamgauge.inference.checks import Sample, named_of
from streamgauge.inference.contrast import Value
from streamgauge.inference.looks import ROUNDS_MIN
from streamgauge.model.study_order import with_round
from streamgauge.model.study_plan import StudyPlan
from streamgauge.report.run import read_run
from streamgauge.report.study_page import outcome_of
from streamgauge.vocabulary.units import parse_duration


@dataclass(frozen=True)
class Replayed(StudyOutcome):
    """A study as far as it was played."""

    played: Mapping[tuple[str, str], Sequence[tuple[int, float]]]
    """Per cell and figure: numbers of trials, and values."""

    def sample(self, cell: str, figure: str) -> Sample:
        values = tuple(
            Value(value, *self._place(number), number)
            for number, value in self.played.get((cell, figure), ())
        )
        return Sample(values, None if values else "not played", len(values))


class Truth:
    """What a run has found, from which trials are drawn."""

    def __init__(self, run: StudyOutcome) -> None:
        self.run = run
        self.cells = [cell.cell for cell in run.plan.cells if not cell.heats]
        self.kept = {cell.cell: cell.system for cell in run.plan.cells}
        self.figures = sorted(
            {figure for judged in run.claims for test in judged.tests for _, figure in named_of(test.test)}
        )
        self.means: dict[str, dict[str, float]] = {}
        self.residuals: dict[str, list[dict[str, float]]] = {}
        for cell in self.cells:
            self._learn(cell)
        began_ms = min(trial.result.started_unix_ms for trial in run.trials)
        lasted_s = max(trial.result.ended_unix_ms for trial in run.trials) / 1000 - began_ms / 1000
        self.slowness = lasted_s / run.plan.estimate_s()
        """Of the run: the time that it took over what its plan said."""

    def _learn(self, cell: str) -> None:
        found: dict[int, dict[str, float]] = {}
        for figure in self.figures:
            for one in self.run.sample(cell, figure).values:
                if one.value > 0:
                    found.setdefault(one.trial, {})[figure] = math.log(one.value)
        columns: dict[str, list[float]] = {}
        for logs in found.values():
            for figure, log in logs.items():
                columns.setdefault(figure, []).append(log)
        self.means[cell] = {figure: statistics.fmean(column) for figure, column in columns.items()}
        # A mean lies nearer to its own values than what is true does.
        apart = math.sqrt(len(found) / (len(found) - 1)) if len(found) > 1 else 0.0
        self.residuals[cell] = [
            {figure: apart * (log - self.means[cell][figure]) for figure, log in logs.items()}
            for logs in found.values()
        ]

    def trial(self, cell: str, drawn: random.Random) -> dict[str, float]:
        """One more trial of a cell: logarithms by figure."""
        others = [one for one in self.cells if self.kept[one] == self.kept[cell] and self.residuals[one]]
        source = drawn.choice([cell, drawn.choice(others)])
        apart = drawn.choice(self.residuals[source])
        return {figure: mean + apart.get(figure, 0.0) for figure, mean in self.means[cell].items()}


def play(truth: Truth, budget_s: float, drawn: random.Random) -> Replayed:
    """A study from its first round until its budget is used up."""
    run, played = truth.run, dict[tuple[str, str], list[tuple[int, float]]]()
    plan = run.plan.model_copy(update={"trials": []})

    def add(plan: StudyPlan, cells: Sequence[str], turns: int = 1) -> StudyPlan:
        plan = with_round(plan, cells, turns)
        for trial in plan.trials:
            if trial.round == plan.rounds and trial.cell in truth.cells:
                for figure, log in truth.trial(trial.cell, drawn).items():
                    played.setdefault((trial.cell, figure), []).append((trial.number, math.exp(log)))
        return plan

    for _ in range(ROUNDS_MIN):
        plan = add(plan, truth.cells)
    while True:
        found = Replayed(plan, run.study, run.manifest, (), played)
        wanted, turns = next_round(found, budget_s / truth.slowness - plan.estimate_s())
        if not wanted:
            return found
        plan = add(plan, wanted, turns)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the directory of a study with a budget that was run")
    parser.add_argument("--budgets", default="15m,20m,30m")
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    run = outcome_of(read_run(chosen.run))
    asked = [judged for judged in run.claims if not run.outside(judged)]
    decided = sum(judged.verdict.decided for judged in asked)
    truth = Truth(run)
    print(
        f"the run decided {decided} of {len(asked)} claims, in {truth.slowness:.2f} of the time that its plan said"
    )
    for budget in chosen.budgets.split(","):
        counts, verdicts = [], Counter[str]()
        for at in range(chosen.times):
            found = play(truth, parse_duration(budget), random.Random(chosen.seed * 1_000_000 + at)).claims
            counts.append(sum(judged.verdict.decided for judged in found))
            verdicts.update(judged.claim.claim for judged in found if judged.verdict.decided)
        print(f"{budget}: {statistics.fmean(counts):.1f} decided on average, {min(counts)} to {max(counts)}")
        for judged in asked:
            print(f"  {verdicts[judged.claim.claim] / chosen.times:5.0%}  {judged.claim.claim}")


if __name__ == "__main__":
    main()
