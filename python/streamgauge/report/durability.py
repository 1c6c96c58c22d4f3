"""The report of durability experiments: what was done, what was seen, what it means; in the terminal and as one page."""

from __future__ import annotations

import string
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.text import Text

from streamgauge.model.durability import Cut, DoseResponse, DurabilityReport, DurabilityResult
from streamgauge.report import durability_answers
from streamgauge.report.assets_of import asset
from streamgauge.report.details import Grid, html_table, print_grid
from streamgauge.report.format import count, seconds, significant
from streamgauge.report.timeline import timeline
from streamgauge.store.directory import RunDirectory
from streamgauge.store.files import write_atomically

REPORT_NAME = "report.html"
TIMELINES_MAX = 4
WAITS = {True: "yes", False: "no", None: "not told"}
SIGNS = {True: "as declared", False: "NOT as declared", None: "not told"}


def write(run: RunDirectory) -> Path:
    """Writes `report.html` into the run's directory; its path."""
    found = run.read_durability() or DurabilityReport()
    manifest = run.read_manifest()
    host = manifest.host
    machine = (
        ", ".join(str(host[key]) for key in ("hostname", "cpu_model") if host.get(key))
        or "a machine that was not probed"
    )
    page = string.Template(asset("durability.html")).substitute(
        title=escape(_title(found)),
        css=asset("report.css"),
        facts=escape(f"{machine}; {manifest.run_id}; {' '.join(manifest.command)}"),
        summary=html_table(verdicts(found.results)),
        answers=durability_answers.html(durability_answers.answered(found)),
        systems="".join(_section(result) for result in found.results),
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
        for sentence in result.finding.sentences:
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
    return f"declared {finding.declared or 'unknown'}, measured {finding.measured or 'unknown'} ({SIGNS[finding.agrees]})"


def verdicts(results: Sequence[DurabilityResult]) -> Grid:
    """Declared beside measured, and what it rests on."""
    head = (
        "system",
        "version",
        "declared",
        "measured",
        "verdict",
        "nodes",
        "disks waited for",
        "copies waited for",
        "power cuts with loss",
        "most lost",
        "window ms",
    )
    rows = []
    for result in results:
        response = result.response
        power = [one for one in result.summaries if one.kind == "power cut"]
        told = sum(one.conclusive for one in power)
        rows.append(
            (
                result.name,
                result.system_version,
                result.finding.declared or "?",
                result.finding.measured or "?",
                SIGNS[result.finding.agrees] if result.status == "complete" else result.status,
                str(result.nodes),
                _number(response.disks if response else None),
                _number(response.copies if response else None),
                f"{sum(one.with_loss for one in power)} of {told}" if told else "",
                count(max((one.lost_max for one in power), default=0)) if told else "",
                significant(max((one.window_ms_max or 0.0 for one in power), default=0.0)) if told else "",
            )
        )
    return Grid("Declared and measured", head, rows, words=5, narrow=(0, 2, 3, 4, 8, 9))


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _section(result: DurabilityResult) -> str:
    conditions = result.conditions
    disk = (
        "nothing is kept that was not synced"
        if conditions.write_back is None
        else (f"what is older than {conditions.write_back} is kept, as a kernel's write-back does")
    )
    done = (
        f"{result.system_title} {result.system_version} on {result.nodes} node{'s' if result.nodes > 1 else ''}, "
        f"each part on a disk of its own behind a volatile cache; in a power cut {disk} (names: {conditions.metadata}). "
        f"Cuts: {conditions.rate_msgs_s:,.0f} messages of {conditions.message_size_bytes} bytes per second into "
        f"{conditions.partitions} partition{'s' if conditions.partitions > 1 else ''}, {conditions.sync_delay_ms:g} ms "
        "added to each sync; after the recovery everything was read from the first message on."
    )
    failure = (
        f'<p class="notice warn">{escape(result.status)}: {escape(result.failure)}</p>'
        if result.failure
        else ""
    )
    evidence = "".join(f"<li>{escape(sentence)}</li>" for sentence in result.finding.sentences)
    tables = "".join(html_table(grid) for grid in _grids(result) if grid.rows)
    return (
        f'<section><h2>{escape(result.name)}</h2><p class="verdict {_tone(result)}"><span><strong>'
        f"{escape(_verdict(result))}</strong></span></p>{failure}<h3>What was done</h3><p>{escape(done)}</p>"
        f"<h3>What was seen, and what it means</h3><ul>{evidence}</ul>{_timelines(result.cuts)}{tables}"
        f"{_settings(result)}</section>"
    )


def _tone(result: DurabilityResult) -> str:
    return {True: "good", False: "bad", None: "warn"}[result.finding.agrees]


def _timelines(cuts: Sequence[Cut]) -> str:
    """The worst cut of each kind and scope, as acknowledgements over time."""
    worst: dict[tuple[str, str], Cut] = {}
    for cut in cuts:
        key = (cut.kind, cut.scope)
        if cut.acks and (key not in worst or cut.lost > worst[key].lost):
            worst[key] = cut
    shown = sorted(worst.values(), key=lambda cut: (cut.kind != "power cut", -cut.lost))[:TIMELINES_MAX]
    return "".join(timeline(cut) for cut in shown)


def _grids(result: DurabilityResult) -> list[Grid]:
    response = result.response
    grids = []
    if response is not None:
        grids.append(
            Grid(
                "Doses: every sync takes longer on some disks",
                ("slowed", "delay ms", "publish p50 ms", "p99", "messages"),
                [
                    (
                        ", ".join(dose.parts) or "none",
                        significant(dose.delay_ms),
                        significant(dose.publish_ms_p50),
                        significant(dose.publish_ms_p99),
                        count(dose.acked_msgs),
                    )
                    for dose in response.doses
                ],
            )
        )
        grids.append(
            Grid(
                "Response: ms of publish p50 per ms of delay",
                ("nodes", "slope", "waits"),
                [
                    (_nodes(response, one.nodes), f"{one.slope:.2f}", WAITS[one.waits])
                    for one in response.slopes
                ],
            )
        )
        grids.append(
            Grid(
                "Nodes stopped for a moment (SIGSTOP)",
                ("nodes", "stopped", "longest gap", "waits"),
                [
                    (
                        _nodes(response, one.nodes),
                        seconds(one.stopped_s),
                        seconds(one.gap_s),
                        "yes" if one.waits else "no",
                    )
                    for one in response.stops
                ],
            )
        )
    grids.append(_accounts(result))
    grids.append(_summaries(result))
    return grids


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
    head = (
        "disk of",
        "syncs/s",
        "bytes per sync",
        "mean sync ms",
        "MB written",
        "write amplification",
        "bytes not synced",
    )
    rows = [
        (
            one.part,
            significant(one.syncs_s),
            significant(one.bytes_per_sync),
            significant(one.sync_ms_mean),
            significant(one.bytes_written / 1e6),
            significant(one.write_amplification),
            count(one.unsynced_bytes),
        )
        for one in result.accounts
    ]
    return Grid("Accounts of a steady load", head, rows)


def _summaries(result: DurabilityResult) -> Grid:
    head = (
        "what",
        "of",
        "times",
        "with loss",
        "lost",
        "most lost",
        "window ms",
        "duplicated",
        "reordered",
        "corrupted",
        "serves after",
        "no ack for",
        "loss at most (95 %)",
    )
    rows = [
        (
            one.kind,
            one.scope,
            str(one.cuts),
            f"{one.with_loss} of {one.conclusive}",
            count(one.lost),
            count(one.lost_max),
            significant(one.window_ms_max),
            count(one.duplicated),
            count(one.reordered),
            count(one.corrupted),
            "" if one.serving_s_median is None else seconds(one.serving_s_median),
            "" if one.unavailable_s_median is None else seconds(one.unavailable_s_median),
            "" if one.loss_probability_max is None else f"{100 * one.loss_probability_max:.3g} %",
        )
        for one in result.summaries
    ]
    return Grid("Cuts, kills and stops", head, rows, words=2)


def _settings(result: DurabilityResult) -> str:
    rows: list[tuple[str, ...]] = [
        (key, str(value)) for key, value in sorted(result.durability.settings.items())
    ]
    rows += [("mismatch", text) for text in result.durability.mismatches]
    if not rows:
        return ""
    table = html_table(Grid("Settings, read back from the live system", ("setting", "value"), rows, words=2))
    return f"<details><summary>Settings, read back from the live system</summary>{table}</details>"
