"""`streamgauge probe`: what this machine can do."""

from __future__ import annotations

import typer

from streamgauge.cli.deferred import deferred

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Options belong to the program that is called; it has the help, too."""


@deferred("streamgauge.cli.probe:probe")
def probe(context: typer.Context) -> None:
    """Measure this machine's limits: disk, fsync, loopback, CPU, wake-ups (options: --help)."""
