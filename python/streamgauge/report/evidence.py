"""What a reader needs to believe the figures, or not to: limits, audit and validity per trial, settings,
definitions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from streamgauge.analysis.cells import Cell
from streamgauge.model.result import TrialResult
from streamgauge.model.result_machine import Limits, Share
from streamgauge.report import details, words
from streamgauge.report.explain import explanation
from streamgauge.report.format import (
    count,
    exact_size,
    instant,
    percent,
    plural,
    rate,
    seconds,
    significant,
    size,
    trimmed,
)
from streamgauge.report.glossary import TERMS
from streamgauge.report.run import Run, pretty

OPEN_TRIALS_MAX = 4
"""With more trials than this, only those with something to say are unfolded."""
OPEN_SYSTEMS_MAX = 2
SETTINGS_MAX = 400
CONFIGURATION_CHARACTERS_MAX = 20_000

SHARE_TITLES: dict[str, str] = {
    "cpu": "CPU, all of it",
    "system_cpu": "CPU of the system",
    "worker_cpu": "CPU of the generator",
    "disk_write": "Disk writes",
    "disk_read": "Disk reads",
    "network": "Loopback network",
}


def limits(run: Run, labels: Sequence[str]) -> str:
    """What the machine can do, and bars of what each system used of it."""
    if not run.results:
        return ""
    machine = _machine(run.results[0].limits)
    bars = "".join(
        _share_card(cell, index, label)
        for index, (cell, label) in enumerate(zip(run.cells, labels, strict=False))
    )
    return (
        '<section id="limits"><h2>The machine and how much of it was used</h2>'
        '<p class="lead">A figure near a limit of the machine says more about the machine than about the '
        "system. "
        'See <a href="#term-limit">limit and share</a>.</p>'
        f'{machine}<div class="shares">{bars}</div></section>'
    )


def _machine(found: Limits) -> str:
    rows = [
        ("sequential disk write", found.disk_write_mb_s, "MB/s", "higher is better"),
        ("sequential disk read", found.disk_read_mb_s, "MB/s", "higher is better"),
        ("4 KiB append + fsync, p50", found.fsync_ms_p50, "ms", "lower is better"),
        ("4 KiB append + fsync, p99", found.fsync_ms_p99, "ms", "lower is better"),
        ("loopback bandwidth", found.loopback_mb_s, "MB/s", "higher is better"),
        ("loopback round trip, p50", found.round_trip_us_p50, "\u00b5s", "lower is better"),
        ("memory copy, one core", found.memcpy_mb_s, "MB/s", "higher is better"),
        ("crc32c, one core", found.crc32c_mb_s, "MB/s", "higher is better"),
        ("late wake-up, p99", found.wakeup_us_p99, "\u00b5s", "lower is better"),
    ]
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(significant(value))}<small> "
        f"{unit}</small></dd><dd class=hint>{better}</dd></div>"
        for name, value, unit, better in rows
        if value is not None
    )
    if not items:
        return '<p class="notice">The machine was not probed in this run.</p>'
    return f'<dl class="machine">{items}</dl>'


def _share_card(cell: Cell, index: int, label: str) -> str:
    trial = cell.counted[0]
    if not trial.shares:
        return ""
    ordered = sorted(
        trial.shares,
        key=lambda share: list(SHARE_TITLES).index(share.name) if share.name in SHARE_TITLES else 99,
    )
    bars = "".join(_bar(share) for share in ordered)
    extra = ""
    if trial.write_amplification is not None:
        extra = (
            f'<p class="hint"><a href="#term-write_amplification">Write amplification</a> '
            f"{significant(trial.write_amplification)} (bytes to disk per byte published).</p>"
        )
    processes = ""
    if trial.processes:
        rows = "".join(
            f'<tr><th scope="row">{escape(process.name)}</th><td class="number">'
            f"{percent(process.cpu_share, 1)}</td>"
            f'<td class="number">{size(process.rss_bytes_max)}</td><td class="number">'
            f"{size(process.disk_write_bytes)}</td>"
            f'<td class="number">{size(process.disk_read_bytes)}</td></tr>'
            for process in trial.processes
        )
        processes = (
            '<div class="scroll"><table class="plain"><thead><tr><th scope="col">process</th><th '
            'class="number" scope="col">CPU</th>'
            '<th class="number" scope="col">memory, max</th><th class="number" scope="col">written</th>'
            f'<th class="number" scope="col">read</th></tr></thead><tbody>{rows}</tbody></table></div>'
        )
    several = f", trial {trial.trial}" if len(cell.trials) > 1 else ""
    return (
        f'<article style="--c:var(--series-{index % 8})"><h3><i class="swatch"></i>'
        f"{escape(label + several)}</h3>"
        f"{explanation(trial)}{bars}{extra}{processes}</article>"
    )


def _bar(share: Share) -> str:
    title = SHARE_TITLES.get(share.name, share.name.replace("_", " "))
    width = min(100.0, max(0.0, 100 * share.value))
    near = " near" if share.value >= 0.9 else ""
    decimals = 0 if share.value >= 0.1 else 1
    return (
        f'<div class="share{near}"><div class="caption"><span>{escape(title)}</span><b>'
        f"{percent(share.value, decimals)}</b></div>"
        f'<div class="bar"><i style="width:{width:.1f}%"></i></div><p class="hint">'
        f"{escape(share.explanation)}</p></div>"
    )


def trials(run: Run) -> str:
    """Validity and audit in plain words, per trial."""
    if not run.results:
        return ""
    many = len(run.results) > OPEN_TRIALS_MAX
    cards = "".join(_trial(trial, unfold=not many or _has_news(trial)) for trial in run.results)
    return (
        '<section id="trials"><h2>May these figures be believed?</h2>'
        '<p class="lead">What was checked in each trial: the generator (<a href="#term-valid">validity</a>), '
        'the data (<a href="#term-audit">audit</a>) and the state of the system (<a href="#term-steady">'
        "steady</a>).</p>"
        f"{cards}</section>"
    )


def _has_news(trial: TrialResult) -> bool:
    return not trial.validity.valid or words.audit(trial.audit).tone in ("warn", "bad")


def _trial(trial: TrialResult, *, unfold: bool) -> str:
    validity, audit = words.validity(trial), words.audit(trial.audit)
    tones = (validity.tone, audit.tone)
    tone = "bad" if "bad" in tones else "warn" if "warn" in tones else "good"
    sign = {"good": "&#10003;", "warn": "!", "bad": "&#10005;"}[tone]
    items = "".join(
        f'<li class="bad"><b>Invalid:</b> {escape(reason)}</li>' for reason in trial.validity.reasons
    )
    if not items:
        items = (
            '<li class="good"><b>Valid:</b> the generator was on time '
            f'(p99 of <a href="#term-send_delay">send delay</a> {significant(trial.send_delay_ms.p99)} ms), '
            f"{_rate_words(trial)}{_cpu_words(trial)}.</li>"
        )
    items += f'<li class="{audit.tone}"><b>Audit:</b> {escape(audit.sentence)}</li>'
    steady_tone = "good" if trial.steadiness.label in ("steady", "too short") else "warn"
    items += (
        f'<li class="{steady_tone}"><b>{escape(trial.steadiness.label.capitalize())}:</b> '
        f"{escape(trial.steadiness.explanation)}</li>"
    )
    told = {trial.steadiness.explanation}
    for warning in trial.validity.warnings:
        if not any(known in warning for known in told):
            items += f'<li class="warn"><b>Note:</b> {escape(warning)}</li>'
    if trial.search is not None:
        tone_of = "good" if trial.search.bound == "system" else "warn"
        items += f'<li class="{tone_of}"><b>Search:</b> {escape(words.search(trial.search))}</li>'
    if trial.catch_up is not None:
        tone_of = "good" if trial.catch_up.caught_up else "warn"
        items += f'<li class="{tone_of}"><b>Backlog:</b> {escape(words.catch_up(trial.catch_up))}</li>'
    by = "with these workers" if trial.untold else "with this protocol"
    for missing in trial.cannot:
        items += f'<li class="warn"><b>Not possible {by}:</b> {escape(missing)}</li>'
    for name, why in trial.untold.items():
        items += f'<li class="warn"><b>Not told:</b> <code>{escape(name)}</code>: {escape(why)}</li>'
    for kind, number in trial.errors.items():
        items += f'<li class="warn"><b>Error {escape(kind)}:</b> {plural(number, "time")}</li>'
    examples = [example for one in trial.audit.subscriptions for example in one.examples]
    if examples:
        shown = "; ".join(escape(example) for example in examples[:10])
        items += f'<li class="bad"><b>For example:</b> {shown}</li>'
    headline = f"Trial {trial.trial}: {words.system_name(trial)}, {words.level(trial)}, {trial.workload.name}"
    return (
        f'<details class="trial {tone}"{" open" if unfold else ""}><summary><span class="sign {tone}" '
        f'aria-hidden="true">{sign}</span>'
        f"<span><b>{escape(headline)}</b> <em>{escape(validity.word)}, audit "
        f"{escape(audit.word)}</em></span></summary>"
        f'<ul class="findings">{items}</ul>{details.section(trial)}{_books(trial)}{_latencies(trial)}</details>'
    )


def _cpu_words(trial: TrialResult) -> str:
    share = trial.cpu.workers_share
    return "" if share is None else f" and used {percent(share)} of the CPU"


def _rate_words(trial: TrialResult) -> str:
    if trial.achieved_share is None:
        return f"sent as fast as it could ({rate(trial.publish_rate_msgs_s)} msg/s)"
    return f"reached {percent(trial.achieved_share, 2)} of its rate"


def _books(trial: TrialResult) -> str:
    audit = trial.audit
    if not audit.enabled:
        return ""
    names = (
        "sent",
        "acked",
        "failed",
        "censored",
        "received",
        "lost",
        "duplicated",
        "reordered",
        "corrupted",
        "unexpected",
        "unknown",
        "recovered",
    )
    wrong = {"lost", "duplicated", "reordered", "corrupted", "unexpected", "failed", "censored", "unknown"}
    items = ""
    for name in names:
        value: int = getattr(audit, name)
        marked = ' class="bad"' if name in wrong and value else ""
        items += f"<div{marked}><dt>{name}</dt><dd>{count(value)}</dd></div>"
    return f'<dl class="books">{items}</dl>'


def _latencies(trial: TrialResult) -> str:
    rows = [
        ("publish", "publish", trial.publish_ms),
        ("end-to-end", "end_to_end", trial.end_to_end_ms),
        ("service", "service", trial.service_ms),
        ("send delay", "send_delay", trial.send_delay_ms),
        ("back-pressure", "backpressure", trial.backpressure_ms),
    ]
    for name, latency in trial.end_to_end_by_subscription_ms.items():
        if len(trial.end_to_end_by_subscription_ms) > 1:
            rows.append((f"end-to-end, {name}", "end_to_end", latency))
    names = ("min", "mean", "p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99", "max")
    head = "".join(f'<th class="number" scope="col">{name.replace("_", ".")}</th>' for name in names)
    body = ""
    for title, term, latency in rows:
        if not latency.count:
            continue
        figures = "".join(f'<td class="number">{significant(getattr(latency, name))}</td>' for name in names)
        body += (
            f'<tr><th scope="row"><a href="#term-{term}">{escape(title)}</a></th>{figures}'
            f'<td class="number">{count(latency.count)}</td></tr>'
        )
    if not body:
        return ""
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Latencies"><table class="plain">'
        "<caption>Latencies in ms</caption><thead><tr>"
        f'<th scope="col">latency</th>{head}<th class="number" scope="col">messages</th></tr></thead><tbody>'
        f"{body}</tbody></table></div>"
    )


def settings(run: Run) -> str:
    """Versions, settings read back, configuration, workload, phases, lanes and host."""
    parts = "".join(
        _workload(cell) for cell in _first_of_each(run.cells, lambda cell: cell.first.workload.name)
    )
    for cell in _first_of_each(
        run.cells, lambda cell: "/".join((cell.key[0], cell.key[1], cell.key[3], cell.key[4]))
    ):
        parts += _system(cell.first, unfold=len(run.cells) <= OPEN_SYSTEMS_MAX)
    if run.manifest is not None:
        for system in run.manifest.systems:
            configuration = system.get("configuration")
            if configuration:
                name = " ".join(str(system[key]) for key in ("name", "version", "level") if system.get(key))
                parts += _details(f"Configuration of {name} as written", _configuration(configuration))
        parts += _details("Host", _mapping(run.manifest.host))
    if not parts:
        return ""
    return (
        '<section id="settings"><h2>Settings and versions</h2><p class="lead">What was asked for, and what '
        "the live systems "
        f"said of themselves.</p>{parts}</section>"
    )


def _first_of_each(found: Sequence[Cell], key: Any) -> list[Cell]:
    kept: dict[str, Cell] = {}
    for cell in found:
        kept.setdefault(key(cell), cell)
    return list(kept.values())


def _workload(cell: Cell) -> str:
    asked = cell.first.workload
    target = "as fast as possible" if asked.rate_msgs_s is None else f"{rate(asked.rate_msgs_s)} msg/s"
    if asked.search is not None:
        target = f"the maximum that is sustained, to {trimmed(asked.search.width_percent)} %"
    rows: dict[str, Any] = {
        "file": asked.file or "built in",
        "topics": asked.topics,
        "partitions per topic": asked.partitions_per_topic,
        "message size": exact_size(asked.message_size_bytes),
        "producers per topic": asked.producers_per_topic,
        "subscriptions per topic": asked.subscriptions_per_topic,
        "consumers per subscription": asked.consumers_per_subscription,
        "rate": target,
        "arrival": asked.arrival,
        "keys": asked.keys if asked.key_count is None else f"{asked.keys}, {count(asked.key_count)} keys",
        "warm-up": seconds(asked.warmup_s),
        "measured": seconds(asked.duration_s),
        "batch": f"{exact_size(asked.batch_bytes)}, linger {trimmed(asked.linger_ms)} ms, "
        f"{asked.in_flight} in flight, buffer {exact_size(asked.buffer_bytes)}",
        "compression": asked.compression,
        "payload": asked.payload_file or f"{percent(asked.payload_random_ratio)} random bytes",
        **({"search": asked.search.model_dump(exclude_none=True)} if asked.search else {}),
        **({"backlog": asked.backlog.model_dump(exclude_none=True)} if asked.backlog else {}),
        **asked.extra,
    }
    return _details(f"Workload {asked.name}", _mapping(rows), unfold=True)


def _system(trial: TrialResult, *, unfold: bool) -> str:
    durability = trial.durability
    level = words.level(trial)
    rows: dict[str, Any] = {
        "version": trial.system_version,
        "nodes": "existing cluster" if trial.attached else trial.nodes,
        "client": trial.client,
        "clients reach it by": words.security(trial),
        "durability asked": durability.asked or "the default",
        "durability declared": f"{durability.declared}: {words.LEVELS[durability.declared]}"
        if durability.declared
        else "cannot be told",
        "durability measured": durability.measured or "not measured",
        "seed": trial.seed,
        "phases": ", ".join(
            f"{phase.name} {seconds(phase.wall_s)}" for phase in trial.phases if phase.wall_s is not None
        ),
        "generator threads": ", ".join(
            f"{lane.worker} {lane.name} ({lane.scheduling})" for lane in trial.lanes
        ),
        "generator memory, max": "not told"
        if trial.worker_rss_bytes_max is None
        else size(trial.worker_rss_bytes_max),
        "started": instant(trial.started_unix_ms),
    }
    body = _mapping(rows)
    if durability.settings:
        body += "<h4>Settings read back from the live system</h4>" + _mapping(durability.settings, code=True)
    body += _metrics(trial)
    return _details(f"{words.system_name(trial)}, {level}, {words.layout(trial)}", body, unfold=unfold)


def _metrics(trial: TrialResult) -> str:
    """What the system says of itself, before and after the load."""
    if not trial.system_metrics:
        return ""
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(metric.name)}</code></th>'
        f'<td class="number">{"-" if metric.before is None else significant(metric.before)}</td>'
        f'<td class="number">{significant(metric.after)}</td></tr>'
        for metric in trial.system_metrics
    )
    return (
        "<h4>What the system measured of itself (no figure above comes from it)</h4>"
        '<div class="scroll"><table class="plain"><thead><tr><th scope="col">metric</th>'
        '<th class="number" scope="col">before the load</th><th class="number" scope="col">after it</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _configuration(configuration: Any) -> str:
    if not isinstance(configuration, Mapping):
        return f"<pre>{_clipped(pretty(configuration))}</pre>"
    body = ""
    for key, value in configuration.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
        body += f"<h4>{escape(str(key))}</h4><pre>{_clipped(text)}</pre>"
    return body


def _clipped(text: str) -> str:
    if len(text) <= CONFIGURATION_CHARACTERS_MAX:
        return escape(text)
    return escape(text[:CONFIGURATION_CHARACTERS_MAX]) + "\n(the rest is in manifest.json)"


def _mapping(rows: Mapping[str, Any], *, code: bool = False) -> str:
    shown = list(rows.items())[:SETTINGS_MAX]
    body = ""
    for key, value in shown:
        text = "not told" if value is None else pretty(value)
        name = f"<code>{escape(str(key))}</code>" if code else escape(str(key))
        cell = f"<code>{escape(text)}</code>" if code else escape(text)
        body += f'<tr><th scope="row">{name}</th><td>{cell}</td></tr>'
    if len(rows) > len(shown):
        body += f'<tr><th scope="row">and</th><td>{len(rows) - len(shown)} more in manifest.json</td></tr>'
    return f'<table class="mapping"><tbody>{body}</tbody></table>'


def _details(title: str, body: str, *, unfold: bool = False) -> str:
    return (
        f'<details class="settings"{" open" if unfold else ""}><summary>{escape(title)}</summary>'
        f"{body}</details>"
    )


def method() -> str:
    """Every term with its one-line definition; the rest of the page links here."""
    items = "".join(
        f'<div id="term-{slug}"><dt>{escape(term.title)}</dt><dd>{escape(term.definition)}</dd></div>'
        for slug, term in TERMS.items()
    )
    return (
        '<section id="method"><h2>How it was measured</h2><p class="lead">One clock, an absolute schedule, '
        "every message recorded "
        f'and accounted for.</p><dl class="terms">{items}</dl></section>'
    )
