"""`streamgauge probe`: what this machine can do."""

from __future__ import annotations

import os

import typer

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Options belong to the program that is called; it has the help, too."""


def probe(context: typer.Context) -> None:
    """Measure this machine's limits: disk, fsync, loopback, CPU, wake-ups (options: --help)."""
    become_gauge("probe", context.args)


def become_gauge(command: str, arguments: list[str]) -> None:
    """Replaces this process by `gauge COMMAND ...`."""
    from streamgauge.vocabulary.gauge_binary import find_gauge

    gauge = find_gauge()
    os.execv(gauge, [str(gauge), command, *arguments])
