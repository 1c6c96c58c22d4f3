"""Small charts as SVG within the page: they need no script, print as they are, and are as wide as a phone (templates/plots.html).

Colours are the page's (`--series-0` ...). Every chart says its unit and in which direction better lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamgauge.vocabulary.format import significant, trimmed

POINTS_MAX = 240
LOG_FROM_FACTOR = 20.0
"""A range wider than this is drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Line:
    """One line, or printed points where `marks` is set."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    marks: bool = False
    faint: bool = False
    right: bool = False
    """It belongs to the axis on the right, and is drawn dashed."""
    joined: bool = False
    """Points with a line through them."""


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


def log_axis(title: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis that holds all values above 0, whatever their range."""
    positive = [value for value in values if math.isfinite(value) and value > 0]
    if not positive:
        return Axis(title, 0.1, 1.0, log=True)
    return Axis(title, min(positive) / 1.5, max(positive) * 1.5, log=True)


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


@dataclass(frozen=True)
class Frame:
    """The size of a drawing, and the edges of what is within its axes."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    def x(self, axis: Axis, value: float) -> float:
        """Where a value stands, from the left."""
        return self.left + axis.place(value) * (self.right - self.left)

    def y(self, axis: Axis, value: float) -> float:
        """Where a value stands, from above."""
        return self.bottom - axis.place(value) * (self.bottom - self.top)


FRAME = Frame(width=380, height=230, left=46, right=370, top=12, bottom=196)
TWO_AXES = replace(FRAME, right=336)
WIDE = Frame(width=760, height=300, left=52, right=748, top=12, bottom=264)


@dataclass(frozen=True)
class Drawn:
    """A line where it stands in the drawing."""

    line: Line
    marks: Sequence[tuple[float, float]] = ()
    path: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure with its title, its legend and lines, in units of the drawing."""

    title: str
    subtitle: str
    told: str
    """For whoever cannot see it."""
    x_title: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    drawn: Sequence[Drawn]
    note: str
    frame: Frame = FRAME
    right_ticks: Sequence[tuple[float, str]] = ()
    """Of a second axis."""


def chart(
    title: str,
    hint: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    *,
    note: str = "",
    right: Axis | None = None,
    frame: Frame = FRAME,
) -> Chart:
    """A chart of lines. `hint`: in which direction better lies. `right`: the axis of the lines that say so."""
    frame = TWO_AXES if right is not None else frame
    said = [y.title, hint, "logarithmic" if y.log else ""]
    if right is not None:
        said.append(f"dashed, on the right: {right.title}{', logarithmic' if right.log else ''}")
    axes = [right if line.right and right is not None else y for line in lines]
    return Chart(
        title=title,
        subtitle=", ".join(text for text in said if text),
        told=f"{title}: {'; '.join(_told(line, axis) for line, axis in zip(lines, axes, strict=True) if not line.faint)}",
        x_title=x.title,
        x_ticks=[(frame.x(x, value), text) for value, text in x.ticks()],
        y_ticks=[(frame.y(y, value), text) for value, text in y.ticks()],
        drawn=[_drawn(line, x, axis, frame) for line, axis in zip(lines, axes, strict=True)],
        note=note,
        frame=frame,
        right_ticks=[] if right is None else [(frame.y(right, value), text) for value, text in right.ticks()],
    )


def _told(line: Line, y: Axis) -> str:
    known = [value for value in line.y if math.isfinite(value)]
    if not known:
        return f"{line.label} has no values"
    return f"{line.label} {significant(min(known))} to {significant(max(known))} {y.title}"


def _drawn(line: Line, x: Axis, y: Axis, frame: Frame) -> Drawn:
    points = [
        (frame.x(x, at), frame.y(y, value))
        for at, value in _thinned(line)
        if math.isfinite(value) and (value > 0 or not y.log)
    ]
    path = "L".join(f"{left:.1f} {top:.1f}" for left, top in points)
    path = f"M{path}" if points else ""
    if line.marks:
        return Drawn(line, marks=points, path=path if line.joined else "")
    return Drawn(line, path=path)


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
