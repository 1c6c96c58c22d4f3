"""Where the load of a study comes from and where its systems are started: the options of `run` with the same names, kept in the plan."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from streamgauge.cli.impossible import impossible, reachable, started_at
from streamgauge.fleet.choice import KUBERNETES, THIS_MACHINE, FleetChoice, choose_fleet
from streamgauge.fleet.kubernetes.settings import DEFAULT_FILE
from streamgauge.fleet.omb.addresses import read_addresses
from streamgauge.model.study_plan import PlannedLoad, StudyPlan, workload_of
from streamgauge.model.system_file import SystemChoice
from streamgauge.runner.study_systems import Clusters, choice_of, cluster_of
from streamgauge.store.private import with_home, without_home
from streamgauge.systems.base import System
from streamgauge.vocabulary.errors import InputError, Problem


@dataclass(frozen=True)
class LoadOptions:
    """The options as they were given."""

    fleet: str | None = None
    workers: int | None = None
    topology: str = "same"
    on_worker_loss: str = "end"
    at: str | None = None
    insecure: bool = False

    @property
    def given(self) -> dict[str, object]:
        """Those that were given, by their names."""
        usual = LoadOptions()
        return {
            name.replace("_", "-"): value
            for name, value in vars(self).items()
            if value != getattr(usual, name)
        }

    def planned(self) -> tuple[PlannedLoad | None, FleetChoice]:
        """For the plan, and the fleet. Raises InputError."""
        if not self.given:
            return None, THIS_MACHINE
        if self.insecure and self.at is None:
            raise InputError("--insecure: says who is served at an address (--at); leave it out")
        fleet = choose_fleet(self.fleet, self.workers, self.topology, self.on_worker_loss)
        load = PlannedLoad(
            fleet=None if self.fleet is None else without_home(_found_again(self.fleet)),
            workers=self.workers,
            topology=fleet.topology,
            on_worker_loss=fleet.on_loss,
            at=self.at,
            insecure=self.insecure,
        )
        return load, fleet


def _found_again(fleet: str) -> str:
    """The text of `--fleet` as it means the same from any directory."""
    if read_addresses(fleet) is not None:
        return fleet
    word, _, file = fleet.partition(":")
    if word == KUBERNETES:
        return f"{word}:{Path(file or DEFAULT_FILE).absolute()}"
    return str(Path(fleet).absolute())


def fleet_of(plan: StudyPlan) -> FleetChoice:
    """The fleet of a plan that is gone on with. Raises InputError when it is not there any more."""
    load = plan.load
    if load is None:
        return THIS_MACHINE
    fleet = load.fleet
    if fleet is not None and fleet.startswith(f"{KUBERNETES}:"):
        fleet = f"{KUBERNETES}:{with_home(fleet.partition(':')[2])}"
    elif fleet is not None:
        fleet = str(with_home(fleet)) if read_addresses(fleet) is None else fleet
    return choose_fleet(fleet, load.workers, load.topology, load.on_worker_loss)


def refuse_impossible(plan: StudyPlan, fleet: FleetChoice, clusters: Clusters) -> None:
    """Raises InputError for what does not go together in a cell, with all such problems."""
    problems: list[Problem] = []
    for cell in plan.cells:
        choice = choice_of(cell, cluster_of(plan, cell, clusters))
        if plan.load is not None and plan.load.at is not None and not choice.request.connect:
            try:
                (choice,) = started_at(plan.load.at, [choice], insecure=plan.load.insecure)
            except InputError as error:
                problems.extend(error.problems)
                continue
        problems.extend(impossible(fleet, [workload_of(cell)], [choice]))
    if problems:
        raise InputError(list(dict.fromkeys(problems)))


def say_load(plan: StudyPlan, clusters: Clusters) -> None:
    """Who makes the load, and who is served where."""
    if plan.load is None:
        return
    print(f"  load: {plan.load.told}", file=sys.stderr)
    choices: dict[str, SystemChoice[System]] = {}
    for cell in plan.cells:
        choices.setdefault(cell.system, choice_of(cell, cluster_of(plan, cell, clusters), load=plan.load))
    for note in reachable(list(choices.values())):
        print(f"note: {note}", file=sys.stderr)
