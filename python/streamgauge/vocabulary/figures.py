"""The figures that people name, in two families.

Results' figures are the numbers of a trial's result.json by their names there, as gates, comparisons and histories are given them: `publish_ms.p99`,
`cpu.system_us_per_msg`. In the columns of queries and exports a name has `_` for `.` (`publish_ms_p99`): both are taken here. The names are written down,
because the shell completes them and waits; tests/test_completion.py holds them against the result's model.

Studies' figures are those that claims and tables of studies may name, with titles and units. Each is a property of one trial: a result's figure, by the
name that it has there, or one that `analysis.study_figures` computes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from streamgauge.vocabulary.errors import InputError, nearest

_NAMES = """
started_unix_ms ended_unix_ms publish_ms.mean publish_ms.min publish_ms.p50 publish_ms.p75 publish_ms.p90 publish_ms.p95 publish_ms.p99 publish_ms.p99_9
publish_ms.p99_99 publish_ms.max publish_ms.count publish_ms.overflow publish_ms.negative publish_ms.unanswered end_to_end_ms.mean end_to_end_ms.min
end_to_end_ms.p50 end_to_end_ms.p75 end_to_end_ms.p90 end_to_end_ms.p95 end_to_end_ms.p99 end_to_end_ms.p99_9 end_to_end_ms.p99_99 end_to_end_ms.max
end_to_end_ms.count end_to_end_ms.overflow end_to_end_ms.negative end_to_end_ms.unanswered service_ms.mean service_ms.min service_ms.p50 service_ms.p75
service_ms.p90 service_ms.p95 service_ms.p99 service_ms.p99_9 service_ms.p99_99 service_ms.max service_ms.count service_ms.overflow service_ms.negative
service_ms.unanswered send_delay_ms.mean send_delay_ms.min send_delay_ms.p50 send_delay_ms.p75 send_delay_ms.p90 send_delay_ms.p95 send_delay_ms.p99
send_delay_ms.p99_9 send_delay_ms.p99_99 send_delay_ms.max send_delay_ms.count send_delay_ms.overflow send_delay_ms.negative send_delay_ms.unanswered
backpressure_ms.mean backpressure_ms.min backpressure_ms.p50 backpressure_ms.p75 backpressure_ms.p90 backpressure_ms.p95 backpressure_ms.p99
backpressure_ms.p99_9 backpressure_ms.p99_99 backpressure_ms.max backpressure_ms.count backpressure_ms.overflow backpressure_ms.negative
backpressure_ms.unanswered ack_delay_ms.mean ack_delay_ms.min ack_delay_ms.p50 ack_delay_ms.p75 ack_delay_ms.p90 ack_delay_ms.p95 ack_delay_ms.p99
ack_delay_ms.p99_9 ack_delay_ms.p99_99 ack_delay_ms.max ack_delay_ms.count ack_delay_ms.overflow ack_delay_ms.negative ack_delay_ms.unanswered
receive_delay_ms.mean receive_delay_ms.min receive_delay_ms.p50 receive_delay_ms.p75 receive_delay_ms.p90 receive_delay_ms.p95 receive_delay_ms.p99
receive_delay_ms.p99_9 receive_delay_ms.p99_99 receive_delay_ms.max receive_delay_ms.count receive_delay_ms.overflow receive_delay_ms.negative
receive_delay_ms.unanswered search.low_msgs_s search.high_msgs_s search.width_percent search.soak.rate_msgs_s search.soak.seconds search.soak.achieved_share
search.soak.growth_share search.soak.growth_share_low search.soak.growth_share_high search.soak.growth_share_max search.soak.outstanding_msgs
search.soak.publish_ms_p99 search.soak.send_delay_ms_p99 search.soak.backpressured_share search.soak.workers_share search.soak.busiest_lane_share
search.soak.steal_share search.soak.disturbed_share search.soak.away_share search.soak.failed_msgs
catch_up.size_bytes catch_up.built_bytes catch_up.build_s catch_up.chase_s
warm_up.limit_s warm_up.lasted_s faults.resolution_s faults.unavailable_s faults.recovered_s faults.caught_up_s publish_rate_msgs_s publish_rate_mb_s
consume_rate_msgs_s consume_rate_mb_s target_rate_msgs_s achieved_share backlog_msgs_max waiting_msgs_max failed_msgs retries audit.sent audit.acked
audit.failed audit.received audit.lost audit.duplicated audit.reordered audit.corrupted audit.unexpected audit.unknown audit.recovered audit.censored
quiet.seconds quiet.quiet_s quiet.disturbed_share quiet.away_share quiet.unseen_share quiet.windows quiet.longest_ms quiet.steal_s
quiet.probes_cpu_share quiet.probes_period_ms
quiet.stretches_s
quiet.publish_rate_msgs_s.value quiet.publish_rate_msgs_s.at_least quiet.publish_rate_msgs_s.at_most quiet.consume_rate_msgs_s.value
quiet.consume_rate_msgs_s.at_least
quiet.consume_rate_msgs_s.at_most cpu.cores cpu.duration_s cpu.workers_s cpu.system_s cpu.others_s cpu.steal_s cpu.workers_us_per_msg cpu.system_us_per_msg
cpu.wakeups_per_s
cpu.workers_share cpu.system_share cpu.others_share limits.disk_write_mb_s limits.disk_read_mb_s limits.fsync_ms_p50 limits.fsync_ms_p99 limits.loopback_mb_s
limits.round_trip_us_p50 limits.memcpy_mb_s limits.crc32c_mb_s limits.wakeup_us_p99 limits.cores share_of_limit.value tail.percentile tail.above_ms tail.msgs
tail.intervals
tail.largest.value_ms tail.largest.at_s tail.largest.lasted_ms profiled.above_ms profiled.intervals write_amplification worker_rss_bytes_max end_to_end_bound_ms
"""
RESULT_FIGURES: tuple[str, ...] = tuple(_NAMES.split())
"""All numbers in a result, in its order, but for what was asked for and verdicts. What is in lists and free mappings (subscriptions, processes) has no
name of its own."""

DEFAULT_FIGURE = "publish_ms.p99"
"""Of a history, unless another one is asked for."""

HIGHER_IS_BETTER = ("publish_rate_", "consume_rate_", "achieved_share", "search.low", "search.high")

UNITS = {
    "us_per_msg": "us/msg", "per_s": "1/s", "msgs_s": "msg/s", "mb_s": "MB/s", "ms": "ms", "us": "us", "s": "s",
    "bytes": "B", "msgs": "messages", "percent": "%",
}  # fmt: skip
"""The last words of a name, longest first, and how people write them."""
COUNTS = re.compile(r"audit\..*|failed_msgs|retries|.*\.(count|overflow|negative|unanswered)")
"""What was counted message by message: a fact about each trial, and no estimate."""

STANDING = ("publish_ms", "end_to_end_ms", "service_ms", "send_delay_ms", "ack_delay_ms", "receive_delay_ms")
"""Latencies of which quiet time has figures of its own."""

STANDING_RATES = ("publish_rate_msgs_s", "publish_rate_mb_s", "consume_rate_msgs_s", "consume_rate_mb_s")
"""Rates that are told per second of quiet time where the system sets them."""

Better = Literal["lower", "higher", "neither"]

LATENCIES = {
    "publish_ms": "publish latency",
    "end_to_end_ms": "end-to-end latency",
    "before_publish_ms": "publish latency before the backlog",
    "catch_up_publish_ms": "publish latency while catching up",
}
STATISTICS = {
    "mean": "mean",
    "p50": "p50",
    "p75": "p75",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "p99_9": "p99.9",
    "p99_99": "p99.99",
    "max": "max",
}


@dataclass(frozen=True)
class Figure:
    """What a figure is called and how it is read."""

    name: str
    title: str
    unit: str
    better: Better
    needs_s: float = 0.0
    """For less of measured time than this it tells nothing."""

    @property
    def axis(self) -> str:
        """For an axis or a heading: what, in which unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def hint(self) -> str:
        """`lower is better`, or nothing."""
        return "" if self.better == "neither" else f"{self.better} is better"


_OTHERS = (
    Figure("publish_rate_mb_s", "publish throughput", "MB/s", "higher"),
    Figure("publish_rate_msgs_s", "publish rate", "msg/s", "higher"),
    Figure("sustained_mb_s", "maximum sustainable throughput", "MB/s", "higher"),
    Figure("sustained_msgs_s", "maximum sustainable rate", "msg/s", "higher"),
    Figure("catch_up_max_mb_s", "catch-up read, best second", "MB/s", "higher"),
    Figure("catch_up_mean_mb_s", "catch-up read, mean", "MB/s", "higher"),
    Figure("catch_up_max_msgs_s", "catch-up read, best second", "msg/s", "higher"),
    Figure("catch_up.chase_s", "chase time", "s", "lower"),
    Figure("cpu.system_us_per_msg", "CPU of the system per message", "\u00b5s", "lower"),
    Figure("write_amplification", "bytes written per byte published", "", "lower"),
    Figure("period_s.end_to_end_mean", "period of the mean end-to-end latency", "s", "neither"),
    Figure("swing_ms.end_to_end_mean", "swing of the mean end-to-end latency", "ms", "lower"),
    Figure(
        "range_ms.end_to_end_mean",
        "range of the mean end-to-end latency of nine in ten seconds",
        "ms",
        "lower",
        needs_s=60.0,
    ),
    Figure(
        "spikes_per_min.publish_p99",
        "spikes of the p99 publish latency per minute",
        "",
        "lower",
        needs_s=60.0,
    ),
)


def _latencies() -> Iterable[Figure]:
    for latency, title in LATENCIES.items():
        for statistic, shown in STATISTICS.items():
            yield Figure(f"{latency}.{statistic}", f"{shown} {title}", "ms", "lower")


STUDY_FIGURES: dict[str, Figure] = {one.name: one for one in (*_latencies(), *_OTHERS)}
"""By name."""
SERIES: dict[str, Figure] = {
    one.name: one
    for one in (
        *(STUDY_FIGURES[name] for name in ("publish_rate_mb_s", "publish_rate_msgs_s")),
        Figure("consume_rate_mb_s", "read throughput", "MB/s", "higher"),
        Figure("consume_rate_msgs_s", "read rate", "msg/s", "higher"),
        Figure("backlog_msgs", "backlog", "messages", "lower"),
        Figure("cpu.system_cores", "CPU of the system", "cores", "lower"),
        *(
            STUDY_FIGURES[f"{latency}.{one}"]
            for latency in ("publish_ms", "end_to_end_ms")
            for one in STATISTICS
        ),
    )
}
"""What is kept interval by interval, so that pages can draw it over time: latencies, rates, the backlog and CPU."""
FORMER = {"chase_s": "catch_up.chase_s", "system_cpu_us_per_msg": "cpu.system_us_per_msg"}
"""What studies called them that were run before a figure had one name."""


def study_figure(name: str) -> Figure | None:
    """A figure by the name that a stored study has for it; None when there is none any more."""
    return STUDY_FIGURES.get(FORMER.get(name, name))


def check_figure(name: str) -> str:
    """The name as it is in result.json, if it is one there or in a query. Raises InputError."""
    known = {one.replace(".", "_"): one for one in RESULT_FIGURES}
    found = known.get(name.replace(".", "_"))
    if found is None:
        hint = nearest(name, known.values())
        raise InputError(
            f"no figure '{name}'{hint or '; expected one such as publish_ms.p99, publish_rate_msgs_s, audit.lost'} "
            "(names are those of result.json; publish_ms_p99, as queries have it, is the same)"
        )
    return found


def title_of(name: str) -> str:
    """How people say it, without the unit: `publish_ms.p99` is "publish p99"."""
    steps = [_parted(step)[0] for step in name.split(".")]
    steps[-1] = re.sub(r"^(p\d+)_(\d+)$", r"\1.\2", steps[-1])
    words = " ".join(step for step in steps if step).replace("_", " ")
    return words.replace("cpu", "CPU").replace("end to end", "end-to-end")


def unit_of(name: str) -> str:
    """The unit of a figure, as people write it; empty for shares, ratios and counts."""
    if is_count(name):
        return ""
    units = [_parted(step)[1] for step in name.split(".")]
    return next((unit for unit in reversed(units) if unit), "")


def is_count(name: str) -> bool:
    """Whether a figure was counted, so that each trial's value is exact."""
    return COUNTS.fullmatch(name) is not None


def figure(result: Any, name: str) -> float | None:
    """A figure of a result (`TrialResult`); None where it is not known, or does not stand (`TrialResult.standing_ms`)."""
    first, *steps = name.split(".")
    if first in STANDING_RATES:
        return float(result.standing_rate(first))
    value: Any = result.standing_ms(first) if first in STANDING else getattr(result, first)
    for step in steps:
        if value is None:
            return None
        value = getattr(value, step)
    return None if value is None else float(value)


def higher_is_better(name: str) -> bool:
    """Whether more of it is better; of latencies, costs and losses less is."""
    return name.startswith(HIGHER_IS_BETTER)


def _parted(step: str) -> tuple[str, str]:
    """A step of a name without its unit, and the unit."""
    found = next((end for end in UNITS if step == end or f"_{end}_" in f"_{step}_"), None)
    if found is None:
        return step, ""
    return f"_{step}_".replace(f"_{found}_", "_").strip("_"), UNITS[found]
