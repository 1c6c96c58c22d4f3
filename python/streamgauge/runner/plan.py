"""What a run will do: which trials, in which order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgauge.fleet.choice import THIS_MACHINE, FleetChoice
from streamgauge.model.seeds import trial_seed
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.workload import Workload
from streamgauge.systems.base import System


@dataclass(frozen=True)
class TrialPlan:
    """One workload on one system, once."""

    number: int
    """Place in the run's order, from 1."""
    repeat: int
    """From 1."""
    choice: SystemChoice[System]
    workload: Workload
    seed: int
    """The same for all systems of a repeat, so that they meet the same arrivals."""
    limit_s: float | None = None
    """The trial is ended when it has taken so long, from its beginning to its audit; None: each phase has a limit of
    its own and that is all."""


@dataclass(frozen=True)
class RunPlan:
    """A run before it starts."""

    name: str
    command: tuple[str, ...]
    trials: tuple[TrialPlan, ...]
    seed: int
    out: Path
    """Where the run's directory is made."""
    data: Path | None
    """Where systems keep their data; None: within the run's directory."""
    fleet: FleetChoice = THIS_MACHINE
    """Where the load workers run."""


def order_trials(
    choices: Sequence[SystemChoice[System]], workloads: Sequence[Workload], repeats: int, seed: int
) -> tuple[TrialPlan, ...]:
    """All cells (workload x system), `repeats` times.

    Round by round, so that a machine that changes over the hours changes for all systems alike. A single
    round goes in the order given; with several, each is shuffled by the seed. So is a single one in which a workload has several rates: what changes with
    time would look like what changes with the rate.
    """
    has_curve = len({workload.name for workload in workloads}) < len(workloads)
    shuffler = random.Random(seed)
    trials: list[TrialPlan] = []
    for repeat in range(1, repeats + 1):
        cells = [(choice, workload) for workload in workloads for choice in choices]
        if repeats > 1 or has_curve:
            shuffler.shuffle(cells)
        for choice, workload in cells:
            drawn = trial_seed(seed, workload.name, repeat)
            trials.append(TrialPlan(len(trials) + 1, repeat, choice, workload, drawn))
    return tuple(trials)
