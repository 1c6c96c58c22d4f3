"""The measured window of a trial whose rate was searched for, judged as the search judged its probes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from streamgauge.analysis import search as search_rules
from streamgauge.analysis.intervals import EDGE_S, Intervals, total, total_s
from streamgauge.analysis.measured import Measured, errors_of
from streamgauge.analysis.quiet_measured import Quiet
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.model.result_machine import Cpu
from streamgauge.model.result_special import Search
from streamgauge.vocabulary.histograms import merge


def soaked(measured: Measured, cpu: Cpu, quiet: Quiet | None) -> Search | None:
    """The search with the measured window judged like a probe: a rate that was held by what its messages took in quiet time, where that was watched."""
    raw, window, latencies = measured.raw, measured.window, measured.latencies
    if raw.search is None or raw.rate_msgs_s is None or raw.search.low_msgs_s is None:
        return raw.search
    intervals, lined_up = measured.intervals, measured.lined_up
    end_s = lined_up.start_s + lined_up.duration_s
    inside = (end_s >= window.from_s - EDGE_S) & (end_s <= window.until_s + EDGE_S)
    if not inside.any():
        return raw.search
    names = intervals.subscriptions()
    received = [np.cumsum(_received(intervals, name, lined_up.interval))[inside] for name in names]
    acked = np.cumsum(np.nan_to_num(lined_up.values["acked_msgs"]))[inside]
    counters = measured.counters()
    seen = search_rules.Seen(
        rate_msgs_s=raw.rate_msgs_s,
        producers=measured.producers,
        end_s=end_s[inside],
        acked_msgs=acked,
        received_msgs=search_rules.slowest(received, acked),
        publish_ms_p99=latencies["publish"].p99,
        send_delay_ms_p99=latencies["send_delay"].p99,
        ack_delay_ms_p99=latencies["ack_delay"].p99,
        quiet_publish_ms_p99=_quiet_p99_ms(quiet, "publish"),
        quiet_send_delay_ms_p99=_quiet_p99_ms(quiet, "send_delay"),
        backpressured_share=measured.counted.per_second(total_s(counters, "backpressured_s"))
        / measured.producers,
        workers_share=cpu.workers_share or 0.0,
        busiest_lane_share=0.0,
        failed_msgs=total(counters, "failed_msgs"),
        errors=errors_of(counters),
        linger_s=raw.workload.linger_ms / 1e3,
        disturbed_share=None if quiet is None else quiet.found.disturbed_share,
        away_share=None if quiet is None else quiet.found.away_share,
    )
    asked = raw.workload.search
    probe, _ = search_rules.judge(seen, asked.publish_ms_p99_max if asked else None)
    return raw.search.model_copy(update={"soak": probe})


def _quiet_p99_ms(quiet: Quiet | None, metric: str) -> float | None:
    """Those that were cut included, as in the probes of a search."""
    parts = [
        part
        for one in (quiet.intervals.get(metric, []) if quiet else [])
        for part in (one.quiet, one.censored)
    ]
    value = merge(parts).percentile(99.0) if parts else None
    return None if value is None else value / NS_PER_MS


def _received(intervals: Intervals, name: str, order: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    counts: dict[int, int] = defaultdict(int)
    for row in intervals.receipts():
        if row["subscription"] == name:
            counts[int(row["interval"])] += int(row["received_msgs"] or 0)
    return np.array([counts[int(interval)] for interval in order], dtype=np.float64)
