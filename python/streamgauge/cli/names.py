"""Names that the shell completes, written down because it waits for them: who knows them takes longer to load than anybody waits for the tab key.

tests/test_completion.py holds them against those who know.
"""

from __future__ import annotations

FAULTS = (
    "kill",
    "stop",
    "cont",
    "restart",
    "power-cut",
    "fsync-delay",
    "disk-full",
    "disk-free",
    "cut-network",
    "heal",
)
SCALES = ("full", "laptop", "quick")
