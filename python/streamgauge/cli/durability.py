"""`streamgauge durability`: what an acknowledgement is worth."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli import complete

if TYPE_CHECKING:
    from streamgauge.model.durability import Experiment

from streamgauge.cli.run import (
    OUT,
    DataOption,
    DurabilityOption,
    EventsOption,
    NodesOption,
    OutOption,
    SeedOption,
    TrustOption,
)


def durability(
    systems: Annotated[
        str | None,
        typer.Argument(
            metavar="SYSTEM[,SYSTEM...]",
            autocompletion=complete.systems,
            help="Systems, by name or by system file.",
        ),
    ] = None,
    nodes: NodesOption = None,
    level: DurabilityOption = None,
    experiments: Annotated[
        str,
        typer.Option(
            "--experiments",
            metavar="dose,accounting,cuts",
            autocompletion=complete.listed(("dose", "accounting", "cuts")),
            help="Which experiments to make.",
        ),
    ] = "dose,accounting,cuts",
    cuts: Annotated[
        int, typer.Option("--cuts", metavar="N", min=1, max=10_000, help="Power cuts of each kind.")
    ] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer doses, shorter loads.")] = False,
    write_back: Annotated[
        str | None,
        typer.Option(
            "--write-back",
            metavar="TIME",
            help="Disks keep by themselves what is older, as a kernel does: 30s [default: nothing, the worst case].",
        ),
    ] = None,
    matrix: Annotated[
        bool,
        typer.Option(
            "--all", help="All systems and settings that publications dispute (docs/durability.md)."
        ),
    ] = False,
    seed: SeedOption = None,
    out: OutOption = OUT,
    data: DataOption = None,
    events: EventsOption = None,
    trust_file: TrustOption = None,
) -> None:
    """Measure the durability level of a system: slow its disks, account for its syncs, cut its power.

    The level that settings declare is compared with the one that the experiments find. Exit status 1 when they
    differ.
    """
    from streamgauge.cli.execute import open_events, show_durability
    from streamgauge.cli.watch import make_observer
    from streamgauge.model.system_file import SystemOverrides, choose_systems
    from streamgauge.model.trust import Trust
    from streamgauge.runner.durability.matrix import matrix as all_cells
    from streamgauge.runner.durability.run import DurabilityPlan, DurabilityRun, distinct
    from streamgauge.systems import powercut
    from streamgauge.systems.registry import systems as known
    from streamgauge.vocabulary.errors import InputError, SystemFailure

    if (systems is None) != matrix:
        raise InputError("expected a system, such as 'streamgauge durability kafka', or --all (not both)")
    wanted = read_experiments(experiments)
    written_back = read_write_back(write_back)
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
    )
    sink = open_events(events)
    observer = make_observer(sink)
    try:
        run = DurabilityRun(plan, observer)
        status = run.execute()
    finally:
        observer.close()
        if sink is not None and sink is not sys.stdout:
            sink.close()
    show_durability(run.directory)
    raise typer.Exit(status)


def read_experiments(text: str) -> tuple[Experiment, ...]:
    """The experiments of a comma list, in their own order. Raises InputError."""
    from streamgauge.model.durability import EXPERIMENTS
    from streamgauge.vocabulary.errors import InputError

    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown or not names:
        raise InputError(f"--experiments {text}: expected a list of {', '.join(EXPERIMENTS)}")
    return tuple(name for name in EXPERIMENTS if name in names)


def read_write_back(text: str | None) -> str | None:
    """The age as `gauge powercut` takes it. Raises InputError."""
    from streamgauge.vocabulary.errors import InputError
    from streamgauge.vocabulary.units import parse_duration

    if text is None:
        return None
    try:
        return f"{round(parse_duration(text) * 1000)}ms"
    except ValueError as error:
        raise InputError(f"--write-back {text}: {error}") from None
