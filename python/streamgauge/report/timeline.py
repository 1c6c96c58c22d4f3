"""Acknowledgements over time with the cut marked, as a drawing that needs no script."""

from __future__ import annotations

from html import escape

from streamgauge.model.durability import Cut
from streamgauge.report.svg import Axis

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 36


def timeline(cut: Cut) -> str:
    """Messages acknowledged so far; the cut and the recovery as lines, what was lost as a hatched band."""
    end_s, most = cut.acks[-1][0] or 1.0, max(acked for _, acked in cut.acks) or 1

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at_s / end_s, 0.0), 1.0)

    def y(acked: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * acked / most

    line = " ".join(f"{x(at_s):.1f},{y(acked):.1f}" for at_s, acked in cut.acks)
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
        f'{lost}{_axes(end_s, most)}<polyline points="{line}"/>{marks}</svg>'
        f"<figcaption>{escape(told)}</figcaption></figure>"
    )


def _mark(at: float, name: str, *, before: bool) -> str:
    anchor = "end" if before else "start"
    shift = -4 if anchor == "end" else 4
    return (
        f'<line class="mark" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text x="{at + shift:.1f}" y="{TOP + 10}" text-anchor="{anchor}">{escape(name)}</text>'
    )


def _axes(end_s: float, most: int) -> str:
    bottom = HEIGHT - BOTTOM
    found = f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}"/>'
    for value, text in Axis("seconds", 0.0, end_s).ticks():
        at = LEFT + (WIDTH - LEFT - RIGHT) * value / end_s
        found += f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{escape(text)}</text>'
    for value, text in Axis("acknowledged", 0.0, float(most)).ticks():
        height = bottom - (bottom - TOP) * value / most
        found += f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    found += f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">seconds since the start</text>'
    return (
        found
        + f'<text x="12" y="{HEIGHT / 2:.0f}" text-anchor="middle" transform="rotate(-90 12 {HEIGHT / 2:.0f})">acknowledged</text>'
    )
