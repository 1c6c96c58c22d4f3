"""`streamgauge study durability`: a study whose cells go through the durability experiments instead of trials."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from streamgauge.cli.carry_out import show_durability
from streamgauge.cli.execute import open_events
from streamgauge.cli.pages import Pages
from streamgauge.cli.watch import make_observer
from streamgauge.cli.watching import Watching
from streamgauge.model.checked_study import study_names
from streamgauge.model.durability import StudyAsked
from streamgauge.model.durability_study import (
    DurabilityStudy,
    parse_durability_study,
    read_durability_study,
)
from streamgauge.model.trust import Trust
from streamgauge.runner.durability.run import DurabilityPlan, DurabilityRun, ended
from streamgauge.runner.recover import recover
from streamgauge.runner.study_run import shown
from streamgauge.store.directory import DURABILITY_NAME, RunDirectory, list_runs
from streamgauge.store.lab import is_running
from streamgauge.store.plan_file import check_ours, is_study, sealed
from streamgauge.store.private import without_home
from streamgauge.systems.registry import systems
from streamgauge.systems.support import powercut
from streamgauge.vocabulary.errors import InputError, SystemFailure
from streamgauge.vocabulary.format import plural

DISKS_DOSE_S, QUICK_DISKS_DOSE_S = 4.0, 3.0
CUT_S = 9.0
"""Load before and after a cut, and reading everything; the restart comes on top."""


@dataclass(frozen=True)
class Request:
    """What the command line asked for; None where it asked for nothing."""

    quick: bool
    cuts: int | None
    seed: int | None
    only: str | None
    plan_only: bool
    out: Path
    data: Path | None
    events: str | None
    pages: Pages
    is_silent: bool


@dataclass(frozen=True)
class Meant:
    """A study to start, or the run of one to go on with."""

    study: DurabilityStudy
    directory: RunDirectory | None = None
    asked: StudyAsked | None = None
    """The plan of that run."""


def meant(name: str | None, out: Path, trust: Trust, *, resume: bool) -> Meant | None:
    """The study of durability that is meant; None when a study of trials is. With `resume`: the latest run of it, the
    run that is named, or without a name the latest run of any study when that is one of durability. Raises InputError.
    """
    found = None if name is None else read_durability_study(name, systems(), trust)
    if not resume:
        return None if found is None else Meant(found)
    run = _run_to_resume(name, found, out)
    if run is None:
        if found is not None:
            raise InputError(f"--resume: no run of {found.name} in {out}; start one without --resume")
        return None
    if is_running(run):
        raise InputError(f"--resume: {run.path} is still going on")
    recover(run)
    report = run.read_durability()
    assert report is not None, "looked at above"
    assert report.study is not None, "looked at above"
    check_ours(report.study, run.path)
    # What is run is what the run says, whatever the file says that it was started with: that is what must be trusted.
    source = run.path / DURABILITY_NAME
    study = parse_durability_study(report.study.text, str(source), systems(), trusted=trust.covers(source))
    return Meant(study, run, report.study)


def _run_to_resume(name: str | None, found: DurabilityStudy | None, out: Path) -> RunDirectory | None:
    def of_durability(run: RunDirectory) -> str | None:
        try:
            report = run.read_durability()
        except InputError:
            return None  # Damaged, or of another version: not ours to go on with.
        return None if report is None or report.study is None else report.study.name

    if name in study_names():
        return None
    if name is not None and found is None:
        try:
            run = RunDirectory.open(name, out)
        except InputError:
            return None
        return run if of_durability(run) is not None else None
    for run in reversed(list_runs(out)):
        study = of_durability(run)
        if study is not None and (found is None or study == found.name):
            return run
        if name is None and is_study(run.path):
            return None  # A study of trials is newer.
    return None


def refuse(*, scale: str, duration: str | None, budget: str | None, connect: list[str] | None) -> None:
    """Options of other studies that have no meaning here."""
    if scale == "full":
        raise InputError(f"--scale {scale}: power cuts are made on this machine; there is nothing to scale")
    if duration is not None:
        raise InputError("--duration: the experiments have times of their own; --quick shortens them")
    if budget is not None:
        raise InputError("--budget: the experiments' number is set with --repeats; --quick makes them fewer")
    if connect:
        raise InputError("--connect: a cluster that already runs is not ours to cut")


def execute(wanted: Meant, request: Request) -> int:
    """Plans, says what will be measured, measures and reports; the exit status. Raises InputError, SystemFailure."""
    asked = wanted.asked or _plan(wanted.study, request)
    report = wanted.directory.read_durability() if wanted.directory is not None else None
    done = [one.name for one in report.results if ended(one)] if report is not None else []
    _say(wanted.study, asked, done)
    if request.plan_only:
        return 0
    lacking = powercut.missing()
    if lacking is not None:
        raise SystemFailure(
            f"the experiments need disks that can lose power, and there are none here: {lacking}"
        )
    if not asked.cells:
        raise SystemFailure("no cell of this study can run here; the reasons are above")
    plan = DurabilityPlan(
        name=f"{asked.name}-{'quick' if asked.quick else 'study'}",
        command=("streamgauge", *sys.argv[1:]),
        choices=tuple(wanted.study.choice(cell, systems()) for cell in asked.cells),
        experiments=tuple(asked.experiments),
        cuts=asked.cuts,
        quick=asked.quick,
        write_back=None,
        seed=asked.seed,
        out=request.out,
        data=request.data,
        study=asked,
    )
    sink = open_events(request.events)
    try:
        with Watching(request.pages) as watching:
            observer = make_observer(sink, watching.observers, quiet=request.is_silent)
            try:
                run = DurabilityRun(plan, observer, directory=wanted.directory)
                status = run.execute()
            finally:
                observer.close()
            show_durability(run.directory, to_stderr=sink is sys.stdout)
            watching.reported(run.directory.path)
    finally:
        if sink is not None and sink is not sys.stdout:
            sink.close()
    return status


def _plan(study: DurabilityStudy, request: Request) -> StudyAsked:
    """Which cells, and which not and why."""
    written, known = study.written, systems()
    left_out: dict[str, str] = {}
    chosen = list(written.cells)
    if request.only:
        chosen = study.matching(part.strip() for part in request.only.split(","))
        left_out |= {name: "not among --only" for name in written.cells if name not in chosen}
    elif request.quick and written.quick.leave_out:
        without = study.matching(written.quick.leave_out)
        left_out |= dict.fromkeys(without, written.quick.because or "left out by --quick")
    for name, cell in written.cells.items():
        missing = known[cell.system].missing()
        if name not in left_out and missing is not None:
            left_out[name] = f"{known[cell.system].title} cannot run here: {missing}"
    asked = StudyAsked(
        name=study.name,
        title=written.title,
        file=without_home(study.document.file),
        text=study.document.text,
        quick=request.quick,
        seed=request.seed if request.seed is not None else secrets.randbits(31),
        cuts=request.cuts or (written.quick.cuts if request.quick else written.cuts),
        experiments=list(written.experiments),
        cells=[name for name in chosen if name not in left_out],
        left_out=left_out,
    )
    return sealed(asked)


def _say(study: DurabilityStudy, asked: StudyAsked, done: list[str]) -> None:
    def say(text: str) -> None:
        typer.echo(text, err=True)

    say(f"{asked.title} ({study.written.source.publisher}, {study.written.source.published})")
    left = [name for name in asked.cells if name not in done]
    width = max((len(name) for name in asked.cells), default=0)
    for name in asked.cells:
        cell = study.written.cells[name]
        time = "done" if name in done else f"about {shown(_estimate_s(asked, cell))}"
        level = f" ({cell.level})" if cell.level else ""
        say(f"  {name:<{width}}  {cell.title}{level}: {time}")
    for reason in dict.fromkeys(asked.left_out.values()):
        names = [name for name, why in asked.left_out.items() if why == reason]
        say(f"  not run: {', '.join(names)} ({reason})")
    total_s = sum(_estimate_s(asked, study.written.cells[name]) for name in left)
    resumed = f", {len(done)} of them done" if done else ""
    say(
        f"{plural(len(asked.cells), 'cell')}{resumed}, {plural(asked.cuts, 'power cut')} of each kind, "
        f"{plural(len(study.written.statements), 'statement')}: about {shown(total_s)} (seed {asked.seed})"
    )


def _estimate_s(asked: StudyAsked, cell: Any) -> float:
    """What a cell takes: its start, its doses, its account and its cuts, of which each restarts something."""
    start_s = systems()[cell.system].start_time.of(cell.nodes)
    sets = 1 if cell.nodes == 1 else 7
    doses = sets * (1 if asked.quick else 3) + 1
    dose_s = doses * (QUICK_DISKS_DOSE_S if asked.quick else DISKS_DOSE_S)
    stops_s = 0.0 if cell.nodes == 1 else sets * 5.0
    scopes = 1 if cell.nodes == 1 else 3
    few = 1 if asked.quick else min(3, asked.cuts)
    restarts = scopes * (asked.cuts + few)
    return start_s + dose_s + stops_s + 15.0 + restarts * (CUT_S + start_s) + scopes * CUT_S
