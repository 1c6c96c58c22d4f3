"""`streamgauge probe`: what this machine can do."""

from __future__ import annotations

import os

import typer

from streamgauge.vocabulary.gauge_binary import find_gauge


def probe(context: typer.Context) -> None:
    """The work of commands/probe.py."""
    become_gauge("probe", context.args)


def become_gauge(command: str, arguments: list[str]) -> None:
    """Replaces this process by `gauge COMMAND ...`."""
    gauge = find_gauge()
    os.execv(gauge, [str(gauge), command, *arguments])
