"""Acknowledgements over time with the cut marked, as a drawing that needs no script (templates/timeline.html)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.model.durability import Cut
from streamgauge.report.svg import Axis, Frame

FRAME = Frame(width=720, height=220, left=64, right=704, top=16, bottom=184)


@dataclass(frozen=True)
class Timeline:
    """Where everything is, in units of the drawing."""

    told: str
    line: str
    """The points of messages acknowledged so far."""
    marks: Sequence[tuple[float, str, bool]]
    """The cut and the recovery: where, its name, and whether that stands before it."""
    lost: tuple[float, float] | None
    """Begin and width of a band: when lost messages were due."""
    seconds: Sequence[tuple[float, str]]
    messages: Sequence[tuple[float, str]]
    """Ticks of the axes."""
    frame: Frame = FRAME


def timeline(cut: Cut) -> Timeline:
    """Messages acknowledged so far; the cut and the recovery as lines, what was lost as a hatched band."""
    time = Axis("", 0.0, cut.acks[-1][0] or 1.0)
    acknowledged = Axis("", 0.0, float(max(acked for _, acked in cut.acks) or 1))

    def x(at_s: float) -> float:
        return FRAME.x(time, min(max(at_s, 0.0), time.high))

    def y(acked: float) -> float:
        return FRAME.y(acknowledged, acked)

    marks: list[tuple[float, str, bool]] = [(x(cut.at_s), cut.kind, True)]
    if cut.serving_s is not None:
        marks.append((x(cut.serving_s), "serves again", x(cut.serving_s) > FRAME.width - 90))
    lost = None
    if cut.lost_ranges:
        first = x(min(one.from_s for one in cut.lost_ranges))
        last = x(max(one.until_s for one in cut.lost_ranges))
        lost = (first, max(last - first, 2.0))
    return Timeline(
        told=f"Cut {cut.number}: {cut.kind} of {cut.scope} ({', '.join(cut.parts)}). {cut.lost:,} of {cut.acked:,} acknowledged "
        "messages lost" + (" (hatched: when they were due)." if cut.lost else "."),
        line=" ".join(f"{x(at_s):.1f},{y(acked):.1f}" for at_s, acked in cut.acks),
        marks=marks,
        lost=lost,
        seconds=[(x(at_s), text) for at_s, text in time.ticks()],
        messages=[(y(acked), text) for acked, text in acknowledged.ticks()],
    )
