"""The systems that streamgauge can get and run."""

from __future__ import annotations

from streamgauge.systems.base import System
from streamgauge.systems.gauge_log import GaugeLog
from streamgauge.systems.kafka import Kafka
from streamgauge.systems.nats import Nats
from streamgauge.systems.pulsar import Pulsar
from streamgauge.systems.rabbitmq import RabbitMq

SYSTEMS: tuple[type[System], ...] = (GaugeLog, Kafka, Pulsar, RabbitMq, Nats)
"""In the order in which they are shown. A new system is one module and one line here."""


def systems() -> dict[str, System]:
    """Name -> system."""
    return {kind.name: kind() for kind in SYSTEMS}
