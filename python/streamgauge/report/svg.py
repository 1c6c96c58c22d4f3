"""Small charts as SVG within the page: they need no script, print as they are, and are as wide as a phone.

Colours are the page's (`--series-0` ...). Every chart says its unit and in which direction better lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from streamgauge.report.format import significant, trimmed

WIDTH, HEIGHT = 380, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 34
POINTS_MAX = 240
LOG_FROM_FACTOR = 20.0
"""A range wider than this is drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Line:
    """One line, or printed points where `marks` is set."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int
    marks: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Axis:
    """One axis: its title with the unit, its range, whether it is logarithmic."""

    title: str
    low: float
    high: float
    log: bool = False
    names: tuple[tuple[float, str], ...] = ()
    """Ticks with names of their own."""

    def place(self, value: float) -> float:
        """0 to 1."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Where ticks are, and what stands at them."""
        if self.names:
            return list(self.names)
        values = _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)
        return [(value, trimmed(value)) for value in values]


def y_axis(title: str, values: Sequence[float]) -> Axis:
    """An axis that holds all values: from zero, or logarithmic where they differ by much."""
    known = [value for value in values if math.isfinite(value)]
    positive = [value for value in known if value > 0]
    if not positive:
        return Axis(title, 0.0, 1.0)
    low, high = min(positive), max(positive)
    if high / low > LOG_FROM_FACTOR:
        return Axis(title, low / 1.3, high * 1.3, log=True)
    return Axis(title, 0.0, high * 1.12)


def chart(title: str, hint: str, x: Axis, y: Axis, lines: Sequence[Line], *, note: str = "") -> str:
    """A figure with its title, its legend and a chart of lines. `hint`: in which direction better lies."""
    body = _grid(x, y) + "".join(_line(line, x, y) for line in lines)
    told = "; ".join(_told(line, y) for line in lines if not line.faint)
    legend = "".join(
        f'<span style="--c:var(--series-{line.colour % 8})"><i class="{"mark" if line.marks else "swatch"}"></i>'
        f"{escape(line.label)}</span>"
        for line in lines
        if line.label
    )
    below = f'<p class="hint">{escape(note)}</p>' if note else ""
    return (
        f'<figure class="plot"><figcaption><b>{escape(title)}</b>'
        f"<small>{escape(y.title)}{', ' + escape(hint) if hint else ''}{', logarithmic' if y.log else ''}</small></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}: {escape(told)}">{body}</svg>'
        f'<div class="legend">{legend}</div>{below}</figure>'
    )


def _told(line: Line, y: Axis) -> str:
    known = [value for value in line.y if math.isfinite(value)]
    if not known:
        return f"{line.label} has no values"
    return f"{line.label} {significant(min(known))} to {significant(max(known))} {y.title}"


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)


def _grid(x: Axis, y: Axis) -> str:
    parts = []
    for value, text in y.ticks():
        at = _y(y, value)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at + 3.5:.1f}" text-anchor="end">{escape(text)}</text>')
    for value, text in x.ticks():
        at = _x(x, value)
        parts.append(f'<path class="grid" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">{escape(text)}</text>'
        )
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 5}" text-anchor="middle">{escape(x.title)}</text>')
    return "".join(parts)


def _line(line: Line, x: Axis, y: Axis) -> str:
    points = [
        (_x(x, at), _y(y, value))
        for at, value in _thinned(line)
        if math.isfinite(value) and (value > 0 or not y.log)
    ]
    style = f'style="--c:var(--series-{line.colour % 8})"'
    if line.marks:
        return "".join(
            f'<circle class="mark" {style} cx="{left:.1f}" cy="{top:.1f}" r="3.6"/>' for left, top in points
        )
    if not points:
        return ""
    path = "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in points)
    return f'<path class="line{" faint" if line.faint else ""}" {style} d="{path}"/>'


def _thinned(line: Line) -> list[tuple[float, float]]:
    """At most POINTS_MAX points; of neighbours the largest stays, because spikes are what is looked for."""
    points = list(zip(line.x, line.y, strict=True))
    stride = math.ceil(len(points) / POINTS_MAX)
    if stride < 2:
        return points
    groups = [points[at : at + stride] for at in range(0, len(points), stride)]
    return [(group[0][0], max(value for _, value in group)) for group in groups]


def _even_ticks(low: float, high: float) -> list[float]:
    span = high - low
    step = 10.0 ** math.floor(math.log10(span / 4))
    for factor in (1, 2, 2.5, 5, 10):
        if span / (step * factor) <= 5:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = math.log10(high / low)
    mantissas = (1,) if decades > 3 else (1, 3) if decades > 1.7 else (1, 2, 5)
    found = [
        mantissa * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for mantissa in mantissas
    ]
    return [value for value in found if low <= value <= high]
