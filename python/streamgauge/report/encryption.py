"""What TLS costs, as tables: the terminal and the HTML report show the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.compare import Compared
from streamgauge.analysis.encryption import costs
from streamgauge.report import words
from streamgauge.report.details import Grid
from streamgauge.vocabulary.format import rate, significant

TITLES = {
    "publish_rate_msgs_s": "rate msg/s",
    "publish_ms.p50": "publish p50 ms",
    "publish_ms.p99": "publish p99 ms",
    "end_to_end_ms.p99": "end-to-end p99 ms",
    "cpu.system_us_per_msg": "CPU us/msg, system",
    "cpu.workers_us_per_msg": "CPU us/msg, gauge",
}


def grids(found: Sequence[Cell]) -> Iterator[Grid]:
    """A table for each pair of cells that differ in TLS alone; none where a run has no such pair."""
    for comparison in costs(found):
        trial = comparison.base.first
        title = f"What TLS costs: {words.plain_name(trial)}, {words.level(trial)}, {trial.workload.name}"
        head = ("figure", "without TLS", "with TLS", "ratio", "95 % interval", "verdict")
        yield Grid(title, head, [_row(one) for one in comparison.figures], narrow=(0, 1, 2, 3, 4))


def _row(one: Compared) -> tuple[str, ...]:
    show = rate if one.figure == "publish_rate_msgs_s" else significant
    ratio = interval = "-"
    if one.difference is not None:
        low, high = one.difference.ratio.interval()
        ratio, interval = f"{one.difference.ratio.value:.3f}", f"{low:.3f} to {high:.3f}"
    return (
        TITLES[one.figure],
        show(one.base),
        show(one.other),
        ratio,
        interval,
        one.verdict,
    )
