"""The smallest effect that matters, as a factor: what lies within it is no difference that anyone would choose, size or upgrade a system by."""

from __future__ import annotations

MEDIAN_MARGIN, TAIL_MARGIN, RATE_MARGIN = 1.1, 1.5, 1.05


def margin_of(figure: str) -> float:
    """Of a figure as results name it (`publish_ms.p99`)."""
    last = figure.rpartition(".")[2]
    if last in ("p50", "p75", "mean") or last.startswith("mean"):
        return MEDIAN_MARGIN
    if "_ms" in figure and (last.startswith("p9") or last == "max"):
        return TAIL_MARGIN
    if figure.endswith(("_msgs_s", "_mb_s")):
        return RATE_MARGIN
    return MEDIAN_MARGIN
