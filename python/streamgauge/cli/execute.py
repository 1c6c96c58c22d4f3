"""What `run` and `bench` share: what was asked, read and checked before anything is fetched or started."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from streamgauge.cli.deferred import load
from streamgauge.cli.impossible import impossible, started_at
from streamgauge.cli.outputs import Asked
from streamgauge.cli.pages import NO_PAGES, Pages
from streamgauge.fleet.agents import read_agents
from streamgauge.fleet.choice import THIS_MACHINE, FleetChoice
from streamgauge.model.like_with_like import OWN, alike
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workloads
from streamgauge.model.system_file import SystemChoice, SystemOverrides, choose_systems, parse_tls
from streamgauge.model.workload import Workload
from streamgauge.systems.base import System
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.bounds import QUIET_LIMIT
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.exit_status import ExitStatus

NO_GATES = Asked()


@dataclass(frozen=True)
class Request:
    """A run as it was asked for; texts are not yet read."""

    workloads: tuple[str, ...]
    systems: str
    nodes: int | None
    durability: str | None
    connect: tuple[str, ...]
    overrides: Overrides
    repeat: int
    seed: int | None
    out: Path
    data: Path | None
    events: str | None
    fleet: FleetChoice = THIS_MACHINE
    gates: Asked = NO_GATES
    system_metrics: tuple[str, ...] = ()
    """Where a cluster that runs already tells its own metrics."""
    agents: tuple[str, ...] = ()
    """Agents on its machines."""
    pages: Pages = NO_PAGES
    """What is served while it runs."""
    at: str | None = None
    """Where systems are started that are started here."""
    insecure: bool = False
    """Whether they may serve whoever reaches them there."""
    tls: str | None = None
    quiet_limit: float = QUIET_LIMIT
    """So many times as long as asked a trial may be measured until enough of it was quiet."""
    quiet: bool = False
    """Whether nothing is shown of how it goes."""
    told: tuple[str, ...] = ()
    """What was settled for whoever asked, said before anything starts."""


def execute(request: Request) -> ExitStatus:
    """Checks everything, then runs it; the exit status.

    Raises InputError with all problems of the input before anything is fetched or started.
    """
    workloads, choices = _read(request)
    choices, told = alike(choices, request.durability)
    request = replace(request, told=(told,) if told else ())
    if request.events == "-" and request.gates.outputs.on_stdout:
        raise InputError("--events -: standard output is for --json, --markdown or --junit already")
    # What runs trials and makes reports takes longer to load than to say what is wrong with the input.
    status: ExitStatus = load("streamgauge.cli.carry_out:carry_out")(request, workloads, choices)
    return status


def _read(request: Request) -> tuple[list[Workload], list[SystemChoice[System]]]:
    """Workloads and systems; all problems of all of them at once."""
    problems: list[Problem] = []
    workloads: list[Workload] = []
    names: list[str] = []
    choices: list[SystemChoice[System]] = []
    for text in request.workloads:
        try:
            read = read_workloads(text, request.overrides)
            names.append(read[0].name)
            workloads += [replace(workload, quiet_limit=request.quiet_limit) for workload in read]
        except InputError as error:
            problems.extend(one for one in error.problems if one not in problems)
    problems.extend(
        Problem(f"two workloads are called '{name}': give each a name of its own (key 'name')")
        for name in sorted({name for name in names if names.count(name) > 1})
    )
    try:
        wanted = SystemOverrides(
            nodes=request.nodes,
            level=None if request.durability == OWN else request.durability,
            connect=request.connect,
            metrics=request.system_metrics,
            agents=request.agents,
            tls=parse_tls(request.tls),
            trust=request.overrides.trust,
        )
        choices = choose_systems(request.systems, wanted, systems())
        for choice in choices:
            read_agents(choice.request.agents)
        if request.at is not None:
            choices = started_at(request.at, choices, insecure=request.insecure)
        elif request.insecure:
            problems.append(Problem("--insecure: says who is served at an address (--at); leave it out"))
    except InputError as error:
        problems.extend(error.problems)
    problems.extend(
        Problem(
            f"{workload.name}: reads topics that exist, so it needs a cluster that runs: --connect HOST:PORT"
        )
        for workload in workloads
        if workload.consumes_only and not all(choice.request.connect for choice in choices)
    )
    # What a workload cannot do at one rate it cannot do at another.
    problems.extend(dict.fromkeys(impossible(request.fleet, workloads, choices)))
    if problems:
        raise InputError(problems)
    return workloads, choices


def open_events(target: str | None) -> TextIO | None:
    """Where events are written; None when nobody asked for them. Raises InputError."""
    if target is None:
        return None
    if target == "-":
        return sys.stdout
    try:
        return Path(target).open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--events {target}: cannot be written: {error.strerror}") from None


def shown(path: Path) -> str:
    """Relative to the working directory where that is shorter."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
