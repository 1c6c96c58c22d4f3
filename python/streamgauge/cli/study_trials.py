"""`streamgauge study`: published studies, repeated."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

import psutil
import typer

from streamgauge.cli import study_durability
from streamgauge.cli.carry_out import ended, show_outcome
from streamgauge.cli.execute import open_events
from streamgauge.cli.pages import parse_pages
from streamgauge.cli.study_load import LoadOptions, fleet_of, refuse_impossible, say_load
from streamgauge.cli.watch import make_observer
from streamgauge.cli.watching import Watching
from streamgauge.fleet.agents import PROBE_FSYNC_S_MAX, read_agents
from streamgauge.model.checked_study import Study, experiment_study_names, read_study, study_names
from streamgauge.model.hooks_file import PlannedHooks, read_hooks
from streamgauge.model.result_hosts import ProbedDisk
from streamgauge.model.scaling import Machine
from streamgauge.model.study_plan import NOT_ASKED_FOR, StudyPlan
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.study_trust import refuse_untrusted_plan, refuse_untrusted_study
from streamgauge.model.study_versions import CURRENT, PUBLISHED, both_of, parse_versions, with_versions
from streamgauge.model.trust import Trust
from streamgauge.runner import machine
from streamgauge.runner.agents import probe_disks
from streamgauge.runner.study_run import StudyRun, numbers_finished, shown
from streamgauge.runner.study_systems import FILES, Clusters, read_cluster, read_clusters, with_unverified
from streamgauge.store.directory import RunDirectory, list_runs
from streamgauge.store.lab import is_running
from streamgauge.store.plan_file import PLAN_NAME, check_ours, is_study, read_plan
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.choices import SCALES
from streamgauge.vocabulary.errors import FleetFailure, InputError, nearest, no_system
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.units import parse_duration, parse_size


def study(
    name: str | None,
    scale: str | None,
    quick: bool,
    repeats: int | None,
    seed: int | None,
    resume: bool,
    only: str | None,
    duration: str | None,
    budget: str | None,
    connect: list[str] | None,
    fleet: str | None,
    workers: int | None,
    topology: str,
    on_worker_loss: str,
    at: str | None,
    insecure: bool,
    probe_hosts: list[str] | None,
    probe_bytes: str | None,
    probe_fsync: str | None,
    hooks: Path | None,
    versions: str | None,
    plan_only: bool,
    out: Path,
    data: Path | None,
    events: str | None,
    live: str | None,
    metrics: str | None,
    token_file: str | None,
    quiet: bool,
    trust_file: list[str] | None,
) -> None:
    """The work of commands/study.py."""
    trust = Trust.parse(trust_file)
    of_disks = _of_disks(probe_hosts, probe_bytes, probe_fsync)
    pages = parse_pages(live, metrics, token_file)
    chosen = _scale(scale, quick)
    options = LoadOptions(fleet, workers, topology, on_worker_loss, at, insecure)
    of_durability = study_durability.meant(name, out, trust, resume=resume)
    if of_durability is not None:
        study_durability.refuse(scale=chosen, duration=duration, budget=budget, connect=connect)
        for option in [
            *options.given,
            *(["hooks"] if hooks else []),
            *(["probe-hosts"] if probe_hosts else []),
            *(["versions"] if versions else []),
        ]:
            raise InputError(
                f"--{option}: power cuts are made on this machine, with one worker; leave it out"
            )
        if resume:
            _refuse_with_resume(repeats=repeats, seed=seed, only=only)
        request = study_durability.Request(
            quick=chosen == "quick",
            cuts=repeats,
            seed=seed,
            only=only,
            plan_only=plan_only,
            out=out,
            data=data,
            events=events,
            pages=pages,
            is_silent=quiet,
        )
        raise typer.Exit(study_durability.execute(of_durability, request))
    directory: RunDirectory | None = None
    probes: list[dict[str, Any]] = []
    if resume:
        _refuse_with_resume(
            repeats=repeats,
            seed=seed,
            only=only,
            duration=duration,
            connect=connect,
            hooks=hooks,
            versions=versions,
            **options.given,
        )
        directory, plan = _resumed(name, out)
        plan = _with_budget(plan, directory, _seconds("budget", budget))
        source = directory.path / PLAN_NAME
        refuse_untrusted_plan(plan, trust, source, systems())
        chosen_fleet = fleet_of(plan)
        clusters = read_clusters(plan, trust)
        refuse_impossible(plan, chosen_fleet, clusters)
        _say_resumed(directory, plan)
    else:
        asked = _found(name)
        sides = parse_versions(versions) if versions is not None else (CURRENT,)
        if PUBLISHED in sides and connect:
            raise InputError(
                "--versions: a cluster that runs (--connect) has the version that it has; leave one of the two out"
            )
        chosen_versions = with_versions(asked, sides)
        found = chosen_versions.study
        patterns = [part.strip() for part in only.split(",")] if only else []
        load, chosen_fleet = options.planned()
        addresses, files = _clusters(connect or [], found, trust)
        wishes = Wishes(
            scale=chosen,
            seed=seed if seed is not None else secrets.randbits(32),
            repeats=repeats,
            only=tuple(map(both_of, patterns) if len(sides) > 1 else patterns),
            lacking=chosen_versions.left_out,
            duration_s=_seconds("duration", duration),
            budget_s=_seconds("budget", budget),
            connect=addresses,
            cluster_files=files,
            load=load,
            hooks=_hooks(hooks, connect, found, trust),
        )
        source = Path(found.document.file)
        refuse_untrusted_study(asked, trust, systems())
        # What cannot be together is so whatever the machine can do.
        plan = plan_study(found, wishes, this_machine())
        clusters = read_clusters(plan, trust)
        refuse_impossible(plan, chosen_fleet, clusters)
        plan, probes = _planned(found, wishes, data or out, clusters)
        _say_plan(found, plan, clusters)
    if plan_only:
        return
    disks = _disks(probe_hosts, *of_disks)
    sink = open_events(events)
    try:
        with Watching(pages) as watching:
            observer = make_observer(sink, watching.observers, quiet=quiet)
            try:
                run = StudyRun(
                    plan,
                    observer,
                    command=("streamgauge", *sys.argv[1:]),
                    out=out,
                    data=data,
                    directory=directory,
                    probes=probes,
                    trusted=trust.covers(source),
                    fleet=chosen_fleet,
                    disks=disks,
                    clusters=clusters,
                )
                outcome = run.execute()
            finally:
                observer.close()
            show_outcome(outcome.directory.path, to_stderr=sink is sys.stdout)
            watching.reported(outcome.directory.path)
    finally:
        if sink is not None and sink is not sys.stdout:
            sink.close()
    raise typer.Exit(ended(outcome.exit_status, outcome.results))


def _refuse_with_resume(**given: Any) -> None:
    """A plan that was made is not changed."""
    for option, value in given.items():
        if value is not None and value != []:
            raise InputError(
                f"--{option} belongs to the plan of a study, which was made when it was started; leave it out with --resume"
            )


def _of_disks(
    hosts: list[str] | None, size: str | None, lasting: str | None
) -> tuple[int | None, int | None]:
    """How much is written to each disk of the machines that are to be probed, and for how many seconds it is synced. Raises InputError."""
    for option, text in (("bytes", size), ("fsync", lasting)):
        if text is not None and not hosts:
            raise InputError(f"--probe-{option}: of which machines? name their agents with --probe-hosts")
    write_bytes = None
    if size is not None:
        try:
            write_bytes = parse_size(size)
        except ValueError as error:
            raise InputError(f"--probe-bytes {size}: {error}") from None
        if write_bytes < 1 << 20:
            raise InputError(f"--probe-bytes {size}: expected a size of 1MiB or more, such as 64GiB")
    fsync_s = _seconds("probe-fsync", lasting)
    if fsync_s is not None and not 2.0 <= fsync_s <= PROBE_FSYNC_S_MAX:
        raise InputError(f"--probe-fsync {lasting}: expected 2s to 10m, such as 1m")
    return write_bytes, None if fsync_s is None else round(fsync_s)


def _disks(hosts: list[str] | None, write_bytes: int | None, fsync_s: int | None) -> list[ProbedDisk]:
    """Those of the machines that are to be probed. Raises InputError."""
    if not hosts:
        return []
    try:
        return probe_disks(read_agents(hosts), write_bytes, fsync_s, lambda line: typer.echo(line, err=True))
    except FleetFailure as error:
        raise InputError(f"--probe-hosts: {error}") from None


def _found(name: str | None) -> Study:
    if name is None:
        names = ", ".join([*study_names(), *experiment_study_names()])
        raise InputError(f"which study? expected one of {names}, or a file")
    return read_study(name, systems())


def _scale(text: str | None, quick: bool) -> Any:
    """--quick is --scale quick in one word."""
    if text is not None and text not in SCALES:
        hint = nearest(text, SCALES)
        raise InputError(f"--scale {text}: expected full, laptop or quick{hint}")
    if quick and text not in (None, "quick"):
        raise InputError(f"--quick is --scale quick: leave out one of --quick and --scale {text}")
    return "quick" if quick else text or "laptop"


def seconds(option: str, text: str) -> float:
    """The time that an option gives. Raises InputError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(f"--{option} {text}: {error}") from None


def _seconds(option: str, text: str | None) -> float | None:
    return None if text is None else seconds(option, text)


def this_machine(disk_write_mb_s: float | None = None) -> Machine:
    """What plans are scaled to."""
    return Machine(machine.cores(), psutil.virtual_memory().total, disk_write_mb_s)


def _with_budget(plan: StudyPlan, directory: RunDirectory, budget_s: float | None) -> StudyPlan:
    """A plan that is gone on with, given so much time from now on. Raises InputError for a plan of before there were rounds."""
    if budget_s is None:
        return plan
    if not plan.rounds:
        raise InputError(
            "--budget: this study was planned before studies ran in rounds, and its trials cannot be added to; start it anew"
        )
    spent_s = plan.estimate_s(sorted(numbers_finished(directory)))
    return plan.model_copy(update={"budget_s": spent_s + budget_s})


def _clusters(
    texts: list[str], study: Study, trust: Trust
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Addresses and system files of clusters that run, by the study's names of systems, or by systems."""
    kinds = {one.system: one.system for one in study.written.systems.values()}
    kinds |= {name: one.system for name, one in study.written.systems.items()}
    names = sorted(kinds)
    found: dict[str, tuple[str, ...]] = {}
    files: dict[str, str] = {}
    for text in texts:
        name, separator, addresses = text.partition("=")
        if not separator or not addresses:
            raise InputError(
                f"--connect {text}: expected SYSTEM=HOST:PORT, such as kafka=10.0.0.1:9092, or SYSTEM=FILE, a system file with connect"
            )
        if name not in names:
            raise InputError(f"--connect {text}: {no_system(name, names)}")
        if Path(addresses).suffix.lower() in FILES:
            file = Path(addresses).absolute()
            found[name] = read_cluster(file, kinds[name], trust).connect
            files[name] = str(file)
        else:
            found[name] = tuple(addresses.split(","))
    return found, files


def _hooks(file: Path | None, connect: list[str] | None, study: Study, trust: Trust) -> PlannedHooks | None:
    if file is None:
        return None
    if not connect:
        raise InputError(
            f"--hooks {file}: commands around the blocks of clusters that run, and none is named (--connect); systems that streamgauge "
            "starts it configures, starts and stops itself"
        )
    return read_hooks(file, study, trust)


def _planned(
    study: Study, wishes: Any, data: Path, clusters: Clusters
) -> tuple[StudyPlan, list[dict[str, Any]]]:
    """The plan for this machine, and the probe that it is based on."""
    probes: list[dict[str, Any]] = []
    try:
        print("probing the machine", file=sys.stderr)
        data.mkdir(parents=True, exist_ok=True)
        probes.append(machine.steady_probe(find_gauge(), data, "before"))
    except machine.ProbeFailure as error:
        print(f"note: the machine's limits were not measured: {error}", file=sys.stderr)
    disk = probes[0].get("disk", {}).get("write_mb_s") if probes else None
    return with_unverified(plan_study(study, wishes, this_machine(disk)), clusters), probes


def _plan_of(run: RunDirectory) -> StudyPlan | None:
    """The plan of a run; None when it is damaged, or of another version: not ours to go on with."""
    try:
        return read_plan(run.path)
    except InputError:
        return None


def _resumed(name: str | None, out: Path) -> tuple[RunDirectory, StudyPlan]:
    """The run that is meant, and its plan."""
    runs = [run for run in list_runs(out) if is_study(run.path)]
    if name is None or name in study_names():
        plans = ((run, plan) for run in reversed(runs) if (plan := _plan_of(run)) is not None)
        found = next((pair for pair in plans if name in (None, pair[1].study)), None)
        if found is None:
            of = f" of {name}" if name else ""
            raise InputError(f"--resume: no run{of} in {out}; start one without --resume")
    else:
        run = RunDirectory.open(name, out)
        found = (run, read_plan(run.path))
    if is_running(found[0]):
        raise InputError(f"--resume: {found[0].path} is still going on")
    check_ours(found[1], found[0].path)
    return found


def _say_resumed(directory: RunDirectory, plan: StudyPlan) -> None:
    done = numbers_finished(directory)
    left = [trial.number for trial in plan.trials if trial.number not in done]
    print(
        f"resuming {directory.run_id}: {len(done)} of {plural(len(plan.trials), 'trial')} done, "
        f"{len(left)} left, about {shown(plan.estimate_s(left))}",
        file=sys.stderr,
    )


def _say_plan(study: Study, plan: StudyPlan, clusters: Clusters) -> None:
    """What will be run, what is scaled, and how long it takes."""

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    say(f"{study.written.title} ({study.written.source.publisher}, {study.written.source.published})")
    cells = [cell for cell in plan.cells if not cell.heats]
    width = max(len(cell.cell) for cell in cells)
    for cell in cells:
        scaled = f": {'; '.join(cell.scaled)}" if cell.scaled else ""
        say(f"  {cell.cell:<{width}}  {cell.repeats} x {shown(cell.trial_s)}{scaled}")
    for reason in dict.fromkeys(plan.left_out.values()):
        names = [name for name, why in plan.left_out.items() if why == reason]
        say(
            f"  not run: {plural(len(names), 'cell') if reason == NOT_ASKED_FOR else ', '.join(names)} ({reason})"
        )
    unasked = 0
    for claim in study.written.claims:
        missing = plan.lacking(claim.tests)
        if NOT_ASKED_FOR in missing.values():
            # Who names the cells knows which there are not.
            unasked += 1
        elif missing:
            say(f"  not part of it: the claim '{claim.claim}' needs {', '.join(missing)}")
        elif why := plan.bars(claim.tests):
            say(f"  not part of it: the claim '{claim.claim}': {why}")
    if unasked:
        say(
            f"  not part of it: {unasked} of {plural(len(study.written.claims), 'claim')} (cells that were not asked for)"
        )
    say_load(plan, clusters)
    starts = len({trial.block for trial in plan.trials})
    say(
        f"{plural(plan.rounds, 'round')} of {plural(len(cells), 'cell')} on {plural(starts, 'start')} of their systems at scale {plan.scale}: "
        f"about {shown(plan.estimate_s())} (seed {plan.seed})"
    )
    if plan.budget_s is None:
        return
    left_s = plan.budget_s - plan.estimate_s()
    if left_s > 0:
        say(
            f"about {shown(left_s)} are left of the budget of {shown(plan.budget_s)} for further rounds of what is then in doubt"
        )
    else:
        say(
            f"that is more than the budget of {shown(plan.budget_s)}: fewer rounds decide nothing, so that they are run all the same"
        )
