"""A trial beside what its machine was measured to be able to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamgauge.analysis.limits import number
from streamgauge.analysis.verify.rules import Finding, found
from streamgauge.model.result import TrialResult
from streamgauge.store.context import TrialContext
from streamgauge.vocabulary.levels import Level

ToldLevel = Callable[[Mapping[str, Any]], Level | None]
"""Settings of a system as they were read back -> the level that they amount to; None where they do not tell."""
BEYOND = 3.0
"""Probes of a shared machine differ by so much from minute to minute; what is faster by more was not measured on it."""
FLUSH_SHARE_MIN = 0.2
"""Of a flush of the probe: the fastest disk does not flush five times as fast as it did a minute before."""
QUANTILES = ("p50", "p90", "p99", "p99_9", "max")
OWN = ("when", "next_trial", "rounds", "notes")
"""Of a probe: what does not say what the machine can do."""


def machine(context: TrialContext, result: TrialResult) -> Iterator[Finding]:
    """Nothing was faster than the machine."""
    if context.attached and not context.cluster_here:
        yield Finding("machine", "unknown", "the system ran on machines that nobody probed", context.trial)
        return
    if not context.probes:
        yield Finding("machine", "unknown", "the machine was not probed", context.trial)
        return
    yield from found("machine", _faster(context, result), context.trial)


def _faster(context: TrialContext, result: TrialResult) -> Iterator[str]:
    limits, cpu = result.limits, result.cpu
    payload_mb_s = result.publish_rate_mb_s + result.consume_rate_mb_s
    for name, limit in (("loopback", limits.loopback_mb_s), ("memory", limits.memcpy_mb_s)):
        if limit and payload_mb_s > BEYOND * limit:
            yield f"{payload_mb_s:,.0f} MB/s were published and consumed, and the probe of {name} moved {limit:,.0f} MB/s"
    round_trip_us = limits.round_trip_us_p50
    fastest_ms = result.service_ms.p50
    if round_trip_us and fastest_ms is not None and fastest_ms * 1000 * BEYOND < round_trip_us:
        yield f"half of the messages were acknowledged within {fastest_ms * 1000:.3g} us, and a round trip takes {round_trip_us:.3g} us"
    spent_s = sum(filter(None, (cpu.workers_s, cpu.system_s, cpu.others_s)))
    if cpu.duration_s > 0 and spent_s > 1.1 * cpu.cores * cpu.duration_s + 0.5:
        yield f"{spent_s:.1f} s of CPU were used in {cpu.duration_s:.1f} s on {cpu.cores} cores"
    memory = max((number(probe, "host", "memory_bytes") or 0.0 for probe in context.probes), default=0.0)
    used = sum(process.rss_bytes_max for process in result.processes)
    if memory and used > 2 * memory:
        yield f"the system used {used / 1e9:.1f} GB of memory, and the machine has {memory / 1e9:.1f} GB"
    cores = [cores for probe in context.probes if (cores := number(probe, "host", "cores"))]
    if cores and max(cores) != context.cores:
        yield f"the trial ran on {context.cores} cores, and the probed machine has {max(cores):.0f}"


def level(context: TrialContext, result: TrialResult, told_level: ToldLevel) -> Iterator[Finding]:
    """The level that is declared is that of the settings, and flushes take their time."""
    durability, trial = context.durability, context.trial
    declared = durability.declared
    if declared is None:
        if context.status == "complete":
            yield Finding("level", "unknown", "no level could be told from the settings of the system", trial)
        return
    told = told_level(durability.settings)
    wrong = []
    if told is not None and told != declared:
        wrong.append(f"the level is {declared}, and the settings that were read back amount to {told}")
    if durability.asked not in (None, declared) and not durability.mismatches and not context.fatal:
        wrong.append(
            f"the level is {declared}, and {durability.asked} was asked for, without a word about it"
        )
    flush_ms, service_ms = result.limits.fsync_ms_p50, result.service_ms.p50
    here = not context.attached or context.cluster_here
    if (
        declared in ("L1", "L3")
        and here
        and flush_ms
        and service_ms is not None
        and service_ms < FLUSH_SHARE_MIN * flush_ms
    ):
        wrong.append(
            f"at {declared} an acknowledgement waits for a flush: half of them came within {service_ms:.3g} ms, and the probe's flushes take {flush_ms:.3g} ms"
        )
    unknown = None if told is not None else "the settings that are stored do not tell the level"
    yield from found("level", wrong, trial, unknown=unknown)


def probes(
    of_run: Sequence[Mapping[str, Any]], contexts: Sequence[TrialContext], host: Mapping[str, Any]
) -> Iterator[Finding]:
    """Probes of trials are those of the run, and of one machine."""
    if not of_run:
        yield Finding("probes", "unknown", "the machine was not probed")
        return
    known = {_plain(probe) for probe in of_run}
    wrong = [
        f"trial {context.trial} tells of a probe of the machine that the run does not know"
        for context in contexts
        if any(_plain(probe) not in known for probe in context.probes)
    ]
    hosts = {json.dumps(probe.get("host"), sort_keys=True) for probe in of_run if probe.get("host")}
    hosts |= {json.dumps(host, sort_keys=True)} if host else set()
    if len(hosts) > 1:
        wrong.append("the probes and the manifest tell of different machines")
    for probe in of_run:
        wrong += _own(probe)
    yield from found("probes", wrong)


def _own(probe: Mapping[str, Any]) -> Iterator[str]:
    """Contradictions within a probe."""
    when = probe.get("when", "")
    for path in (
        ("disk", "fsync_ms"),
        ("network", "round_trip_us"),
        ("wakeup_us", "fifo"),
        ("wakeup_us", "normal"),
    ):
        values = [value for name in QUANTILES if (value := number(probe, *path, name)) is not None]
        if any(low > high for low, high in itertools.pairwise(values)):
            yield f"the probe '{when}' has quantiles of {'.'.join(path)} that do not rise"
    per_s, half_ms, most_ms = (
        number(probe, "disk", "fsync_per_s"), number(probe, "disk", "fsync_ms", "p50"), number(probe, "disk", "fsync_ms", "max"),
    )  # fmt: skip
    if per_s and half_ms and not 0.45 * half_ms <= 1000.0 / per_s:
        yield f"the probe '{when}' flushed {per_s:,.0f} times a second, and half of its flushes took {half_ms:.3g} ms or more"
    if per_s and most_ms and 1000.0 / per_s > 1.5 * most_ms:
        yield f"the probe '{when}' flushed {per_s:,.0f} times a second, and none of its flushes took more than {most_ms:.3g} ms"


def _plain(probe: Mapping[str, Any]) -> str:
    """A probe, without what is not of the machine."""
    kept: dict[str, Any] = {name: value for name, value in probe.items() if name not in OWN}
    if isinstance(kept.get("disk"), Mapping):
        kept["disk"] = {name: value for name, value in kept["disk"].items() if name != "dir"}
    return json.dumps(kept, sort_keys=True)
