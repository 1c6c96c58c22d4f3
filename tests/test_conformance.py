"""Every system that comes with streamgauge passes the suite, each on one broker for most checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from streamgauge.conformance.suite import Conformance
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.registry import systems

pytestmark = pytest.mark.timeout(600)


@pytest.mark.server
class TestGaugeLog(Conformance):
    system_name = "gauge-log"


@pytest.mark.server
class TestNats(Conformance):
    system_name = "nats"


@pytest.mark.server
class TestRabbitMq(Conformance):
    system_name = "rabbitmq"


@pytest.mark.jvm
class TestKafka(Conformance):
    system_name = "kafka"
    options: ClassVar[Mapping[str, Any]] = {"heap": "512m"}


@pytest.mark.jvm
class TestPulsar(Conformance):
    system_name = "pulsar"

    def further_checks(self, running: RunningSystem) -> None:
        assert {process.name for process in running.processes()} == {"zookeeper", "bookie-1", "broker-1"}
        before = running.metrics()
        self.bench.gauge.load_new_topic(running)
        name = "bookie-1.journal_sync_count"
        assert running.metrics()[name] > before[name]


def test_every_system_has_its_class() -> None:
    tried = {kind.system_name for kind in Conformance.__subclasses__() if kind.__module__ == __name__}
    assert tried == set(systems())
