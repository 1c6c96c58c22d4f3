"""Why a figure is what it is: which limit binds, what coincided with the tail, what the series do."""

from __future__ import annotations

from streamgauge.model.result import TrialResult
from streamgauge.model.result_hosts import HostFigures
from streamgauge.model.result_reasons import Pattern
from streamgauge.vocabulary.format import capital, plural, significant, trimmed

SERIES = {
    "publish_rate": ("publish rate", "msg/s"),
    "publish_ms_p50": ("publish p50", "ms"),
    "publish_ms_p99": ("publish p99", "ms"),
    "publish_ms_max": ("largest publish latency", "ms"),
    "service_ms_p50": ("service p50", "ms"),
    "service_ms_p99": ("service p99", "ms"),
    "service_ms_max": ("largest service time", "ms"),
}
LIMIT_TITLES = {"fsync": "disk flushes (fsync)", "thread": "busiest thread", "client_window": "client window"}
STATES = {"cpu": "CPU time", "java": "running Java code", "native": "in native code, at work or waiting"}
"""Of a profile."""
PATTERNS_MAX = 6


def sentences(trial: TrialResult) -> list[str]:
    """What binds, then the other limits that no bar shows, the tail, what stands out in profiles, and what comes and goes."""
    found: list[str] = []
    if trial.bottleneck is not None:
        found.append(trial.bottleneck.explanation)
        found += [
            f"{capital(LIMIT_TITLES[one.name])}: {100 * one.share:.0f} %; {one.evidence}."
            for one in trial.bottleneck.limits
            if one.name in LIMIT_TITLES and one.name != trial.bottleneck.binding
        ]
    if trial.tail is not None:
        found.append(
            f"Tail ({plural(trial.tail.msgs, 'message')} above {significant(trial.tail.above_ms)} ms, the {trial.tail.metric} "
            f"p{trimmed(trial.tail.percentile)}, in "
            f"{plural(trial.tail.intervals, 'interval')}): {trial.tail.explanation}"
        )
        if trial.tail.largest is not None:
            found.append(f"{capital(trial.tail.largest.explanation)}.")
    if trial.profiled is not None:
        found += [
            f"{capital(one.process)}, {STATES.get(one.state, one.state)}: {' '.join(told.explanation for told in one.stands_out)}"
            for one in trial.profiled.profiles
            if one.stands_out
        ]
    found += [host_words(host) for host in trial.cluster_hosts]
    found += [pattern_words(one) for one in trial.patterns[:PATTERNS_MAX]]
    if len(trial.patterns) > PATTERNS_MAX:
        found.append(
            f"In result.json (patterns): {plural(len(trial.patterns) - PATTERNS_MAX, 'more change')}."
        )
    return found


def host_words(host: HostFigures) -> str:
    """What a machine of the cluster did, in one sentence."""
    told = [
        f"{100 * host.cpu_share:.0f} % of {plural(host.cores, 'core')} busy (the system {100 * host.system_cpu_share:.0f} %)",
        f"steal {100 * host.steal_share:.1f} %",
    ]
    if host.disturbed_share is not None:
        told.append(f"a CPU not to be had for {100 * host.disturbed_share:.1f} % of the time")
    if host.disks:
        disk = max(host.disks, key=lambda one: one.busy_share)
        flush = "" if disk.flush_ms is None else f", {significant(disk.flush_ms)} ms per flush"
        told.append(
            f"disk {disk.name} busy for {100 * disk.busy_share:.0f} % of the time, {disk.write_mb_s:.1f} MB/s written{flush}"
        )
    if host.retransmits_per_s:
        told.append(f"{significant(host.retransmits_per_s)} TCP segments sent again per second")
    return f"Host {host.name}: {', '.join(told)}."


def pattern_words(pattern: Pattern) -> str:
    """One sentence."""
    title, unit = SERIES.get(pattern.series, (pattern.series, ""))
    if pattern.kind == "period":
        return (
            f"The {title} has something that comes back every {significant(pattern.period_s)} s, where it is "
            f"{significant(pattern.swing)} times as high as elsewhere."
        )
    return (
        f"From {significant(pattern.at_s)} s on, the {title} is {significant(pattern.after)} {unit} instead of "
        f"{significant(pattern.before)} {unit}."
    )
