"""A trial's raw data, held against its schedule, its books and themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamgauge.analysis.books import audit_of, disagreements
from streamgauge.analysis.intervals import Intervals, Row, total
from streamgauge.analysis.verify import schedule as schedules
from streamgauge.analysis.verify.rules import Finding, found
from streamgauge.model.result import headline as headline_of
from streamgauge.store.context import TrialContext
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.histograms import decode, merge
from streamgauge.vocabulary.phases import MEASURE, WARM_UP

EARLY_S = 0.005
"""An interval may end so much later than it says."""
BUCKET = 1 / 2048
"""How far the middle of a bucket is from what is in it, at the most, at three digits."""
PARTS = ("publish", "service", "send_delay")
HELD_BACK = "backpressure"
"""The third part, of those messages that had one."""
SWARM = "-worker-"


def is_whole(context: TrialContext) -> bool:
    """Whether nothing happened after which books need not balance: an end before its time, a worker that was lost."""
    books = (context.finish or {}).get("audit") or {}
    return (
        context.status == "complete"
        and not context.fatal
        and not context.failure
        and bool(books.get("balanced", not books))
    )


def schedule(context: TrialContext, intervals: Intervals, *, paced: bool) -> Iterator[Finding]:
    """Messages due per phase, and none before its time. `paced`: the rate was found while the load warmed up, and nobody knows when which one was tried; what
    was due afterwards follows from the last."""
    workload, trial = context.workload, context.trial
    if workload.arrival == "closed" or workload.consumes_only:
        return
    asked = schedules.of_trial(context.ended())
    if asked is None:
        yield Finding(
            "schedule", "unknown", "the load's generator is not ours, and keeps a schedule of its own", trial
        )
        return
    ends = [float(row["start_s"]) + float(row["duration_s"]) for row in intervals.counters()]
    if not ends:
        return
    until_s = max(*ends, context.measure_until_s)
    if workload.arrival == "poisson" and asked.most(until_s) > schedules.DRAWN_MAX:
        yield Finding(
            "schedule",
            "unknown",
            f"more than {schedules.DRAWN_MAX:,} arrivals: they are not drawn again",
            trial,
        )
        return
    asked.draw(until_s)
    if paced:
        unknown = "its rate was found while it warmed up: what was due until then cannot be computed again"
        yield from found("schedule", _due(context, intervals, asked, paced=True), trial, unknown=unknown)
        return
    yield from found("schedule", [*_due(context, intervals, asked), *_early(intervals, asked)], trial)


def _due(
    context: TrialContext, intervals: Intervals, asked: schedules.Schedule, *, paced: bool = False
) -> Iterator[str]:
    measure = (MEASURE, context.measure_from_s, context.measure_until_s)
    phases = [measure] if paced else [(WARM_UP, 0.0, context.measure_from_s), measure]
    # Where in a gap the measured phase began follows from the rates before.
    edge = context.workload.topics * context.workload.producers_per_topic if paced else 0
    untaken = int(((context.finish or {}).get("audit") or {}).get("untaken") or 0)
    for name, from_s, until_s in phases:
        if until_s <= from_s:
            continue
        beyond = intervals.beyond("publish", name)
        recorded = (
            intervals.histogram("publish", name).count + beyond.overflow + beyond.negative + beyond.unanswered
        )
        (before_low, before_high), (low, high) = asked.due(from_s), asked.due(until_s)
        fewest, most = low - before_high - edge, high - before_low + edge
        if context.status != "complete" and name == MEASURE:
            # Its end is not where it was planned: it went on within the interval in which it was stopped.
            most = asked.due(until_s + 1.0)[1] - before_low + edge
        if recorded > most or (is_whole(context) and recorded + untaken < fewest):
            expected = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
            yield (
                f"by the histograms {recorded:,} messages were due in the phase '{name}', by rate, arrivals and seed {expected}"
            )


def _early(intervals: Intervals, asked: schedules.Schedule) -> Iterator[str]:
    """Messages that were sent before they were due."""
    sent: dict[int, int] = defaultdict(int)
    ends: dict[int, float] = defaultdict(float)
    for row in intervals.counters():
        sent[int(row["interval"])] += int(row["sent_msgs"] or 0)
        ends[int(row["interval"])] = max(
            ends[int(row["interval"])], float(row["start_s"]) + float(row["duration_s"])
        )
    so_far = 0
    for interval in sorted(sent):
        so_far += sent[interval]
        due = asked.due(ends[interval] + EARLY_S)[1]
        if so_far > due:
            yield f"by the end of interval {interval} {so_far:,} messages had been sent, and only {due:,} were due"
            return


def books(context: TrialContext, intervals: Intervals) -> Iterator[Finding]:
    """The audit's sums, and the intervals' beside them."""
    if context.finish is None:
        if context.status == "complete":
            yield Finding("books", "broken", "the trial is complete, and no books were made", context.trial)
        return
    if not is_whole(context):
        return
    audit = audit_of(context.finish)
    if not audit.subscriptions and not audit.acked:
        yield Finding("books", "unknown", audit.missing or "the workers kept no books", context.trial)
        return
    told = (context.finish.get("audit") or {}).get("balanced")
    wrong = [] if audit.balanced else [str(audit.imbalance)] if told else []
    if not context.workload.consumes_only:
        wrong += disagreements(intervals, audit, headline_of(context.untold))
    wrong += _received(context, intervals)
    wrong += _totals(context, intervals)
    yield from found("books", wrong, context.trial)


def _received(context: TrialContext, intervals: Intervals) -> Iterator[str]:
    audit = audit_of(context.finish)
    if not audit.enabled:
        return
    counted: dict[str, int] = defaultdict(int)
    for row in intervals.receipts():
        counted[str(row["subscription"])] += int(row["received_msgs"] or 0)
    swarm = any(SWARM in one.name for one in audit.subscriptions)
    for one in audit.subscriptions:
        if counted.get(one.name, 0) != one.received:
            yield f"the intervals hold {counted.get(one.name, 0):,} messages received by {one.name}, the books {one.received:,}"
        if context.workload.consumes_only or swarm:
            continue
        beyond = intervals.beyond("end_to_end", None, one.name)
        recorded = intervals.histogram("end_to_end", None, one.name).count + beyond.overflow + beyond.negative
        if recorded > one.received or recorded < one.unique:
            yield f"the end-to-end histograms hold {recorded:,} samples of {one.name}, which received {one.received:,} messages"


def _totals(context: TrialContext, intervals: Intervals) -> Iterator[str]:
    totals: Mapping[str, Any] = (context.finish or {}).get("totals") or {}
    counters = intervals.counters()
    for name in ("sent_msgs", "sent_bytes", "acked_msgs", "acked_bytes", "failed_msgs"):
        told = totals.get(name)
        if isinstance(told, int) and total(counters, name) != told:
            yield f"the intervals' {name} add up to {total(counters, name):,}, the worker's own total is {told:,}"
    workload = context.workload
    if workload.message_sizes is None and workload.payload_file is None and not workload.consumes_only:
        acked, size = total(counters, "acked_msgs"), workload.message_size_bytes
        if total(counters, "acked_bytes") != acked * size:
            yield f"{acked:,} messages of {size} B were acknowledged, and {total(counters, 'acked_bytes'):,} B"


def parts(context: TrialContext, intervals: Intervals) -> Iterator[Finding]:
    """For each worker and phase: publish latency is send delay, back-pressure and service time, message by message, so that the sums over the same messages
    agree to what the buckets allow; and what was quiet, censored and left out is all that there was."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in intervals.rows:
        if row["role"] == "producer" and row["phase"] is not None:
            groups[str(row["worker"]), str(row["phase"])].append(row)
    wrong: list[str] = []
    for (worker, phase), rows in groups.items():
        # Samples beyond the range are in no histogram.
        if not total(rows, "overflow") and not total(rows, "negative"):
            of = f"in '{phase}' of {worker}"
            wrong += _sum(of, rows)
            if is_whole(context):
                wrong += _quiet(of, rows)
    if any(row["publish"] for rows in groups.values() for row in rows):
        yield from found("parts", wrong, context.trial)


def _sum(of: str, rows: Sequence[Row]) -> Iterator[str]:
    held = {name: merge(decode(row[name]) for row in rows if row[name]) for name in (*PARTS, HELD_BACK)}
    count = held["publish"].count
    if not count or {held[name].count for name in PARTS} != {count}:
        return
    sums = {name: (one.mean or 0.0) * one.count for name, one in held.items()}
    parts = sums["service"] + sums["send_delay"] + sums[HELD_BACK]
    if abs(sums["publish"] - parts) > BUCKET * sum(sums.values()) + 2 * count:
        both_ms = parts / count / 1e6
        yield f"{of} the mean publish latency is {sums['publish'] / count / 1e6:.4g} ms, and its parts add up to {both_ms:.4g} ms"


def _quiet(of: str, rows: Sequence[Row]) -> Iterator[str]:
    """A message may be decided in a later interval than it was acknowledged in."""
    for metric in ("publish", "service"):
        if all(row[f"{metric}_left_out"] is None for row in rows):
            continue
        kept = sum(
            decode(row[name]).count
            for row in rows
            for name in (f"{metric}_quiet", f"{metric}_censored")
            if row[name]
        )
        kept += sum(total(rows, name) for name in ("quiet_overflow", "quiet_negative", "censored_overflow"))
        left_out, everything = (
            total(rows, f"{metric}_left_out"),
            sum(decode(row[metric]).count for row in rows if row[metric]),
        )
        if kept + left_out != everything:
            yield f"{of} {plural(kept, metric + ' sample')} are quiet or censored and {left_out:,} left out, of {everything:,}"


def extremes(context: TrialContext, intervals: Intervals) -> Iterator[Finding]:
    """The smallest and the largest sample lie in the first and the last bucket."""
    wrong, looked = [], False
    for row in intervals.rows:
        metric = {"producer": "publish", "consumer": "end_to_end"}.get(str(row["role"]))
        if metric is None or not row[metric] or row["overflow"] or row["negative"]:
            continue
        held = decode(row[metric])
        for name, at in (("min_ns", 0), ("max_ns", -1)):
            if row[name] is None or not held.count:
                continue
            looked = True
            place = held.indices[[at]]
            low = int(held.layout.lower_ends(place)[0])
            high = low + int(held.layout.widths(place)[0]) - 1
            if not low <= int(row[name]) <= high:
                wrong.append(
                    f"{metric} of interval {row['interval']} ends at {low:,} to {high:,} ns, and its {name} is {int(row[name]):,}"
                )
    if looked:
        yield from found("extremes", wrong, context.trial)


def fingerprints(intervals: Intervals, samples_min: int = 50) -> set[bytes]:
    """Of a trial: its distributions with that many samples. No two measurements give the same ones."""
    kept = set()
    for row in intervals.rows:
        if row["role"] == "producer" and row["phase"] is not None:
            metric = "publish" if row["publish"] else "service"
            if row[metric] and (held := decode(row[metric])).count >= samples_min and len(held.indices) >= 10:
                kept.add(np.concatenate((held.indices, held.counts)).tobytes())
    return kept
