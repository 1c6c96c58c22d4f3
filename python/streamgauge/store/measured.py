"""Durability levels that earlier experiments have measured, for runs with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamgauge.store.directory import list_runs
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.levels import Level


def measured_level(
    out: Path, *, system: str, version: str, nodes: int, declared: Level | None, options: Mapping[str, Any]
) -> tuple[Level, str] | None:
    """The level that the newest experiment among the runs of a directory has measured, and that run's name; None when
    there is none of the same system, version, number of nodes, declared level and options.
    """
    for run in reversed(list_runs(out)):
        try:
            report = run.read_durability()
        except InputError:
            continue  # Of another version of streamgauge, or damaged: `report` says so, this run need not.
        for result in report.results if report is not None else []:
            same = (
                result.system,
                result.system_version,
                result.nodes,
                result.finding.declared,
                result.options,
            )
            if (
                same == (system, version, nodes, declared, dict(options))
                and result.finding.measured is not None
            ):
                return result.finding.measured, run.run_id
    return None
