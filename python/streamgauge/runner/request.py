"""From a workload to what a worker is asked to do (docs/worker-api.md)."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

from streamgauge.model.workload import Workload
from streamgauge.runner.phases import MEASURE, WARM_UP
from streamgauge.systems.base import TopicPlan

INTERVAL_S = 1.0
LEASE_S = 10.0
NAME_PREFIX = "streamgauge"


def topic_names(workload: Workload, run_id: str, trial: int) -> list[str]:
    """Names that no other trial has, also on a cluster that is shared. Characters are those that all systems
    take (letters, digits, hyphens)."""
    # The checksum tells runs apart whose names were cut.
    run = "".join(character if character.isalnum() else "-" for character in run_id)
    stem = f"{NAME_PREFIX}-{run[:60].strip('-')}-{zlib.crc32(run_id.encode()):08x}-{trial}"
    return [f"{stem}-{number}" for number in range(workload.topics)]


def topic_requests(workload: Workload, names: list[str], plan: TopicPlan) -> list[dict[str, Any]]:
    """For create-topics."""
    return [
        {
            "name": name,
            "partitions": workload.partitions_per_topic,
            "replication_factor": plan.replication_factor,
            "configs": dict(plan.configs),
        }
        for name in names
    ]


def trial_request(
    workload: Workload,
    names: list[str],
    *,
    system: Mapping[str, Any],
    acks: str,
    run_id: str,
    trial: int,
    seed: int,
) -> dict[str, Any]:
    """The body of POST /v1/trials for a single worker."""
    request: dict[str, Any] = {
        "run": zlib.crc32(f"{run_id}/{trial}".encode()),
        "seed": seed,
        "system": dict(system),
        "topics": [{"name": name, "partitions": workload.partitions_per_topic} for name in names],
        "producers": _producers(workload, names),
        "subscriptions": [
            {
                "name": f"s-{number}",
                "start": "latest",
                "consumers": workload.consumers_per_subscription,
                "consumer_from": 0,
                "consumer_count": workload.consumers_per_subscription,
            }
            for number in range(workload.subscriptions_per_topic)
        ],
        "schedule": _schedule(workload),
        "phases": _phases(workload),
        "batch": {
            "bytes": workload.batch_bytes,
            "linger_ms": workload.linger_ms,
            "in_flight": workload.in_flight,
            "buffer_bytes": workload.buffer_bytes,
        },
        "acks": acks,
        "idempotence": workload.idempotence,
        "compression": workload.compression,
        "payload": _payload(workload),
        "interval_ms": int(INTERVAL_S * 1000),
        "lease_s": LEASE_S,
    }
    if workload.lanes:
        request["lanes"] = dict(workload.lanes)
    return request


def stop_s(workload: Workload) -> float:
    """Where the schedule ends on its own axis."""
    return workload.warmup_s + workload.duration_s


def _producers(workload: Workload, names: list[str]) -> list[dict[str, Any]]:
    producers: list[dict[str, Any]] = []
    for name in names:
        for _ in range(workload.producers_per_topic):
            producer: dict[str, Any] = {"id": len(producers), "topic": name, "keys": workload.keys}
            if workload.keys == "keyed":
                producer["key_count"] = workload.key_count
            producers.append(producer)
    return producers


def _schedule(workload: Workload) -> dict[str, Any]:
    schedule: dict[str, Any] = {"arrival": workload.arrival, "stop_s": stop_s(workload)}
    if workload.rate_msgs_s is not None:
        schedule["rate_msgs_s"] = workload.rate_msgs_s
    if workload.burst_msgs is not None:
        schedule["burst_msgs"] = workload.burst_msgs
    if workload.ramp_to_msgs_s is not None:
        schedule["ramp"] = {"to_msgs_s": workload.ramp_to_msgs_s, "over_s": workload.ramp_over_s}
    return schedule


def _phases(workload: Workload) -> list[dict[str, Any]]:
    if workload.warmup_s == 0:
        return [{"name": MEASURE, "from_s": 0.0}]
    return [{"name": WARM_UP, "from_s": 0.0}, {"name": MEASURE, "from_s": workload.warmup_s}]


def _payload(workload: Workload) -> dict[str, Any]:
    content = workload.payload()
    if content is not None:
        return {"templates_base64": [base64.b64encode(content).decode("ascii")]}
    return {
        "size_bytes": workload.message_size_bytes,
        "random_ratio": workload.payload_random_ratio,
        "pool": workload.payload_pool,
    }
