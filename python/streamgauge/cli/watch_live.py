"""The live view: what is being done, and the figures of the last second.

It is drawn twice a second by a thread of rich; more would cost CPU that the trial is measured on.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streamgauge.cli import figures
from streamgauge.model.result import TrialResult
from streamgauge.runner.observer import Observer, Snapshot, TrialStart
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.phases import MEASURE, WARM_UP
from streamgauge.vocabulary.units import format_duration

REFRESH_PER_S = 2
HISTORY = 40
LEAST_S = 10.0
"""Nobody needs it finer."""
BARS = "▁▂▃▄▅▆▇█"


class LiveObserver(Observer):
    """Keeps one region of the terminal up to date; what is over scrolls away above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._title = ""
        self._subtitle = ""
        self._phase = ""
        self._phase_began_s = time.monotonic()
        self._limit_s: float | None = None
        self._progress = ""
        self._snapshot: Snapshot | None = None
        self._p99: deque[float] = deque(maxlen=HISTORY)
        self._left = TimeLeft()
        # Last, because it draws at once.
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=REFRESH_PER_S, transient=True
        )

    def run_started(self, directory: Path, trials: int) -> None:
        """See Observer."""
        self._console.print(f"run {directory} ({plural(trials, 'trial')})", highlight=False)
        self._live.start()

    def trial_started(self, trial: TrialStart) -> None:
        """See Observer."""
        place = f"  ({trial.number}/{trial.trials})" if trial.trials > 1 else ""
        self._title = f"{trial.system}  {trial.workload}{place}"
        self._subtitle = trial.summary
        self._snapshot = None
        self._p99.clear()

    def phase_started(self, name: str, limit_s: float | None) -> None:
        """See Observer."""
        self._phase, self._limit_s, self._progress = name, limit_s, ""
        self._phase_began_s = time.monotonic()

    def progress(self, text: str) -> None:
        """See Observer."""
        self._progress = text

    def interval(self, snapshot: Snapshot) -> None:
        """See Observer."""
        self._snapshot = snapshot
        p99 = snapshot.headline_ms[1]
        if p99 is not None:
            self._p99.append(p99)

    def remaining(self, left_s: float) -> None:
        """See Observer."""
        self._left.told(left_s)

    def note(self, text: str) -> None:
        """See Observer."""
        self._console.print(Text.assemble(("note: ", "dim"), text))

    def problem(self, text: str) -> None:
        """See Observer."""
        self._console.print(Text.assemble(("problem: ", "bold red"), text))

    def trial_ended(self, result: TrialResult) -> None:
        """See Observer."""
        good = result.status == "complete" and not result.validity.is_invalid
        mark = ("✔ ", "green") if good else ("✘ ", "red")
        self._console.print(Text.assemble(mark, (self._title, "bold"), "  ", figures.verdict(result)))
        self._snapshot = None

    def close(self) -> None:
        """See Observer."""
        self._live.stop()

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._title:
            parts.append(Text(self._title, style="bold", overflow="ellipsis", no_wrap=True))
            parts.append(Text(self._subtitle, style="dim", overflow="ellipsis", no_wrap=True))
        parts.append(self._phase_line())
        left = self._left.text
        if left:
            parts.append(Text(left, style="dim"))
        if self._snapshot is not None:
            parts.append(self._table(self._snapshot))
        return Group(*parts)

    def _phase_line(self) -> RenderableType:
        elapsed_s = time.monotonic() - self._phase_began_s
        grid = Table.grid(padding=(0, 1))
        if self._limit_s and self._phase in (WARM_UP, MEASURE):
            bar = ProgressBar(total=self._limit_s, completed=min(elapsed_s, self._limit_s), width=30)
            times = f"{elapsed_s:.0f} of {format_duration(self._limit_s)}"
            grid.add_row(Text(self._phase, style="cyan"), bar, Text(times))
        else:
            text = Text.assemble((self._phase or "starting", "cyan"), f"  {elapsed_s:.0f} s")
            if self._progress:
                text.append(f"  {self._progress}", style="dim")
            text.no_wrap, text.overflow = True, "ellipsis"
            grid.add_row(text)
        return grid

    def _table(self, snapshot: Snapshot) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column()
        for _ in range(3):
            table.add_column(justify="right")
        table.add_column()
        dim = "dim"
        table.add_row("", Text("sent", dim), Text("acked", dim), Text("received", dim), Text("target", dim))
        target = "max" if snapshot.target_msgs_s is None else figures.rate(snapshot.target_msgs_s)
        table.add_row(
            Text("msg/s", dim),
            figures.rate(snapshot.sent_msgs_s),
            Text(figures.rate(snapshot.acked_msgs_s), "bold"),
            figures.rate(snapshot.received_msgs_s),
            f"{target}  ({snapshot.acked_mb_s:.1f} MB/s)",
        )
        table.add_row("", Text("p50", dim), Text("p99", dim), "", Text("p99 over time", dim))
        table.add_row(
            Text(f"{snapshot.headline} ms", dim),
            figures.ms(snapshot.headline_ms[0]),
            Text(figures.ms(snapshot.headline_ms[1]), "bold"),
            "",
            Text(sparkline(list(self._p99)), "cyan"),
        )
        table.add_row(
            Text("end-to-end ms", dim),
            figures.ms(snapshot.end_to_end_ms_p50),
            Text(figures.ms(snapshot.end_to_end_ms_p99), "bold"),
            "",
            f"backlog {snapshot.backlog_msgs:,}"
            + ("" if snapshot.waiting_msgs is None else f"   waiting {snapshot.waiting_msgs:,}"),
        )
        if snapshot.failed_msgs or snapshot.errors:
            trouble = f"failed {snapshot.failed_msgs:,}  {figures.errors(snapshot.errors)}"
            return Group(table, Text(trouble, "bold red"))
        return table


class TimeLeft:
    """How long the whole run goes on: what was told last, less what has passed since."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s: float | None = None

    def told(self, left_s: float) -> None:
        """So long from now."""
        self._until_s = self._clock() + left_s

    @property
    def text(self) -> str:
        """`about 4m left of the run`; empty as long as nobody has told."""
        if self._until_s is None:
            return ""
        left_s = self._until_s - self._clock()
        if left_s < LEAST_S:
            return "the run is nearly over"
        return f"about {format_duration(math.ceil(left_s / LEAST_S) * LEAST_S)} left of the run"


def sparkline(values: list[float]) -> str:
    """A row of bars from 0 to the largest value."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return ""
    return "".join(BARS[min(int(value / highest * len(BARS)), len(BARS) - 1)] for value in values)
