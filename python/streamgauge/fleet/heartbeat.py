"""Keeps the lease of a running trial alive, and notices that a worker is gone.

The lease is the worker's protection against a lab that disappears; the heartbeat is the lab's against a
worker that does: a thread of its own, because the runner may be waiting for something slow.
"""

from __future__ import annotations

import time
from typing import Protocol

from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused

LOST_AFTER = 3
"""Heartbeats in a row without an answer."""


class Leased(Protocol):
    """What has a lease that can be renewed."""

    def renew_lease(self, trial: str, timeout_s: float) -> None:
        """Says that the lab is still there. Raises WorkerLost and WorkerRefused."""


class Heartbeat(Background):
    """Renews a trial's lease until it is stopped: four times per lease, or with a period of its own."""

    def __init__(self, client: Leased, trial: str, lease_s: float, *, period_s: float | None = None) -> None:
        self._period_s = period_s or lease_s / 4
        super().__init__("heartbeat", self._period_s + 1.0)
        self._client = client
        self._trial = trial
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """One sentence when the worker has missed several heartbeats in a row."""
        return self._failure

    def _run(self) -> None:
        missed = 0
        due_s = time.monotonic() + self._period_s
        # What a request took is no addition to the period: that is how long a loss may go unnoticed.
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            due_s = time.monotonic() + self._period_s
            try:
                self._client.renew_lease(self._trial, self._period_s)
                missed = 0
            except WorkerRefused:
                # The trial has ended by itself; its status tells the runner why.
                return
            except WorkerLost as error:
                missed += 1
                if missed >= LOST_AFTER:
                    self._failure = str(error)
                    return
