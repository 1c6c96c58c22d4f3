"""Unmodified clients that encrypt and log in, and who is kept out, against the reference log."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from lab_support import reference_log
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.support.java import find_java

PASSWORD = "correct horse battery"


class Guarded(NamedTuple):
    """A log that encrypts and whose clients log in."""

    address: str
    directory: Path

    def client(self, mechanism: str, password: str = PASSWORD) -> dict[str, str | int | float | bool]:
        """What librdkafka has to know to log in."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.directory / "identity" / "certificate.pem"),
            # The certificate is made for a name that this machine does not have; that it is this one is verified.
            "ssl.endpoint.identification.algorithm": "none",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }


def users_file(gauge: Path, directory: Path) -> Path:
    """Alice, as --make-user writes her down."""
    made = subprocess.run(
        [gauge, "log", "--make-user", "alice"],
        input=PASSWORD + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert PASSWORD not in made.stdout + made.stderr
    path = directory / "users"
    path.write_text(made.stdout)
    path.chmod(0o600)
    return path


@pytest.fixture
def guarded(gauge: Path, tmp_path: Path) -> Iterator[Guarded]:
    identity = tmp_path / "identity"
    subprocess.run([gauge, "worker", "--make-identity", identity], stdout=subprocess.PIPE, check=True)
    arguments = ["--certificate", str(identity / "certificate.pem"), "--key", str(identity / "key.pem")]
    arguments += ["--users", str(users_file(gauge, tmp_path)), "--events", str(tmp_path / "events")]
    with reference_log(gauge, tmp_path / "data", *arguments) as address:
        yield Guarded(address, tmp_path)
    assert '"security_protocol":"SASL_SSL"' in (tmp_path / "events").read_text()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_librdkafka_logs_in_produces_and_consumes(guarded: Guarded, mechanism: str) -> None:
    count = 2000
    values = [b"%d " % number * 200 for number in range(count)]
    failed: list[object] = []
    producer = Producer(guarded.client(mechanism))
    for value in values:
        producer.produce(
            "orders", value, on_delivery=lambda error, _message: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failed == []
    consumer = Consumer({**guarded.client(mechanism), "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    received: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(received) < count and time.monotonic() < deadline:
        received += [message.value() for message in consumer.consume(500, 0.2)]
    consumer.close()
    assert received == values


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_librdkafka_is_refused_with_a_wrong_password(guarded: Guarded, mechanism: str) -> None:
    errors: list[KafkaError] = []
    settings = guarded.client(mechanism, password="correct house battery")
    producer = Producer({**settings, "error_cb": errors.append})
    producer.produce("orders", b"value")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not any(
        error.code() == KafkaError._AUTHENTICATION for error in errors
    ):
        producer.poll(0.1)
    told = [error.str() for error in errors if error.code() == KafkaError._AUTHENTICATION]
    assert told
    assert "unknown user or wrong password" in told[0]
    assert producer.flush(0) == 1
    producer.purge()


@pytest.mark.jvm
def test_kafkas_own_tools_log_in(guarded: Guarded) -> None:
    kafka = Kafka()
    kafka.install(None, print)
    libraries = kafka.installed()
    java = str(find_java().executable)

    def tool(name: str, password: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        settings = guarded.directory / "client.properties"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        lines = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": guarded.directory / "identity" / "certificate.pem",
            "ssl.endpoint.identification.algorithm": "",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{login} required username="alice" password="{password}";',
        }
        settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        command = [java, "-Xmx256m", "-cp", f"{libraries}/*", f"org.apache.kafka.tools.{name}"]
        command += ["--bootstrap-server", guarded.address, "--command-config", str(settings), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    created = tool("TopicCommand", PASSWORD, "--create", "--topic", "perf", "--partitions", "4")
    assert created.returncode == 0, created.stdout + created.stderr
    described = tool("TopicCommand", PASSWORD, "--describe", "--topic", "perf")
    assert "PartitionCount: 4" in described.stdout, described.stdout + described.stderr
    refused = tool("TopicCommand", "correct house battery", "--list")
    assert refused.returncode != 0
    assert "unknown user or wrong password" in refused.stdout + refused.stderr


def refusal(gauge: Path, *arguments: str | Path) -> str:
    """What the log says when it does not start because of its arguments."""
    ended = subprocess.run([gauge, "log", *arguments], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2, ended.stdout
    return ended.stderr


def test_the_log_does_not_start_unprotected_beyond_loopback(gauge: Path, tmp_path: Path) -> None:
    reachable = ["--listen", "0.0.0.0:0", "--advertise", "broker", "--data", str(tmp_path / "data")]
    message = refusal(gauge, *reachable)
    for what_to_do in ("--certificate", "--key", "--users", "--insecure", "127.0.0.1"):
        assert what_to_do in message
    users = users_file(gauge, tmp_path)
    message = refusal(gauge, *reachable, "--users", users)
    assert "--certificate" in message
    assert "--users" not in message
    users.chmod(0o644)
    message = refusal(gauge, *reachable, "--users", users)
    assert f"chmod 600 {users}" in message
    assert not (tmp_path / "data").exists()


def test_a_user_that_cannot_be_made_is_refused_with_what_was_expected(gauge: Path) -> None:
    for name, password, expected in (("a:b", PASSWORD, "a name"), ("alice", "short", "a password of 8")):
        ended = subprocess.run(
            [gauge, "log", "--make-user", name], input=password, capture_output=True, text=True, timeout=30
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert expected in ended.stderr
