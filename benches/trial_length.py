"""Whether trials of a study are longer than they need to be: how far a cell's figures spread from start to start, by how much of each trial counts.

    .venv/bin/python benches/trial_length.py RUN...    directories of studies that were run

Of each trial the first seconds that were measured, as if it had ended then; the spread is the standard deviation of a figure's logarithm over the first trial
of a cell on each start, pooled over cells (and runs): 0.1 is about 10 %. Where it stays the same, the rest of each trial told nothing that another start would
not tell better.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamgauge.analysis.intervals import Intervals
from streamgauge.store.plan_file import read_plan
from streamgauge.vocabulary.histograms import Histogram, merge
from streamgauge.vocabulary.phases import MEASURE

PARTS = (1.0, 0.75, 0.5, 0.33, 0.2)
METRICS = ("publish", "end_to_end")
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}

Spread = tuple[str, str, float]
"""Metric, figure, part of the trial."""


def figures(found: Histogram) -> Iterator[tuple[str, float]]:
    """Those of a trial, or of a part of one, that are known."""
    named = [("mean", found.mean), *((name, found.percentile(of)) for name, of in PERCENTILES.items())]
    return ((name, value) for name, value in named if value)


def first_trials(run: Path) -> Iterator[tuple[str, Path]]:
    """A study's cells and the directories of their trials, the first one on each start."""
    plan = read_plan(run)
    heating = {cell.cell for cell in plan.cells if cell.heats}
    seen: set[tuple[str, int | None]] = set()
    for trial in plan.trials:
        start = trial.cell, trial.round
        if trial.cell not in heating and start not in seen:
            seen.add(start)
            yield trial.cell, run / "trials" / f"{trial.number:03d}"


def of_cells(run: Path) -> dict[str, dict[Spread, list[float]]]:
    """Logarithms of each cell's figures, one for each start."""
    cells: dict[str, dict[Spread, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell, directory in first_trials(run):
        intervals = Intervals.read(directory)
        for metric in METRICS:
            seconds = [one for _, one in sorted(intervals.histograms_by_interval(metric, MEASURE).items())]
            for part in PARTS:
                for figure, value in figures(merge(seconds[: max(1, round(part * len(seconds)))])):
                    cells[cell][metric, figure, part].append(math.log(value))
    return cells


def pooled(cells: Sequence[dict[Spread, list[float]]], of: Spread) -> float:
    """The standard deviation over starts."""
    known = [found[of] for found in cells if len(found[of]) > 1]
    squares = math.fsum((len(one) - 1) * statistics.variance(one) for one in known)
    return math.sqrt(squares / sum(len(one) - 1 for one in known)) if known else math.nan


def main() -> None:
    """Reads the runs and prints a line for each figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    cells = [cell for run in parser.parse_args().runs for cell in of_cells(run).values()]
    print(f"{'of each trial':22}" + "".join(f"{part:8.0%}" for part in PARTS))
    for metric in METRICS:
        for figure in ("mean", *PERCENTILES):
            print(
                f"{metric + ' ' + figure:22}"
                + "".join(f"{pooled(cells, (metric, figure, part)):8.3f}" for part in PARTS)
            )


if __name__ == "__main__":
    main()
