"""A short trial against a RabbitMQ of a test's own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from streamgauge.fleet.base import Worker
from streamgauge.systems.base import RunningSystem

PARTITIONS = 2
BODY = b"written by another client, and long enough to hold a stamp"


def trial(system: RunningSystem, topic: str, *, producers: int, start: str) -> dict[str, Any]:
    """A short trial of one topic."""
    return {
        "run": 7,
        "seed": 1,
        "system": system.connection,
        "topics": [{"name": topic, "partitions": PARTITIONS}],
        "producers": [{"id": number, "topic": topic, "keys": "round_robin"} for number in range(producers)],
        "subscriptions": [
            {"name": "s", "start": start, "consumers": 1, "consumer_from": 0, "consumer_count": 1}
        ]
        if start != "none"
        else [],
        "schedule": {"arrival": "uniform", "rate_msgs_s": 200.0, "stop_s": 1.0},
        "phases": [{"name": "measure", "from_s": 0.0}],
        "batch": {"bytes": 4096, "linger_ms": 1.0, "in_flight": 5},
        "acks": "all",
        "payload": {"size_bytes": 100, "random_ratio": 1.0, "pool": 4},
        "lanes": {"realtime": "off"},
    }


def prepare(worker: Worker, request: dict[str, Any]) -> str:
    """Prepares a trial; its id."""
    client = worker.client
    status = client.create_trial(request)
    deadline_s = time.monotonic() + 60
    while status.state == "preparing" and time.monotonic() < deadline_s:
        time.sleep(0.05)
        status = client.status(status.id)
    assert status.state == "ready", status
    return status.id


def begin(worker: Worker, request: dict[str, Any]) -> str:
    """Prepares a trial and starts its schedule; its id."""
    trial = prepare(worker, request)
    worker.client.start(trial, 50)
    return trial


def run(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """Runs a trial of one second to its end."""
    trial = begin(worker, request)
    time.sleep(1.2)
    return worker.client.finish(trial, 20.0, 5.0)


IN_NO_HURRY = {"arrival": "uniform", "rate_msgs_s": 50.0, "stop_s": 4.0}
"""200 messages too, and long enough for what happens in the middle on a machine that is busy with other things."""


def run_and_count(
    worker: Worker, request: dict[str, Any], in_the_middle: Callable[[], None]
) -> tuple[dict[str, Any], Counter[str]]:
    """Runs a trial in which something happens after half a second: its audit, and errors by kind. An error is
    counted once for the messages whose refusal was read together.
    """
    trial = begin(worker, request)
    over_s = time.monotonic() + request["schedule"]["stop_s"] + 0.3
    time.sleep(0.5)
    in_the_middle()
    time.sleep(max(over_s - time.monotonic(), 0.0))
    answer = worker.client.finish(trial, 5.0, 2.0)
    errors: Counter[str] = Counter()
    for interval in worker.client.intervals(trial, 0).intervals:
        errors.update(interval["errors"])
    return answer["audit"], errors
