"""Watches acknowledgements come in, finer than the intervals do, so that a gap is known to some milliseconds."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from streamgauge.analysis.acks import Acks
from streamgauge.fleet.client import WorkerClient
from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused

EVERY_S = 0.02


class AckWatch(Background):
    """Asks the worker how many messages have been acknowledged, every 20 ms, until it is stopped.

    `start_s` is CLOCK_MONOTONIC at the schedule's start. A connection of its own: the lab's is busy elsewhere.
    """

    def __init__(self, client: WorkerClient, trial: str, start_s: float) -> None:
        super().__init__("acks", 2.0)
        self._client = client.another()
        self._trial = trial
        self._start_s = start_s
        self._seen = Acks()
        self._lock = threading.Lock()

    def stop(self) -> None:
        super().stop()
        self._client.close()

    def seen(self) -> Acks:
        """What was seen so far."""
        with self._lock:
            return Acks(list(self._seen.at_s), list(self._seen.acked_msgs))

    def write(self, path: Path) -> None:
        """Keeps it as `acks.csv`."""
        self.seen().write(path)

    def _run(self) -> None:
        next_s = time.monotonic()
        while not self._stop.wait(max(0.0, next_s - time.monotonic())):
            next_s = max(next_s + EVERY_S, time.monotonic())
            asked_s = time.monotonic()
            try:
                acked_msgs = self._client.counters(self._trial).acked_msgs
            except WorkerRefused:
                return  # The trial is over.
            except WorkerLost:
                continue  # The load's loop finds out what that means.
            now_s = time.monotonic()
            with self._lock:
                self._seen.add((asked_s + now_s) / 2 - self._start_s, acked_msgs)
