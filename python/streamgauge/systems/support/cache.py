"""The cache of downloaded systems: fetched once, verified on every use, never half there.

    ROOT/installed/NAME/VERSION/...             the files of one installation
    ROOT/installed/NAME/VERSION/manifest.json   SHA-256, size and modification time of each of them
    ROOT/partial/                               downloads in progress; whatever is left here is rubbish
    ROOT/locks/NAME-VERSION.lock                one run at a time fetches or repairs an installation
    ROOT/logs/                                  what the download tools said

ROOT is `STREAMGAUGE_CACHE`, else `~/.cache/streamgauge`. An installation appears by one rename after every
file has been read back, hashed and flushed, so a process that dies in between leaves only rubbish in
`partial/`. Before it runs, every file is hashed (Pulsar's 250 MB: 0.4 s) and compared with the manifest and with the
checksums that streamgauge is released with, where it has them (released.py). A broken installation is removed and
fetched again. To list what there is, sizes and modification times do.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.systems.base import Progress
from streamgauge.systems.support import released
from streamgauge.vocabulary.errors import SystemFailure
from streamgauge.vocabulary.waiting import wait_until

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
LOCK_WAIT_S = 1800.0
"""How long to wait for another run that fetches the same installation."""
FILES_MAX = 100_000
"""More files than this in one installation is a mistake of the fetcher, not a system."""


@dataclass(frozen=True)
class Installation:
    """A verified installation in the cache."""

    name: str
    version: str
    path: Path
    source: Mapping[str, Any]
    """Where it came from, as the fetcher said (for Maven: coordinates)."""
    sha256: Mapping[str, str]
    """Relative path -> SHA-256 (hexadecimal) of every file."""


def cache_root() -> Path:
    """The cache directory: `STREAMGAUGE_CACHE`, else `~/.cache/streamgauge`."""
    configured = os.environ.get("STREAMGAUGE_CACHE", "")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".cache" / "streamgauge"


class Cache:
    """The installations below one root directory."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else cache_root()

    def path(self, name: str, version: str) -> Path:
        """Where an installation is, or would be."""
        return self.root / "installed" / name / version

    def find(self, name: str, version: str) -> Installation | None:
        """The installation when it is there and whole (sizes and times), else None. Changes nothing."""
        path = self.path(name, version)
        if not path.is_dir() or self._faults(path, full=False):
            return None
        return self._load(name, version)

    def verify(self, name: str, version: str) -> list[str]:
        """Reads and hashes every file; one sentence per fault, none when all is well."""
        path = self.path(name, version)
        if not path.is_dir():
            return [f"{path} is not there"]
        return self._faults(path, full=True)

    def versions(self, name: str) -> list[str]:
        """Versions of a system that are installed and whole, sorted as text."""
        directory = self.root / "installed" / name
        if not directory.is_dir():
            return []
        names = sorted(entry.name for entry in directory.iterdir() if entry.is_dir())
        return [version for version in names if self.find(name, version) is not None]

    def obtain(
        self,
        name: str,
        version: str,
        fetch: Callable[[Path], Mapping[str, Any]],
        progress: Progress,
        expected: Mapping[str, str] | None = None,
    ) -> Installation:
        """The installation with every file verified, fetched if it is absent or broken.

        `fetch` fills an empty directory and returns where the files came from. `expected` is the SHA-256 of each
        file by its relative path, where it is known beforehand: neither a download nor an installation that differs
        is used. Raises SystemFailure when the cache cannot be written, when `fetch` fails or brings other files, or
        when another run holds the lock for longer than 30 minutes.
        """
        if not self._wrong(name, version, expected):
            return self._load(name, version)
        try:
            with self._lock(name, version, progress):
                # The run that we waited for may have fetched it.
                if not self._wrong(name, version, expected):
                    return self._load(name, version)
                return self._fetch(name, version, fetch, progress, expected)
        except OSError as error:
            raise SystemFailure(
                f"cannot write the cache directory {self.root}: {error}; "
                "make room or make it writable, or set STREAMGAUGE_CACHE to another directory"
            ) from error

    def remove(self, name: str, version: str) -> None:
        """Removes an installation; nothing when it is not there."""
        path = self.path(name, version)
        if path.exists():
            self._discard(path)

    # ------------------------------------------------------------------ fetching

    def _fetch(
        self,
        name: str,
        version: str,
        fetch: Callable[[Path], Mapping[str, Any]],
        progress: Progress,
        expected: Mapping[str, str] | None,
    ) -> Installation:
        """Fetches under the lock: into `partial/`, hashed, compared, flushed, renamed."""
        path = self.path(name, version)
        if path.exists():
            faults = self._wrong(name, version, expected)
            progress(f"{name} {version} in the cache is damaged ({faults[0]}): fetching it again")
            self._discard(path)
        partial = self.root / "partial"
        partial.mkdir(parents=True, exist_ok=True)
        prefix = f"{name}-{version}-"
        for stale in partial.glob(f"{prefix}*"):  # We hold the lock: nobody is working on these.
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=partial))
        try:
            content = work / "content"
            content.mkdir()
            source = fetch(content)
            manifest = _describe(content, name, version, source)
            if expected is not None:
                released.refuse(f"{name} {version}", released.different(_checksums(manifest), expected))
            _write_flushed(content / MANIFEST, json.dumps(manifest, indent=1).encode())
            path.parent.mkdir(parents=True, exist_ok=True)
            content.rename(path)
            _flush_directory(path.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return self._load(name, version)

    def _discard(self, path: Path) -> None:
        """Renames away, then deletes: nobody ever sees half an installation."""
        partial = self.root / "partial"
        partial.mkdir(parents=True, exist_ok=True)
        grave = Path(tempfile.mkdtemp(prefix="removed-", dir=partial))
        with contextlib.suppress(FileNotFoundError):
            path.rename(grave / "content")
        shutil.rmtree(grave, ignore_errors=True)

    @contextlib.contextmanager
    def _lock(self, name: str, version: str, progress: Progress) -> Iterator[None]:
        """Holds the installation's lock; it falls with the process that holds it."""
        directory = self.root / "locks"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"{name}-{version}.lock").open("w") as handle:
            said = False

            def missing() -> str | None:
                nonlocal said
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not said:
                        progress(f"waiting for another streamgauge that is fetching {name} {version}")
                        said = True
                    return f"another streamgauge to fetch {name} {version}"
                return None

            late = wait_until(missing, LOCK_WAIT_S, 0.2)
            if late is not None:
                raise SystemFailure(f"{late} (it holds {handle.name}); stop it and try again")
            yield

    # ------------------------------------------------------------------ verifying

    def _wrong(self, name: str, version: str, expected: Mapping[str, str] | None) -> list[str]:
        """What is wrong with an installation when every file is read: one sentence per fault."""
        faults = self.verify(name, version)
        if faults or expected is None:
            return faults
        # The manifest lies beside the files: whoever could change them could change it as well.
        return released.different(_checksums(_read_manifest(self.path(name, version))), expected)

    def _load(self, name: str, version: str) -> Installation:
        path = self.path(name, version)
        manifest = _read_manifest(path)
        return Installation(
            name=name,
            version=version,
            path=path,
            source=manifest["source"],
            sha256=_checksums(manifest),
        )

    @staticmethod
    def _faults(path: Path, *, full: bool) -> list[str]:
        """What is wrong with an installation: files missing, changed, or too many (a stray jar would be on
        the class path).
        """
        try:
            files: dict[str, Any] = dict(_read_manifest(path)["files"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            return [f"{path / MANIFEST} cannot be read: {error}"]
        faults = []
        for relative in _files(path):
            if relative == MANIFEST:
                continue
            expected = files.pop(relative, None)
            if expected is None:
                faults.append(f"{relative} does not belong to it")
                continue
            try:
                status = (path / relative).stat()
            except OSError as error:
                faults.append(f"{relative} cannot be read: {error}")
                continue
            if status.st_size != expected["size"]:
                faults.append(f"{relative} has {status.st_size} bytes instead of {expected['size']}")
            elif (full or status.st_mtime_ns != expected["mtime_ns"]) and (
                _sha256(path / relative) != expected["sha256"]
            ):
                faults.append(f"{relative} has another checksum")
        return faults + [f"{relative} is missing" for relative in files]


def _checksums(manifest: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each file by its relative path."""
    return {relative: entry["sha256"] for relative, entry in manifest["files"].items()}


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an installation. Raises OSError or ValueError."""
    manifest = json.loads((path / MANIFEST).read_bytes())
    if not isinstance(manifest, dict) or manifest.get("format") != MANIFEST_FORMAT:
        raise ValueError(f"not a manifest of format {MANIFEST_FORMAT}")
    return manifest


def _describe(content: Path, name: str, version: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """Hashes and flushes every file of a fresh download and writes down what it is."""
    files = {}
    for relative in _files(content):
        file = content / relative
        with file.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            os.fsync(handle.fileno())
        status = file.stat()
        files[relative] = {"sha256": digest, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if not files:
        raise SystemFailure(f"the download of {name} {version} is empty")
    return {
        "format": MANIFEST_FORMAT,
        "name": name,
        "version": version,
        "fetched_unix_s": int(time.time()),
        "source": dict(source),
        "files": files,
    }


def _files(path: Path) -> list[str]:
    """Relative paths of all files below a directory, sorted."""
    found: list[str] = []
    for directory, _, names in os.walk(path):
        found.extend(str((Path(directory) / name).relative_to(path)) for name in names)
        if len(found) > FILES_MAX:
            raise SystemFailure(f"{path} holds more than {FILES_MAX} files")
    return sorted(found)


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _write_flushed(path: Path, content: bytes) -> None:
    with path.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _flush_directory(path: Path) -> None:
    """Makes a rename durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
