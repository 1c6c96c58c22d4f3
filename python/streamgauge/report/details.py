"""What some trials have beyond the figures of every trial: the probes of a search, the phases around a backlog, and
several subscriptions. One set of rows for the terminal and the HTML report (macro `table` of templates/parts.html).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamgauge.model.result import SubscriptionFigures, TrialResult
from streamgauge.model.result_special import CatchUp, Drain, Fault, Faults, Probe, Search
from streamgauge.vocabulary.format import count, percent, rate, seconds, significant

Thing = TypeVar("Thing")

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

    @classmethod
    def of(
        cls,
        title: str,
        things: Iterable[Thing],
        columns: Mapping[str, Callable[[Thing], str]],
        words: int = 1,
        narrow: tuple[int, ...] = (),
    ) -> Grid:
        """A row for each thing; what a column tells of it stands with the column's title."""
        rows = [tuple(tell(thing) for tell in columns.values()) for thing in things]
        return cls(title, tuple(columns), rows, words, narrow)


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
    probes = [(str(number), probe) for number, probe in enumerate(found.probes, start=1)]
    if found.soak is not None:
        probes.append(("soak", found.soak))
    columns: dict[str, Callable[[tuple[str, Probe]], str]] = {
        "probe": lambda one: one[0],
        "verdict": lambda one: _probe_verdict(one[1]),
        "rate msg/s": lambda one: rate(one[1].rate_msgs_s),
        "seconds": lambda one: f"{one[1].seconds:.0f}",
        "of rate": lambda one: percent(one[1].achieved_share, 1),
        "growth of backlog": lambda one: percent(one[1].growth_share, 2),
        "95 % bounds": lambda one: (
            f"{percent(one[1].growth_share_low, 2)} to {percent(one[1].growth_share_high, 2)}"
        ),
        "publish p99 ms": lambda one: significant(one[1].publish_ms_p99),
        "send delay p99 ms": lambda one: significant(one[1].send_delay_ms_p99),
        "held back": lambda one: percent(one[1].backpressured_share),
    }
    return Grid.of("Probes of the search", probes, columns, words=2, narrow=(0, 1, 2, 4, 5, 7))


def _probe_verdict(probe: Probe) -> str:
    if probe.passed:
        return "sustained"
    return "generator" if probe.by_generator else "machine" if probe.by_machine else "not sustained"


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
    columns: dict[str, Callable[[Drain], str]] = {
        "subscription": lambda one: one.subscription,
        "backlog MB": lambda one: significant(one.backlog_bytes / 1e6),
        "read in": lambda one: "not caught up" if one.chase_s is None else seconds(one.chase_s),
        "mean MB/s": lambda one: significant(one.mean_mb_s),
        "mean msg/s": lambda one: rate(one.mean_msgs_s),
        "best second MB/s": lambda one: significant(one.max_mb_s),
        "msg/s": lambda one: rate(one.max_msgs_s),
    }
    return Grid.of("Reading the backlog", found.drains, columns, narrow=(0, 1, 2, 3, 5))


def _faults(found: Faults) -> Grid:
    columns: dict[str, Callable[[Fault], str]] = {
        "fault": lambda one: one.asked.action,
        "of": lambda one: ", ".join(one.parts),
        "at s": lambda one: f"{one.from_s:.3f}",
        "serves again after": lambda one: "" if one.ready_s is None else seconds(one.ready_s - one.from_s),
        "longest gap": lambda one: "" if one.gap_s is None else seconds(one.gap_s),
        "rate back after": lambda one: "" if one.rate_back_s is None else seconds(one.rate_back_s),
        "left": lambda fault: (
            "" if fault.cut is None else f"survivors: {fault.cut.survivors}, seed {fault.cut.seed}"
        ),
    }
    caught_up = (
        "not caught up" if found.caught_up_s is None else f"caught up after {seconds(found.caught_up_s)}"
    )
    title = f"Faults: no acknowledgement for {seconds(found.unavailable_s)}, {caught_up}"
    return Grid.of(title, found.faults, columns, words=2)


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
    columns: dict[str, Callable[[SubscriptionFigures], str]] = {
        "subscription": lambda one: one.name,
        "role": lambda one: one.role,
        "msg/s": lambda one: rate(one.consume_rate_msgs_s),
        "MB/s": lambda one: significant(one.consume_rate_mb_s),
        "backlog max": lambda one: count(one.backlog_msgs_max),
        "end-to-end p50 ms": lambda one: significant(one.end_to_end_ms.p50),
        "p99": lambda one: significant(one.end_to_end_ms.p99),
        "p99.9": lambda one: significant(one.end_to_end_ms.p99_9),
        "max": lambda one: significant(one.end_to_end_ms.max),
    }
    narrow = (0, 2, 4, 5, 6, 8)
    return Grid.of("Subscriptions in the measured phase", found, columns, words=2, narrow=narrow)


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
