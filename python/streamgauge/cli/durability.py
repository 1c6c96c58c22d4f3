"""`streamgauge durability`: what an acknowledgement is worth."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer

from streamgauge.cli.carry_out import show_durability
from streamgauge.cli.execute import open_events
from streamgauge.cli.watch import make_observer
from streamgauge.model.durability import EXPERIMENTS, Experiment
from streamgauge.model.power_cut import read_place, read_survivors
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.model.trust import Trust
from streamgauge.runner.durability.matrix import matrix as all_cells
from streamgauge.runner.durability.run import DurabilityPlan, DurabilityRun, distinct
from streamgauge.systems.registry import systems as known
from streamgauge.systems.support import powercut
from streamgauge.vocabulary.errors import InputError, SystemFailure
from streamgauge.vocabulary.units import parse_duration

Found = TypeVar("Found")


def durability(
    systems: str | None,
    nodes: int | None,
    level: str | None,
    experiments: str,
    cuts: int,
    quick: bool,
    write_back: str | None,
    matrix: bool,
    seed: int | None,
    out: Path,
    data: Path | None,
    events: str | None,
    quiet: bool,
    trust_file: list[str] | None,
    survivors: str | None,
    at: str | None,
    replay: int | None,
) -> None:
    """The work of commands/durability.py."""
    if (systems is None) != matrix:
        raise InputError("expected a system, such as 'streamgauge durability kafka', or --all (not both)")
    wanted = read_experiments(experiments)
    written_back = read_write_back(write_back)
    kept = _read("--survivors", survivors, read_survivors)
    place = _read("--at", at, read_place)
    if replay is not None and seed is None:
        raise InputError("--replay: expected --seed too, that of the run whose cut is to be made again")
    if matrix:
        if nodes is not None or level is not None:
            raise InputError("--all has nodes and levels of its own: leave --nodes and --durability out")
        choices = all_cells(known())
    else:
        overrides = SystemOverrides(nodes=nodes, level=level, trust=Trust.parse(trust_file))
        choices = choose_systems(systems or "", overrides, known())
    for choice in choices:
        if choice.request.connect:
            raise InputError(f"{choice.name}: a cluster that already runs (connect) is not ours to cut")
        if choice.request.tls:
            raise InputError(f"{choice.name}: tls: the experiments are made in plain text; leave it out")
        missing = choice.system.missing()
        if missing:
            raise SystemFailure(f"{choice.system.title} cannot run here: {missing}")
    lacking = powercut.missing()
    if lacking is not None:
        raise SystemFailure(
            f"the experiments need disks that can lose power, and there are none here: {lacking}"
        )
    plan = DurabilityPlan(
        name=distinct(choices),
        command=("streamgauge", *sys.argv[1:]),
        choices=tuple(choices),
        experiments=wanted,
        cuts=cuts,
        quick=quick,
        write_back=written_back,
        seed=seed if seed is not None else secrets.randbits(31),
        out=out,
        data=data,
        survivors=kept,
        place=place,
        only=replay,
    )
    sink = open_events(events)
    observer = make_observer(sink, quiet=quiet)
    try:
        run = DurabilityRun(plan, observer)
        status = run.execute()
    finally:
        observer.close()
        if sink is not None and sink is not sys.stdout:
            sink.close()
    show_durability(run.directory)
    raise typer.Exit(status)


def _read(option: str, text: str | None, read: Callable[[str], Found]) -> Found | None:
    """What an option says, when it is given. Raises InputError."""
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


def read_experiments(text: str) -> tuple[Experiment, ...]:
    """The experiments of a comma list, in their own order. Raises InputError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown or not names:
        raise InputError(f"--experiments {text}: expected a list of {', '.join(EXPERIMENTS)}")
    return tuple(name for name in EXPERIMENTS if name in names)


def read_write_back(text: str | None) -> str | None:
    """The age as `gauge powercut` takes it. Raises InputError."""
    if text is None:
        return None
    try:
        return f"{round(parse_duration(text) * 1000)}ms"
    except ValueError as error:
        raise InputError(f"--write-back {text}: {error}") from None
