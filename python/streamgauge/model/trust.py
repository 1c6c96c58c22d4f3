"""`--trust-file`: which files may do what runs code here, reads files elsewhere or takes secrets (docs/security.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgauge.model.document import Document, Location
from streamgauge.model.system_kind import SystemKind
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.untrusted import OPTION
from streamgauge.vocabulary.errors import InputError, Problem


@dataclass(frozen=True)
class Trust:
    """The files that the user trusts: no file can name itself, or another one."""

    files: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, texts: Sequence[str] | None) -> Trust:
        """From the command line. Raises InputError for a file that is not there."""
        for text in texts or ():
            if not Path(text).is_file():
                raise InputError(f"{OPTION} {text}: no such file; expected the file whose options you trust")
        return cls(tuple(Path(text).resolve() for text in texts or ()))

    def covers(self, file: str | Path) -> bool:
        """Whether the file is one of them, whatever it is called."""
        return Path(file).resolve() in self.files


NOBODY = Trust()


def is_beside(file: Path, base: Path) -> bool:
    """Whether a file, links followed, is below a directory and nothing on the way is hidden: keys in a home directory are."""
    found, below = file.resolve(), base.resolve()
    return found.is_relative_to(below) and not any(
        part.startswith(".") for part in found.relative_to(below).parts
    )


def untrusted(
    document: Document, system: SystemKind, request: SystemRequest, at: Location = ()
) -> list[Problem]:
    """A problem, at its line, for each option that is done for a trusted file alone. `at`: where the options are."""
    if request.trusted:
        return []
    return [
        document.problem(one.sentence(document.file), (*at, *one.location))
        for one in system.untrusted(request)
    ]
