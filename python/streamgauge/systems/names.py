"""The names of the systems that are installed, which are known without importing any of them: the tab key waits for them."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

GROUP = "streamgauge.systems"
"""The group of entry points in which a distribution declares its systems."""


def declared() -> list[EntryPoint]:
    """What distributions declare; a name may be there more than once."""
    return list(entry_points(group=GROUP))


def system_names() -> list[str]:
    """The names, in order."""
    return sorted({one.name for one in declared()})
