"""Files as every room must treat them: a run may come from anybody, a secret is for nobody else, and logs are kept when data go."""

from __future__ import annotations

import itertools
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from streamgauge.vocabulary.errors import InputError, Problem

NAME_CHARACTERS_MAX = 200
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """A text without characters that command a terminal or turn the direction of writing."""
    return _CONTROL.sub("\ufffd", text)


def open_plain(path: Path, *, follow: bool = False) -> BinaryIO:
    """A plain file, opened for reading. `follow`: links are followed, as for a file that the user names. Raises InputError."""
    # Without O_NONBLOCK a pipe would be waited for.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", clean(str(path)))) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(Problem("cannot be read: it is no plain file", clean(str(path))))
    return os.fdopen(handle, "rb")


def write_secret(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Writes a file that nobody else can read, not even for a moment; what was there before is removed."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as sink:
        sink.write(content)


def rescue_logs(source: Path, target: Path, files_max: int = 50, bytes_max: int = 10_000_000) -> None:
    """Copies the ends of all logs below a directory into another one, whose names tell where each was. Links are not followed."""
    for path in list(itertools.islice(filter(is_text_log, _logs_below(source)), files_max)):
        target.mkdir(parents=True, exist_ok=True)
        name = "-".join(path.relative_to(source).parts)[-NAME_CHARACTERS_MAX:]
        with open_plain(path) as log, (target / name).open("wb") as sink:
            log.seek(max(os.fstat(log.fileno()).st_size - bytes_max, 0))
            # Whoever writes it may go on meanwhile.
            sink.write(log.read(bytes_max))


def _logs_below(directory: Path) -> list[Path]:
    return sorted(
        Path(folder, name)
        for folder, _, names in os.walk(directory)
        for name in names
        if name.endswith(".log")
    )


def is_text_log(path: Path) -> bool:
    """Whether a `*.log` file is one for people. Systems that keep logs of messages call their segments so,
    too: a number for a name, zero bytes within."""
    if path.stem.isdigit() or path.is_symlink() or not path.is_file():
        return False
    with open_plain(path) as source:
        return b"\0" not in source.read(4096)
