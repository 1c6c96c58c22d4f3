"""Checksums of downloads that streamgauge is released with, so that nobody has to believe the server alone.

    checksums/NAME-VERSION.sha256   every file of an installation, as sha256sum writes them
    checksums/archives.sha256       archives that are checked before they are unpacked
    checksums/modules.sum           Go modules, as go.sum has them

They cover the default versions. `tools/lock_downloads.py` writes them anew, which is for whoever changes a default version.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

from streamgauge.systems.base import Progress
from streamgauge.vocabulary.errors import SystemFailure

FOLDER = Path(__file__).with_name("checksums")
ARCHIVES = "archives.sha256"
MODULES = "modules.sum"


def files(name: str, version: str) -> Mapping[str, str] | None:
    """SHA-256 (hexadecimal) of each file of an installation by its relative path; None for a version that is not known."""
    path = FOLDER / f"{name}-{version}.sha256"
    return _pairs(path) if path.is_file() else None


def archive(file_name: str) -> str | None:
    """SHA-256 (hexadecimal) of an archive; None for one that is not known."""
    return _pairs(FOLDER / ARCHIVES).get(file_name)


def module(path: str, version: str) -> str | None:
    """Go's hash (`h1:...`) of a module's files; None for a version that is not known."""
    for line in (FOLDER / MODULES).read_text(encoding="utf-8").splitlines():
        if line.split()[:2] == [path, f"v{version}"]:
            return line.split()[2]
    return None


def _pairs(path: Path) -> dict[str, str]:
    """What sha256sum wrote: a line is a checksum, two spaces, a name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}


def different(found: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """One sentence per file that is not as expected, missing, or too many."""
    faults = [
        f"{name} is not among the files that streamgauge is released with checksums of"
        if name not in expected
        else f"{name} has SHA-256 {checksum}, and streamgauge was released with {expected[name]}"
        for name, checksum in found.items()
        if expected.get(name) != checksum
    ]
    return faults + [f"{name} is missing" for name in expected if name not in found]


def refuse(title: str, faults: list[str]) -> None:
    """Raises SystemFailure when there are faults. `title` is what was downloaded ("Kafka 4.3.1")."""
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise SystemFailure(
            f"the download of {title} is not what streamgauge was released with, and was thrown away: {faults[0]}{more}. "
            "It was changed on the way, by a mirror, or in a local repository (~/.m2, Go's module cache): clear that, ask another "
            "mirror, and compare with the publisher's own checksums before you trust it"
        )


def said(title: str, known: bool, checked_by: str, progress: Progress) -> str:
    """Against what a download was checked, for its manifest. A version without released checksums is told."""
    if known:
        return "checksums released with streamgauge"
    progress(
        f"{title} is not a default version: streamgauge has no checksums of it, so that only {checked_by} was checked"
    )
    return checked_by


def check_archive(title: str, path: Path) -> str:
    """Compares an archive with its checksum, where that is known, before anything reads it. Raises SystemFailure. Returns
    its SHA-256 (hexadecimal).
    """
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    expected = archive(path.name)
    if expected is not None:
        refuse(title, different({path.name: found}, {path.name: expected}))
    return found


def module_hash(directory: Path, module_version: str) -> str:
    """Go's hash of a module's unpacked files: SHA-256 of the list of their SHA-256 (golang.org/x/mod/sumdb/dirhash, Hash1).
    `module_version` is MODULE@vVERSION.
    """
    names = {
        f"{module_version}/{path.relative_to(directory).as_posix()}": path
        for path in directory.rglob("*")
        if path.is_file()
    }
    listing = "".join(
        f"{hashlib.sha256(names[name].read_bytes()).hexdigest()}  {name}\n" for name in sorted(names)
    )
    return "h1:" + base64.b64encode(hashlib.sha256(listing.encode()).digest()).decode()
