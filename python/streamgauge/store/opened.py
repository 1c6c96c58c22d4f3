"""The border at which files of a run are read: a run may come from anybody.

Nothing behind it meets a link that leads out of the run, a pipe that never ends, a document that is larger or deeper than
any that the lab writes, a number that is none, or a control character that a terminal would obey.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.files import clean, open_plain

JSON_BYTES_MAX = 64 << 20
DEPTH_MAX = 40
NODES_MAX = 2_000_000
NUMBER_MAX = (1 << 63) - 1
NUMBER_MIN = 1e-30
ENTRIES_MAX = 200_000
"""Files and directories of a run."""
LEFT_ALONE = re.compile(r"(trials/[^/]+|unfinished/[^/]+|repeated/[^/]+|[^/]+)/data(-disks)?|systems")
"""What a system wrote: nothing reads it but the rescue of its logs, which follows no links."""

ModelType = TypeVar("ModelType", bound=BaseModel)


def check_tree(directory: Path) -> None:
    """Whether a run holds plain files and directories alone, so that whatever is read or written below it is in it.
    Raises InputError, with the first that is something else."""
    count = 0
    waiting = [directory]
    while waiting:
        for entry in _entries(waiting.pop()):
            count += 1
            if count > ENTRIES_MAX:
                raise InputError(
                    Problem(f"holds more than {ENTRIES_MAX:,} files: it is no run", str(directory))
                )
            what = _unexpected(entry)
            if what is not None:
                message = (
                    f"is {what}: a run holds plain files and directories alone; remove it to open this run"
                )
                raise InputError(Problem(message, clean(entry.path)))
            if entry.is_dir(follow_symlinks=False) and not _left_alone(entry.path, directory):
                waiting.append(Path(entry.path))


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", clean(str(directory)))) from None


def _left_alone(path: str, directory: Path) -> bool:
    return LEFT_ALONE.fullmatch(os.path.relpath(path, directory)) is not None


def _unexpected(entry: os.DirEntry[str]) -> str | None:
    if entry.is_symlink():
        return "a symbolic link"
    if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
        return None
    return "neither a file nor a directory"


def read_bytes(path: Path, bytes_max: int = JSON_BYTES_MAX, *, follow: bool = False) -> bytes:
    """The content of a plain file (`open_plain`). Raises InputError."""
    with open_plain(path, follow=follow) as source:
        # It may grow while it is read, and some files tell no size at all.
        content = source.read(bytes_max + 1)
    if len(content) > bytes_max:
        message = f"is larger than {bytes_max >> 20} MiB, which no such file is"
        raise InputError(Problem(message, clean(str(path))))
    return content


def read_text(path: Path, bytes_max: int = JSON_BYTES_MAX, *, follow: bool = False) -> str:
    """As `read_bytes`, as text. Raises InputError."""
    try:
        return read_bytes(path, bytes_max, follow=follow).decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"is not text: byte {error.start} is not UTF-8"
        raise InputError(Problem(message, clean(str(path)))) from None


def read_json(path: Path, *, follow: bool = False) -> Any:
    """The value of a JSON file, checked by `parse_json`. Raises InputError."""
    return parse_json(read_bytes(path, follow=follow), clean(str(path)))


def parse_json(text: bytes | str, file: str, line: int | None = None) -> Any:
    """The value of a JSON text: bounded in depth and size, numbers finite and within 64 bits, texts without control
    characters. Raises InputError."""
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        at = re.search(r" at line (\d+) column \d+$", str(error))
        message = f"is no JSON: {clean(str(error)[: at.start()] if at else str(error))}"
        raise InputError(Problem(message, file, line or (int(at[1]) if at else None))) from None
    try:
        return _Bounded().value(value, 0)
    except ValueError as error:
        raise InputError(Problem(str(error), file, line)) from None


class _Bounded:
    """A JSON value made plain."""

    def __init__(self) -> None:
        self._nodes = 0

    def value(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise ValueError(f"holds more than {NODES_MAX:,} values")
        if depth > DEPTH_MAX:
            raise ValueError(f"is nested more than {DEPTH_MAX} deep")
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, dict):
            return {clean(key): self.value(inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, depth + 1) for inner in value]
        if isinstance(value, int | float) and not -NUMBER_MAX <= value <= NUMBER_MAX:
            raise ValueError("holds a number beyond 64 bits")
        # Nothing is divided by what only a double can tell from 0.
        return 0.0 if isinstance(value, float) and abs(value) < NUMBER_MIN else value


def read_model(model: type[ModelType], path: Path, what: str = "file") -> ModelType:
    """A file as a model. Raises InputError with the place of the first thing that is wrong."""
    return as_model(model, read_json(path), clean(str(path)), what=what)


def as_model(
    model: type[ModelType], value: Any, file: str, line: int | None = None, *, what: str = "file"
) -> ModelType:
    """A value that was read as a model. Raises InputError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = clean(".".join(str(step) for step in first["loc"]))[:120] or "the whole file"
        message = f"is no {what} of this version of streamgauge: {place}: {clean(first['msg'])[:200]}"
        raise InputError(Problem(message, file, line)) from None
