"""From a workload to what a worker is asked to do (docs/worker-api.md)."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

from streamgauge.model.seeds import run_mark
from streamgauge.model.workload import Workload
from streamgauge.systems.base import TopicPlan
from streamgauge.vocabulary.phases import BUILD, EXTRA_READER, INTERVAL_S, MEASURE, WARM_UP

LEASE_S = 10.0
READY_WITHIN_S = 60.0
READY_PER_PARTITION_S = 0.02
NAME_PREFIX = "streamgauge"
LANES_MAX = 16
QUIET_DURATION_S_MIN = 2.0
"""A shorter phase is over before it is known how quiet it was."""


def topic_names(workload: Workload, run_id: str, trial: int, probe: int | None = None) -> list[str]:
    """Names that no other trial (or probe of a trial's search) has, also on a cluster that is shared. Characters
    are those that all systems take (letters, digits, hyphens)."""
    # The checksum tells runs apart whose names were cut.
    run = "".join(character if character.isalnum() else "-" for character in run_id)
    stem = f"{NAME_PREFIX}-{run[:60].strip('-')}-{zlib.crc32(run_id.encode()):08x}-{trial}"
    if probe is not None:
        stem += f"-p{probe}"
    # Pulsar keeps this for the parts of a topic, and names of workloads have it ("1-topic-1-partition-100b").
    stem = stem.replace("-partition-", "-part-")
    return [f"{stem}-{number}" for number in range(workload.topics)]


def ready_within_s(workload: Workload) -> float:
    """How long creating the topics may take, and how long it may take until their consumers are ready."""
    return READY_WITHIN_S + READY_PER_PARTITION_S * workload.topics * workload.partitions_per_topic


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
    probe: int | None = None,
    partitions: Mapping[str, int] | None = None,
    within_s: float | None = None,
) -> dict[str, Any]:
    """The body of POST /v1/trials for a single worker. `partitions`: of topics that have another number of them than the workload
    says. `within_s`: where the schedule ends at the latest, if it may go on for longer than the workload says."""
    request: dict[str, Any] = {
        "run": run_mark(run_id, trial, probe),
        "seed": seed,
        "system": dict(system),
        "topics": [
            {"name": name, "partitions": (partitions or {}).get(name, workload.partitions_per_topic)}
            for name in names
        ],
        "producers": _producers(workload, names),
        "subscriptions": [
            {
                "name": f"s-{number}",
                "start": workload.start,
                "consumers": workload.consumers_per_subscription,
                "consumer_from": 0,
                "consumer_count": workload.consumers_per_subscription,
                **_processing(workload),
            }
            for number in range(workload.subscriptions_per_topic)
        ]
        + _extra_reader(workload),
        "schedule": _schedule(workload, within_s),
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
        "ready_timeout_s": ready_within_s(workload),
    }
    lanes = dict(workload.lanes)
    if workload.backlog is not None and "consumer" not in lanes:
        # What reads a backlog must not share a thread with what sends, or with what tails.
        consumers = len(request["subscriptions"]) * workload.consumers_per_subscription
        lanes["consumer"] = min(consumers, LANES_MAX)
    if lanes:
        request["lanes"] = lanes
    return request


def catching_up(workload: Workload) -> list[str]:
    """Names of the subscriptions that read the backlog; none without one."""
    if workload.backlog is None:
        return []
    if workload.backlog.reader == "extra":
        return [EXTRA_READER]
    return [f"s-{number}" for number in range(workload.subscriptions_per_topic)]


def _extra_reader(workload: Workload) -> list[dict[str, Any]]:
    """The subscription that reads from the earliest message while the others tail."""
    if workload.backlog is None or workload.backlog.reader != "extra":
        return []
    return [
        {
            "name": EXTRA_READER,
            "start": "earliest",
            "consumers": workload.consumers_per_subscription,
            "consumer_from": 0,
            "consumer_count": workload.consumers_per_subscription,
            **_processing(workload),
        }
    ]


def _processing(workload: Workload) -> dict[str, Any]:
    """What consumers need for what they have received; nothing is said when they need nothing."""
    us = {
        "us_per_msg": 1000 * workload.processing_ms_per_msg,
        "us_per_fetch": 1000 * workload.processing_ms_per_fetch,
    }
    return {"processing": us} if any(us.values()) else {}


def stop_s(workload: Workload) -> float:
    """Where the measured phase ends on the schedule's axis: the schedule's end, unless a backlog follows."""
    return workload.warmup_s + workload.duration_s


def _producers(workload: Workload, names: list[str]) -> list[dict[str, Any]]:
    producers: list[dict[str, Any]] = []
    for name in names:
        for _ in range(workload.producers_per_topic):
            producer: dict[str, Any] = {"id": len(producers), "topic": name, "keys": workload.keys}
            if workload.key_count is not None:
                producer["key_count"] = workload.key_count
            if workload.zipf_exponent is not None:
                producer["zipf_exponent"] = workload.zipf_exponent
            producers.append(producer)
    return producers


def waits_for_quiet(workload: Workload) -> bool:
    """Whether the measured phase may go on until enough of it was quiet: where nothing happens at a set time in it, or after it."""
    return (
        workload.quiet_limit > 1
        and workload.duration_s >= QUIET_DURATION_S_MIN
        and not (workload.backlog or workload.faults or workload.steps or workload.consumes_only)
        and workload.ramp_to_msgs_s is None
    )


def quiet_stop_s(workload: Workload) -> float:
    """Where it ends at the latest then."""
    return workload.warmup_s + math.ceil(workload.quiet_limit * workload.duration_s)


def _schedule(workload: Workload, within_s: float | None) -> dict[str, Any]:
    schedule: dict[str, Any] = {"arrival": workload.arrival}
    if workload.backlog is None:
        schedule["stop_s"] = stop_s(workload) if within_s is None else within_s
    if workload.consumes_only:
        schedule["rate_msgs_s"] = 0.0
    if workload.rate_msgs_s is not None:
        schedule["rate_msgs_s"] = workload.rate_msgs_s
    if workload.burst_msgs is not None:
        schedule["burst_msgs"] = workload.burst_msgs
    if workload.ramp_to_msgs_s is not None:
        schedule["ramp"] = {"to_msgs_s": workload.ramp_to_msgs_s, "over_s": workload.ramp_over_s}
    if workload.steps:
        schedule["changes"] = [step.model_dump() for step in workload.steps]
    return schedule


def _phases(workload: Workload) -> list[dict[str, Any]]:
    phases = [{"name": WARM_UP, "from_s": 0.0}] if workload.warmup_s else []
    if workload.warmup_auto:
        # What follows begins when the load is steady.
        return phases
    phases.append({"name": MEASURE, "from_s": workload.warmup_s})
    if workload.backlog is not None:
        phases.append({"name": BUILD, "from_s": stop_s(workload)})
    return phases


def _payload(workload: Workload) -> dict[str, Any]:
    content = workload.payload()
    if content is not None:
        return {"templates_base64": [base64.b64encode(content).decode("ascii")]}
    if workload.sizes is not None:
        return {
            "sizes_bytes": list(workload.sizes.sizes_bytes),
            "random_ratio": workload.payload_random_ratio,
        }
    return {
        "size_bytes": workload.message_size_bytes,
        "random_ratio": workload.payload_random_ratio,
        "pool": workload.payload_pool,
    }
