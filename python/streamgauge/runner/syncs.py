"""How long the processes of a system wait for their syncs (fsync, fdatasync), as the kernel's tracepoints tell it: `gauge syncs` (docs/causes.md).

It needs rights that a lab may not have (CAP_PERFMON, and a trace file system that can be read); without them nothing is told.
"""

from __future__ import annotations

import json
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamgauge.model.messages import SyncsTold
from streamgauge.runner.helper import Helper

ANSWER_WITHIN_S = 0.5


class Syncs(Helper):
    """The process that looks, from here to `end`."""

    def __init__(self, gauge: Path | None = None) -> None:
        super().__init__(["syncs"], gauge)

    def totals(self) -> Mapping[int, SyncsTold] | None:
        """Process -> what it has synced so far; None where that cannot be seen, from then on."""
        if not self._is_ready:
            return None
        try:
            self._asks.write("\n")
            if not select.select([self._answers], [], [], ANSWER_WITHIN_S)[0]:
                raise TimeoutError
            told = json.loads(self._answers.readline())
            return {int(pid): SyncsTold.model_validate(one) for pid, one in told.items()}
        except (OSError, ValueError, AttributeError):
            # A late answer would be taken for that to the next question, so that it is asked no more.
            self.end()
            return None

    def end(self) -> None:
        self._is_ready = False
        super().end()


def synced(now: SyncsTold | None, before: SyncsTold | None, scale: float) -> dict[str, Any]:
    """What a process did between two readings, as columns of a row (RESOURCE_COLUMNS); none where one of them is missing. Times are scaled to the interval."""
    if now is None or before is None:
        return {}
    return {
        "syncs": max(0, now.calls - before.calls),
        "sync_s": round(max(0.0, now.wait_s - before.wait_s) * scale, 6),
        "sync_s2": round(max(0.0, now.wait_s2 - before.wait_s2) * scale, 9),
    }
