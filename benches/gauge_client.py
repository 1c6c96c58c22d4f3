"""Drives a `gauge worker` for the benches: whole trials with given schedules, and what they cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram
from peers import Cost
from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.local import LocalFleet

READY_WITHIN_S = 60
MEASURE_AFTER_S = 3


@dataclass(frozen=True)
class Trial:
    """What a trial delivered."""

    intervals: list[dict[str, Any]]
    finish: dict[str, Any]

    def cost(self, counter: str = "acked_msgs") -> Cost:
        """The whole process's CPU per message, over the measured intervals."""
        measured = [interval for interval in self.intervals if interval["start_s"] >= MEASURE_AFTER_S][:-1]
        messages = sum(interval[counter] for interval in measured)
        return Cost(
            messages,
            sum(interval["cpu_s"] for interval in measured),
            sum(interval["duration_s"] for interval in measured),
            max(interval["rss_bytes"] for interval in self.intervals),
        )

    def latency_ms(self, metric: str, percentiles: tuple[float, ...]) -> list[float]:
        """Percentiles over the phase "measure"."""
        merged = HdrHistogram(1, 3_600_000_000_000, 3)
        for interval in self.intervals:
            for entry in interval["latencies"]:
                if entry["metric"] == metric and entry["phase"] == "measure":
                    merged.add(HdrHistogram.decode(entry["histogram"]))
        return [merged.get_value_at_percentile(percentile) / 1e6 for percentile in percentiles]


@dataclass
class Gauge:
    """A worker, and the system that it drives."""

    client: WorkerClient
    system: dict[str, Any]
    """The `system` object of the worker API."""
    numbered: int = 0

    @contextmanager
    def topic(self, partitions: int, configs: Mapping[str, str] | None = None) -> Iterator[str]:
        """A topic with these settings that is there for the time of the block."""
        self.numbered += 1
        # Short: NATS replaces longer names in subjects.
        name = f"b-{time.time_ns():x}-{self.numbered}"
        plan = {
            "name": name,
            "partitions": partitions,
            "replication_factor": 1,
            "configs": dict(configs or {}),
        }
        self.client.create_topics(self.system, [plan], 60)
        try:
            yield name
        finally:
            self.client.delete_topics(self.system, [name])

    def run(
        self,
        topic: str,
        partitions: int,
        seconds: float,
        *,
        rate: float | None,
        size: int = 100,
        linger_ms: float = 1.0,
        batch_bytes: int = 1_048_576,
        consume: bool = False,
        drain_after: bool = False,
        realtime: str = "auto",
        lanes: dict[str, int] | None = None,
        probes: bool = True,
    ) -> Trial:
        """One trial. `rate` None is a closed loop. `drain_after`: consume only when producing is over."""
        closed = {"arrival": "closed", "stop_s": seconds}
        paced = {"arrival": "uniform", "rate_msgs_s": rate, "stop_s": seconds}
        subscription = {
            "name": f"{topic}-s",
            "start": "latest",
            "consumers": 1,
            "consumer_from": 0,
            "consumer_count": 1,
        }
        status = self.client.create_trial(
            {
                "run": time.time_ns() & 0xFFFFFFFF,
                "seed": 1,
                "system": self.system,
                "topics": [{"name": topic, "partitions": partitions}],
                "producers": [{"id": 0, "topic": topic, "keys": "none"}],
                "subscriptions": [subscription] if consume or drain_after else [],
                "schedule": closed if rate is None else paced,
                "phases": [
                    {"name": "warm-up", "from_s": 0.0},
                    {"name": "measure", "from_s": MEASURE_AFTER_S},
                ],
                "batch": {"bytes": batch_bytes, "linger_ms": linger_ms, "in_flight": 5},
                "acks": "all",
                "payload": {"size_bytes": size, "random_ratio": 0.0, "pool": 64},
                "lanes": {"realtime": realtime, **(lanes or {})},
                "quiet": {"probes": probes},
            }
        )
        deadline = time.monotonic() + READY_WITHIN_S
        while status.state == "preparing" and time.monotonic() < deadline:
            time.sleep(0.05)
            status = self.client.status(status.id)
        if status.state != "ready":
            raise SystemExit(f"the trial is {status.state}: {status.error}")
        if drain_after:
            self.client.pause(status.id, f"{topic}-s")
        self.client.start(status.id, 100)
        self._sleep(status.id, seconds + 0.5)
        if drain_after:
            self.client.resume(status.id, f"{topic}-s")
        finish = self.client.finish(status.id, 60, 5)
        intervals: list[dict[str, Any]] = []
        while True:
            page = self.client.intervals(status.id, len(intervals))
            if not page.intervals:
                return Trial(intervals, finish)
            intervals += page.intervals

    def _sleep(self, trial: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 2.0))
            self.client.renew_lease(trial, 5.0)


@contextmanager
def gauge(bootstrap: str) -> Iterator[Gauge]:
    """A worker and a Kafka for the time of the block."""
    with gauge_for({"protocol": "kafka", "bootstrap": [bootstrap], "options": {}}) as found:
        yield found


@contextmanager
def gauge_for(system: dict[str, Any]) -> Iterator[Gauge]:
    """A worker for the time of the block. `system`: what it drives, as a running system's `connection` says."""
    fleet = LocalFleet()
    with tempfile.TemporaryDirectory() as directory:
        worker = fleet.start(Path(directory))
        try:
            yield Gauge(worker.only, system)
        finally:
            fleet.stop()
