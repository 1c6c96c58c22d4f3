"""streamgauge: a benchmark laboratory for messaging and event-streaming systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamgauge.frames import LoadedRun


def version() -> str:
    """The installed version of streamgauge; "unknown" when it runs from a source tree that was never
    installed."""
    from importlib import metadata

    try:
        return metadata.version("streamgauge")
    except metadata.PackageNotFoundError:
        return "unknown"


def load(run: str | Path = "latest", out: str | Path = "runs") -> LoadedRun:
    """A run as pandas frames: `load("runs/latest").trials`. By its directory, or by its name in `out`. Raises
    streamgauge.model.errors.InputError when there is none."""
    # Imported here: the command line reads this module first, and pyarrow takes its time.
    from streamgauge import frames

    return frames.load(run, out)
