"""Trials that do not count: they are moved aside and never deleted, because their logs may say why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

UNFINISHED = "unfinished"
"""Trials that did not end are moved here when a study is resumed."""
REPEATED = "repeated"
"""Trials that were repeated are moved here."""


def set_aside(directory: Path, path: Path, where: str) -> None:
    """Moves a trial that does not count out of the way, under a name of its own."""
    aside = directory / where
    aside.mkdir(exist_ok=True)
    number = 1
    while (aside / f"{path.name}-{number}").exists():
        number += 1
    path.rename(aside / f"{path.name}-{number}")


_WAS_REPEATED = " was repeated: "


def repeated_note(trial: int, cell: str, reason: str) -> str:
    """What is noted of a trial that was repeated."""
    return f"trial {trial} ({cell}){_WAS_REPEATED}{reason}"


def split_notes(notes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Notes on trials that were repeated, which may be many, and the others."""
    repeated = [note for note in notes if _WAS_REPEATED in note]
    return repeated, [note for note in notes if _WAS_REPEATED not in note]
