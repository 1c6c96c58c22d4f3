"""The directory of a run (layout: model/result.py)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from streamgauge.model.durability import DurabilityReport
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.store.context import TrialContext
from streamgauge.store.files import LineWriter, write_atomically
from streamgauge.store.opened import as_model, check_tree, read_json, read_model
from streamgauge.store.private import without_home
from streamgauge.vocabulary.errors import InputError, Problem, nearest
from streamgauge.vocabulary.files import clean

ACKS_NAME = "acks.csv"
"""When acknowledgements came, in trials with faults (analysis/acks.py)."""
PROFILE_NAME = "profile.parquet"
"""Where threads were, in trials that were profiled (PROFILE_COLUMNS)."""
DURABILITY_NAME = "durability.json"
LATEST = "latest"
TRIALS_MAX = 5000
_NUMBER = re.compile(r"[0-9]{3,6}")


class TrialDirectory:
    """One trial's directory, while the trial runs and afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writers: dict[str, LineWriter] = {}
        self._resources = threading.Lock()

    @property
    def logs(self) -> Path:
        """Logs of the system and the worker."""
        return self.path / "logs"

    def made_logs(self) -> Path:
        """The same directory, made if need be."""
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs

    def _append(self, name: str, values: Iterable[Mapping[str, Any]]) -> None:
        writer = self._writers.get(name)
        if writer is None:
            writer = self._writers[name] = LineWriter(self.path / name, without_home)
        for value in values:
            writer.write(value)

    def append_intervals(self, intervals: Iterable[Mapping[str, Any]]) -> None:
        """Keeps intervals as the worker gave them, with its name."""
        self._append("intervals.jsonl", intervals)

    def append_resources(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keeps one sampling of resources. From any thread: agents have one each."""
        with self._resources:
            self._append("resources.jsonl", rows)

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Keeps what one process told of itself. One thread at a time."""
        self._append("metrics.jsonl", [line])

    def append_event(self, event: Mapping[str, Any]) -> None:
        """Keeps something that happened."""
        self._append("events.jsonl", [event])

    def write_context(self, context: TrialContext) -> None:
        """Replaces `trial.json`."""
        write_atomically(self.path / "trial.json", without_home(context.model_dump_json(indent=1)))

    def read_context(self) -> TrialContext | None:
        """`trial.json`, or None when the trial never got that far. Raises InputError when it is damaged."""
        path = self.path / "trial.json"
        return read_model(TrialContext, path, "trial's context") if path.exists() else None

    def close(self) -> None:
        """Closes the files of lines: nothing more is appended. Idempotent."""
        for writer in self._writers.values():
            writer.close()

    @property
    def ended(self) -> bool:
        """Whether there is a result."""
        return (self.path / "result.json").exists()

    def read_result(self) -> TrialResult:
        """Reads `result.json`. Raises InputError when it is damaged, or is that of another trial."""
        return self.as_result(self.read_stored_result())

    def read_stored_result(self) -> Any:
        """`result.json` as it stands there. Raises InputError when it is no JSON."""
        return read_json(self.path / "result.json")

    def as_result(self, stored: Any) -> TrialResult:
        """What `read_stored_result` gave, as a result. Raises InputError as `read_result` does."""
        path = self.path / "result.json"
        result = as_model(TrialResult, stored, clean(str(path)), what="trial's result")
        if result.trial != int(self.path.name):
            raise InputError(Problem(f"is the result of trial {result.trial}", str(path)))
        return result

    def write_result(self, result: TrialResult) -> None:
        """Writes `result.json`."""
        write_atomically(self.path / "result.json", without_home(result.model_dump_json(indent=1)))


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
            if _is_run(path):
                return cls(_opened(path))
        raise InputError(
            f"no run '{text}': expected a run's directory (with manifest.json), its name in {out}, or "
            f"'{LATEST}'{nearest(text, [LATEST, *(run.run_id for run in list_runs(out))])}"
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
        """The trials' directories that exist, in order. Raises InputError when there are too many."""
        found = [
            path for path in self.path.glob("trials/*") if path.is_dir() and _NUMBER.fullmatch(path.name)
        ]
        if len(found) > TRIALS_MAX:
            raise InputError(Problem(f"holds more than {TRIALS_MAX:,} trials: it is no run", str(self.path)))
        return [TrialDirectory(path) for path in sorted(found)]

    def write_manifest(self, manifest: Manifest) -> None:
        """Replaces `manifest.json`."""
        write_atomically(self.path / "manifest.json", without_home(manifest.model_dump_json(indent=1)))

    def read_manifest(self) -> Manifest:
        """Reads `manifest.json`. Raises InputError when it is not a manifest of this version."""
        return read_model(Manifest, self.path / "manifest.json", "manifest")

    def write_durability(self, report: DurabilityReport) -> None:
        """Replaces `durability.json`. A study in it is sealed as it is."""
        text = without_home(report.model_copy(update={"study": None}).model_dump_json(indent=1))
        if report.study is not None:
            text = (
                report.model_validate_json(text)
                .model_copy(update={"study": report.study})
                .model_dump_json(indent=1)
            )
        write_atomically(self.path / DURABILITY_NAME, text)

    def read_durability(self) -> DurabilityReport | None:
        """What durability experiments found; None in a run of another kind. Raises InputError when it is damaged."""
        path = self.path / DURABILITY_NAME
        return read_model(DurabilityReport, path, "report on durability") if path.exists() else None

    def results(self) -> list[TrialResult]:
        """The results that were written, in the order of trials. Raises InputError when one is damaged, or is not its trial's."""
        return [trial.read_result() for trial in self.trials() if trial.ended]


def list_runs(out: Path) -> list[RunDirectory]:
    """All runs in a directory, oldest first."""
    if not out.is_dir():
        return []
    found = [path for path in out.iterdir() if not path.is_symlink() and (path / "manifest.json").is_file()]
    return [RunDirectory(path) for path in sorted(found) if _is_opened(path)]


def _is_run(path: Path) -> bool:
    try:
        return (path / "manifest.json").is_file() or (path / "foreign").is_dir()
    except (OSError, ValueError):
        return False  # Longer than any name, or with a zero byte.


def _opened(path: Path) -> Path:
    """The directory of a run, looked at. Its name is that of the run, so that it is never `..`. Raises InputError."""
    if path.name == LATEST and path.is_symlink():
        target = str(path.readlink())
        if target in ("", os.curdir, os.pardir) or Path(target).name != target:
            message = f"leads to {clean(target)}: expected the name of a run beside it; name the run instead"
            raise InputError(Problem(message, str(path)))
    path = path.resolve() if path.is_symlink() or path.name in ("", os.pardir) else path
    check_tree(path)
    return path


def _is_opened(path: Path) -> bool:
    """Whether a run may be read; a note says why not, because the others still can."""
    try:
        check_tree(path)
    except InputError as error:
        print(f"note: left out: {error}", file=sys.stderr)
        return False
    return True


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
