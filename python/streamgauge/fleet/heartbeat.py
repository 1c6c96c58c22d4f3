"""Keeps the lease of a running trial alive, and notices that a worker is gone.

The lease is the worker's protection against a lab that disappears; the heartbeat is the lab's against a
worker that does: a thread of its own, because the runner may be waiting for something slow.
"""

from __future__ import annotations

import threading

from streamgauge.fleet.client import WorkerClient, WorkerLost, WorkerRefused

LOST_AFTER = 3
"""Heartbeats in a row without an answer."""


class Heartbeat:
    """Renews a trial's lease four times per lease until it is stopped."""

    def __init__(self, client: WorkerClient, trial: str, lease_s: float) -> None:
        self._client = client
        self._trial = trial
        self._period_s = lease_s / 4
        self._stop = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; returns within one request."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(self._period_s + 1.0)

    @property
    def failure(self) -> str | None:
        """One sentence when the worker has missed several heartbeats in a row."""
        return self._failure

    def _run(self) -> None:
        missed = 0
        while not self._stop.wait(self._period_s):
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
