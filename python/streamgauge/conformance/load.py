"""Small loads on a system, by a worker of the lab: what the suite looks at is what the gauge counts."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.local import LocalFleet
from streamgauge.model.messages import Counters
from streamgauge.systems.base import RunningSystem, TopicPlan
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused
from streamgauge.vocabulary.waiting import wait_until

PARTITIONS = 4
RATE_MSGS_S = 500.0
LOAD_S = 0.8
MESSAGES = int(RATE_MSGS_S * LOAD_S)
READY_WITHIN_S = 90.0
DRAIN_S = 90.0
QUIET_S = 60.0
"""A cluster needs longer than a trial of the lab waits to notice that a node is gone, on a machine that is busy."""
COUNTED_WITHIN_S = 20.0
LEASE_S = 120.0
"""The suite does other things while a load runs, and asks for nothing meanwhile."""
POLL_S = 0.05

_numbers = itertools.count(1)


def subscription(name: str = "s-0", *, start: str = "latest", consumers: int = 2) -> dict[str, Any]:
    """A subscription as the worker API has it."""
    return {
        "name": name,
        "start": start,
        "consumers": consumers,
        "consumer_from": 0,
        "consumer_count": consumers,
    }


@dataclass
class Trial:
    """One load that runs."""

    client: WorkerClient
    id: str

    def until_still(self, seconds: float) -> None:
        """Waits until nothing has been received for so long; AssertionError when messages go on to arrive."""
        last, since_s = self.received(), time.monotonic()

        def missing() -> str | None:
            nonlocal last, since_s
            found = self.received()
            if found != last:
                last, since_s = found, time.monotonic()
            return None if time.monotonic() - since_s >= seconds else "messages to stop arriving"

        late = wait_until(missing, DRAIN_S, POLL_S)
        assert late is None, late

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = DRAIN_S) -> None:
        """Waits until the condition holds; AssertionError when it does not in time."""
        late = wait_until(lambda: None if condition() else what, timeout_s, POLL_S)
        assert late is None, late

    def _counters(self) -> Counters:
        """What the worker counts. On a machine that is busy a lane may be late with its own, and the worker says to ask again."""
        found: list[Counters] = []

        def missing() -> str | None:
            try:
                found.append(self.client.counters(self.id))
            except WorkerRefused as refused:
                return f"counters ({refused})"
            return None

        late = wait_until(missing, COUNTED_WITHIN_S, POLL_S)
        assert late is None, late
        return found[0]

    def sent(self) -> int:
        """Messages that were sent so far, acknowledged or not."""
        found = self._counters()
        return found.acked_msgs + found.waiting_msgs

    def acked(self) -> int:
        """Messages that were acknowledged so far."""
        return self._counters().acked_msgs

    def received(self) -> int:
        """Messages that the first subscription has received so far."""
        return self._counters().subscriptions[0].received_msgs

    def finish(self) -> dict[str, Any]:
        """Ends the load, waits until everything has arrived, and returns the audit."""
        answer = self.client.finish(self.id, DRAIN_S, QUIET_S)
        audit = answer["audit"]
        assert isinstance(audit, dict)
        return audit


@dataclass
class Gauge:
    """A worker of the lab."""

    logs: Path
    fleet: LocalFleet = field(default_factory=LocalFleet)
    client: WorkerClient | None = None
    _last: str | None = None

    def __enter__(self) -> Self:
        self.client = self.fleet.start(self.logs).only
        return self

    def __exit__(self, *_: object) -> None:
        self.fleet.stop()

    @property
    def worker(self) -> WorkerClient:
        """How it is asked."""
        assert self.client is not None, "entered"
        return self.client

    def create_topic(self, connection: Mapping[str, Any], plan: TopicPlan) -> str:
        """A new topic; its name."""
        topic = f"conformance-{next(_numbers)}"
        self.create_named(connection, plan, topic)
        return topic

    def create_named(
        self, connection: Mapping[str, Any], plan: TopicPlan, topic: str, within_s: float = READY_WITHIN_S
    ) -> None:
        """A topic of this name. Raises WorkerRefused for one that is there already, or when the system lets nobody in."""
        asked = {
            "name": topic,
            "partitions": PARTITIONS,
            "replication_factor": plan.replication_factor,
            "configs": dict(plan.configs),
        }
        self.worker.create_topics(connection, [asked], within_s)

    def describe(self, connection: Mapping[str, Any]) -> Callable[[Sequence[str]], Mapping[str, Any]]:
        """What the live system says of itself, as `RunningSystem.read_back` asks for it."""
        return lambda topics: self.worker.describe(connection, list(topics))

    def begin(
        self, connection: Mapping[str, Any], acks: str, topic: str, *, load_s: float = LOAD_S, **changes: Any
    ) -> Trial:
        """Starts a load on a topic: `changes` are keys of the worker API. Raises AssertionError when it does not become ready."""
        request = {
            "run": next(_numbers),
            "seed": 1,
            "system": dict(connection),
            "topics": [{"name": topic, "partitions": PARTITIONS}],
            "producers": [{"id": 0, "topic": topic, "keys": "round_robin"}],
            "subscriptions": [subscription()],
            "schedule": {"arrival": "uniform", "rate_msgs_s": RATE_MSGS_S, "stop_s": load_s},
            "phases": [{"name": "measure", "from_s": 0.0}],
            "batch": {"bytes": 16384, "linger_ms": 2.0, "in_flight": 5},
            "acks": acks,
            "payload": {"size_bytes": 100, "random_ratio": 0.0, "pool": 4},
            "lanes": {"realtime": "off"},
            "lease_s": LEASE_S,
            "ready_timeout_s": READY_WITHIN_S,
            **changes,
        }
        if self._last is not None:
            # One that a failed check has left.
            with contextlib.suppress(WorkerLost, WorkerRefused):
                self.worker.abort(self._last)
        status = self.worker.create_trial(request)
        self._last = status.id

        def missing() -> str | None:
            nonlocal status
            status = self.worker.status(status.id)
            return "the trial to be ready" if status.state == "preparing" else None

        late = wait_until(missing, READY_WITHIN_S, POLL_S)
        assert late is None, late
        assert status.state == "ready", status
        self.worker.start(status.id, 50)
        return Trial(self.worker, status.id)

    def load(
        self, connection: Mapping[str, Any], acks: str, topic: str, *, load_s: float = LOAD_S, **changes: Any
    ) -> dict[str, Any]:
        """A whole load; its audit."""
        trial = self.begin(connection, acks, topic, load_s=load_s, **changes)
        try:
            trial.until(lambda: trial.sent() >= int(RATE_MSGS_S * load_s), "all messages to be sent")
            return trial.finish()
        finally:
            with contextlib.suppress(WorkerLost, WorkerRefused):
                self.worker.abort(trial.id)

    def load_new_topic(self, running: RunningSystem, **changes: Any) -> dict[str, Any]:
        """A whole load on a topic of its own; its audit."""
        topic = self.create_topic(running.connection, running.topic_plan())
        return self.load(running.connection, running.acks, topic, **changes)
