"""What `run` and `bench` share: from what was asked to a run and its exit status."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from streamgauge.cli.impossible import impossible, started_at
from streamgauge.fleet.choice import THIS_MACHINE, FleetChoice
from streamgauge.model.errors import InputError, Problem
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.system_file import SystemChoice, SystemOverrides, choose_systems, parse_tls
from streamgauge.model.workload import Workload
from streamgauge.systems.base import SystemFailure

if TYPE_CHECKING:
    from streamgauge.store.directory import RunDirectory


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
    fail_if: tuple[str, ...] = ()
    baseline: str | None = None
    at: str | None = None
    """Where systems are started that are started here."""
    tls: str | None = None


def execute(request: Request) -> int:
    """Checks everything, then runs it; the exit status.

    Raises InputError with all problems of the input before anything is fetched or started.
    """
    workloads, choices = _read(request)
    _check_gates(request)
    for choice in choices:
        missing = None if choice.request.connect else choice.system.missing()
        if missing:
            raise SystemFailure(f"{choice.system.title} cannot run here: {missing}")
    return execute_chosen(request, workloads, choices)


def execute_chosen(request: Request, workloads: list[Workload], choices: list[SystemChoice]) -> int:
    """Runs workloads on systems that can run here."""
    from streamgauge.cli.watch import make_observer
    from streamgauge.runner.plan import RunPlan, order_trials
    from streamgauge.runner.run import Run

    seed = request.seed if request.seed is not None else secrets.randbits(32)
    plan = RunPlan(
        name=_name(workloads, choices),
        command=("streamgauge", *sys.argv[1:]),
        trials=order_trials(choices, workloads, request.repeat, seed),
        seed=seed,
        out=request.out,
        data=request.data,
        fleet=request.fleet,
    )
    for note in _notes(workloads):
        print(f"note: {note}", file=sys.stderr)
    sink = open_events(request.events)
    try:
        observer = make_observer(sink)
        try:
            outcome = Run(plan, observer).execute()
        finally:
            observer.close()
        show_outcome(outcome.directory.path, to_stderr=sink is sys.stdout)
        failed = _judge_gates(request, outcome.directory, to_stderr=sink is sys.stdout)
    finally:
        if sink is not None and sink is not sys.stdout:
            sink.close()
    return outcome.exit_status or int(failed)


def _check_gates(request: Request) -> None:
    """Gates and their baseline are read before anything is started. Raises InputError."""
    from streamgauge.model.gate import read_gates
    from streamgauge.store.directory import RunDirectory

    read_gates(request.fail_if)
    if request.baseline is not None:
        if not request.fail_if:
            raise InputError("--baseline needs --fail-if: what must not have become worse, and by how much?")
        if not RunDirectory.open(request.baseline, request.out).results():
            raise InputError(f"--baseline {request.baseline}: holds no results")


def _judge_gates(request: Request, run: RunDirectory, *, to_stderr: bool) -> bool:
    """Prints what became of the gates; whether one failed."""
    if not request.fail_if:
        return False
    from rich.console import Console

    from streamgauge.analysis.cells import cells
    from streamgauge.analysis.compare import compare, judge_absolute, judge_ratio
    from streamgauge.cli.compare import matched, print_gates
    from streamgauge.model.gate import read_gates

    gates = read_gates(request.fail_if)
    if request.baseline is None:
        found = [judge_absolute(gate, cell) for cell in cells(run.results()) for gate in gates]
    else:
        figures = list(dict.fromkeys(gate.figure for gate in gates))
        pairs = matched(request.baseline, str(run.path), request.out)
        found = [judge_ratio(gate, compare(*pair, figures)) for pair in pairs for gate in gates]
    return print_gates(found, Console(stderr=to_stderr)) or not found


def show_outcome(directory: Path, *, to_stderr: bool = False) -> None:
    """Writes the report of a run, prints the table and says where the report is."""
    from rich.console import Console

    from streamgauge.report import html, study, terminal, terminal_study
    from streamgauge.report.run import read_run
    from streamgauge.store.aside import split_notes
    from streamgauge.store.directory import RunDirectory
    from streamgauge.store.study import is_study

    console = Console(stderr=to_stderr)
    run = RunDirectory(directory)
    if run.read_durability() is not None:
        show_durability(run, to_stderr=to_stderr)
        return
    results = run.results()
    if results and is_study(directory):
        report = study.write(directory)
        terminal_study.print_claims(study.outcome_of(read_run(directory)), console)
    else:
        report = html.write(directory)
        if results:
            terminal.print_summary(results, console)
    repeated, notes = split_notes(run.read_manifest().notes if run.ours else [])
    if repeated:
        were = "trial was" if len(repeated) == 1 else "trials were"
        notes.append(f"{len(repeated)} {were} repeated because the generator was late; the report says more")
    for note in notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    console.print(f"report: {shown(report)}", markup=False, highlight=False, soft_wrap=True)


def show_durability(run: RunDirectory, *, to_stderr: bool = False) -> None:
    """As `show_outcome`, for a run of durability experiments."""
    from rich.console import Console

    from streamgauge.report import durability

    console = Console(stderr=to_stderr)
    found = run.read_durability()
    if found is not None:
        durability.print_report(found, console)
    report = shown(durability.write(run))
    console.print(f"report: {report}", markup=False, highlight=False, soft_wrap=True)


def _read(request: Request) -> tuple[list[Workload], list[SystemChoice]]:
    """Workloads and systems; all problems of all of them at once."""
    from streamgauge.systems.registry import systems

    problems: list[Problem] = []
    workloads: list[Workload] = []
    choices: list[SystemChoice] = []
    for text in request.workloads:
        try:
            workloads.append(read_workload(text, request.overrides))
        except InputError as error:
            problems.extend(one for one in error.problems if one not in problems)
    names = [workload.name for workload in workloads]
    problems.extend(
        Problem(f"two workloads are called '{name}': give each a name of its own (key 'name')")
        for name in sorted({name for name in names if names.count(name) > 1})
    )
    try:
        wanted = SystemOverrides(
            nodes=request.nodes,
            level=request.durability,
            connect=request.connect,
            tls=parse_tls(request.tls),
        )
        choices = choose_systems(request.systems, wanted, systems())
        if request.at is not None:
            choices = started_at(request.at, choices)
    except InputError as error:
        problems.extend(error.problems)
    problems.extend(
        Problem(
            f"{workload.name}: reads topics that exist, so it needs a cluster that runs: --connect HOST:PORT"
        )
        for workload in workloads
        if workload.consumes_only and not all(choice.request.connect for choice in choices)
    )
    problems.extend(impossible(request.fleet, workloads, choices))
    if problems:
        raise InputError(problems)
    return workloads, choices


def _name(workloads: list[Workload], choices: list[SystemChoice]) -> str:
    """What the run's directory is called after its date."""
    what = workloads[0].name if len(workloads) == 1 else f"{len(workloads)}-workloads"
    where = "-".join(choice.name for choice in choices) if len(choices) <= 3 else f"{len(choices)}-systems"
    return f"{where}-{what}"


def _notes(workloads: list[Workload]) -> list[str]:
    return [f"{workload.name}: {note}" for workload in workloads for note in workload.notes]


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
