"""Durability levels."""

from __future__ import annotations

from typing import Literal

Level = Literal["L1", "L2", "L3", "L4"]
"""Durability level (docs/method.md): L1 replicated and fsynced before the ack, L2 replicated, L3 fsynced, L4
neither.
"""
MEANINGS: dict[Level, str] = {
    "L1": "acknowledged when on a majority's disks",
    "L2": "acknowledged when in a majority's memory",
    "L3": "acknowledged when on one node's disk",
    "L4": "acknowledged when in one node's memory",
}
"""What a level means, in six words, wherever one stands."""
LEVELS: tuple[Level, ...] = ("L1", "L2", "L3", "L4")
SYNCED: frozenset[Level] = frozenset({"L1", "L3"})
"""Those that a power failure of all nodes does not touch."""


def level_with(*, replicated: bool, fsynced: bool) -> Level:
    """The level of messages that are, or are not, replicated and fsynced before they are acknowledged."""
    if replicated:
        return "L1" if fsynced else "L2"
    return "L3" if fsynced else "L4"
