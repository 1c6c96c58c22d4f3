"""Acknowledgements over time with the cut marked, as a drawing that needs no script."""

from __future__ import annotations

from html import escape

from streamgauge.model.durability import Cut
from streamgauge.report.svg import Axis

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 36


def timeline(cut: Cut) -> str:
    """Messages acknowledged so far; the cut and the recovery as lines, what was lost as a hatched band."""
    time = Axis("seconds since the start", 0.0, cut.acks[-1][0] or 1.0)
    acknowledged = Axis("acknowledged", 0.0, float(max(acked for _, acked in cut.acks) or 1))

    def x(at_s: float) -> float:
        return _x(time, min(max(at_s, 0.0), time.high))

    line = " ".join(f"{x(at_s):.1f},{_y(acknowledged, acked):.1f}" for at_s, acked in cut.acks)
    lost = ""
    if cut.lost_ranges:
        first = min(one.from_s for one in cut.lost_ranges)
        last = max(one.until_s for one in cut.lost_ranges)
        wide = max(x(last) - x(first), 2.0)
        lost = f'<rect class="lost" x="{x(first):.1f}" y="{TOP}" width="{wide:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>'
    marks = _mark(x(cut.at_s), cut.kind, before=True) + (
        ""
        if cut.serving_s is None
        else _mark(x(cut.serving_s), "serves again", before=x(cut.serving_s) > WIDTH - 90)
    )
    told = (
        f"Cut {cut.number}: {cut.kind} of {cut.scope} ({', '.join(cut.parts)}). {cut.lost:,} of {cut.acked:,} acknowledged "
        "messages lost" + (" (hatched: when they were due)." if cut.lost else ".")
    )
    return (
        f'<figure class="timeline"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">'
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line x1="0" y1="0" x2="0" y2="6"/></pattern></defs>'
        f'{lost}{_axes(time, acknowledged)}<polyline points="{line}"/>{marks}</svg>'
        f"<figcaption>{escape(told)}</figcaption></figure>"
    )


def _mark(at: float, name: str, *, before: bool) -> str:
    anchor = "end" if before else "start"
    shift = -4 if anchor == "end" else 4
    return (
        f'<line class="mark" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text x="{at + shift:.1f}" y="{TOP + 10}" text-anchor="{anchor}">{escape(name)}</text>'
    )


def _x(axis: Axis, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * axis.place(value)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * axis.place(value)


def _axes(time: Axis, acknowledged: Axis) -> str:
    bottom = HEIGHT - BOTTOM
    found = f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}"/>'
    for value, text in time.ticks():
        found += (
            f'<text x="{_x(time, value):.1f}" y="{bottom + 14}" text-anchor="middle">{escape(text)}</text>'
        )
    for value, text in acknowledged.ticks():
        found += f'<text x="{LEFT - 6}" y="{_y(acknowledged, value) + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    middle = HEIGHT / 2
    return (
        found
        + f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{time.title}</text>'
        + f'<text x="12" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 12 {middle:.0f})">{acknowledged.title}</text>'
    )
