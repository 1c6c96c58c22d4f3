"""streamgauge: a benchmark laboratory for messaging and event-streaming systems."""

from __future__ import annotations


def version() -> str:
    """The installed version of streamgauge; "unknown" when it runs from a source tree that was never
    installed."""
    from importlib import metadata

    try:
        return metadata.version("streamgauge")
    except metadata.PackageNotFoundError:
        return "unknown"
