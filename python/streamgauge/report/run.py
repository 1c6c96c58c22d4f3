"""A run read from its directory: manifest, results, and results of other tools put beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.curves import Curve, curves
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.report.foreign import ForeignResult, read_omb
from streamgauge.store.directory import RunDirectory
from streamgauge.vocabulary.errors import InputError

FOREIGN_DIRECTORY = "foreign"
"""OMB result files in this folder of a run are shown beside its own trials, marked as foreign."""


@dataclass(frozen=True)
class Run:
    """Everything a report shows."""

    directory: Path
    manifest: Manifest | None
    """None for a directory that holds only foreign results, or that lost its manifest."""
    results: tuple[TrialResult, ...]
    directories: tuple[Path, ...]
    """Directory of each result."""
    foreign: tuple[ForeignResult, ...]

    @cached_property
    def curves(self) -> list[Curve]:
        """Of workloads that were measured at several rates."""
        return curves(self.results)

    @property
    def cells(self) -> list[Cell]:
        """Trials grouped by what they repeat."""
        return cells(self.results)

    def directory_of(self, trial: TrialResult) -> Path:
        """Where a trial's Parquet files are."""
        for result, directory in zip(self.results, self.directories, strict=True):
            if result is trial:
                return directory
        raise KeyError(f"trial {trial.trial} is not of this run")


def read_run(directory: Path) -> Run:
    """Reads a run directory. Raises InputError when it is none, or when a file in it is damaged."""
    if not directory.is_dir():
        raise InputError(
            f"{directory}: no such directory; expected the directory of a run (it holds manifest.json)."
        )
    found = RunDirectory(directory)
    manifest = found.read_manifest() if found.ours else None
    trials = [trial for trial in found.trials() if trial.ended]
    foreign = tuple(read_omb(path) for path in sorted((directory / FOREIGN_DIRECTORY).glob("*.json")))
    if manifest is None and not trials and not foreign:
        raise InputError(
            f"{directory}: holds neither manifest.json nor trials/*/result.json; expected the "
            "directory of a run."
        )
    return Run(
        directory=directory,
        manifest=manifest,
        results=tuple(trial.read_result() for trial in trials),
        directories=tuple(trial.path for trial in trials),
        foreign=foreign,
    )


def pretty(value: object) -> str:
    """A setting's value as text: JSON for anything that is not a string."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
