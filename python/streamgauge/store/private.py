"""What a run must not tell when it is passed on: where the home directory of the user who made it is, and so what the user is called."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from streamgauge.vocabulary.files import is_text_log

LOG_BYTES_MAX = 64 << 20


def without_home(text: str) -> str:
    """A text with `~` for the home directory."""
    pattern = _pattern()
    return text if pattern is None else re.sub(pattern, "~", text)


def with_home(path: str) -> Path:
    """The path that `without_home` has shortened."""
    home = _home()
    return Path(home + path[1:]) if home and path.startswith("~/") else Path(path)


def clear_logs(directory: Path) -> None:
    """As `without_home`, for the logs below a directory."""
    pattern = _pattern()
    if pattern is None:
        return
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if is_text_log(path) and path.stat().st_size <= LOG_BYTES_MAX:
                    told = path.read_bytes()
                    cleared = re.sub(pattern.encode(), b"~", told)
                    if cleared != told:
                        path.write_bytes(cleared)


def _pattern() -> str | None:
    home = _home()
    # What goes on after it is another directory: /home/ann is not /home/anna.
    return None if home is None else re.escape(home) + r"(?![A-Za-z0-9_.-])"


def _home() -> str | None:
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return str(home) if home.is_absolute() and len(home.parts) > 1 else None
