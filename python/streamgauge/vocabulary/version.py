"""The installed version."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The installed version of streamgauge; "unknown" when it runs from a source tree that was never
    installed."""
    try:
        return metadata.version("streamgauge")
    except metadata.PackageNotFoundError:
        return "unknown"
