"""How long the processes of a system wait for their syncs (fsync, fdatasync), as the kernel's tracepoints tell it: `gauge syncs` (docs/causes.md).

It needs rights that a lab may not have (CAP_PERFMON, and a trace file system that can be read); without them nothing is told.
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamgauge.model.messages import SyncsTold
from streamgauge.vocabulary.gauge_binary import find_gauge

READY = "ready"
ANSWER_WITHIN_S = 0.5
END_WITHIN_S = 3.0


class Syncs:
    """The process that looks, from here to `end`."""

    def __init__(self, gauge: Path | None = None) -> None:
        command = [str(gauge or find_gauge()), "syncs"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdout is not None
        self._is_on = self._process.stdout.readline().strip() == READY

    def totals(self) -> Mapping[int, SyncsTold] | None:
        """Process -> what it has synced so far; None where that cannot be seen, from then on."""
        asks, answers = self._process.stdin, self._process.stdout
        if not self._is_on or asks is None or answers is None:
            return None
        try:
            asks.write("\n")
            if not select.select([answers], [], [], ANSWER_WITHIN_S)[0]:
                raise TimeoutError
            told = json.loads(answers.readline())
            return {int(pid): SyncsTold.model_validate(one) for pid, one in told.items()}
        except (OSError, ValueError, AttributeError):
            # A late answer would be taken for that to the next question.
            self._is_on = False
            return None

    def end(self) -> None:
        """Ends it. Idempotent."""
        self._is_on = False
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def synced(now: SyncsTold | None, before: SyncsTold | None, scale: float) -> dict[str, Any]:
    """What a process did between two readings, as columns of a row (RESOURCE_COLUMNS); none where one of them is missing. Times are scaled to the interval."""
    if now is None or before is None:
        return {}
    return {
        "syncs": max(0, now.calls - before.calls),
        "sync_s": round(max(0.0, now.wait_s - before.wait_s) * scale, 6),
        "sync_s2": round(max(0.0, now.wait_s2 - before.wait_s2) * scale, 9),
    }
