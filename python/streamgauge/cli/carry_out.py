"""From what was asked and checked to a run, its report and its exit status."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from streamgauge.cli.execute import Request, open_events, shown
from streamgauge.cli.gates import Gating, finish, prepare
from streamgauge.cli.impossible import reachable
from streamgauge.cli.watch import make_observer
from streamgauge.cli.watching import Watching
from streamgauge.model.result import TrialResult
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.workload import Workload
from streamgauge.report import durability, html, terminal, terminal_study
from streamgauge.report import study_page as study
from streamgauge.report.answer import answer
from streamgauge.report.run import read_run
from streamgauge.runner.plan import RunPlan, order_trials
from streamgauge.runner.run import Run
from streamgauge.runner.sweep_run import SweepRun, budget_s
from streamgauge.runner.sweep_run import shown as shown_time
from streamgauge.store.aside import split_notes
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import is_study
from streamgauge.systems.base import System
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.exit_status import MEANINGS, ExitStatus, most_urgent
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.units import format_duration


def carry_out(request: Request, workloads: list[Workload], choices: list[SystemChoice[System]]) -> ExitStatus:
    """Settles the gates, and runs what can run here; the exit status. Raises InputError, SystemFailure."""
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
    *,
    invalid_answers: bool = False,
) -> ExitStatus:
    """Runs workloads on systems that can run here, and judges the gates; the exit status. Of a single workload the answer comes first. `invalid_answers`: that
    a trial is invalid is an answer, too, and no failure."""
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
    for line in request.told:
        print(line, file=sys.stderr)
    for note in dict.fromkeys([*_notes(workloads), *reachable(choices), *_time_of_curves(plan)]):
        print(f"note: {note}", file=sys.stderr)
    sink = open_events(request.events)
    to_stderr = sink is sys.stdout or request.gates.outputs.on_stdout
    console = Console(stderr=to_stderr)
    about = gating.about_baseline() if gating is not None else []
    for line in about:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    try:
        with Watching(request.pages) as watching:
            observer = make_observer(sink, watching.observers, quiet=request.quiet)
            try:
                swept = any(workload.sweep for workload in workloads)
                outcome = (SweepRun if swept else Run)(plan, observer).execute()
            finally:
                observer.close()
            if len({workload.name for workload in workloads}) == 1:
                console.print(Text(answer(outcome.results), style="bold"), soft_wrap=not console.is_terminal)
            show_outcome(outcome.directory.path, to_stderr=to_stderr)
            watching.reported(outcome.directory.path)
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
    if invalid_answers and status is ExitStatus.INVALID:
        status = ExitStatus.DONE
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
        notes.append(
            f"{len(repeated)} {were} made again because the first could not be used; the report says why"
        )
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


def _name(workloads: list[Workload], choices: list[SystemChoice[System]]) -> str:
    """What the run's directory is called after its date."""
    names = list(dict.fromkeys(workload.name for workload in workloads))
    what = names[0] if len(names) == 1 else f"{len(names)}-workloads"
    where = "-".join(choice.name for choice in choices) if len(choices) <= 3 else f"{len(choices)}-systems"
    return f"{where}-{what}"


def _time_of_curves(plan: RunPlan) -> list[str]:
    """How long curves take: they are many trials, whoever asked for one line of them."""
    found: list[str] = []
    sweeps = [trial for trial in plan.trials if trial.workload.sweep]
    if sweeps:
        found.append(
            f"sweep: at most about {shown_time(budget_s(sweeps))} for {plural(len(sweeps), 'start')} of a system, beside two looks at the machine"
        )
    rates: dict[str, set[float | None]] = {}
    for trial in plan.trials:
        rates.setdefault(trial.workload.name, set()).add(trial.workload.rate_msgs_s)
    listed = [trial for trial in plan.trials if len(rates[trial.workload.name]) > 1]
    if listed:
        load_s = sum(trial.workload.warmup_s + trial.workload.duration_s for trial in listed)
        found.append(
            f"curve: {plural(len(listed), 'trial')}, {format_duration(load_s)} of load and what it takes to start each system"
        )
    return found


def _notes(workloads: list[Workload]) -> list[str]:
    return [f"{workload.name}: {note}" for workload in workloads for note in workload.notes]
