"""Files that are whole or not there, and files of lines that may lose their last one."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import BaseModel

from streamgauge.store.opened import as_model, parse_json
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.files import clean, open_plain

LINE_CHARACTERS_MAX = 64 << 20
LOG_LINE_CHARACTERS_MAX = 1 << 12

ModelType = TypeVar("ModelType", bound=BaseModel)


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


_UMASK = _umask()
"""The process's, which can be asked for only by setting it: not while threads make files."""


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that readers see the old content or the new, also after a crash (write, fsync,
    rename)."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
            os.fchmod(sink.fileno(), 0o666 & ~_UMASK)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


class LineWriter:
    """Appends JSON objects to a file, one per line; each line reaches the kernel before `write` returns."""

    def __init__(self, path: Path, told: Callable[[str], str] = str) -> None:
        """`told`: what becomes of a line before it is written."""
        self._told = told
        self._sink: IO[str] = path.open("a", encoding="utf-8")

    def write(self, value: Any) -> None:
        """Appends one object. A closed writer ignores it: a sampler may be a moment late."""
        if not self._sink.closed:
            self._sink.write(self._told(json.dumps(value, separators=(",", ":"))) + "\n")
            self._sink.flush()

    def close(self) -> None:
        """Closes the file. Idempotent."""
        self._sink.close()


def read_lines(path: Path, model: type[ModelType]) -> Iterator[ModelType]:
    """Objects of a file of JSON lines; a torn last line is left out, a missing file is empty. Raises InputError with the line
    that is none of the lab's."""
    if not path.exists():
        return
    with io.TextIOWrapper(open_plain(path), encoding="utf-8", errors="replace") as source:
        for number in itertools.count(1):
            line = source.readline(LINE_CHARACTERS_MAX)
            if not line.endswith("\n"):
                if len(line) == LINE_CHARACTERS_MAX:
                    raise InputError(Problem("is longer than any line of a run", clean(str(path)), number))
                return
            file = clean(str(path))
            try:
                value = parse_json(line, file, number)
            except InputError:
                return  # What a machine that lost its power leaves.
            yield as_model(model, value, file, number, what="line")


def read_log(path: Path) -> Iterator[str]:
    """The lines of a log, those that no log has cut into pieces. Raises InputError when it is no plain file."""
    with io.TextIOWrapper(open_plain(path), encoding="utf-8", errors="replace") as source:
        while line := source.readline(LOG_LINE_CHARACTERS_MAX):
            yield line.rstrip("\n")


def tail(path: Path, lines: int, bytes_max: int = 1_000_000) -> list[str]:
    """The last lines of a log, found in its last megabyte."""
    with path.open("rb") as source:
        source.seek(max(path.stat().st_size - bytes_max, 0))
        text = source.read(bytes_max).decode("utf-8", "replace")
    return text.splitlines()[-lines:]
