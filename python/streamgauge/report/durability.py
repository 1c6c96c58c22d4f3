"""The report of durability experiments: what was done, what was seen, what it means; in the terminal and as one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from streamgauge.model.durability import (
    Account,
    Conditions,
    Cut,
    CutSummary,
    Dose,
    DoseResponse,
    DurabilityReport,
    DurabilityResult,
    Slope,
    Stop,
)
from streamgauge.model.power_cut import describe_place
from streamgauge.report import durability_answers
from streamgauge.report.assets_of import policy
from streamgauge.report.details import Grid, print_grid
from streamgauge.report.pages import inline, render
from streamgauge.report.timeline import timeline
from streamgauge.store.directory import RunDirectory
from streamgauge.store.files import write_atomically
from streamgauge.vocabulary.format import count, plural, seconds, significant, trimmed

REPORT_NAME = "report.html"
TIMELINES_MAX = 4
WAITS = {True: "yes", False: "no", None: "not told"}
TONES = {True: "good", False: "bad", None: "warn"}
SIGNS = {True: "as declared", False: "NOT as declared", None: "not told"}


def write(run: RunDirectory) -> Path:
    """Writes `report.html` into the run's directory; its path."""
    found = run.read_durability() or DurabilityReport()
    manifest = run.read_manifest()
    machine = manifest.host.get("cpu_model") or "a machine that was not probed"
    page = render(
        "durability.html",
        title=_title(found),
        policy=inline(policy()),
        facts=f"{machine}; {manifest.run_id}; {' '.join(manifest.command)}",
        verdicts=verdicts(found.results),
        answers=durability_answers.shown(durability_answers.answered(found)),
        sections=[_section(result) for result in found.results],
    )
    path = run.path / REPORT_NAME
    write_atomically(path, page)
    return path


def print_report(found: DurabilityReport, console: Console | None = None) -> None:
    """The verdicts and their evidence on a terminal."""
    console = console or Console()
    for result in found.results:
        console.print()
        console.print(Text(f"{result.name}: {_verdict(result)}", style="bold"))
        if result.failure:
            console.print(Text(f"  {result.status}: {result.failure}", style="bold red"))
        for sentence in [*result.finding.sentences, *result.finding.against]:
            console.print(f"  {sentence}", markup=False, highlight=False)
    if len(found.results) > 1:
        console.print()
        print_grid(verdicts(found.results), console, whole=True)
    durability_answers.print_answers(durability_answers.answered(found), console)


def _title(found: DurabilityReport) -> str:
    if found.study is not None:
        return found.study.title
    names = [result.name for result in found.results]
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return f"What an acknowledgement is worth: {', '.join(shown)}"


def _verdict(result: DurabilityResult) -> str:
    finding = result.finding
    beside = f"; {plural(len(finding.against), 'finding')} against it" if finding.against else ""
    return f"declared {finding.declared or 'unknown'}, measured {finding.measured or 'unknown'} ({SIGNS[finding.agrees]}){beside}"


def verdicts(results: Sequence[DurabilityResult]) -> Grid:
    """Declared beside measured, and what it rests on."""
    columns: dict[str, Callable[[DurabilityResult], str]] = {
        "system": lambda one: one.name,
        "version": lambda one: one.system_version,
        "declared": lambda one: one.finding.declared or "?",
        "measured": lambda one: one.finding.measured or "?",
        "verdict": lambda one: SIGNS[one.finding.agrees] if one.status == "complete" else one.status,
        "nodes": lambda one: str(one.nodes),
        "disks waited for": lambda one: _number(one.response.disks if one.response else None),
        "copies waited for": lambda one: _number(one.response.copies if one.response else None),
        "power cuts with loss": lambda one: _power_cuts(one)[0],
        "most lost": lambda one: _power_cuts(one)[1],
        "window ms": lambda one: _power_cuts(one)[2],
    }
    return Grid.of("Declared and measured", results, columns, words=5, narrow=(0, 2, 3, 4, 8, 9))


def _power_cuts(result: DurabilityResult) -> tuple[str, str, str]:
    """How many lost messages, of those that told something; how many at most, and of how many ms."""
    power = [one for one in result.summaries if one.kind == "power cut"]
    told = sum(one.conclusive for one in power)
    if not told:
        return "", "", ""
    window_ms = max(one.window_ms_max or 0.0 for one in power)
    lost = max(one.lost_max for one in power)
    return f"{sum(one.with_loss for one in power)} of {told}", count(lost), significant(window_ms)


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _section(result: DurabilityResult) -> dict[str, Any]:
    conditions = result.conditions
    disk = (
        "of what was not synced is kept what each cut's row says"
        if conditions.write_back is None
        else (
            f"of what was not synced is kept what each cut's row says, and what is older than {conditions.write_back} is kept, as a kernel's write-back does"
        )
    )
    done = (
        f"{result.system_title} {result.system_version} on {plural(result.nodes, 'node')}, "
        f"each part on a disk of its own behind a volatile cache; in a power cut {disk} (names: {conditions.metadata}). "
        f"Cuts: {conditions.rate_msgs_s:,.0f} messages of {conditions.message_size_bytes} bytes per second into "
        f"{plural(conditions.partitions, 'partition')}, {conditions.sync_delay_ms:g} ms "
        "added to each sync, topics created and deleted beside it; after the recovery everything was read from the first message on. "
        f"{_segments(conditions)}"
    )
    return {
        "result": result,
        "verdict": _verdict(result),
        "tone": TONES[result.finding.agrees],
        "done": done,
        "timelines": [timeline(cut) for cut in _worst(result.cuts)],
        "grids": _grids(result),
        "settings": _settings(result),
    }


def _segments(conditions: Conditions) -> str:
    if not conditions.small_segments:
        return "Segments are as large as the system makes them."
    settings = ", ".join(f"{key}: {value}" for key, value in conditions.small_segments.items())
    return f"So that the load fills and rolls segments, they are small ({settings})."


def _each_cut(result: DurabilityResult) -> Grid:
    columns: dict[str, Callable[[Cut], str]] = {
        "cut": lambda one: f"{one.number}" if one.replay_of is None else f"{one.replay_of} again",
        "what": lambda one: f"{one.kind} of {one.scope}",
        "survivors": lambda one: "" if one.power is None else one.power.survivors,
        "seed": lambda one: "" if one.power is None else str(one.power.seed),
        "at": _came_at,
        "dropped bytes": lambda one: "" if one.power is None else count(one.power.dropped_bytes),
        "survived bytes": lambda one: "" if one.power is None else count(one.power.survived_bytes),
        "acknowledged": lambda one: count(one.acked),
        "lost": lambda one: "did not come back" if one.failure is not None else count(one.lost),
        "where": _where,
    }
    cuts = [one for one in result.cuts if one.power is not None]
    return Grid.of("Every power cut, by its kind and seed", cuts, columns, words=3)


def _came_at(cut: Cut) -> str:
    if cut.place is None:
        return seconds(cut.at_s)
    return (
        describe_place(cut.place)
        if cut.place_reached
        else f"{seconds(cut.at_s)} ({describe_place(cut.place)} not reached)"
    )


def _where(cut: Cut) -> str:
    if cut.refused or cut.complaints:
        return " | ".join([*cut.refused, *cut.complaints])
    if cut.lost_messages:
        return cut.lost_messages[0].told
    return cut.power.files[0].told if cut.lost and cut.power is not None and cut.power.files else ""


def _worst(cuts: Sequence[Cut]) -> list[Cut]:
    """The worst cut of each kind and scope, of which acknowledgements over time are drawn."""
    worst: dict[tuple[str, str], Cut] = {}
    for cut in cuts:
        key = (cut.kind, cut.scope)
        if cut.acks and (key not in worst or cut.lost > worst[key].lost):
            worst[key] = cut
    return sorted(worst.values(), key=lambda cut: (cut.kind != "power cut", -cut.lost))[:TIMELINES_MAX]


def _grids(result: DurabilityResult) -> list[Grid]:
    response = result.response
    grids = [_accounts(result), _summaries(result), _each_cut(result)]
    if response is None:
        return grids
    doses: dict[str, Callable[[Dose], str]] = {
        "slowed": lambda dose: ", ".join(dose.parts) or "none",
        "delay ms": lambda dose: significant(dose.delay_ms),
        "publish p10 ms": lambda dose: significant(dose.publish_ms_p10),
        "p50": lambda dose: significant(dose.publish_ms_p50),
        "p99": lambda dose: significant(dose.publish_ms_p99),
        "messages": lambda dose: count(dose.acked_msgs),
    }
    slopes: dict[str, Callable[[Slope], str]] = {
        "nodes": lambda one: _nodes(response, one.nodes),
        "slope": lambda one: f"{one.slope:.2f}",
        "of each round": lambda one: ", ".join(f"{slope:.2f}" for slope in one.slopes),
        "waits": lambda one: WAITS[one.waits],
    }
    stops: dict[str, Callable[[Stop], str]] = {
        "nodes": lambda one: _nodes(response, one.nodes),
        "stopped": lambda one: seconds(one.stopped_s),
        "longest gap": lambda one: seconds(one.gap_s),
        "waits": lambda one: WAITS[one.waits],
    }
    return [
        Grid.of("Doses: every sync takes longer on some disks", response.doses, doses),
        Grid.of(f"Response: ms of publish {response.percentile} per ms of delay", response.slopes, slopes),
        Grid.of("Nodes stopped for a moment (SIGSTOP)", response.stops, stops),
        *grids,
    ]


def _nodes(response: DoseResponse, nodes: Sequence[str]) -> str:
    """The nodes of a set, and which part they had while the doses were given."""
    named = ", ".join(nodes)
    if response.leader is None:
        return named
    if list(nodes) == [response.leader]:
        return f"{named} (leader only)"
    everyone = {node for one in response.slopes for node in one.nodes}
    return f"{named} (followers only)" if set(nodes) == everyone - {response.leader} else named


def _accounts(result: DurabilityResult) -> Grid:
    columns: dict[str, Callable[[Account], str]] = {
        "disk of": lambda one: one.part,
        "syncs/s": lambda one: significant(one.syncs_s),
        "bytes per sync": lambda one: significant(one.bytes_per_sync),
        "mean sync ms": lambda one: significant(one.sync_ms_mean),
        "MB written": lambda one: significant(one.bytes_written / 1e6),
        "write amplification": lambda one: significant(one.write_amplification),
        "bytes not synced": lambda one: count(one.unsynced_bytes),
    }
    return Grid.of("Accounts of a steady load", result.accounts, columns)


def _summaries(result: DurabilityResult) -> Grid:
    columns: dict[str, Callable[[CutSummary], str]] = {
        "what": lambda one: one.kind,
        "of": lambda one: one.scope,
        "times": lambda one: str(one.cuts),
        "with loss": lambda one: f"{one.with_loss} of {one.conclusive}",
        "did not come back": lambda one: count(one.refused),
        "lost": lambda one: count(one.lost),
        "most lost": lambda one: count(one.lost_max),
        "window ms": lambda one: significant(one.window_ms_max),
        "duplicated": lambda one: count(one.duplicated),
        "reordered": lambda one: count(one.reordered),
        "corrupted": lambda one: count(one.corrupted),
        "serves after": lambda one: _duration(one.serving_s_median),
        "no ack for": lambda one: _duration(one.unavailable_s_median),
        "loss at most (95 %)": lambda one: (
            "" if one.loss_probability_max is None else f"{trimmed(100 * one.loss_probability_max)} %"
        ),
    }
    return Grid.of("Cuts, kills and stops", result.summaries, columns, words=2)


def _duration(value_s: float | None) -> str:
    return "" if value_s is None else seconds(value_s)


def _settings(result: DurabilityResult) -> Grid:
    rows: list[tuple[str, ...]] = [
        (key, str(value)) for key, value in sorted(result.durability.settings.items())
    ]
    rows += [("mismatch", text) for text in result.durability.mismatches]
    return Grid("Settings, read back from the live system", ("setting", "value"), rows, words=2)
