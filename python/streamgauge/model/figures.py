"""The figures that claims and tables of studies may name, with their titles and units.

A figure is a property of one trial. Those of a latency are `publish_ms.p99`, `end_to_end_ms.mean` and so on;
`analysis.study_figures` computes them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    Figure("chase_s", "chase time", "s", "lower"),
    Figure("system_cpu_us_per_msg", "CPU of the system per message", "\u00b5s", "lower"),
    Figure("write_amplification", "bytes written per byte published", "", "lower"),
    Figure("period_s.end_to_end_mean", "period of the mean end-to-end latency", "s", "neither"),
    Figure("swing_ms.end_to_end_mean", "swing of the mean end-to-end latency", "ms", "lower"),
    Figure("spikes_per_min.publish_p99", "spikes of the p99 publish latency per minute", "", "lower"),
)


def figures() -> dict[str, Figure]:
    """Every figure by its name."""
    found = {
        f"{latency}.{statistic}": Figure(f"{latency}.{statistic}", f"{shown} {title}", "ms", "lower")
        for latency, title in LATENCIES.items()
        for statistic, shown in STATISTICS.items()
    }
    return found | {figure.name: figure for figure in _OTHERS}


def find_figure(name: str) -> Figure | None:
    """A figure by its name."""
    return figures().get(name)


def figure_names() -> list[str]:
    """Every name."""
    return list(figures())
