"""Curves of latency over throughput: the figure, the tables behind it, the sentence that answers, and the table of the terminal (templates/curve.html).

Every point is drawn at the rate that was achieved. Filled: sustained. Hollow: not sustained, or invalid for the generator's sake. A bar: the bounds of what a
disturbed machine left no figure of. The strip at the foot is the interval of the knee, with its mark where it is read off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamgauge.analysis.curves import FIGURE, Beside, Curve, CurvePoint, Worth, beside
from streamgauge.inference.knee import BEND, Knee
from streamgauge.report import colours, words
from streamgauge.report.details import Grid
from streamgauge.report.quiet_words import bounds_text, repeats_tell
from streamgauge.report.svg import Axis, Frame, y_axis
from streamgauge.vocabulary.bounds import ACHIEVED_SHARE_MIN
from streamgauge.vocabulary.format import exact_size, joined, milliseconds, rate, trimmed

FRAME = Frame(width=760, height=412, left=58, right=742, top=14, bottom=330)
STRIP_FROM, STRIP_STEP = 342, 7
"""Of the knees' strips below the axis: where the first is, and how far apart they are."""
X_LOG_FROM_FACTOR = 40.0
SYSTEMS_BESIDE = 2
"""In 80 columns."""
REPEATS_TO_TELL = 3
MARKS: dict[Worth, str] = {"sustained": "", "not sustained": "*", "bounds": "", "no figure": "?"}
MEANINGS = {
    "*": "the rate was not sustained; the figures are of messages that waited",
    "?": "the trial says nothing of the system (its reasons are in the report)",
}
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.6-3.6h7.2v7.2h-7.2Z",
    "M0-5.2L5.2 0L0 5.2L-5.2 0Z",
    "M0-4.8L4.8 3.6H-4.8Z",
    "M0 4.8L4.8-3.6H-4.8Z",
    "M-4.8 0L-2.4-4.2H2.4L4.8 0L2.4 4.2H-2.4Z",
)
"""Of points, by system: colours alone do not tell them apart on paper."""


@dataclass(frozen=True)
class Mark:
    """A point where it stands in the drawing."""

    x: float
    y: float
    filled: bool
    told: str
    low: float | None = None
    high: float | None = None
    """Ends of a bar, where there are only bounds."""


@dataclass(frozen=True)
class DrawnCurve:
    """One system."""

    label: str
    colour: str
    shape: str
    path: str
    """Through what was sustained."""
    beyond: str
    """From there through what was not."""
    marks: Sequence[Mark]
    knee: tuple[float, float, float] | None
    """From, to and how far down its strip is."""
    knee_at: float | None


@dataclass(frozen=True)
class Figure:
    """The chart of a workload, in units of the drawing, with the tables behind it."""

    title: str
    subtitle: str
    told: str
    """For whoever cannot see it."""
    x_title: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    curves: Sequence[DrawnCurve]
    tables: Sequence[Grid]
    frame: Frame = FRAME


def figures(found: Sequence[Curve]) -> list[Figure]:
    """A figure for each workload that has curves."""
    return [_figure(group) for group in by_workload(found).values()]


def by_workload(found: Sequence[Curve]) -> dict[str, list[Curve]]:
    """The curves of each workload, by its name, in their order."""
    groups: dict[str, list[Curve]] = {}
    for curve in found:
        groups.setdefault(curve.first.workload.name, []).append(curve)
    return groups


def names(found: Sequence[Curve]) -> list[str]:
    """What each is called: by its system, and by what else tells it from the others."""
    titles = [f"{words.system_name(curve.first)} ({words.level(curve.first)})" for curve in found]
    return [
        title if titles.count(title) == 1 else f"{curve.first.system}: {title}"
        for title, curve in zip(titles, found, strict=True)
    ]


def _figure(found: Sequence[Curve]) -> Figure:
    drawn = [point for curve in found for point in curve.points if point.drawn_ms]
    x, y = _x_axis(drawn), y_axis("ms", [point.drawn_ms or 0.0 for point in drawn])
    first, labels = found[0].first, names(found)
    return Figure(
        title=f"{first.headline.capitalize()} latency over throughput",
        subtitle=f"{FIGURE} in ms{', logarithmic' if y.log else ''} \u00b7 lower is better, and further right",
        told=sentence(found),
        x_title="acknowledged, msg/s" + (" (logarithmic)" if x.log else ""),
        x_ticks=[(FRAME.x(x, value), rate(value)) for value, _ in x.ticks()],
        y_ticks=[(FRAME.y(y, value), text) for value, text in y.ticks()],
        curves=[
            _drawn(curve, at, labels[at], colour.css, x, y)
            for at, (curve, colour) in enumerate(zip(found, colours.of(labels), strict=True))
        ],
        tables=[_table(curve, label) for curve, label in zip(found, labels, strict=True)],
    )


def _x_axis(drawn: Sequence[CurvePoint]) -> Axis:
    rates = [point.achieved_msgs_s for point in drawn if point.achieved_msgs_s > 0]
    if not rates:
        return Axis("", 0.0, 1.0)
    if max(rates) / min(rates) > X_LOG_FROM_FACTOR:
        return Axis("", min(rates) / 1.2, max(rates) * 1.2, log=True)
    return Axis("", 0.0, max(rates) * 1.06)


def _drawn(curve: Curve, at: int, label: str, colour: str, x: Axis, y: Axis) -> DrawnCurve:
    def place(point: CurvePoint) -> tuple[float, float]:
        return FRAME.x(x, point.achieved_msgs_s), FRAME.y(y, point.drawn_ms or y.low)

    sustained = [point for point in curve.sustained if point.p99_ms]
    behind = [point for point in curve.points if point.worth == "not sustained" and point.p99_ms]
    knee, strip = curve.knee, STRIP_FROM + STRIP_STEP * at
    ends = None
    if knee is not None:
        edges = (knee.low_msgs_s, knee.high_msgs_s or x.high)
        left, right = (FRAME.x(x, min(max(edge, x.low), x.high)) for edge in edges)
        ends = (left, right, strip)
    return DrawnCurve(
        label=label,
        colour=colour,
        shape=SHAPES[at % len(SHAPES)],
        path=_path([place(point) for point in sustained]),
        beyond=_path([place(point) for point in [*sustained[-1:], *behind]]) if behind else "",
        marks=[_mark(point, place(point), y) for point in curve.points if point.drawn_ms],
        knee=ends,
        knee_at=None
        if knee is None or knee.rate_msgs_s is None
        else FRAME.x(x, min(knee.rate_msgs_s, x.high)),
    )


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in places) if len(places) > 1 else ""


def _mark(point: CurvePoint, place: tuple[float, float], y: Axis) -> Mark:
    told = (
        f"{rate(point.achieved_msgs_s)} msg/s: {FIGURE} {_latency(point, point.p99_ms)} ms, {_meaning(point)}"
    )
    low = high = None
    if point.bounds is not None:
        low = FRAME.y(y, min(max(point.bounds.at_least, y.low), y.high))
        high = FRAME.top if point.bounds.at_most is None else FRAME.y(y, min(point.bounds.at_most, y.high))
    return Mark(*place, filled=point.worth == "sustained", told=told, low=low, high=high)


def _meaning(point: CurvePoint) -> str:
    """What a point is, and why it is no more."""
    if point.worth == "sustained":
        return (
            "sustained"
            if point.p99_ms is not None
            else f"sustained; {FIGURE} is not known in all of its trials"
        )
    if point.worth == "bounds":
        return "bounds only: the machine was disturbed"
    if point.worth == "not sustained":
        share = point.achieved_msgs_s / point.asked_msgs_s
        if share < ACHIEVED_SHARE_MIN:
            return f"not sustained: {100 * share:.0f} % of it was acknowledged"
        return "not sustained: consumers fell behind"
    first = point.cell.first
    why = first.failure or " ".join(first.validity.reasons) or first.validity.conclusion or first.status
    return f"says nothing of the system: {why}"


def _latency(point: CurvePoint, value: float | None) -> str:
    if point.bounds is not None:
        return bounds_text(point.bounds.at_least or None, point.bounds.at_most)
    return milliseconds(value)


def _table(curve: Curve, label: str) -> Grid:
    """The points of one curve, and the closed loop."""
    head = ("asked msg/s", "what it is", "achieved msg/s", "p50 ms", "p99 ms", "trials")
    rows = [
        (
            rate(point.asked_msgs_s),
            _meaning(point),
            rate(point.achieved_msgs_s),
            milliseconds(point.p50_ms),
            _latency(point, point.p99_ms),
            str(len(point.cell.trials)),
        )
        for point in curve.points
    ]
    if curve.closed is not None:
        most = curve.closed.median(lambda trial: trial.publish_rate_msgs_s)
        rows.append(
            (
                "as fast as it goes",
                "closed loop: how much it takes at most",
                rate(most),
                "",
                "",
                str(len(curve.closed.trials)),
            )
        )
    return Grid(f"{label}: {_told(curve)}", head, rows, words=2)


def _told(curve: Curve) -> str:
    """Where it bends, and what was sustained."""
    most = (
        "" if curve.most is None else f"; {rate(curve.most.asked_msgs_s)} msg/s were sustained{_above(curve)}"
    )
    return f"{_knee_text(curve)}{most}"


def _knee_text(curve: Curve) -> str:
    """`bends at about 52,000 msg/s (at least 95 % sure: 40,000 to 63,000)`."""
    knee = curve.knee
    if knee is None:
        return _why_no_knee(curve)
    if not knee.reached:
        return f"is not known to bend (at least 95 % sure: not up to {rate(knee.low_msgs_s)} msg/s)"
    return f"bends {_where(knee)}"


def _above(curve: Curve) -> str:
    """What is known of higher rates than those that were sustained."""
    most = curve.most
    beyond = [point for point in curve.points if most is not None and point.asked_msgs_s > most.asked_msgs_s]
    if any(point.worth == "not sustained" for point in beyond):
        return f", {rate(next(point.asked_msgs_s for point in beyond if point.worth == 'not sustained'))} were not"
    if beyond:
        return ", and higher rates say nothing of the system: the generator or the machine was in the way"
    return ", and no higher rate was tried"


def _where(knee: Knee) -> str:
    between = f"{rate(knee.low_msgs_s)} to {rate(knee.high_msgs_s)}"
    if knee.rate_msgs_s is None:
        return f"{between} msg/s"
    return f"at about {rate(float(f'{knee.rate_msgs_s:.3g}'))} msg/s (at least 95 % sure: {between})"


def _why_no_knee(curve: Curve) -> str:
    if not curve.sustained:
        lowest = curve.points[0]
        return f"no rate was sustained, down to {rate(lowest.asked_msgs_s)} msg/s"
    if curve.points[0].worth == "not sustained":
        return "where it bends is not known: the lowest rate was not sustained, so there is no low load to compare with"
    return "where it bends is not known: fewer than three rates have a figure (--rate sweep chooses enough of them)"


def sentence(found: Sequence[Curve]) -> str:
    """How far each system goes before its latency bends, who goes further, and whose latency is lower where."""
    first = found[0].first
    titles = _titles(found)
    what = f"p99 of {first.headline} latency"
    told = [f"{title}'s {_knee_text(curve)}" for title, curve in zip(titles, found, strict=True)]
    parts = [f"{what} ({first.workload.message_size_bytes} B): {'; '.join(told)}."]
    if len(found) > 1:
        parts += _comparisons(found, titles)
    levels = words.mixed_levels([curve.first for curve in found])
    return " ".join([*parts, *([levels] if levels else [])])


def span(found: Sequence[Curve]) -> str:
    """From which rate to which."""
    rates = [point.asked_msgs_s for curve in found for point in curve.points]
    return f"{rate(min(rates))} to {rate(max(rates))} msg/s of {exact_size(found[0].first.workload.message_size_bytes)}"


def _titles(found: Sequence[Curve]) -> list[str]:
    titles = [curve.first.system_title for curve in found]
    return titles if len(set(titles)) == len(titles) else names(found)


def _comparisons(found: Sequence[Curve], titles: Sequence[str]) -> list[str]:
    """The one that goes furthest, beside each of the others."""
    best = max(range(len(found)), key=lambda at: _reach(found[at]))
    others = [at for at in range(len(found)) if at != best]
    parts = [_further(found[best], found[at], titles[best], titles[at]) for at in others]
    for at in others:
        both = beside(found[best], found[at])
        if both is None:
            parts.append(
                f"{titles[best]} and {titles[at]} have no sustained rate in common, so their latencies are not compared."
            )
        else:
            parts.append(_lower(both, titles[best], titles[at]))
    return parts


def _reach(curve: Curve) -> float:
    if curve.knee is not None and curve.knee.rate_msgs_s is not None:
        return curve.knee.rate_msgs_s
    return curve.most.asked_msgs_s if curve.most is not None else 0.0


def _further(best: Curve, other: Curve, one: str, two: str) -> str:
    a, b = best.knee, other.knee
    if a is not None and b is not None and b.high_msgs_s is not None and a.low_msgs_s >= b.high_msgs_s:
        return f"{one} goes further than {two}."
    if a is None or b is None:
        return f"Whether {one} or {two} goes further is not known."
    return f"Whether {one} or {two} goes further, these points do not tell: run --repeat {REPEATS_TO_TELL} or a longer --duration tells more."


def _lower(both: Beside, one: str, two: str) -> str:
    """Whose latency is lower, at which rates, how surely."""
    rates = [at for at, _ in both.ratios]
    span = (
        f"At {rate(rates[0])} msg/s"
        if len(rates) == 1
        else f"From {rate(rates[0])} to {rate(rates[-1])} msg/s"
    )
    above = [at for at, ratio in both.ratios if ratio > 1]
    if above and len(above) < len(rates):
        below = [at for at in rates if at not in above]
        return f"{span} neither is always lower: {one}'s p99 is at {_listed(above)} msg/s, {two}'s at {_listed(below)}."
    times = both.number.value
    higher, factor = (two, times) if times >= 1 else (one, 1 / times)
    if both.decided:
        return f"{span} {higher}'s p99 is {trimmed(factor)} times as high."
    more = repeats_tell(both.number, f"publish_ms.{FIGURE}")
    return f"{span} {higher}'s p99 was {trimmed(factor)} times as high, and runs of the same differ by as much: {more}."


def _listed(rates: Sequence[float]) -> str:
    if len(rates) <= 3:
        return joined([rate(one) for one in rates])
    return f"{len(rates)} of these rates"


def print_curves(found: Sequence[Curve], console: Console) -> None:
    """Rates as rows, systems as columns; as many tables as it takes in 80 columns."""
    used: set[str] = set()
    labels = names(found)
    for at in range(0, len(found), SYSTEMS_BESIDE):
        some = found[at : at + SYSTEMS_BESIDE]
        table = Table(show_edge=False, pad_edge=False, header_style="bold", box=None, padding=(0, 1))
        table.add_column("asked\nmsg/s", justify="right", no_wrap=True)
        for curve in some:
            table.add_column(f"{curve.first.system}\np50 ms", justify="right", no_wrap=True)
            table.add_column("\np99 ms", justify="right", no_wrap=True)
            table.add_column("\nachieved", justify="right", no_wrap=True)
        points = [{point.asked_msgs_s: point for point in curve.points} for curve in some]
        for asked in sorted({asked for one in points for asked in one}):
            row = [rate(asked)]
            for one in points:
                point = one.get(asked)
                row += _terminal_cells(point)
                used |= {MARKS[point.worth]} if point is not None else set()
            table.add_row(*row)
        console.print(table)
        console.print()
    for curve, label in zip(found, labels, strict=True):
        console.print(Text.assemble((f"{label}: ", "bold"), _told(curve)))
    for mark, meaning in MEANINGS.items():
        if mark in used:
            console.print(Text(f"{mark} {meaning}"))
    console.print(
        Text(
            f"The knee is where p99 has come to {trimmed(BEND)} times that at low load (docs/method.md); rates that were not sustained lie beyond it."
        )
    )


def _terminal_cells(point: CurvePoint | None) -> list[str]:
    if point is None:
        return ["", "", ""]
    mark = MARKS[point.worth]
    return [milliseconds(point.p50_ms), _latency(point, point.p99_ms) + mark, rate(point.achieved_msgs_s)]
