"""Errors about what a person wrote: always with the place, what was expected and what to do (exit status
2)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in the input."""

    message: str
    file: str | None = None
    line: int | None = None
    """Counted from 1; None where there is no file or the problem belongs to no line."""

    def __str__(self) -> str:
        if self.file is None:
            return self.message
        if self.line is None:
            return f"{self.file}: {self.message}"
        return f"{self.file}:{self.line}: {self.message}"


class InputError(Exception):
    """What was asked cannot be done as it is written. All problems that were found, not just the first."""

    def __init__(self, problems: Problem | str | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        assert self.problems, "an input error names at least one problem"
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SystemFailure(Exception):
    """A system could not be got, started or kept running (exit status 3). The message says what to do."""


class SystemInputError(Exception):
    """What was asked of the system cannot be had (exit status 2): a level, a version, an unknown setting, a
    port in use.
    """


class FleetFailure(Exception):
    """A worker could not be started (exit status 3). The message says what to do."""


class WorkerLost(Exception):
    """The worker does not answer any more: its process is gone, or it hangs."""


class WorkerRefused(Exception):
    """The worker answered with an error (docs/worker-api.md)."""

    def __init__(self, status: int, code: str, message: str, field: str | None) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        place = f" ({field})" if field else ""
        super().__init__(f"{message}{place}")


PART_CHARACTERS_MIN = 3
PARTS_MAX = 3


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint "; did you mean 'x'?" for a misspelt name or a part of one, or an empty string when nothing is near.

    Similarity is difflib's ratio (Ratcliff and Obershelp's gestalt matching) without regard to case and
    separators. Of names that hold what was written, the shortest are told.
    """

    def plain(text: str) -> str:
        return text.lower().replace("_", "").replace("-", "")

    by_plain = {plain(candidate): candidate for candidate in known}
    wanted = plain(name)
    found = difflib.get_close_matches(wanted, list(by_plain), n=1, cutoff=0.6)
    if not found and len(wanted) >= PART_CHARACTERS_MIN:
        found = sorted((one for one in by_plain if wanted in one), key=len)[:PARTS_MAX]
    return f"; did you mean {' or '.join(repr(by_plain[one]) for one in found)}?" if found else ""


def else_known(name: str, known: Iterable[str], what: str) -> str:
    """The hint of `nearest`, or all that there is where nothing is near: "; known systems: kafka, nats"."""
    return nearest(name, known) or f"; known {what}: {', '.join(known)}"


def no_system(name: str, known: Iterable[str]) -> str:
    """What is said of a system that is not among the known ones, with a hint."""
    return f"no system '{name}'{else_known(name, known, 'systems')}"
