"""Archives of classes: a JVM takes what an earlier one has loaded and verified (dynamic archives: JEP 350).

Half of what a broker's start costs is loading classes (benches/starts.py), and a study starts brokers dozens of times. What
the JVM does afterwards is the same: it compares the archive with itself and with its class path, and goes on without one that
does not fit, as with another collector.

An archive lies in the cache as an installation does, beside the one that it is of: made once, hashed at each use.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from streamgauge.systems.support.cache import Installation
from streamgauge.systems.support.java import Java

SUFFIX = ".jsa"
SHARED_BY_THE_JVM = "lib/server/classes.jsa"
"""The classes of the JVM itself, which a further archive stands on; not every package of a JVM has it."""


@dataclass(frozen=True)
class ClassArchives:
    """The archives of a system's processes, a file for each kind."""

    directory: Path | None = None
    """None: there are none."""
    are_written: bool = False
    """Whether JVMs write them when they end."""

    def flags(self, kind: str) -> list[str]:
        """What the JVM of a process of this kind is told."""
        if self.directory is None:
            return []
        archive = self.directory / f"{kind}{SUFFIX}"
        if self.are_written:
            return [f"-XX:ArchiveClassesAtExit={archive}"]
        return [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []


NONE = ClassArchives()


def can_be_made(java: Java) -> bool:
    """Whether this JVM can write archives."""
    return (java.home / SHARED_BY_THE_JVM).is_file()


def key(installation: Installation, java: Java) -> str:
    """Names what the JVM compares with an archive: itself, and the files of its class path with their sizes and times."""
    files = [(java.home / "lib" / name).resolve() for name in ("server/libjvm.so", "modules")]
    files += [installation.path / relative for relative in sorted(installation.sha256)]
    known = [java.version]
    for file in files:
        status = file.stat() if file.is_file() else None
        known.append(f"{file} {status and (status.st_size, status.st_mtime_ns)}")
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
