"""What TLS costs: cells that are the same but for it, as pairs.

Of what a run has measured, a cell without TLS and one with it form a pair when everything else that was asked for is the
same. The ratios and their intervals are those of every comparison (analysis/compare.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from streamgauge.analysis.cells import Cell, key_but_for_tls
from streamgauge.analysis.compare import Comparison, compare

RATE = "publish_rate_msgs_s"
FIGURES = (
    RATE,
    "publish_ms.p50",
    "publish_ms.p99",
    "end_to_end_ms.p99",
    "cpu.system_us_per_msg",
    "cpu.workers_us_per_msg",
)
"""Latency, and CPU per message on both ends of the connections. The rate says something only where it was not given."""


def costs(found: Sequence[Cell]) -> list[Comparison]:
    """A comparison (without TLS, with it) for each pair, in the order of the cells without."""
    with_tls = {key_but_for_tls(cell.first): cell for cell in found if cell.first.tls == "on"}
    pairs = [
        (cell, with_tls[key_but_for_tls(cell.first)])
        for cell in found
        if cell.first.tls == "off" and key_but_for_tls(cell.first) in with_tls
    ]
    return [compare(off, on, figures_of(off)) for off, on in pairs]


def figures_of(cell: Cell) -> tuple[str, ...]:
    """The figures in which TLS can show. A rate that was given is not one of them; where it was not, latency follows from
    the rate that was reached, and says little.
    """
    given = cell.first.workload.rate_msgs_s is not None
    return tuple(name for name in FIGURES if name != RATE) if given else FIGURES
