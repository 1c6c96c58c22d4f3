"""Trials that repeat each other form a cell; its figure is the median over trials, with the smallest and
largest beside it.

Only valid trials enter the median while there are any: an invalid one says something about the generator, not
about the system.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamgauge.inference.estimates import median_interval
from streamgauge.model.result import TrialResult
from streamgauge.vocabulary.units import format_rate

Key = tuple[str, ...]


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
    """95 % interval of the median over trials (analysis/estimates.py); None with too few of them."""

    @property
    def bounds(self) -> tuple[float, float]:
        """What is shown around the median: its interval, or the smallest and the largest where there is none."""
        return self.interval or (self.low, self.high)

    @property
    def kind(self) -> str:
        """What the bounds are called."""
        return "smallest and largest" if self.interval is None else "95 % interval"


@dataclass(frozen=True)
class Cell:
    """All trials of one system, version, size, level and workload."""

    key: Key
    trials: tuple[TrialResult, ...]
    of_a_curve: bool = False
    """Another cell beside it has the same system and workload at another rate: the rate is part of its name."""

    @property
    def first(self) -> TrialResult:
        """The trial that stands for what is the same in all of them."""
        return self.trials[0]

    @property
    def valid(self) -> tuple[TrialResult, ...]:
        """Trials on which something may be decided: what an invalid one shows is not the system."""
        return tuple(trial for trial in self.trials if trial.validity.valid)

    @property
    def counted(self) -> tuple[TrialResult, ...]:
        """Trials whose figures enter the median: the valid ones, or, for tables that mark them as invalid, all when none is."""
        return self.valid or self.trials

    @property
    def valid_count(self) -> int:
        """Number of valid trials."""
        return len(self.valid)

    @property
    def lost(self) -> int:
        """Messages that were acknowledged and never received, over all trials."""
        return sum(trial.audit.shows_lost for trial in self.trials)

    @property
    def name(self) -> str:
        """System and workload, for sentences."""
        return f"{self.first.system}, {self.workload_name}"

    @property
    def workload_name(self) -> str:
        """With the rate where there are several."""
        name, rate_msgs_s = self.first.workload.name, self.first.workload.rate_msgs_s
        return f"{name} at {format_rate(rate_msgs_s)}" if self.of_a_curve else name

    @property
    def clean(self) -> bool:
        """Whether every audit was clean."""
        return all(trial.audit.clean for trial in self.trials)

    def middle(self, figure: Callable[[TrialResult], float | None]) -> Middle | None:
        """Median, smallest and largest of a figure; None where `of_all` has none."""
        found = of_all(self.counted, figure)
        if not found:
            return None
        return Middle(statistics.median(found), min(found), max(found), len(found), median_interval(found))

    def median(self, figure: Callable[[TrialResult], float | None]) -> float | None:
        """The median alone."""
        middle = self.middle(figure)
        return None if middle is None else middle.median


def key_of(trial: TrialResult) -> Key:
    """What makes two trials repeats of each other."""
    return (trial.system, trial.tls, *key_but_for_tls(trial))


def key_but_for_tls(trial: TrialResult) -> Key:
    """What two trials have in common that differ at most in TLS, or in what their system is called (which may say so)."""
    return (
        trial.system_title,
        trial.system_version,
        trial.client,
        str(trial.nodes),
        trial.durability.declared or "",
        trial.authentication or "",
        json.dumps(trial.workload.asked),
    )


def of_all(trials: Sequence[TrialResult], figure: Callable[[TrialResult], float | None]) -> tuple[float, ...]:
    """A figure of each of these trials. Empty where any has none: what the others say may be what the luckier ones say. (A maximum of quiet time is not known
    where some of the time was not quiet; that of the undisturbed trials alone would stand below percentiles of all.)"""
    found = [figure(trial) for trial in trials]
    known = tuple(value for value in found if value is not None)
    return known if len(known) == len(found) else ()


def headline_p99(trials: Sequence[TrialResult]) -> tuple[float, ...]:
    """p99 of what each trial measures in the first place, in ms, where they have a logarithm; else empty, as where `of_all` is."""
    found = of_all(trials, lambda trial: trial.headline_ms.p99)
    return found if all(value > 0 for value in found) else ()


def cells(results: Sequence[TrialResult]) -> list[Cell]:
    """Groups trials, in the order in which each cell first ran."""
    groups: dict[Key, list[TrialResult]] = {}
    for trial in results:
        groups.setdefault(key_of(trial), []).append(trial)
    rates: dict[tuple[str, str], set[float | None]] = {}
    for first, *_ in groups.values():
        rates.setdefault((first.system, first.workload.name), set()).add(first.workload.rate_msgs_s)
    return [
        Cell(key, tuple(trials), len(rates[trials[0].system, trials[0].workload.name]) > 1)
        for key, trials in groups.items()
    ]
