"""What a reader needs to believe the figures, or not to: limits, audit and validity per trial,
settings. The sections `limits`, `trials` and `settings` of the page, as texts and numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.cells import Cell
from streamgauge.model.library import shipped_text
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Latency
from streamgauge.model.result_machine import Limits, Share, SystemMetric
from streamgauge.model.result_quiet import Bounded, QuietLatency
from streamgauge.report import colours, details, further, quiet_words, words
from streamgauge.report.explain import sentences
from streamgauge.report.run import Run, pretty
from streamgauge.vocabulary import troubleshooting
from streamgauge.vocabulary.format import (
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
from streamgauge.vocabulary.levels import MEANINGS

OPEN_TRIALS_MAX = 4
"""With more trials than this, only those with something to say are unfolded."""
OPEN_SYSTEMS_MAX = 2
SETTINGS_MAX = 400
CONFIGURATION_CHARACTERS_MAX = 20_000

WRITTEN_SHARE_MIN = 0.5
IN_MEMORY = (
    " The system kept most of what was published in its own memory: what it writes counts as soon as it is in the page cache. "
    "Such are messages that are not persistent (see its settings) and are read before memory is short."
)

SHARE_TITLES: dict[str, str] = {
    "cpu": "CPU, all of it",
    "system_cpu": "CPU of the system",
    "worker_cpu": "CPU of the generator",
    "disk_write": "Disk writes",
    "disk_read": "Disk reads",
    "network": "Loopback network",
}


def limits(run: Run, labels: Sequence[str]) -> dict[str, Any] | None:
    """What the machine can do, and bars of what each system used of it; None without a trial."""
    if not run.results:
        return None
    return {
        "machine": _machine(run.results[0].limits),
        "cards": [
            _share_card(cell, colour.css, label)
            for cell, colour, label in zip(run.cells, colours.of_cells(run.cells), labels, strict=False)
            if cell.counted[0].shares
        ],
    }


def _machine(found: Limits) -> list[tuple[str, str, str, str]]:
    """Name, figure, unit, and in which direction better lies, of what was probed."""
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
    return [
        (name, significant(value), unit, better) for name, value, unit, better in rows if value is not None
    ]


def _share_card(cell: Cell, colour: str, label: str) -> dict[str, Any]:
    trial = cell.counted[0]
    ordered = sorted(
        trial.shares,
        key=lambda share: list(SHARE_TITLES).index(share.name) if share.name in SHARE_TITLES else 99,
    )
    amplification = trial.write_amplification
    # What is compressed takes less room, wherever it is.
    written = amplification is None or amplification >= WRITTEN_SHARE_MIN
    return {
        "colour": colour,
        "label": f"{label}, trial {trial.trial}" if len(cell.trials) > 1 else label,
        "why": sentences(trial),
        "bars": [_bar(share) for share in ordered],
        "write_amplification": amplification,
        "in_memory": "" if written or trial.workload.compression != "none" else IN_MEMORY,
        "processes": trial.processes,
    }


def _bar(share: Share) -> dict[str, Any]:
    return {
        "title": SHARE_TITLES.get(share.name, share.name.replace("_", " ")),
        "near": share.value >= 0.9,
        "value": percent(share.value, 0 if share.value >= 0.1 else 1),
        "width_percent": min(100.0, max(0.0, 100 * share.value)),
        "explanation": share.explanation,
    }


@dataclass(frozen=True)
class Finding:
    """Something that was checked in a trial."""

    tone: words.Tone
    title: str
    text: str
    name: str = ""
    """Of the figure that it is about."""
    anchor: str | None = None
    """Where the page on troubles says more."""

    @property
    def see(self) -> str:
        """The place as it is shown; empty where there is none."""
        return troubleshooting.see([self.anchor])


def trials(run: Run) -> list[dict[str, Any]]:
    """Validity and audit in plain words, per trial."""
    many = len(run.results) > OPEN_TRIALS_MAX
    return [_trial(trial, unfold=not many or _has_news(trial)) for trial in run.results]


def _has_news(trial: TrialResult) -> bool:
    return not trial.validity.valid or words.audit(trial.audit).tone in ("warn", "bad")


def _trial(trial: TrialResult, *, unfold: bool) -> dict[str, Any]:
    validity, audit = words.validity(trial), words.audit(trial.audit)
    return {
        "result": trial,
        "unfold": unfold,
        "tone": words.worst_tone(validity, audit),
        "headline": f"Trial {trial.trial}: {words.system_name(trial)}, {words.level(trial)}, {trial.workload.name}",
        "validity": validity.word,
        "audit": audit.word,
        "carried": f"{_rate_words(trial)}{_cpu_words(trial)}",
        "findings": list(_findings(trial, audit)),
        "grids": list(details.grids(trial)),
        "latencies": _latencies(trial),
        "on_time_ms": trial.standing_ms("send_delay_ms").p99,
        "quiet": _quiet_latencies(trial),
        "came": trial.quiet is not None and trial.quiet.watched,
    }


def _findings(trial: TrialResult, audit: words.Verdict) -> Iterator[Finding]:
    """All but that it is valid."""
    for reason in trial.validity.reasons:
        yield Finding("bad", "Invalid", reason, anchor=further.reason(trial, reason))
    if trial.validity.not_as_it_came:
        told = f"{trial.validity.conclusion} {quiet_words.quiet_sentence(trial)}".strip()
        anchor = further.conclusion(trial)
        tone: words.Tone = "warn" if trial.validity.bounds_only else "good"
        yield Finding(tone, trial.validity.called.capitalize(), told, anchor=anchor)
    elif trial.quiet is not None and (told := quiet_words.quiet_sentence(trial)):
        yield Finding("good" if trial.quiet.watched else "warn", "The machine", told)
    yield Finding(audit.tone, "Audit", audit.sentence, anchor=further.audit(trial))
    steadiness = trial.steadiness
    steady = steadiness.label in ("steady", "too short")
    yield Finding("good" if steady else "warn", steadiness.label.capitalize(), steadiness.explanation)
    for warning in trial.validity.warnings:
        if steadiness.explanation not in warning:
            yield Finding("warn", "Note", warning, anchor=troubleshooting.of_remark(warning))
    if trial.search is not None:
        bound_by_system = trial.search.bound == "system"
        yield Finding("good" if bound_by_system else "warn", "Search", words.search(trial.search))
    if trial.catch_up is not None:
        caught_up = trial.catch_up.caught_up
        yield Finding("good" if caught_up else "warn", "Backlog", words.catch_up(trial.catch_up))
    by = "with these workers" if trial.untold else "with this protocol"
    for missing in trial.cannot:
        yield Finding("warn", f"Not possible {by}", missing)
    for name, why in trial.untold.items():
        yield Finding("warn", "Not told", why, name)
    said = " ".join([*trial.validity.reasons, *trial.validity.warnings])
    for kind, number in trial.errors.items():
        # The judgement names them with their numbers, in most trials.
        if not re.search(rf"{re.escape(kind)} {number}\b", said):
            yield Finding("warn", f"Error {kind}", plural(number, "time"))
    examples = [example for one in trial.audit.subscriptions for example in one.examples]
    if examples:
        yield Finding("bad", "For example", "; ".join(examples[:10]))


def _cpu_words(trial: TrialResult) -> str:
    share = trial.cpu.workers_share
    return "" if share is None else f" and used {percent(share)} of the CPU"


def _rate_words(trial: TrialResult) -> str:
    if trial.achieved_share is None:
        return f"sent as fast as it could ({rate(trial.publish_rate_msgs_s)} msg/s)"
    return f"reached {percent(trial.achieved_share, 2)} of its rate"


def _latencies(trial: TrialResult) -> list[tuple[str, str, Latency]]:
    """Title, term and figures of the latencies that have any."""
    rows = [
        ("publish", "publish", trial.publish_ms),
        ("end-to-end", "end_to_end", trial.end_to_end_ms),
        ("service", "service", trial.service_ms),
        ("send delay", "send_delay", trial.send_delay_ms),
        ("back-pressure", "backpressure", trial.backpressure_ms),
        ("ack delay", "read_delay", trial.ack_delay_ms),
        ("receive delay", "read_delay", trial.receive_delay_ms),
    ]
    if len(trial.end_to_end_by_subscription_ms) > 1:
        rows += [
            (f"end-to-end, {name}", "end_to_end", latency)
            for name, latency in trial.end_to_end_by_subscription_ms.items()
        ]
    return [row for row in rows if row[2].count]


def _quiet_latencies(trial: TrialResult) -> list[tuple[str, str, list[tuple[str, str]], QuietLatency]]:
    """Title, term, each percentile of quiet time with its interval or bounds, and the messages behind them."""
    if trial.quiet is None:
        return []
    named = (
        ("publish", "publish", trial.quiet.publish_ms),
        ("end-to-end", "end_to_end", trial.quiet.end_to_end_ms),
        ("service", "service", trial.quiet.service_ms),
        ("send delay", "send_delay", trial.quiet.send_delay_ms),
    )
    return [
        (
            title,
            term,
            [_bounded(figure) for name, figure in latency.figures().items() if name != "mean"],
            latency,
        )
        for title, term, latency in named
        if latency is not None and latency.quiet_msgs + latency.censored_msgs + latency.left_out_msgs
    ]


def _bounded(figure: Bounded) -> tuple[str, str]:
    """The figure and what stands below it."""
    bounds = quiet_words.bounds_text(figure.at_least or None, figure.at_most)
    return (bounds or "-", "") if figure.value is None else (significant(figure.value), bounds)


@dataclass(frozen=True)
class Described:
    """Something with its settings, which unfolds."""

    title: str
    rows: Sequence[tuple[str, str]] = ()
    live: Sequence[tuple[str, str]] = ()
    """What the live system said."""
    metrics: Sequence[SystemMetric] = ()
    """What the system says of itself, before and after the load."""
    texts: Sequence[tuple[str, str]] = ()
    """Files, and what is in them."""
    unfold: bool = False


def settings(run: Run) -> list[Described]:
    """Versions, settings read back, configuration, workload, phases, lanes and host."""
    found = [_workload(cell) for cell in _first_of_each(run.cells, lambda cell: cell.first.workload.name)]
    for cell in _first_of_each(
        run.cells, lambda cell: "/".join((cell.key[0], cell.key[1], cell.key[3], cell.key[4]))
    ):
        found.append(_system(cell.first, unfold=len(run.cells) <= OPEN_SYSTEMS_MAX))
    if run.manifest is not None:
        for system in run.manifest.systems:
            configuration = system.get("configuration")
            if configuration:
                name = " ".join(str(system[key]) for key in ("name", "version", "level") if system.get(key))
                title = f"Configuration of {name} as written"
                found.append(Described(title, texts=_configuration(configuration)))
        found.append(Described("Host", _rows(run.manifest.host)))
    return found


def _first_of_each(found: Sequence[Cell], key: Any) -> list[Cell]:
    kept: dict[str, Cell] = {}
    for cell in found:
        kept.setdefault(key(cell), cell)
    return list(kept.values())


def _workload(cell: Cell) -> Described:
    asked = cell.first.workload
    target = "as fast as possible" if asked.rate_msgs_s is None else f"{rate(asked.rate_msgs_s)} msg/s"
    if asked.search is not None:
        target = f"the maximum that is sustained, to {trimmed(asked.search.width_percent)} %"
    rows: dict[str, Any] = {
        "file": asked.file or _origin(asked.name),
        "topics": asked.topics,
        "partitions per topic": asked.partitions_per_topic,
        "message size": exact_size(asked.message_size_bytes),
        "producers per topic": asked.producers_per_topic,
        "subscriptions per topic": asked.subscriptions_per_topic,
        "consumers per subscription": asked.consumers_per_subscription,
        "rate": target,
        "arrival": asked.arrival,
        "keys": asked.keys if asked.key_count is None else f"{asked.keys}, {count(asked.key_count)} keys",
        "warm-up": words.warm_up(cell.trials)
        + ("" if cell.first.warm_up is None else f" (until steady, {seconds(asked.warmup_s)} at most)"),
        "measured": seconds(asked.duration_s),
        "batch": f"{exact_size(asked.batch_bytes)}, linger {trimmed(asked.linger_ms)} ms, "
        f"{asked.in_flight} in flight, buffer {exact_size(asked.buffer_bytes)}",
        "compression": asked.compression,
        "payload": asked.payload_file or f"{percent(asked.payload_random_ratio)} random bytes",
        **({"search": asked.search.model_dump(exclude_none=True)} if asked.search else {}),
        **({"backlog": asked.backlog.model_dump(exclude_none=True)} if asked.backlog else {}),
        **asked.extra,
    }
    return Described(f"Workload {asked.name}", _rows(rows), unfold=True)


def _origin(name: str) -> str:
    """Where a workload comes from that stands in no file."""
    if shipped_text(name) is None:
        return "none: a part of this study"
    return f"none: it ships with streamgauge (streamgauge workloads {name} prints it)"


def _system(trial: TrialResult, *, unfold: bool) -> Described:
    durability = trial.durability
    rows: dict[str, Any] = {
        "version": trial.system_version,
        "nodes": "existing cluster" if trial.attached else trial.nodes,
        "client": trial.client,
        "clients reach it by": words.security(trial),
        "durability asked": durability.asked or "the default",
        "durability declared": f"{durability.declared}: {MEANINGS[durability.declared]}"
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
    return Described(
        f"{words.system_name(trial)}, {words.level(trial)}, {words.layout(trial)}",
        _rows(rows),
        live=_rows(durability.settings),
        metrics=trial.system_metrics,
        unfold=unfold,
    )


def _configuration(configuration: Any) -> list[tuple[str, str]]:
    if not isinstance(configuration, Mapping):
        return [("", _clipped(pretty(configuration)))]
    return [
        (
            str(key),
            _clipped(value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)),
        )
        for key, value in configuration.items()
    ]


def _clipped(text: str) -> str:
    if len(text) <= CONFIGURATION_CHARACTERS_MAX:
        return text
    return text[:CONFIGURATION_CHARACTERS_MAX] + "\n(the rest is in manifest.json)"


def _rows(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = [
        (str(key), "not told" if value is None else pretty(value))
        for key, value in list(told.items())[:SETTINGS_MAX]
    ]
    left_out = len(told) - len(shown)
    return [*shown, ("and", f"{left_out} more in manifest.json")] if left_out else shown
