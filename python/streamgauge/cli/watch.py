"""Chooses how a run is shown: a live view on a terminal, plain lines elsewhere, events where asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from streamgauge.cli.watch_events import EventsObserver
from streamgauge.cli.watch_live import LiveObserver
from streamgauge.cli.watch_plain import PlainObserver, ProblemsObserver
from streamgauge.runner.observer import Observer, Observers


def make_observer(events: TextIO | None, more: Sequence[Observer] = (), *, quiet: bool = False) -> Observer:
    """`quiet`: problems alone. `more`: those who are told as well. What people see goes to standard error, so that standard output carries results and
    nothing else."""
    console = Console(stderr=True)
    watchers: list[Observer] = []
    if quiet:
        watchers.append(ProblemsObserver(sys.stderr))
    elif console.is_terminal and not console.is_dumb_terminal:
        watchers.append(LiveObserver(console))
    else:
        watchers.append(PlainObserver(sys.stderr))
    if events is not None:
        watchers.append(EventsObserver(events))
    return Observers([*watchers, *more])
