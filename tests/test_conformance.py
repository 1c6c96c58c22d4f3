"""Every system that comes with streamgauge passes the suite, each on one broker for most checks."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any, ClassVar

import httpx
import pytest
from streamgauge.conformance.suite import Conformance
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.pulsar.metrics import METRICS
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
        bookie, broker = running.metric_sources()
        assert (bookie.name, broker.name) == ("bookie-1", "broker-1")
        before = bookie.read()
        self.bench.gauge.load_new_topic(running)
        after = bookie.read()
        assert {one.name for one in METRICS.told if one.name.startswith("journal_")} <= set(after)
        for name in ("journal_sync_ms_count", "journal_add_ms_count"):
            assert after[name] > before[name]

    def strangers_are_refused(self, connection: Mapping[str, Any]) -> None:
        trust = ssl.create_default_context(cadata=connection["security"]["tls"]["ca_pem"])
        (web,) = connection["options"]["admin"]
        for path in ("/admin/v2/tenants", "/admin/v2/brokers/configuration/runtime", "/metrics/"):
            assert httpx.get(f"https://{web}{path}", verify=trust, trust_env=False).status_code == 401
        host, _, port = connection["bootstrap"][0].rpartition(":")
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            trust.wrap_socket(plain, server_hostname=host) as secured,
        ):
            # CONNECT without any authentication; what comes is ERROR (14) and not CONNECTED (3).
            secured.sendall(bytes.fromhex("0000000d 00000009 0802 1205 0a0178 2013"))
            assert secured.recv(4096)[8:10] == bytes([0x08, 14])


def test_every_system_has_its_class() -> None:
    tried = {kind.system_name for kind in Conformance.__subclasses__() if kind.__module__ == __name__}
    assert tried == set(systems())
