"""Topics that come and go beside a load, so that a cut falls into the creation and deletion of some."""

from __future__ import annotations

import contextlib
import threading

from streamgauge.runner.durability.bench import CREATE_TOPICS_WITHIN_S, Bench
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused

EVERY_S = 0.15
PREFIX = "streamgauge-churn"
KEPT = 2
"""So many of the newest are left alone, so that some exist at any time."""


class Churn:
    """Creates topics and deletes the ones before, in a thread of its own, until it is stopped. A system that refuses some goes on with the next."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._names: list[str] = []
        self._made = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> int:
        """Asks it to end, without waiting for an answer of a system that is down. How many topics were created. Idempotent."""
        self._stop.set()
        return self._made

    def clean(self) -> None:
        """Deletes what is left, once the system serves again."""
        self.stop()
        self._thread.join(CREATE_TOPICS_WITHIN_S)
        with contextlib.suppress(WorkerLost, WorkerRefused):
            self._bench.client.delete_topics(self._bench.running.connection, self._names)

    def _run(self) -> None:
        bench, plan = self._bench, self._bench.running.topic_plan()
        while not self._stop.wait(EVERY_S):
            name = f"{PREFIX}-{bench.loads}-{self._made}"
            topic = {
                "name": name,
                "partitions": 1,
                "replication_factor": plan.replication_factor,
                "configs": dict(plan.configs),
            }
            self._names.append(name)
            with contextlib.suppress(WorkerLost, WorkerRefused):
                bench.client.create_topics(bench.running.connection, [topic], CREATE_TOPICS_WITHIN_S)
                self._made += 1
                if self._made > KEPT and not self._stop.is_set():
                    bench.client.delete_topics(bench.running.connection, [self._names[-KEPT - 1]])
