"""`streamgauge study` and `streamgauge studies`: published studies, repeated."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.run import OUT, DataOption, EventsOption, OutOption, SeedOption

if TYPE_CHECKING:
    from streamgauge.model.study import Study
    from streamgauge.model.study_plan import StudyPlan
    from streamgauge.store.directory import RunDirectory


def studies() -> None:
    """List the studies that ship with streamgauge."""
    from streamgauge.cli.study_durability import listed
    from streamgauge.model.study import experiment_study_names, read_study, study_names

    names = study_names()
    width = max(len(name) for name in (*names, *experiment_study_names()))
    for name in names:
        study = read_study(name)
        source = study.written.source
        typer.echo(
            f"{name:<{width}}  {study.written.title} ({source.publisher}, {source.published}): "
            f"{len(study.cells)} cells, {len(study.written.claims)} claims"
        )
    for name, line in listed():
        typer.echo(f"{name:<{width}}  {line}")


def study(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE|RUN]",
            help="A study (streamgauge studies), a study file, or with --resume also a run of one.",
        ),
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", metavar="laptop|full", help="As this machine can, or as published.")
    ] = "laptop",
    quick: Annotated[
        bool, typer.Option("--quick", help="About 20 minutes: fewer cells and nodes, short trials.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats",
            "--repeat",
            min=1,
            max=100,
            help="Trials of each cell [default: 5; 3 if quick]; of durability: power cuts.",
        ),
    ] = None,
    seed: SeedOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the latest run of the study.")] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="CELL[,CELL...]", help="Only these cells: names or patterns."),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", metavar="TIME", help="Measured time of every trial.")
    ] = None,
    connect: Annotated[
        list[str] | None,
        typer.Option(
            "--connect",
            metavar="SYSTEM=HOST:PORT[,...]",
            help="Measure a cluster that runs already instead of starting this system; may be repeated.",
        ),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Print the cells, what is scaled and how long it takes, and stop.")
    ] = False,
    out: OutOption = OUT,
    data: DataOption = None,
    events: EventsOption = None,
) -> None:
    """Repeat a published study: its report shows our figures beside the printed ones, and which claims hold here.

    Cells go in a seeded random order. Ctrl-C or a crash loses nothing: --resume goes on where it ended.
    """
    from streamgauge.cli import study_durability
    from streamgauge.cli.execute import open_events, show_outcome
    from streamgauge.cli.watch import make_observer
    from streamgauge.model.study_plan import Wishes
    from streamgauge.runner.study import StudyRun

    of_durability = study_durability.meant(name, out, resume=resume)
    if of_durability is not None:
        study_durability.refuse(scale=scale, duration=duration, connect=connect)
        if resume:
            _refuse_with_resume(repeats=repeats, seed=seed, only=only)
        request = study_durability.Request(
            quick=quick,
            cuts=repeats,
            seed=seed,
            only=only,
            plan_only=plan_only,
            out=out,
            data=data,
            events=events,
        )
        raise typer.Exit(study_durability.execute(of_durability, request))
    directory: RunDirectory | None = None
    probes: list[dict[str, Any]] = []
    if resume:
        _refuse_with_resume(repeats=repeats, seed=seed, only=only, duration=duration, connect=connect)
        directory, plan = _resumed(name, out)
        _say_resumed(directory, plan)
    else:
        wishes = Wishes(
            scale=_scale(scale, quick),
            seed=seed if seed is not None else secrets.randbits(32),
            repeats=repeats,
            only=tuple(part.strip() for part in only.split(",")) if only else (),
            duration_s=_seconds(duration),
            connect=_addresses(connect or []),
        )
        found = _found(name)
        plan, probes = _planned(found, wishes, data or out)
        _say_plan(found, plan)
    if plan_only:
        return
    sink = open_events(events)
    try:
        observer = make_observer(sink)
        try:
            run = StudyRun(
                plan,
                observer,
                command=("streamgauge", *sys.argv[1:]),
                out=out,
                data=data,
                directory=directory,
                probes=probes,
            )
            outcome = run.execute()
        finally:
            observer.close()
        show_outcome(outcome.directory.path, to_stderr=sink is sys.stdout)
    finally:
        if sink is not None and sink is not sys.stdout:
            sink.close()
    raise typer.Exit(outcome.exit_status)


def _refuse_with_resume(**given: Any) -> None:
    """A plan that was made is not changed."""
    from streamgauge.model.errors import InputError

    for option, value in given.items():
        if value is not None and value != []:
            raise InputError(
                f"--{option} belongs to the plan of a study, which was made when it was started; leave it out with --resume"
            )


def _found(name: str | None) -> Study:
    from streamgauge.model.errors import InputError
    from streamgauge.model.study import experiment_study_names, read_study, study_names

    if name is None:
        names = ", ".join([*study_names(), *experiment_study_names()])
        raise InputError(f"which study? expected one of {names}, or a file")
    return read_study(name)


def _scale(text: str, quick: bool) -> Any:
    from streamgauge.model.errors import InputError, nearest

    if text not in ("laptop", "full"):
        hint = nearest(text, ("laptop", "full")) or ": expected laptop or full"
        raise InputError(f"--scale {text}{hint}")
    if quick and text == "full":
        raise InputError("--quick shortens the laptop's scale; leave out one of --quick and --scale full")
    return "quick" if quick else text


def _seconds(duration: str | None) -> float | None:
    from streamgauge.model.overrides import Overrides

    return Overrides.parse(duration=duration).duration_s


def _addresses(texts: list[str]) -> dict[str, tuple[str, ...]]:
    from streamgauge.model.errors import InputError, nearest
    from streamgauge.systems.registry import systems

    found = {}
    for text in texts:
        name, separator, addresses = text.partition("=")
        if not separator or not addresses:
            raise InputError(f"--connect {text}: expected SYSTEM=HOST:PORT, such as kafka=10.0.0.1:9092")
        if name not in systems():
            hint = nearest(name, systems()) or f"; known systems: {', '.join(systems())}"
            raise InputError(f"--connect {text}: no system '{name}'{hint}")
        found[name] = tuple(addresses.split(","))
    return found


def _planned(study: Study, wishes: Any, data: Path) -> tuple[StudyPlan, list[dict[str, Any]]]:
    """The plan for this machine, and the probe that it is based on."""
    import psutil

    from streamgauge.fleet.binary import find_gauge
    from streamgauge.model.scaling import Machine
    from streamgauge.model.study_plan import plan_study
    from streamgauge.runner import machine

    probes: list[dict[str, Any]] = []
    try:
        print("probing the machine", file=sys.stderr)
        data.mkdir(parents=True, exist_ok=True)
        probes.append(machine.steady_probe(find_gauge(), data, "before"))
    except machine.ProbeFailure as error:
        print(f"note: the machine's limits were not measured: {error}", file=sys.stderr)
    disk = probes[0].get("disk", {}).get("write_mb_s") if probes else None
    here = Machine(machine.cores(), psutil.virtual_memory().total, disk)
    return plan_study(study, wishes, here), probes


def _resumed(name: str | None, out: Path) -> tuple[RunDirectory, StudyPlan]:
    """The run that is meant, and its plan."""
    from streamgauge.model.errors import InputError
    from streamgauge.model.study import study_names
    from streamgauge.store.directory import RunDirectory, list_runs
    from streamgauge.store.recover import is_running
    from streamgauge.store.study import is_study, read_plan

    runs = [run for run in list_runs(out) if is_study(run.path)]
    if name is None or name in study_names():
        plans = [(run, read_plan(run.path)) for run in reversed(runs)]
        found = next((pair for pair in plans if name in (None, pair[1].study)), None)
        if found is None:
            of = f" of {name}" if name else ""
            raise InputError(f"--resume: no run{of} in {out}; start one without --resume")
    else:
        run = RunDirectory.open(name, out)
        found = (run, read_plan(run.path))
    if is_running(found[0]):
        raise InputError(f"--resume: {found[0].path} is still going on")
    return found


def _say_resumed(directory: RunDirectory, plan: StudyPlan) -> None:
    from streamgauge.runner.study import numbers_finished, shown

    done = numbers_finished(directory)
    left = [trial.number for trial in plan.trials if trial.number not in done]
    print(
        f"resuming {directory.run_id}: {len(done)} of {len(plan.trials)} trials are done, "
        f"{len(left)} are left, about {shown(plan.estimate_s(left))}",
        file=sys.stderr,
    )


def _say_plan(study: Study, plan: StudyPlan) -> None:
    """What will be run, what is scaled, and how long it takes."""
    from streamgauge.runner.study import shown

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    say(f"{study.written.title} ({study.written.source.publisher}, {study.written.source.published})")
    width = max(len(cell.cell) for cell in plan.cells)
    for cell in [cell for cell in plan.cells if not cell.heats]:
        scaled = f": {'; '.join(cell.scaled)}" if cell.scaled else ""
        say(f"  {cell.cell:<{width}}  {cell.repeats} x {shown(cell.trial_s)}{scaled}")
    for reason in dict.fromkeys(plan.left_out.values()):
        cells = [name for name, why in plan.left_out.items() if why == reason]
        say(f"  not run: {', '.join(cells)} ({reason})")
    say(
        f"{len(plan.trials)} trials of {len(plan.cells)} cells at scale {plan.scale}: about {shown(plan.estimate_s())} "
        f"(seed {plan.seed})"
    )
