"""`streamgauge report`: the table and the HTML report of runs."""

from __future__ import annotations

import sys
from pathlib import Path

from streamgauge.cli.carry_out import show_outcome
from streamgauge.runner.recover import recover
from streamgauge.store.directory import LATEST, RunDirectory
from streamgauge.store.lab import is_running
from streamgauge.vocabulary.errors import InputError


def report(runs: list[str] | None, out: Path) -> None:
    """The work of commands/report.py."""
    found = [RunDirectory.open(text, out) for text in runs or [LATEST]]
    for run in found:
        if is_running(run):
            raise InputError(f"{run.path}: this run is still going on; its report comes at its end")
        for result in recover(run) if run.ours else []:
            print(f"recovered trial {result.trial} of {run.run_id}: {result.failure}", file=sys.stderr)
        show_outcome(run.path)
