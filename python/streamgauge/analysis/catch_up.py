"""The figures of a backlog: how fast it was read, and what the rest of the traffic felt meanwhile."""

from __future__ import annotations

from collections import defaultdict

from streamgauge.analysis.intervals import Intervals, Row, Window, total
from streamgauge.model.percentiles import latency
from streamgauge.model.result_asked import BacklogAsked
from streamgauge.model.result_base import Headline, PhaseFigures
from streamgauge.model.result_special import CatchUp, Drain
from streamgauge.store.context import BacklogFacts, ReadFacts
from streamgauge.vocabulary.phases import AFTER, BUILD, CATCH_UP, MEASURE

BYTES_PER_MB = 1e6


def catch_up(
    intervals: Intervals,
    asked: BacklogAsked,
    facts: BacklogFacts,
    *,
    measured: Window,
    rate_msgs_s: float | None,
    message_bytes: int,
    headline: Headline = "publish",
) -> CatchUp:
    """Figures of every phase that was reached, and of every subscription that read. `rate_msgs_s`: the target over
    all producers, None where it changes on the way. `headline`: what stands for the latency of publishing."""
    ends = [float(row["start_s"]) + float(row["duration_s"]) for row in intervals.counters()]
    # A trial that was cut short ended with its last interval; the drain's come after the schedule's end.
    last_s = facts.end_s if facts.end_s is not None else max(ends, default=facts.build_from_s)
    starts = [
        (MEASURE, measured.from_s),
        (BUILD, facts.build_from_s),
        (CATCH_UP, facts.catch_up_from_s),
        (AFTER, facts.after_from_s),
    ]
    known = [(name, from_s) for name, from_s in starts if from_s is not None]
    untils = [from_s for _, from_s in known[1:]] + [last_s]
    phases = [
        phase_figures(intervals, name, Window(from_s, until_s), rate_msgs_s, name, headline)
        for (name, from_s), until_s in zip(known, untils, strict=True)
    ]
    drains = [_drain(intervals, read, message_bytes) for read in facts.reads]
    chases = [drain.chase_s for drain in drains if drain.chase_s is not None]
    everyone = bool(drains) and len(chases) == len(drains)
    build_until_s = facts.catch_up_from_s if facts.catch_up_from_s is not None else last_s
    return CatchUp(
        reader=asked.reader,
        size_bytes=asked.size_bytes,
        built_bytes=sum(drain.backlog_bytes for drain in drains),
        built=facts.built,
        build_s=build_until_s - facts.build_from_s,
        cache_dropped=facts.cache_dropped,
        caught_up=everyone,
        chase_s=max(chases) if everyone else None,
        drains=drains,
        phases=phases,
    )


def phase_figures(
    intervals: Intervals,
    name: str,
    window: Window,
    rate_msgs_s: float | None,
    phase: str | None,
    headline: Headline = "publish",
) -> PhaseFigures:
    """The figures of a window: latencies of the messages that were intended in a phase (any, if None)."""
    counters = [row for row in intervals.counters() if window.holds(row)]
    seconds = _seconds(counters)
    acked, acked_bytes = total(counters, "acked_msgs"), total(counters, "acked_bytes")
    received: dict[str, int] = defaultdict(int)
    for row in intervals.receipts():
        if window.holds(row):
            received[str(row["subscription"])] += int(row["received_msgs"] or 0)
    return PhaseFigures(
        name=name,
        from_s=window.from_s,
        until_s=window.until_s,
        publish_rate_msgs_s=acked / seconds if seconds else 0.0,
        publish_rate_mb_s=acked_bytes / seconds / BYTES_PER_MB if seconds else 0.0,
        achieved_share=acked / (rate_msgs_s * seconds) if rate_msgs_s and seconds else None,
        publish_ms=latency(intervals.histogram("publish", phase), intervals.beyond("publish", phase)),
        service_ms=latency(intervals.histogram("service", phase)) if headline == "service" else None,
        send_delay_ms=latency(
            intervals.histogram("send_delay", phase), intervals.beyond("send_delay", phase)
        ),
        end_to_end_by_subscription_ms={
            one: latency(
                intervals.histogram("end_to_end", phase, one), intervals.beyond("end_to_end", phase, one)
            )
            for one in intervals.subscriptions()
        },
        consume_rate_by_subscription_msgs_s={
            one: count / seconds if seconds else 0.0 for one, count in sorted(received.items())
        },
    )


def _seconds(counters: list[Row]) -> float:
    """Length of the intervals, each counted once however many workers there are."""
    return sum({int(row["interval"]): float(row["duration_s"]) for row in counters}.values())


def _drain(intervals: Intervals, read: ReadFacts, message_bytes: int) -> Drain:
    chase_s = None if read.caught_up_s is None else read.caught_up_s - read.resumed_s
    best: dict[int, tuple[int, float]] = {}
    for row in intervals.receipts():
        start_s, duration_s = float(row["start_s"]), float(row["duration_s"])
        until_s = read.caught_up_s if read.caught_up_s is not None else start_s
        if row["subscription"] != read.subscription or not read.resumed_s - 1.0 <= start_s <= until_s:
            continue
        received, _ = best.get(int(row["interval"]), (0, 0.0))
        best[int(row["interval"])] = (received + int(row["received_msgs"] or 0), duration_s)
    highest = max((count / seconds for count, seconds in best.values() if seconds > 0), default=None)
    if chase_s is not None and chase_s < 1.0:
        # There was no whole second of reading.
        highest = None
    mean = read.read_msgs / chase_s if chase_s else None

    def mb_s(msgs_s: float | None) -> float | None:
        return None if msgs_s is None else msgs_s * message_bytes / BYTES_PER_MB

    return Drain(
        subscription=read.subscription,
        resumed_s=read.resumed_s,
        backlog_msgs=read.backlog_msgs,
        backlog_bytes=read.backlog_msgs * message_bytes,
        caught_up_s=read.caught_up_s,
        chase_s=chase_s,
        read_msgs=read.read_msgs,
        mean_msgs_s=mean,
        mean_mb_s=mb_s(mean),
        max_msgs_s=highest,
        max_mb_s=mb_s(highest),
    )
