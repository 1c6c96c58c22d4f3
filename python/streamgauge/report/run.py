"""A run read from its directory: manifest, results, and results of other tools put beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from streamgauge.analysis.cells import Cell, cells
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.report.foreign import ForeignResult, read_omb

FOREIGN_DIRECTORY = "foreign"
"""OMB result files in this folder of a run are shown beside its own trials, marked as foreign."""
TRIALS_MAX = 2000
JSON_BYTES_MAX = 64 << 20


class ReportError(Exception):
    """A run cannot be read; the message names the file, what was wrong and what to do."""


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
    """Reads a run directory. Raises ReportError when it is none, or when a file in it is damaged."""
    if not directory.is_dir():
        raise ReportError(
            f"{directory}: no such directory; expected the directory of a run (it holds manifest.json)."
        )
    manifest = _manifest(directory / "manifest.json")
    paths = sorted(directory.glob("trials/*/result.json"))[:TRIALS_MAX]
    foreign = tuple(read_omb(path) for path in sorted((directory / FOREIGN_DIRECTORY).glob("*.json")))
    if manifest is None and not paths and not foreign:
        raise ReportError(
            f"{directory}: holds neither manifest.json nor trials/*/result.json; expected the "
            "directory of a run."
        )
    loaded = [(_result(path), path.parent) for path in paths]
    loaded.sort(key=lambda pair: pair[0].trial)
    return Run(
        directory=directory,
        manifest=manifest,
        results=tuple(result for result, _ in loaded),
        directories=tuple(path for _, path in loaded),
        foreign=foreign,
    )


def _manifest(path: Path) -> Manifest | None:
    if not path.exists():
        return None
    try:
        return Manifest.model_validate_json(_text(path))
    except ValidationError as error:
        raise ReportError(_explained(path, "manifest", error)) from error


def _result(path: Path) -> TrialResult:
    try:
        return TrialResult.model_validate_json(_text(path))
    except ValidationError as error:
        raise ReportError(_explained(path, "trial's result", error)) from error


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > JSON_BYTES_MAX:
            raise ReportError(f"{path}: {path.stat().st_size} bytes; at most {JSON_BYTES_MAX} are read.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: cannot be read: {error}") from error


def _explained(path: Path, what: str, error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole file"
    return (
        f"{path}: is no {what} of this version of streamgauge: {place}: {first['msg']}. "
        "docs/result.schema.json says what is expected."
    )


def pretty(value: object) -> str:
    """A setting's value as text: JSON for anything that is not a string."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
