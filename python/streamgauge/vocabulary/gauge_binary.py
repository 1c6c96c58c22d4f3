"""The `gauge` program: where it is, and how it says that it is ready."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from streamgauge.vocabulary.errors import FleetFailure

READY_PREFIX = "ready "


def find_gauge() -> Path:
    """The `gauge` program: `GAUGE` if set, beside this Python's scripts, on the PATH, or built in a checkout.

    Raises FleetFailure that names the places which were tried.
    """
    chosen = os.environ.get("GAUGE")
    if chosen:
        path = Path(chosen)
        if _runs(path):
            return path.resolve()
        raise FleetFailure(f"GAUGE={chosen}: no such program; expected the path of the gauge binary")
    scripts = Path(sysconfig.get_path("scripts")) / "gauge"
    on_path = shutil.which("gauge")
    checkout = Path(__file__).resolve().parents[3] / "target" / "release" / "gauge"
    for candidate in (scripts, Path(on_path) if on_path else None, checkout):
        if candidate is not None and _runs(candidate):
            return candidate.resolve()
    raise FleetFailure(
        f"the program 'gauge' was not found: tried {scripts}, the PATH and {checkout}; "
        "install streamgauge with pip, build it with 'cargo build --release', or set GAUGE to its path"
    )


def ready_address(log: Path) -> str | None:
    """What follows `ready ` in what gauge has printed: where it listens. None as long as the line is not whole."""
    for line in log.read_text("utf-8", "replace").splitlines(keepends=True):
        if line.startswith(READY_PREFIX) and line.endswith("\n"):
            return line[len(READY_PREFIX) :].strip()
    return None


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
