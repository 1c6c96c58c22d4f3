"""What NATS tells of itself over its monitoring port.

Source: NATS' documentation, "Monitoring" (`/varz`, `/jsz`). `disk_io_wait_stats` came with 2.14; a server that does not tell a figure has a gap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from streamgauge.model.own_metric import OwnMetric
from streamgauge.systems.base.own_metrics import MetricSource, NotRead, OwnMetrics
from streamgauge.systems.support.endpoint import Endpoint

LAG = "raft_lag_msgs"
GROUPS_MAX = 200
"""Streams and consumers with copies up to which each second is asked how far the copies are: with more the answer has a MB."""

VARZ: Mapping[tuple[str, ...], tuple[OwnMetric, float]] = {
    ("disk_io_wait_stats", "waits"): (
        OwnMetric(
            name="disk_io_waits",
            title="waits for a place at the disk",
            unit="waits",
            kind="counter",
            explains="reads and writes that waited because too many others were under way",
        ),
        1.0,
    ),
    ("disk_io_wait_stats", "wait_time"): (
        OwnMetric(
            name="disk_io_wait_ms",
            title="wait for a place at the disk",
            unit="ms",
            kind="counter",
            explains="how long each of them waited",
            per="disk_io_waits",
        ),
        1e-6,
    ),
    ("stalled_clients",): (
        OwnMetric(
            name="stalled_clients",
            title="stalled producers",
            unit="stalls",
            kind="counter",
            explains="producers held up because a consumer's connection was full",
        ),
        1.0,
    ),
    ("slow_consumers",): (
        OwnMetric(
            name="slow_consumers",
            title="slow consumers",
            unit="consumers",
            kind="counter",
            explains="consumers cut off because they did not read",
        ),
        1.0,
    ),
    ("jetstream", "meta", "pending"): (
        OwnMetric(
            name="meta_pending",
            title="changes of the cluster under way",
            unit="entries",
            kind="gauge",
            explains="elections and moved streams hold up who publishes to them",
        ),
        1.0,
    ),
    ("mem",): (
        OwnMetric(
            name="memory_mb",
            title="memory of the server",
            unit="MB",
            kind="gauge",
            explains="buffers that grow because something behind them is slow",
            role="sign",
        ),
        1e-6,
    ),
    ("cpu",): (
        OwnMetric(
            name="cpu_percent",
            title="CPU of the server",
            unit="% of a core",
            kind="gauge",
            explains="a server that is out of CPU makes all wait",
            role="sign",
        ),
        1.0,
    ),
}
RAFT_LAG = OwnMetric(
    name=LAG,
    title="lag of the copies",
    unit="messages",
    kind="gauge",
    together="max",
    explains="a majority that is behind holds up acknowledgements",
    role="sign",
)


class NatsMetrics(OwnMetrics):
    """Metrics of servers; a URL is that of a monitoring port."""

    told = (*(metric for metric, _ in VARZ.values()), RAFT_LAG)

    def source(self, name: str, url: str) -> MetricSource:
        endpoint = Endpoint(url)

        def read() -> Mapping[str, float]:
            told = dict(select(_answer(endpoint, "/varz")))
            if 0 < told.pop("", 0.0) <= GROUPS_MAX:
                lag = raft_lag(_answer(endpoint, "/jsz?streams=true&raft=true"))
                return told if lag is None else {**told, LAG: lag}
            return told

        return MetricSource(name, url, read)


METRICS = NatsMetrics()


def _answer(endpoint: Endpoint, path: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(endpoint.get(path))
    except (ValueError, RecursionError):
        raise NotRead("an answer that is no JSON") from None
    if not isinstance(answer, Mapping):
        raise NotRead("an answer that is no object")
    return answer


def select(varz: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The metrics that `/varz` tells; with no name, how many streams and consumers have copies."""
    for path, (metric, scale) in VARZ.items():
        value = _number(varz, path)
        if value is not None:
            yield metric.name, value * scale
    yield "", _number(varz, ("jetstream", "stats", "ha_assets")) or 0.0


def raft_lag(jsz: Mapping[str, Any]) -> float | None:
    """How far the slowest copy of a stream is behind whoever leads it; None where this server leads none."""
    lags = [
        0.0 if replica.get("current") is True else _number(replica, ("lag",))
        for account in _objects(jsz.get("account_details"))
        for stream in _objects(account.get("stream_detail"))
        if isinstance(cluster := stream.get("cluster"), Mapping)
        for replica in _objects(cluster.get("replicas"))
    ]
    return max((lag for lag in lags if lag is not None), default=None)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _number(value: Any, path: tuple[str, ...]) -> float | None:
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
