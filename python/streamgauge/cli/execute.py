"""What `run` and `bench` share: from what was asked to a run and its exit status."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console

from streamgauge.cli.gates import Asked, Gating, finish, prepare
from streamgauge.cli.impossible import impossible, reachable, started_at
from streamgauge.cli.watch import make_observer
from streamgauge.fleet.choice import THIS_MACHINE, FleetChoice
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.result import TrialResult
from streamgauge.model.system_file import SystemChoice, SystemOverrides, choose_systems, parse_tls
from streamgauge.model.workload import Workload
from streamgauge.report import durability, html, terminal, terminal_study
from streamgauge.report import study_page as study
from streamgauge.report.run import read_run
from streamgauge.runner.plan import RunPlan, order_trials
from streamgauge.runner.run import Run
from streamgauge.store.aside import split_notes
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import is_study
from streamgauge.systems.base import System
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError, Problem, SystemFailure
from streamgauge.vocabulary.exit_status import MEANINGS, ExitStatus, most_urgent

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
    at: str | None = None
    """Where systems are started that are started here."""
    insecure: bool = False
    """Whether they may serve whoever reaches them there."""
    tls: str | None = None


def execute(request: Request) -> ExitStatus:
    """Checks everything, then runs it; the exit status.

    Raises InputError with all problems of the input before anything is fetched or started.
    """
    workloads, choices = _read(request)
    if request.events == "-" and request.gates.outputs.on_stdout:
        raise InputError("--events -: standard output is for --json, --markdown or --junit already")
    gating = prepare(request.gates, request.out, workloads, choices)
    for choice in choices:
        missing = None if choice.request.connect else choice.system.missing()
        if missing:
            raise SystemFailure(f"{choice.system.title} cannot run here: {missing}")
    return execute_chosen(request, workloads, choices, gating)


def execute_chosen(
    request: Request,
    workloads: list[Workload],
    choices: list[SystemChoice[System]],
    gating: Gating | None = None,
) -> ExitStatus:
    """Runs workloads on systems that can run here, and judges the gates; the exit status."""
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
    for note in [*_notes(workloads), *reachable(choices)]:
        print(f"note: {note}", file=sys.stderr)
    sink = open_events(request.events)
    to_stderr = sink is sys.stdout or request.gates.outputs.on_stdout
    console = Console(stderr=to_stderr)
    about = gating.about_baseline() if gating is not None else []
    for line in about:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    try:
        observer = make_observer(sink)
        try:
            outcome = Run(plan, observer).execute()
        finally:
            observer.close()
        show_outcome(outcome.directory.path, to_stderr=to_stderr)
        status = outcome.exit_status
        if gating is not None:
            for line in about:
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            found = gating.judge(outcome.results)
            run, base = outcome.directory.run_id, gating.baseline.run_id if gating.baseline else None
            gated = finish(found, request.gates, console, about, run=run, baseline=base)
            status = most_urgent((status, gated))
    finally:
        if sink is not None and sink is not sys.stdout:
            sink.close()
    return ended(status, outcome.results)


def ended(status: ExitStatus, results: Sequence[TrialResult] = ()) -> ExitStatus:
    """Says what an exit status other than 0 means, and which trials lost messages."""
    for result in results:
        if result.status == "complete" and result.audit.shows_lost:
            of = f"trial {result.trial} ({result.system}, {result.workload.name})"
            print(
                f"lost: {result.audit.shows_lost:,} acknowledged messages of {of} were never received",
                file=sys.stderr,
            )
    if status in MEANINGS and status is not ExitStatus.DONE:
        print(f"exit status {status.value}: {MEANINGS[status]}", file=sys.stderr)
    return status


def show_outcome(directory: Path, *, to_stderr: bool = False) -> None:
    """Writes the report of a run, prints the table and says where the report is."""
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
    console = Console(stderr=to_stderr)
    found = run.read_durability()
    if found is not None:
        durability.print_report(found, console)
    report = shown(durability.write(run))
    console.print(f"report: {report}", markup=False, highlight=False, soft_wrap=True)


def _read(request: Request) -> tuple[list[Workload], list[SystemChoice[System]]]:
    """Workloads and systems; all problems of all of them at once."""
    problems: list[Problem] = []
    workloads: list[Workload] = []
    choices: list[SystemChoice[System]] = []
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
            trust=request.overrides.trust,
        )
        choices = choose_systems(request.systems, wanted, systems())
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
    problems.extend(impossible(request.fleet, workloads, choices))
    if problems:
        raise InputError(problems)
    return workloads, choices


def _name(workloads: list[Workload], choices: list[SystemChoice[System]]) -> str:
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
