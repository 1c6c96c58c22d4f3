"""What some trials have beyond the figures of every trial: the probes of a search, the phases around a backlog, and
several subscriptions. One set of rows for the terminal and the HTML report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamgauge.model.result import SubscriptionFigures, TrialResult
from streamgauge.model.result_special import CatchUp, Faults, Probe, Search
from streamgauge.report.format import count, percent, rate, seconds, significant

PROBES_IN_TERMINAL = 12
SUBSCRIPTIONS_IN_TERMINAL = 12
WIDE_COLUMNS_MIN = 130


@dataclass(frozen=True)
class Grid:
    """A titled table of texts; all columns but the first `words` hold numbers."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int = 1
    narrow: tuple[int, ...] = ()
    """The columns that a narrow terminal has room for; all, if empty."""


def grids(trial: TrialResult) -> Iterator[Grid]:
    """The tables that this trial has."""
    if trial.search is not None and trial.search.probes:
        yield _probes(trial.search)
    if trial.catch_up is not None:
        yield _phases(trial.catch_up)
        if trial.catch_up.drains:
            yield _drains(trial.catch_up)
    if trial.faults is not None:
        yield _faults(trial.faults)
        yield _around_faults(trial.faults)
    if len(trial.subscriptions) > 1:
        yield _subscriptions(trial.subscriptions)


def _probes(found: Search) -> Grid:
    head = (
        "probe",
        "verdict",
        "rate msg/s",
        "seconds",
        "of rate",
        "growth of backlog",
        "95 % bounds",
        "publish p99 ms",
        "send delay p99 ms",
        "held back",
    )
    rows = [_probe_row(str(number), probe) for number, probe in enumerate(found.probes, start=1)]
    if found.soak is not None:
        rows.append(_probe_row("soak", found.soak))
    return Grid("Probes of the search", head, rows, words=2, narrow=(0, 1, 2, 4, 5, 7))


def _probe_row(name: str, probe: Probe) -> tuple[str, ...]:
    verdict = "sustained" if probe.passed else ("generator" if probe.by_generator else "not sustained")
    low, high = probe.growth_share_low, probe.growth_share_high
    return (
        name,
        verdict,
        rate(probe.rate_msgs_s),
        f"{probe.seconds:.0f}",
        percent(probe.achieved_share, 1),
        percent(probe.growth_share, 2),
        f"{percent(low, 2)} to {percent(high, 2)}",
        significant(probe.publish_ms_p99),
        significant(probe.send_delay_ms_p99),
        percent(probe.backpressured_share),
    )


def _phases(found: CatchUp) -> Grid:
    names = sorted({name for phase in found.phases for name in phase.end_to_end_by_subscription_ms})
    headline = "service" if any(phase.service_ms for phase in found.phases) else "publish"
    head = ["phase", "seconds", "rate msg/s", f"{headline} p50 ms", "p99", "p99.9"]
    for name in names:
        head += [f"{name} end-to-end p50 ms", "p99", "received msg/s"]
    rows = []
    for phase in found.phases:
        publish = phase.service_ms or phase.publish_ms
        row = [
            {"measure": "before (measure)"}.get(phase.name, phase.name),
            seconds(phase.until_s - phase.from_s),
            rate(phase.publish_rate_msgs_s),
            significant(publish.p50),
            significant(publish.p99),
            significant(publish.p99_9),
        ]
        for name in names:
            through = phase.end_to_end_by_subscription_ms.get(name)
            row += [
                significant(through.p50 if through else None),
                significant(through.p99 if through else None),
                rate(phase.consume_rate_by_subscription_msgs_s.get(name)),
            ]
        rows.append(tuple(row))
    tails = tuple(place for place, title in enumerate(head) if place > 5 and title == "p99")
    # Of several subscriptions that feel the same the first ones will do.
    narrow = (0, 1, 2, 3, 4, *(place - 1 for place in tails[:2]))
    return Grid("Before, during and after the backlog", tuple(head), rows, narrow=narrow)


def _drains(found: CatchUp) -> Grid:
    head = ("subscription", "backlog MB", "read in", "mean MB/s", "mean msg/s", "best second MB/s", "msg/s")
    rows: list[tuple[str, ...]] = [
        (
            drain.subscription,
            significant(drain.backlog_bytes / 1e6),
            "not caught up" if drain.chase_s is None else seconds(drain.chase_s),
            significant(drain.mean_mb_s),
            rate(drain.mean_msgs_s),
            significant(drain.max_mb_s),
            rate(drain.max_msgs_s),
        )
        for drain in found.drains
    ]
    return Grid("Reading the backlog", head, rows, narrow=(0, 1, 2, 3, 5))


def _faults(found: Faults) -> Grid:
    head = ("fault", "of", "at s", "serves again after", "longest gap", "rate back after")
    rows: list[tuple[str, ...]] = [
        (
            fault.asked.action,
            ", ".join(fault.parts),
            f"{fault.from_s:.3f}",
            "" if fault.ready_s is None else seconds(fault.ready_s - fault.from_s),
            "" if fault.gap_s is None else seconds(fault.gap_s),
            "" if fault.rate_back_s is None else seconds(fault.rate_back_s),
        )
        for fault in found.faults
    ]
    caught_up = (
        "not caught up" if found.caught_up_s is None else f"caught up after {seconds(found.caught_up_s)}"
    )
    title = f"Faults: no acknowledgement for {seconds(found.unavailable_s)}, {caught_up}"
    return Grid(title, head, rows, words=2)


def _around_faults(found: Faults) -> Grid:
    head = ("around the faults", "seconds", "rate msg/s", "publish p50 ms", "p99", "p99.9", "max")
    rows: list[tuple[str, ...]] = [
        (
            phase.name,
            seconds(phase.until_s - phase.from_s),
            rate(phase.publish_rate_msgs_s),
            *(significant(getattr(phase.publish_ms, name)) for name in ("p50", "p99", "p99_9", "max")),
        )
        for phase in found.phases
    ]
    return Grid("Before, during and after the faults", head, rows, narrow=(0, 1, 2, 3, 4, 6))


def _subscriptions(found: list[SubscriptionFigures]) -> Grid:
    head = (
        "subscription",
        "role",
        "msg/s",
        "MB/s",
        "backlog max",
        "end-to-end p50 ms",
        "p99",
        "p99.9",
        "max",
    )
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            one.role,
            rate(one.consume_rate_msgs_s),
            significant(one.consume_rate_mb_s),
            count(one.backlog_msgs_max),
            *(significant(getattr(one.end_to_end_ms, name)) for name in ("p50", "p99", "p99_9", "max")),
        )
        for one in found
    ]
    narrow = (0, 2, 4, 5, 6, 8)
    return Grid("Subscriptions in the measured phase", head, rows, words=2, narrow=narrow)


def print_details(trial: TrialResult, console: Console) -> None:
    """The tables of one trial on a terminal; long ones are cut, the report has all of it."""
    for grid in grids(trial):
        print_grid(grid, console)


def print_grid(grid: Grid, console: Console, *, whole: bool = False) -> None:
    """One table on a terminal; of a long one the last rows, unless it is wanted `whole`."""
    wide = console.width >= WIDE_COLUMNS_MIN or not grid.narrow
    shown = range(len(grid.head)) if wide else grid.narrow
    table = Table(title=grid.title, title_justify="left", show_edge=False, pad_edge=False, box=None)
    for place in shown:
        justify: Literal["left", "right"] = "left" if place < grid.words else "right"
        table.add_column(grid.head[place], justify=justify, overflow="fold")
    limit = PROBES_IN_TERMINAL if grid.head[0] == "probe" else SUBSCRIPTIONS_IN_TERMINAL
    left_out = 0 if whole else max(len(grid.rows) - limit, 0)
    for row in grid.rows[left_out:]:
        table.add_row(*(Text(row[place]) for place in shown))
    console.print(table)
    if left_out:
        console.print(f"({left_out} more above these in the report)", highlight=False)
    console.print()


def section(trial: TrialResult) -> str:
    """The tables of one trial as HTML."""
    return "".join(html_table(grid) for grid in grids(trial))


def html_table(grid: Grid) -> str:
    """One table as HTML."""

    def classes(place: int) -> str:
        return "" if place < grid.words else ' class="number"'

    head = "".join(
        f'<th scope="col"{classes(place)}>{escape(title)}</th>' for place, title in enumerate(grid.head)
    )
    body = ""
    for row in grid.rows:
        cells = "".join(
            f"<td{classes(place)}>{escape(value)}</td>" for place, value in enumerate(row) if place
        )
        body += f'<tr><th scope="row">{escape(row[0])}</th>{cells}</tr>'
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(grid.title)}"><table '
        f'class="plain"><caption>{escape(grid.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
