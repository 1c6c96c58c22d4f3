"""The directory of a run (layout: model/result.py)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from streamgauge.model.durability import DurabilityReport
from streamgauge.model.errors import InputError, Problem
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.model.result_base import Model
from streamgauge.store.context import TrialContext
from streamgauge.store.files import LineWriter, write_atomically

ACKS_NAME = "acks.csv"
"""When acknowledgements came, in trials with faults (analysis/acks.py)."""
DURABILITY_NAME = "durability.json"
LATEST = "latest"

ModelType = TypeVar("ModelType", bound=Model)


class TrialDirectory:
    """One trial's directory, while the trial runs and afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writers: dict[str, LineWriter] = {}

    @property
    def logs(self) -> Path:
        """Logs of the system and the worker."""
        return self.path / "logs"

    def _append(self, name: str, values: Iterable[Mapping[str, Any]]) -> None:
        writer = self._writers.get(name)
        if writer is None:
            writer = self._writers[name] = LineWriter(self.path / name)
        for value in values:
            writer.write(value)

    def append_intervals(self, worker: str, intervals: Iterable[Mapping[str, Any]]) -> None:
        """Keeps intervals as the worker gave them."""
        self._append("intervals.jsonl", ({"worker": worker, **interval} for interval in intervals))

    def append_resources(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keeps one sampling of resources."""
        self._append("resources.jsonl", rows)

    def append_event(self, event: Mapping[str, Any]) -> None:
        """Keeps something that happened."""
        self._append("events.jsonl", [event])

    def write_context(self, context: TrialContext) -> None:
        """Replaces `trial.json`."""
        write_atomically(self.path / "trial.json", context.model_dump_json(indent=1))

    def read_context(self) -> TrialContext | None:
        """`trial.json`, or None when the trial never got that far."""
        try:
            return TrialContext.model_validate_json((self.path / "trial.json").read_text("utf-8"))
        except (OSError, ValidationError):
            return None

    def seal(self) -> None:
        """Turns the lines into Parquet and removes them. Idempotent."""
        from streamgauge.store.tables import write_intervals, write_resources

        for writer in self._writers.values():
            writer.close()
        for name, write in (("intervals", write_intervals), ("resources", write_resources)):
            lines, table = self.path / f"{name}.jsonl", self.path / f"{name}.parquet"
            if lines.exists() or not table.exists():
                write(lines, table)
                lines.unlink(missing_ok=True)

    def write_result(self, result: TrialResult) -> None:
        """Writes `result.json`."""
        write_atomically(self.path / "result.json", result.model_dump_json(indent=1))


class RunDirectory:
    """One run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, out: Path, name: str, *, latest: bool = True) -> RunDirectory:
        """Makes `out/<date-time>-<name>`, unlike any that exists, and points `out/latest` to it."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        base = f"{stamp}-{_plain(name)}"
        try:
            out.mkdir(parents=True, exist_ok=True)
            for number in range(1, 1000):
                path = out / (base if number == 1 else f"{base}-{number}")
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    (path / "trials").mkdir()
                    if latest:
                        _point(out / LATEST, path.name)
                    return cls(path)
        except OSError as error:
            raise InputError(f"--out {out}: cannot be written: {error.strerror}") from None
        raise InputError(f"--out {out}: holds a thousand runs of this second already")

    @classmethod
    def open(cls, text: str, out: Path) -> RunDirectory:
        """An existing run: a path, or its name (or `latest`) in `out`. Raises InputError."""
        for path in (Path(text), out / text):
            if (path / "manifest.json").is_file() or (path / "foreign").is_dir():
                return cls(path.resolve() if path.is_symlink() else path)
        raise InputError(
            f"no run '{text}': expected a run's directory (with manifest.json), its name in {out}, or "
            f"'{LATEST}'"
        )

    @property
    def ours(self) -> bool:
        """Whether this is a run of streamgauge; else it holds imported results alone."""
        return (self.path / "manifest.json").is_file()

    @property
    def run_id(self) -> str:
        """The directory's name is the run's identity."""
        return self.path.name

    @property
    def report(self) -> Path:
        """Where the report is."""
        return self.path / "report.html"

    def trial(self, number: int) -> TrialDirectory:
        """The directory of a trial, made if need be."""
        path = self.path / "trials" / f"{number:03d}"
        path.mkdir(parents=True, exist_ok=True)
        return TrialDirectory(path)

    def trials(self) -> list[TrialDirectory]:
        """The trials' directories that exist, in order."""
        return [
            TrialDirectory(path) for path in sorted((self.path / "trials").glob("[0-9]*")) if path.is_dir()
        ]

    def write_manifest(self, manifest: Manifest) -> None:
        """Replaces `manifest.json`."""
        write_atomically(self.path / "manifest.json", manifest.model_dump_json(indent=1))

    def read_manifest(self) -> Manifest:
        """Reads `manifest.json`. Raises InputError when it is not a manifest of this version."""
        path = self.path / "manifest.json"
        return _read(Manifest, path)

    def write_durability(self, report: DurabilityReport) -> None:
        """Replaces `durability.json`."""
        write_atomically(self.path / DURABILITY_NAME, report.model_dump_json(indent=1))

    def read_durability(self) -> DurabilityReport | None:
        """What durability experiments found; None in a run of another kind. Raises InputError when it is damaged."""
        path = self.path / DURABILITY_NAME
        return _read(DurabilityReport, path) if path.is_file() else None

    def results(self) -> list[TrialResult]:
        """The results that were written, in the order of trials."""
        return [
            _read(TrialResult, trial.path / "result.json")
            for trial in self.trials()
            if (trial.path / "result.json").is_file()
        ]


def list_runs(out: Path) -> list[RunDirectory]:
    """All runs in a directory, oldest first."""
    if not out.is_dir():
        return []
    found = [path for path in out.iterdir() if not path.is_symlink() and (path / "manifest.json").is_file()]
    return [RunDirectory(path) for path in sorted(found)]


def _read(model: type[ModelType], path: Path) -> ModelType:
    try:
        return model.model_validate_json(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", str(path))) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"]) or "the file"
        raise InputError(
            Problem(f"is not of this version of streamgauge: {place}: {first['msg']}", str(path))
        ) from None


def _plain(name: str) -> str:
    """A name that is safe in a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "run"


def _point(link: Path, target: str) -> None:
    """Points a symbolic link to a name beside it; where links are not possible there is none."""
    temporary = link.with_name(f".{LATEST}.{os.getpid()}")
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(link)


def event(kind: str, **facts: Any) -> dict[str, Any]:
    """An event as it is written: what and when, and facts about it."""
    return {
        "unix_ms": time.time_ns() // 1_000_000,
        "event": kind,
        **json.loads(json.dumps(facts, default=str)),
    }
