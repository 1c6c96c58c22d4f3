"""The runs of a directory, each with what one looks for it by."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamgauge.analysis.cells import cells
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.report.run import pretty
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import is_running
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.format import instant
from streamgauge.vocabulary.units import format_rate

RUNS_MAX = 10_000
SETTINGS_CHARACTERS_MAX = 200_000
"""Of a run, for the search over settings."""
FILTERS = ("system", "version", "level", "workload", "verdict")
"""By which the list can be narrowed; each is a field of `Entry` with several values."""


@dataclass(frozen=True)
class Entry:
    """A run in the list."""

    run: str
    path: Path
    started_unix_ms: int
    status: str
    trials: int
    systems: Mapping[str, str]
    """What each is called on a command line -> its title and version."""
    versions: tuple[str, ...]
    levels: tuple[str, ...]
    workloads: tuple[str, ...]
    rates: tuple[str, ...]
    words: tuple[str, ...]
    """What its trials are worth."""
    searched: str = field(repr=False)
    """All settings, in small letters."""

    @property
    def day(self) -> str:
        """`2026-01-02`, UTC."""
        return instant(self.started_unix_ms)[:10]

    def values(self, name: str) -> Sequence[str]:
        """Of a filter."""
        return {
            "system": tuple(self.systems),
            "version": self.versions,
            "level": self.levels,
            "workload": self.workloads,
            "verdict": self.words,
        }[name]


@dataclass(frozen=True)
class Wanted:
    """What the list is narrowed to; empty texts narrow nothing."""

    values: Mapping[str, str]
    """Filter -> value."""
    since: str = ""
    until: str = ""
    """Days, both included."""
    search: str = ""

    def fits(self, entry: Entry) -> bool:
        """Whether a run is wanted: every word that is searched for stands in its settings."""
        if any(value and value not in entry.values(name) for name, value in self.values.items()):
            return False
        if (self.since and entry.day < self.since) or (self.until and entry.day > self.until):
            return False
        return all(word in entry.searched for word in self.search.lower().split())


class Shelf:
    """The runs of one directory. A run that has not changed is read once. May be used by several threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int, int], Entry | None]] = {}

    def entries(self) -> list[Entry]:
        """The newest first; what cannot be read is left out."""
        with self._lock:
            kept = {}
            for path in self._paths():
                stamp = _stamp(path)
                known = self._read.get(path.name)
                # What goes on changes without its manifest.
                if known is None or known[0] != stamp or known[1] is None or known[1].status == "running":
                    known = (stamp, _entry(path))
                kept[path.name] = known
            self._read = kept
        found = [entry for _, entry in kept.values() if entry is not None]
        return sorted(found, key=lambda entry: (entry.started_unix_ms, entry.run), reverse=True)

    def open(self, name: str) -> RunDirectory | None:
        """A run of the list by its name, looked at anew; None where there is none. Raises InputError for one that may not be read."""
        path = next((path for path in self._paths() if path.name == name), None)
        return None if path is None else RunDirectory.open(str(path), self.directory)

    def _paths(self) -> list[Path]:
        try:
            found = [
                path
                for path in self.directory.iterdir()
                if not path.is_symlink() and (path / "manifest.json").is_file()
            ]
        except OSError:
            return []
        return sorted(found)[-RUNS_MAX:]


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes with a run's manifest, and with its trials."""
    manifest, trials = path / "manifest.json", path / "trials"
    try:
        told = manifest.stat()
        return told.st_mtime_ns, told.st_size, trials.stat().st_mtime_ns if trials.is_dir() else 0
    except OSError:
        return 0, 0, 0


def _entry(path: Path) -> Entry | None:
    try:
        run = RunDirectory.open(str(path), path.parent)
        manifest = run.read_manifest()
        results = run.results()
    except InputError:
        return None
    status = str(manifest.status)
    if status == "running" and not is_running(run):
        status = "killed"
    found = cells(results)
    return Entry(
        run=run.run_id,
        path=run.path,
        started_unix_ms=manifest.started_unix_ms,
        status=status,
        trials=len(results),
        systems={
            cell.first.system: f"{cell.first.system_title} {cell.first.system_version}".strip()
            for cell in found
        },
        versions=_distinct(cell.first.system_version for cell in found),
        levels=_distinct(cell.first.durability.declared or "unknown" for cell in found),
        workloads=_distinct(cell.first.workload.name for cell in found),
        rates=_distinct(_rate(cell.first) for cell in found),
        words=_distinct(one.validity.called for one in results),
        searched=_settings(manifest, [cell.first for cell in found]).lower(),
    )


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _rate(trial: TrialResult) -> str:
    asked = trial.workload
    if asked.search is not None:
        return "sustainable"
    return "max" if asked.rate_msgs_s is None else format_rate(asked.rate_msgs_s)


def _settings(manifest: Manifest, trials: Sequence[TrialResult]) -> str:
    """`key=value` of everything that was asked and read back, and the command."""
    parts = [manifest.run_id, *manifest.command]
    for trial in trials:
        parts += [trial.system_title, trial.system_version, trial.client]
        parts += [f"{key}={pretty(value)}" for key, value in trial.workload.asked.items()]
        parts += [f"{key}={pretty(value)}" for key, value in trial.durability.settings.items()]
    return " ".join(parts)[:SETTINGS_CHARACTERS_MAX]
