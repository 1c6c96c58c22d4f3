"""Verdicts in plain words, the same in the terminal and in the HTML report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.curves import curves
from streamgauge.inference.estimates import TRIALS_MIN
from streamgauge.model.fault import breaks, ends
from streamgauge.model.result import Audit, Phase, TrialResult
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_quiet import Word
from streamgauge.model.result_special import CatchUp, Faults, Search
from streamgauge.report.quiet_words import between, bounds_ms
from streamgauge.vocabulary.bounds import ACHIEVED_SHARE_MIN
from streamgauge.vocabulary.format import (
    capital,
    count,
    every,
    exact_size,
    joined,
    milliseconds,
    plural,
    rate,
    seconds,
    significant,
    size,
    trimmed,
)
from streamgauge.vocabulary.levels import LEVELS, MEANINGS

Tone = Literal["good", "warn", "bad", "plain"]


@dataclass(frozen=True)
class Verdict:
    """A short word for a table, a sentence, and how alarming it is."""

    word: str
    sentence: str
    tone: Tone


def plain_name(trial: TrialResult) -> str:
    """`Apache Kafka 4.3.1`."""
    if trial.attached and trial.system_version == "unknown":
        return f"{trial.system_title} of unknown version"
    return f"{trial.system_title} {trial.system_version}".strip()


def system_name(trial: TrialResult) -> str:
    """`Apache Kafka 4.3.1`, and `with TLS` where clients spoke it."""
    return f"{plain_name(trial)}{tls(trial)}"


def tls(trial: TrialResult) -> str:
    """What a system's name is followed by."""
    return " with TLS" if trial.tls == "on" else ""


def security(trial: TrialResult) -> str:
    """How clients reached the system: `plain text`, `TLS, scram-sha-512`."""
    way = "TLS" if trial.tls == "on" else "plain text"
    return way if trial.authentication is None else f"{way}, {trial.authentication}"


def level(trial: TrialResult) -> str:
    """The level that counts: measured, else declared; `unknown` when the settings do not tell."""
    return trial.durability.measured or trial.durability.declared or "unknown"


def meanings(trials: Sequence[TrialResult]) -> list[str]:
    """What the levels of some trials mean, in six words each: `L4: acknowledged when in one node's memory`."""
    return [f"{one}: {MEANINGS[one]}" for one in LEVELS if one in set(map(level, trials))]


def mixed_levels(trials: Sequence[TrialResult]) -> str | None:
    """What to know before systems at different levels are compared; None when all have the same."""
    levels = {level(trial) for trial in trials}
    if len(levels) < 2:
        return None
    return (
        f"Durability levels differ ({joined(sorted(levels))}): systems at different levels do different work "
        "before they acknowledge. Option --durability gives all of them the same."
    )


CLOCK_SHARE_MAX = 0.20
"""A bound beyond this share of the p50 makes an end-to-end latency a doubtful figure."""


def doubtful_clocks(trials: Sequence[TrialResult]) -> str | None:
    """What to know before end-to-end latencies between two hosts are read; None when their bounds are small."""
    found = [
        (trial.end_to_end_bound_ms, trial.end_to_end_ms.p50)
        for trial in trials
        if trial.end_to_end_bound_ms is not None and trial.end_to_end_ms.p50 is not None
    ]
    worst = max((pair for pair in found if pair[0] > CLOCK_SHARE_MAX * pair[1]), default=None)
    if worst is None:
        return None
    return (
        f"End-to-end latencies are uncertain by up to {trimmed(worst[0])} ms, at a p50 of {trimmed(worst[1])} ms: the clocks of "
        "the workers' hosts could not be compared better."
    )


UNTOLD_TRIALS_MAX = 6
"""Of more trials the report's details tell the figures one by one."""


def untold(trials: Sequence[TrialResult]) -> str | None:
    """What to know of a latency that is missing, before trials are compared; None when all have it."""
    lacking = [trial for trial in trials if trial.headline == "service"]
    if not lacking:
        return None
    who = joined(list(dict.fromkeys(system_name(trial) for trial in lacking)))
    figures = ""
    if len(lacking) <= UNTOLD_TRIALS_MAX:
        alone = len(trials) == 1
        figures = ": " + "; ".join(
            service(trial) if alone else f"trial {trial.trial} {service(trial)}" for trial in lacking
        )
    return (
        f"Publish latency of {who} is not told by the workers that drove it ({lacking[0].client}): {lacking[0].untold['publish_ms']}. "
        f"The service time, which hides waiting, is shown instead{figures}."
    )


def service(trial: TrialResult) -> str:
    """`service p50 1.2, p99 4.5, max 80 ms`."""
    found = trial.service_ms
    return f"service p50 {milliseconds(found.p50)}, p99 {milliseconds(found.p99)}, max {milliseconds(found.max)} ms"


def layout(trial: TrialResult) -> str:
    """`1 node`, `3 nodes`, `existing cluster`."""
    return "existing cluster" if trial.attached else plural(trial.nodes, "node")


def audit(result: Audit) -> Verdict:
    """What the audit found. Lost, corrupted and unexpected messages are the loudest."""
    if not result.enabled:
        if result.missing is not None:
            return Verdict("not proved", f"There is no audit: {result.missing}.", "warn")
        if result.imbalance == "no audit was made":
            return Verdict(
                "none", "No audit was made: the trial ended before its books could be closed.", "bad"
            )
        return Verdict("off", "The audit is off: messages below 32 bytes have no room for the stamp.", "warn")
    if not result.balanced:
        return Verdict("UNBALANCED", f"The books do not balance: {result.imbalance}.", "bad")
    if result.clean:
        sentence = (
            f"Clean: {count(result.sent)} messages were sent and acknowledged, and each "
            "subscription received every one "
            "of them once, in order and unchanged."
        )
        return Verdict("clean", sentence, "good")
    grave = [
        f"{count(getattr(result, kind))} {kind}"
        for kind in ("lost", "corrupted", "unexpected")
        if getattr(result, kind)
    ]
    light = [
        f"{count(getattr(result, kind))} {kind}"
        for kind in ("duplicated", "reordered", "failed", "censored", "unknown")
        if getattr(result, kind)
    ]
    found = joined(grave + light)
    sentence = f"Not clean: of {count(result.sent)} messages sent, {found}."
    return Verdict(
        f"{'NOT CLEAN' if grave else 'not clean'}: {', '.join((grave + light)[:2])}",
        sentence,
        "bad" if grave else "warn",
    )


def validity(trial: TrialResult) -> Verdict:
    """What the trial is worth, and why."""
    called = trial.validity.called
    if trial.validity.is_invalid:
        return Verdict("INVALID", " ".join(trial.validity.reasons), "bad")
    if called is not Word.valid:
        return Verdict(called, trial.validity.conclusion, "warn" if trial.validity.bounds_only else "good")
    label = trial.steadiness.label
    if label == "steady":
        return Verdict("valid", "Valid and steady.", "good")
    return Verdict(
        f"valid, {label}",
        f"Valid; {label}: {trial.steadiness.explanation}",
        "good" if label == "too short" else "warn",
    )


def cell_validity(cell: Cell) -> Verdict:
    """The verdict over repeats."""
    if len(cell.trials) == 1:
        return validity(cell.first)
    valid = cell.valid_count
    if valid == len(cell.trials):
        disturbed = sum(trial.validity.called is Word.disturbed for trial in cell.trials)
        if disturbed:
            sentence = (
                f"{capital(every(valid, 'trial'))} are valid, {disturbed} of them by figures of quiet time."
            )
            return Verdict(f"{valid}/{valid} valid, {disturbed} disturbed", sentence, "good")
        return Verdict(f"{valid}/{valid} valid", f"{capital(every(valid, 'trial'))} are valid.", "good")
    bounded = sum(trial.validity.bounds_only for trial in cell.trials)
    tone: Tone = "warn" if valid or bounded else "bad"
    word = f"{valid}/{len(cell.trials)} valid" if valid else "bounds only" if bounded else "INVALID"
    is_valid = "is" if valid == 1 else "are"
    return Verdict(word, f"{valid} of {len(cell.trials)} trials {is_valid} valid.", tone)


def cell_audit(cell: Cell) -> Verdict:
    """The worst audit of the repeats."""
    order = {"bad": 0, "warn": 1, "plain": 2, "good": 3}
    return min((audit(trial.audit) for trial in cell.trials), key=lambda verdict: order[verdict.tone])


def worst_tone(*found: Verdict) -> Tone:
    """Bad where one is, else a warning where one is."""
    tones = {verdict.tone for verdict in found}
    return "bad" if "bad" in tones else "warn" if "warn" in tones else "good"


def load(workload: WorkloadResult) -> str:
    """`50,000 msg/s of 100 B` or `maximum rate, 1 kB`."""
    message = exact_size(workload.message_size_bytes)
    if workload.search is not None:
        return f"maximum sustainable rate, messages of {message}"
    if workload.rate_msgs_s is None:
        return f"maximum rate, messages of {message}"
    return f"{rate(workload.rate_msgs_s)} msg/s of {message}"


def shape(workload: WorkloadResult) -> str:
    """Topics, partitions, producers and consumers in one phrase."""
    topics = plural(workload.topics, "topic")
    partitions = plural(workload.partitions_per_topic, "partition")
    producers = plural(workload.topics * workload.producers_per_topic, "producer")
    subscriptions = workload.topics * workload.subscriptions_per_topic
    consumers = plural(subscriptions * workload.consumers_per_subscription, "consumer")
    each = " each" if workload.topics > 1 else ""
    shared = f" in {plural(workload.subscriptions_per_topic, 'subscription')}"
    backlog = ""
    if workload.backlog is not None:
        backlog = f", backlog of {size(workload.backlog.size_bytes)}"
        backlog += " read by a further subscription" if workload.backlog.reader == "extra" else ""
    return (
        f"{topics} with {partitions}{each}, {producers}, {consumers}"
        f"{shared if workload.subscriptions_per_topic > 1 else ''}{backlog}"
    )


def warm_up(trials: Sequence[TrialResult]) -> str:
    """How long the trials were warmed up, which differs where each was to become steady: `12 s to 40 s`."""
    lasted = [
        trial.workload.warmup_s if trial.warm_up is None else trial.warm_up.lasted_s for trial in trials
    ]
    low, high = min(lasted), max(lasted)
    return seconds(low) if low == high else f"{seconds(low)} to {seconds(high)}"


def search(found: Search) -> str:
    """The result of a search for the maximum sustainable rate, with its bracket and why it ended there."""
    tried = plural(len(found.probes), "probe")
    if found.low_msgs_s is None:
        return f"{found.explanation} ({tried})."
    high = "unknown" if found.high_msgs_s is None else f"{rate(found.high_msgs_s)} msg/s"
    width = "" if found.width_percent is None else f", {found.width_percent:.1f} % wide"
    soak = ""
    if found.soak is not None:
        why = "; ".join(found.soak.reasons)
        held = f"could not be shown to hold ({why})"
        if found.soak.passed:
            held = "held"
        elif (
            found.soak.growth_share_low > found.soak.growth_share_max
            or found.soak.achieved_share < ACHIEVED_SHARE_MIN
        ):
            held = f"did not hold ({why})"
        soak = f" The soak of {seconds(found.soak.seconds)} at the lower edge {held}."
    return f"between {rate(found.low_msgs_s)} msg/s and {high}{width}, by {tried}: {found.explanation}.{soak}"


def catch_up(found: CatchUp) -> str:
    """How a backlog was read, in a sentence."""
    if not found.drains:
        return "The backlog was not read: the trial ended before."
    megabytes = f"{significant(found.built_bytes / 1e6)} MB"
    cache = "after the page cache was dropped" if found.cache_dropped else "from a page cache that was kept"
    speeds = joined(
        [
            f"{drain.subscription} at {significant(drain.mean_mb_s)} MB/s (mean; "
            f"{significant(drain.max_mb_s)} in its best second)"
            for drain in found.drains
        ]
    )
    if not found.caught_up or found.chase_s is None:
        return f"A backlog of {megabytes} was not caught up with in time, {cache}."
    return f"A backlog of {megabytes} was read in {seconds(found.chase_s)}, {cache}: {speeds}."


def spread(cell: Cell) -> str:
    """Medians over repeats with their intervals, as one line."""
    figures: list[tuple[str, str, Callable[[TrialResult], float | None], Callable[[float | None], str]]] = [
        ("rate", "msg/s", lambda trial: trial.standing_rate("publish_rate_msgs_s"), rate),
        (f"{cell.first.headline} p50", "ms", lambda trial: trial.headline_ms.p50, milliseconds),
        ("p99", "ms", lambda trial: trial.headline_ms.p99, milliseconds),
        ("end-to-end p99", "ms", lambda trial: trial.standing_ms("end_to_end_ms").p99, milliseconds),
    ]
    parts = []
    for name, unit, figure, show in figures:
        middle = cell.middle(figure)
        if middle is not None:
            low, high = middle.bounds
            parts.append(f"{name} {show(middle.median)} [{show(low)}, {show(high)}] {unit}")
        elif any(figure(trial) is not None for trial in cell.counted):
            parts.append(f"{name} not known in all of them")
    trials = len(cell.counted)
    kind = "smallest, largest" if trials < TRIALS_MIN else "95 % interval"
    return f"{', '.join(parts)} (median [{kind}] over {plural(trials, 'trial')})"


def headline(cell: Cell) -> str:
    """One sentence of the result: what a reader would repeat to a colleague."""
    trial = cell.first
    p99 = cell.median(lambda result: result.headline_ms.p99)
    through = cell.median(lambda result: result.standing_ms("end_to_end_ms").p99)
    achieved = cell.median(lambda result: result.standing_rate("publish_rate_msgs_s"))
    who = f"{system_name(trial)} ({layout(trial)}, {level(trial)})"
    if p99 is None:
        bound = between(*bounds_ms(cell, f"{trial.headline}_ms", "p99"))
        if bound:
            return f"{who} took {rate(achieved)} msg/s; its {trial.headline} p99 is {bound}, more cannot be told on a machine that was disturbed so much."
        return f"{who} gave no figures."
    sentence = f"{who} took {rate(achieved)} msg/s with a {trial.headline} p99 of {milliseconds(p99)} ms"
    if through is not None:
        sentence += f" and an end-to-end p99 of {milliseconds(through)} ms"
    return sentence + "."


def verdict(results: Sequence[TrialResult]) -> Verdict:
    """The run as a whole: may the figures be believed, and is the data the same?"""
    if not results:
        return Verdict("no trial", "No trial has a result.", "bad")
    invalid = sum(trial.validity.is_invalid for trial in results)
    bounded = sum(trial.validity.bounds_only for trial in results)
    disturbed = sum(trial.validity.called is Word.disturbed for trial in results)
    verdicts = [audit(trial.audit) for trial in results]
    unaudited = sum(found.word == "none" for found in verdicts)
    unproved = sum(trial.audit.missing is not None for trial in results)
    grave = sum(found.tone == "bad" for found in verdicts) - unaudited
    light = sum(found.tone == "warn" for found in verdicts)
    total = len(results)
    parts: list[str] = []
    if invalid == total:
        parts.append(
            "The trial is invalid: its figures must not be believed." if total == 1 else "No trial is valid."
        )
    elif bounded == total:
        parts.append(
            f"The machine was disturbed too much for figures: {'the trial gives' if total == 1 else 'the trials give'} bounds, and they hold."
        )
    elif invalid or bounded:
        invalid += bounded
        is_valid = "is" if total - invalid == 1 else "are"
        beyond = _beyond(results)
        rest = []
        if beyond:
            rest.append(
                "1 is of a rate that was not sustained"
                if beyond == 1
                else f"{beyond} are of rates that were not sustained"
            )
        if invalid > beyond:
            rest.append("the other says why not" if invalid - beyond == 1 else "the others say why not")
        others = ", ".join(rest)
        parts.append(f"{total - invalid} of {total} trials {is_valid} valid; {others}.")
    else:
        parts.append(f"{capital(every(total, 'trial'))} {'is' if total == 1 else 'are'} valid.")
    if disturbed:
        whose = (
            "Its figures"
            if total == 1
            else f"The figures of {disturbed} of {total}"
            if disturbed < total
            else "Their figures"
        )
        parts.append(f"{whose} are of quiet time, while nobody took a CPU away.")
    if grave:
        parts.append("Messages were lost, corrupted or unaccounted for: see the audit.")
    elif unaudited:
        parts.append(f"{plural(unaudited, 'trial')} ended without an audit.")
    elif unproved:
        parts.append(
            f"{'It was' if total == 1 else f'{unproved} of {total} were'} driven by workers that keep no books: whether every message arrived once "
            "and unchanged is not proved."
        )
    elif light:
        parts.append("The audit has remarks.")
    else:
        parts.append("Every message is accounted for.")
    sentence = " ".join(parts)
    if invalid == total:
        return Verdict("do not rely on this", sentence, "bad")
    if grave:
        return Verdict("not clean", sentence, "bad")
    word = (
        "bounds only"
        if bounded == total
        else "partly valid"
        if invalid
        else "valid, not proved"
        if unproved
        else "valid"
    )
    return Verdict(word, sentence, "warn" if invalid or light else "good")


def _beyond(results: Sequence[TrialResult]) -> int:
    """Trials of a curve that are invalid because their rate was not sustained, which is what a curve is for."""
    points = (point for line in curves(results) for point in line.points if point.worth == "not sustained")
    return sum(trial.validity.is_invalid for point in points for trial in point.cell.trials)


def fault_bands(found: Faults, window: Phase | None) -> list[tuple[str, float, float]]:
    """What was broken from when to when, for marked bands: (what, from, until) on the schedule's axis. A fault lasts
    until what ends it was done, or to the measured phase's end.
    """
    bands: list[tuple[str, float, float]] = []
    for index, fault in enumerate(found.faults):
        if not breaks(fault.asked):
            continue
        ended = [
            later.ready_s or later.done_s
            for later in found.faults[index + 1 :]
            if ends(later.asked, fault.asked) and set(later.parts) & set(fault.parts)
        ]
        last_s = window.until_s if window is not None and window.until_s is not None else fault.done_s
        until_s = ended[0] if ended else last_s
        bands.append((f"{fault.asked.action} {', '.join(fault.parts)}", fault.from_s, until_s))
    return bands
