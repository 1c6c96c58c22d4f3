"""The trials of a run beside its plan, its command, its clock and each other."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamgauge.analysis.verify.rules import Finding, found
from streamgauge.model.result import Manifest
from streamgauge.model.seeds import trial_seed
from streamgauge.model.study_plan import StudyPlan
from streamgauge.model.workload_file import read_rate
from streamgauge.store.context import TrialContext
from streamgauge.vocabulary.format import joined, plural
from streamgauge.vocabulary.units import parse_duration

SLACK_MS = 2000
"""Clocks of machines are set, a little, while they run."""
ALIKE_MIN = 3
"""So many trials tell a setting that differs from one that was changed in one of them."""
SHARED_MAX = 0.2
"""Share of a trial's distributions that are another's, word for word."""
EVERY = {"--systems": "--system", "--repeats": "--repeat", "-s": "--system"}


def options(command: Sequence[str]) -> dict[str, str]:
    """The options of a command as they were given; the last one counts."""
    given: dict[str, str] = {}
    words = iter(command[2:])
    for word in words:
        name, separator, value = word.partition("=")
        if name.startswith("--"):
            given[EVERY.get(name, name)] = value if separator else next(words, "")
    return given


SWEEP = "sweep"
MADE_BY = ("run", "bench")
"""Commands whose trials are all workloads on all systems, round by round."""


def paced(manifest: Manifest) -> bool:
    """Whether the rates of its trials were found while they warmed up: those of bench are, unless the command says one."""
    return manifest.command[1:2] == ["bench"] and "--rate" not in options(manifest.command)


def plan(
    manifest: Manifest,
    contexts: Sequence[TrialContext],
    numbers: Sequence[int],
    study: StudyPlan | None,
) -> Iterator[Finding]:
    """Which trials there are. `numbers`: of the directories."""
    wrong = []
    listed = [int(name.rpartition("/")[2]) for name in manifest.trials if name.rpartition("/")[2].isdigit()]
    if sorted(listed) != sorted(numbers):
        missing, further = sorted(set(listed) - set(numbers)), sorted(set(numbers) - set(listed))
        if missing:
            wrong.append(
                f"the manifest names trials that are not there: {joined([str(one) for one in missing[:10]])}"
            )
        if further:
            wrong.append(
                f"trials are there that the manifest does not name: {joined([str(one) for one in further[:10]])}"
            )
    gaps = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
    if gaps and study is None:
        wrong.append(f"trials are numbered without {joined([str(one) for one in gaps[:10]])}")
    if len(contexts) < len(numbers):
        yield from found("plan", wrong, unknown="of trials without a record nobody knows what they are of")
        return
    ended = manifest.status == "complete"
    wrong += (
        _of_study(contexts, study, ended=ended)
        if study is not None
        else _of_run(manifest, contexts, ended=ended)
    )
    unknown = None if ended else f"the run's status is '{manifest.status}': not everything was measured"
    yield from found("plan", wrong, unknown=unknown or _of_unknown_command(manifest, study))


def _of_unknown_command(manifest: Manifest, study: StudyPlan | None) -> str | None:
    if study is not None or (len(manifest.command) > 1 and manifest.command[1] in MADE_BY):
        return None
    return "the run was made by a command that tells neither its plan nor its seeds"


def _of_study(contexts: Sequence[TrialContext], study: StudyPlan, *, ended: bool) -> Iterator[str]:
    there = {context.trial: context for context in contexts}
    for planned in study.trials:
        context = there.pop(planned.number, None)
        if context is None:
            if ended:
                yield f"trial {planned.number} ({planned.cell}) was planned and is not there"
        elif (context.workload.name, context.system, context.repeat) != (
            planned.cell,
            study.cell(planned.cell).system,
            planned.repeat,
        ):
            yield (
                f"trial {planned.number} is of {context.workload.name} on {context.system}, repeat {context.repeat}: "
                f"{planned.cell} on {study.cell(planned.cell).system}, repeat {planned.repeat} was planned"
            )
    for number in there:
        yield f"trial {number} was not planned"


def _of_run(manifest: Manifest, contexts: Sequence[TrialContext], *, ended: bool) -> Iterator[str]:
    if not ended or len(manifest.command) < 2 or manifest.command[1] not in MADE_BY:
        return
    yield from _names("system", manifest.systems, [one.system for one in contexts])
    yield from _names("workload", manifest.workloads, [one.workload.name for one in contexts])
    given = options(manifest.command)
    if given.get("--rate") == SWEEP:
        # Which rates come is decided on the way.
        return
    cells: dict[str, set[int]] = defaultdict(set)
    for context in contexts:
        key = [context.system, context.nodes, context.tls, context.durability.asked, context.workload.asked]
        cells[json.dumps(key)].add(context.repeat)
    told = given.get("--repeat", "")
    repeats = int(told) if told.isdigit() else max((max(one) for one in cells.values()), default=0)
    for text, there in cells.items():
        missing = [str(repeat) for repeat in range(1, repeats + 1) if repeat not in there]
        if missing:
            system, *_, workload = json.loads(text)
            yield f"of {workload['name']} on {system} repeat {joined(missing[:10])} is not there"
    is_paced = paced(manifest)
    known = {_as_asked(one, paced=is_paced) for one in manifest.workloads}
    for context in contexts:
        told = _as_asked(
            context.workload.model_dump(mode="json"), paced=is_paced, warmed_up=context.warm_up is not None
        )
        if known and told not in known:
            yield f"the workload of trial {context.trial} is none of those that the manifest tells"


def _names(kind: str, of_manifest: Sequence[Mapping[str, Any]], of_trials: Sequence[str]) -> Iterator[str]:
    expected = {str(one.get("name")) for one in of_manifest}
    for name in sorted(expected - set(of_trials)):
        yield f"no trial of the {kind} '{name}' is there"
    for name in sorted(set(of_trials) - expected):
        yield f"the manifest does not know the {kind} '{name}'"


def _as_asked(workload: Mapping[str, Any], *, paced: bool, warmed_up: bool = False) -> str:
    """What makes workloads the same. A warm-up that goes on until the load is steady (`warmed_up`: it did) is as long as it was."""
    extra = dict(workload.get("extra") or {})
    auto = extra.pop("warmup", None) == "auto" or warmed_up
    left_out = {"file", "extra", *(("warmup_s",) if auto else ()), *(("rate_msgs_s",) if paced else ())}
    kept = {name: value for name, value in workload.items() if name not in left_out}
    return json.dumps({**kept, "extra": extra, "auto": auto}, sort_keys=True)


def asked(manifest: Manifest, contexts: Sequence[TrialContext]) -> Iterator[Finding]:
    """What the command says of the trials, and the manifest of their systems."""
    yield from found("asked", [*_command(manifest, contexts), *_systems(manifest, contexts)])


def _command(manifest: Manifest, contexts: Sequence[TrialContext]) -> Iterator[str]:
    if len(manifest.command) < 2 or manifest.command[1] != "run":
        return
    given = options(manifest.command)
    if given.get("--seed", "").isdigit() and int(given["--seed"]) != manifest.seed:
        yield f"the command says --seed {given['--seed']}, the manifest {manifest.seed}"
    for context in contexts:
        of = f"trial {context.trial}"
        if "--durability" in given and context.durability.asked not in given["--durability"].split(","):
            yield f"{of} was asked for {context.durability.asked}, and the command says --durability {given['--durability']}"
        if (
            given.get("--nodes", "").isdigit()
            and not context.attached
            and int(given["--nodes"]) != context.nodes
        ):
            yield f"{of} ran on {plural(context.nodes, 'node')}, and the command says --nodes {given['--nodes']}"
        try:
            duration_s = parse_duration(given["--duration"]) if "--duration" in given else None
            rate = read_rate(given["--rate"]) if "--rate" in given else None
        except ValueError:
            continue
        if given.get("--rate") == SWEEP:
            continue
        if duration_s is not None and abs(duration_s - context.workload.duration_s) > 1e-6:
            yield f"{of} was to measure {context.workload.duration_s:g} s, and the command says --duration {given['--duration']}"
        of_command = None if rate is None else rate.msgs_s
        if of_command is not None and context.workload.rate_msgs_s not in (None, of_command):
            yield f"{of} was to run at {context.workload.rate_msgs_s:,.6g} msg/s, and the command says --rate {given['--rate']}"


def _systems(manifest: Manifest, contexts: Sequence[TrialContext]) -> Iterator[str]:
    """Versions, levels and settings of systems."""
    known: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in manifest.systems:
        if entry.get("level"):
            known[str(entry.get("name"))].append(entry)
    groups: dict[int, list[TrialContext]] = defaultdict(list)
    for context in contexts:
        what = (context.system_version, context.nodes, context.durability.declared)
        for version in sorted(_versions(context) - {context.system_version}):
            yield f"trial {context.trial} measured {context.system} {context.system_version}, and the system itself said {version}"
        of_name = known.get(context.system)
        if not of_name or context.durability.declared is None:
            continue
        alike = [one for one in of_name if (one.get("version"), one.get("nodes"), one.get("level")) == what]
        if alike:
            groups[manifest.systems.index(dict(alike[0]))].append(context)
        else:
            nodes = plural(what[1], "node")
            yield f"trial {context.trial} measured {context.system} {what[0]} at {what[2]} on {nodes}: the manifest tells of no such system"
    for at, members in groups.items():
        yield from _settings(manifest.systems[at].get("settings"), members)


def _settings(of_manifest: Any, contexts: Sequence[TrialContext]) -> Iterator[str]:
    """The manifest has the settings that were read back last. Some, as ports, differ from trial to trial; what all others have alike does not."""
    if not isinstance(of_manifest, Mapping):
        return
    for name, told in of_manifest.items():
        values = [
            (one.trial, one.durability.settings[name]) for one in contexts if name in one.durability.settings
        ]
        if values and all(value != told for _, value in values):
            yield f"the setting {name} is {values[0][1]!r} in trial {values[0][0]}, and {told!r} in the manifest"
        apart = [(trial, value) for trial, value in values if value != told]
        if len(values) >= ALIKE_MIN and len(apart) == 1:
            yield f"the setting {name} is {apart[0][1]!r} in trial {apart[0][0]}, and {told!r} in all others"


def _versions(context: TrialContext) -> set[str]:
    """What the system said of its version."""
    told = {
        str(value)
        for name, value in context.durability.settings.items()
        if name.endswith(".version") and isinstance(value, str)
    }
    configured = context.configuration.get("version")
    return told | ({configured} if isinstance(configured, str) and not context.attached else set())


def seeds(manifest: Manifest, contexts: Sequence[TrialContext], study: StudyPlan | None) -> Iterator[Finding]:
    """Each trial's seed."""
    unknown = _of_unknown_command(manifest, study)
    if unknown is not None:
        yield Finding("seeds", "unknown", unknown)
        return
    wrong = []
    planned = {trial.number: trial.seed for trial in study.trials} if study is not None else {}
    if study is not None and study.seed != manifest.seed:
        wrong.append(f"the study's seed is {study.seed}, the manifest's {manifest.seed}")
    for context in contexts:
        expected = (
            planned.get(context.trial)
            if study is not None
            else trial_seed(manifest.seed, context.workload.name, context.repeat)
        )
        if expected is not None and context.seed != expected:
            wrong.append(
                f"trial {context.trial} has the seed {context.seed}; from that of the run follows {expected}"
            )
    yield from found("seeds", wrong)


def copies(
    manifest: Manifest, contexts: Sequence[TrialContext], prints: Mapping[int, set[bytes]]
) -> Iterator[Finding]:
    """Trials are of this run, and no two of them the same."""
    wrong = [
        f"trial {context.trial} is of the run {context.run_id}"
        for context in contexts
        if context.run_id != manifest.run_id
    ]
    numbers = sorted(prints)
    for at, one in enumerate(numbers):
        for other in numbers[at + 1 :]:
            shared = len(prints[one] & prints[other])
            if shared and shared >= SHARED_MAX * min(len(prints[one]), len(prints[other])):
                wrong.append(
                    f"trials {one} and {other} have {plural(shared, 'distribution')} in common: one was copied"
                )
    yield from found("copies", wrong)


def times(
    manifest: Manifest,
    contexts: Sequence[TrialContext],
    rows: Mapping[int, Sequence[tuple[str, float, float]]],
    events: Mapping[int, Sequence[int]],
) -> Iterator[Finding]:
    """`rows`: per trial, worker, beginning and end of its intervals, in order; `events`: per trial, when things happened, in Unix ms."""
    wrong = []
    if manifest.ended_unix_ms is not None and manifest.ended_unix_ms < manifest.started_unix_ms:
        wrong.append("the run ended before it began")
    last_end = 0
    for context in sorted(contexts, key=lambda one: one.started_unix_ms):
        of = f"trial {context.trial}"
        begin, start, end = context.started_unix_ms, context.schedule_start_unix_ms, context.ended_unix_ms
        if end < begin or (start is not None and not begin - SLACK_MS <= start <= end + SLACK_MS):
            wrong.append(f"{of} ended before it began, or its schedule lies outside of it")
        if begin < manifest.started_unix_ms - SLACK_MS or end > (manifest.ended_unix_ms or end) + SLACK_MS:
            wrong.append(f"{of} lies outside of the run")
        if begin < last_end - SLACK_MS:
            wrong.append(f"{of} began before the one before it had ended")
        last_end = max(last_end, end)
        if start is not None and context.measure_until_s * 1000 > end - start + SLACK_MS:
            wrong.append(
                f"{of} measured until {context.measure_until_s:g} s of its schedule, and lasted {(end - start) / 1000:g} s from its start"
            )
        if context.measure_until_s < context.measure_from_s:
            wrong.append(f"{of}: what was measured ends before it begins")
        wrong += _intervals(of, rows.get(context.trial, ()))
        wrong += _events(of, events.get(context.trial, ()), begin, end)
    probed = [
        int(probe["started_unix_ms"])
        for probe in manifest.probes
        if isinstance(probe.get("started_unix_ms"), int)
    ]
    if probed != sorted(probed):
        wrong.append("a probe was made before the one before it")
    yield from found("times", wrong)


def _intervals(of: str, rows: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    ends: dict[str, float] = {}
    for worker, begin, end in rows:
        if begin < ends.get(worker, begin) - 0.01 or end < begin:
            yield f"{of}: the interval of {worker} at {begin:g} s begins before the one before it ends"
            return
        ends[worker] = end


def _events(of: str, events: Sequence[int], begin: int, end: int) -> Iterator[str]:
    if any(later < earlier - SLACK_MS for earlier, later in itertools.pairwise(events)):
        yield f"{of}: its events go backwards"
    if events and (min(events) < begin - SLACK_MS or max(events) > end + 30 * SLACK_MS):
        yield f"{of}: its events lie outside of it"
