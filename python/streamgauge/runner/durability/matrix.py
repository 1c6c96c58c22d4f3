"""The cells of `streamgauge durability --all`: the systems and settings whose durability publications dispute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.model.system_file import SystemChoice
from streamgauge.systems.base import Level, System, SystemRequest

CELLS: tuple[tuple[str, str, int, Level | None, Mapping[str, Any]], ...] = (
    ("gauge-log-fsync", "gauge-log", 1, "L3", {}),
    ("gauge-log-async", "gauge-log", 1, "L4", {}),
    ("kafka-default", "kafka", 1, "L4", {}),
    ("kafka-flush-1", "kafka", 1, "L3", {}),
    ("pulsar-sync", "pulsar", 1, "L3", {"journal": "sync"}),
    ("pulsar-async-journal", "pulsar", 1, "L4", {"journal": "async_journal"}),
    ("pulsar-bypass-journal", "pulsar", 1, "L4", {"journal": "async_bypass"}),
    ("rabbitmq-quorum", "rabbitmq", 1, None, {"queue": "quorum"}),
    ("rabbitmq-classic", "rabbitmq", 1, None, {"queue": "classic"}),
    ("rabbitmq-stream", "rabbitmq", 1, None, {"queue": "stream"}),
    ("nats-default", "nats", 1, "L4", {}),
    ("nats-always", "nats", 1, "L3", {}),
    ("kafka-default-3", "kafka", 3, "L2", {}),
    ("kafka-flush-1-3", "kafka", 3, "L1", {}),
    ("pulsar-sync-3", "pulsar", 3, "L1", {"journal": "sync"}),
    ("pulsar-async-journal-3", "pulsar", 3, "L2", {"journal": "async_journal"}),
    ("nats-default-3", "nats", 3, "L2", {}),
    ("nats-always-3", "nats", 3, "L1", {}),
)
"""Name, system, nodes, level, options."""


def matrix(known: Mapping[str, System]) -> list[SystemChoice]:
    """Every cell whose system can run on this machine; the others are left out."""
    return [
        SystemChoice(
            name=name,
            system=known[system],
            request=SystemRequest(nodes=nodes, level=level, options=dict(options)),
        )
        for name, system, nodes, level, options in CELLS
        if known[system].missing() is None
    ]
