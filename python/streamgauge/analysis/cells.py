"""Trials that repeat each other form a cell; its figure is the median over trials, with the smallest and
largest beside it.

Only valid trials enter the median while there are any: an invalid one says something about the generator, not
about the system.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from streamgauge.model.result import TrialResult

Key = tuple[str, ...]

INTERVAL_TRIALS_MIN = 3
"""With two values a median and an interval say no more than the two values."""
BOOTSTRAP_DRAWS = 2000
BOOTSTRAP_SEED = 1


@dataclass(frozen=True)
class Middle:
    """A figure over the trials of a cell."""

    median: float
    low: float
    """Smallest."""
    high: float
    """Largest."""
    trials: int
    interval: tuple[float, float] | None = None
    """Bootstrap 95 % interval of the median over trials; None with fewer than INTERVAL_TRIALS_MIN of them."""


@dataclass(frozen=True)
class Cell:
    """All trials of one system, version, size, level and workload."""

    key: Key
    trials: tuple[TrialResult, ...]

    @property
    def first(self) -> TrialResult:
        """The trial that stands for what is the same in all of them."""
        return self.trials[0]

    @property
    def counted(self) -> tuple[TrialResult, ...]:
        """Trials whose figures enter the median: the valid ones, or all when none is."""
        valid = tuple(trial for trial in self.trials if trial.validity.valid)
        return valid or self.trials

    @property
    def valid_count(self) -> int:
        """Number of valid trials."""
        return sum(trial.validity.valid for trial in self.trials)

    @property
    def clean(self) -> bool:
        """Whether every audit was clean."""
        return all(trial.audit.clean for trial in self.trials)

    def middle(self, figure: Callable[[TrialResult], float | None]) -> Middle | None:
        """Median, smallest and largest of a figure; None when no counted trial has it."""
        found = [value for value in map(figure, self.counted) if value is not None]
        if not found:
            return None
        return Middle(statistics.median(found), min(found), max(found), len(found), interval(found))

    def median(self, figure: Callable[[TrialResult], float | None]) -> float | None:
        """The median alone."""
        middle = self.middle(figure)
        return None if middle is None else middle.median


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Percentile bootstrap 95 % interval of the median; None for too few values. The same values give the same
    interval."""
    if len(values) < INTERVAL_TRIALS_MIN:
        return None
    drawn = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(values), (BOOTSTRAP_DRAWS, len(values)))
    medians = np.median(np.asarray(values, dtype=np.float64)[drawn], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)


def key_of(trial: TrialResult) -> Key:
    """What makes two trials repeats of each other."""
    asked = trial.workload.model_dump_json(exclude={"file"})
    return (
        trial.system,
        trial.system_version,
        trial.client,
        str(trial.nodes),
        trial.durability.declared or "",
        asked,
    )


def cells(results: Sequence[TrialResult]) -> list[Cell]:
    """Groups trials, in the order in which each cell first ran."""
    groups: dict[Key, list[TrialResult]] = {}
    for trial in results:
        groups.setdefault(key_of(trial), []).append(trial)
    return [Cell(key, tuple(trials)) for key, trials in groups.items()]
