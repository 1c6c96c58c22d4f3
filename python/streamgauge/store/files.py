"""Files that are whole or not there, and files of lines that may lose their last one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that readers see the old content or the new, also after a crash (write, fsync,
    rename)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


class LineWriter:
    """Appends JSON objects to a file, one per line; each line reaches the kernel before `write` returns."""

    def __init__(self, path: Path) -> None:
        self._sink: IO[str] = path.open("a", encoding="utf-8")

    def write(self, value: Any) -> None:
        """Appends one object. A closed writer ignores it: a sampler may be a moment late."""
        if not self._sink.closed:
            self._sink.write(json.dumps(value, separators=(",", ":")) + "\n")
            self._sink.flush()

    def close(self) -> None:
        """Closes the file. Idempotent."""
        self._sink.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a file of JSON lines; a torn last line is left out, a missing file is empty."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as source:
        for line in source:
            if not line.endswith("\n"):
                return
            try:
                value = json.loads(line)
            except ValueError:
                return
            if isinstance(value, dict):
                yield value


def rescue_logs(source: Path, target: Path, files_max: int = 50, bytes_max: int = 10_000_000) -> None:
    """Copies the ends of all logs below a directory into another one, whose names tell where each was."""
    for path in [found for found in sorted(source.rglob("*.log")) if is_text_log(found)][:files_max]:
        target.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as log, (target / "-".join(path.relative_to(source).parts)).open("wb") as sink:
            log.seek(max(path.stat().st_size - bytes_max, 0))
            shutil.copyfileobj(log, sink)


def is_text_log(path: Path) -> bool:
    """Whether a `*.log` file is one for people. Systems that keep logs of messages call their segments so,
    too:
    a number for a name, zero bytes within."""
    if path.stem.isdigit() or not path.is_file():
        return False
    with path.open("rb") as source:
        return b"\0" not in source.read(4096)


def tail(path: Path, lines: int, bytes_max: int = 1_000_000) -> list[str]:
    """The last lines of a log, found in its last megabyte."""
    with path.open("rb") as source:
        source.seek(max(path.stat().st_size - bytes_max, 0))
        text = source.read(bytes_max).decode("utf-8", "replace")
    return text.splitlines()[-lines:]
