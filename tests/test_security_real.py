"""TLS and credentials with real systems and the real gauge: started with certificates that the lab makes, and attached to
where a name and a password are asked for."""

from __future__ import annotations

import base64
import datetime
import functools
import hmac
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from lab_support import lab, reference_log
from streamgauge.model.security import Auth, Security, Tls
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems import standalone
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.kafka import cluster as kafka_cluster
from streamgauge.systems.kafka import settings as kafka_settings
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.nats import server as nats_server
from streamgauge.systems.nats.system import Nats
from streamgauge.systems.pulsar import tls as pulsar_tls
from streamgauge.systems.pulsar.system import Pulsar
from streamgauge.systems.rabbitmq import settings as rabbitmq_settings
from streamgauge.systems.rabbitmq.system import RabbitMq, installed_version
from streamgauge.systems.support import kafka_broker
from streamgauge.systems.support.certificates import Certificates, make_certificates

pytestmark = pytest.mark.timeout(400)
SECRET = "tr0ub4dor-and-three"
SMALL = ("--rate", "2000", "--duration", "2s", "--warmup", "1s", "--size", "100", "--partitions", "4")
needs_rabbitmq = pytest.mark.skipif(installed_version() is None, reason="rabbitmq-server is not installed")


def measured(gauge: Path, directory: Path, *arguments: str) -> list[dict[str, Any]]:
    """The results of a run, which may be invalid on a crowded machine, and must be complete and clean."""
    process = lab(
        gauge, directory, "run", "1-topic-1-partition-100b", *SMALL, *arguments, stderr=subprocess.STDOUT
    )
    out, _ = process.communicate(timeout=300)
    assert process.returncode in (0, 1), out
    results = [
        json.loads(path.read_text("utf-8"))
        for path in sorted((directory / "runs/latest").resolve().glob("trials/*/result.json"))
    ]
    for found in results:
        assert found["status"] == "complete", out
        assert found["audit"]["clean"], found["audit"]
        assert found["durability"]["mismatches"] == [], out
    assert_without(directory / "runs", "PRIVATE KEY")
    return results


def assert_without(directory: Path, secret: str) -> None:
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert secret.encode() not in path.read_bytes(), path


# ---------------------------------------------------------------------- systems that are started


@pytest.mark.server
def test_a_started_system_is_measured_over_tls(gauge: Path, tmp_path: Path) -> None:
    (found,) = measured(gauge, tmp_path, "--system", "gauge-log", "--tls", "on")
    assert (found["system"], found["tls"]) == ("gauge-log+tls", "on")
    assert found["cannot"] == [one for one in found["cannot"] if "tls" not in one.lower()]


@pytest.mark.server
@needs_rabbitmq
def test_streams_are_measured_over_tls(gauge: Path, tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text("system: rabbitmq\nqueue: stream\ntls: true\n")
    (found,) = measured(gauge, tmp_path, "--system", "streams.yaml")
    assert (found["system"], found["tls"]) == ("streams", "on")


@pytest.mark.server
def test_three_nodes_of_nats_are_measured_over_tls(gauge: Path, tmp_path: Path) -> None:
    (found,) = measured(gauge, tmp_path, "--system", "nats", "--tls", "on", "--nodes", "3")
    assert (found["tls"], found["nodes"]) == ("on", 3)
    assert any("in plain text" in warning for warning in found["validity"]["warnings"])


@pytest.mark.server
def test_keys_of_a_system_that_is_kept_up_go_with_it(
    gauge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    monkeypatch.setenv("GAUGE", str(gauge))
    up = standalone.up("gauge-log", SystemRequest(tls=True), print)
    try:
        clients = Security(tls=Tls(ca_pem=up.connection["security"]["tls"]["ca_pem"]))
        assert kafka_broker.describe(up.connection["bootstrap"][0], clients).brokers == 1
        assert up.supervisor is not None
        # What a supervisor that was killed could not wipe, `down` does.
        os.kill(up.supervisor[0], signal.SIGKILL)
    finally:
        standalone.down("gauge-log", print)
    assert_without(tmp_path, "PRIVATE KEY")


# ---------------------------------------------------------------------- systems that ask who it is


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "keys", [])


def system_file(
    directory: Path,
    system: str,
    running: Sequence[str],
    authority: Path,
    auth: str,
    *,
    secret: str = SECRET,
    more: str = "",
    security: str = "",
) -> str:
    """A system file beside a file with a secret. `more` and `security`: further lines of it, and of its `security`."""
    kept = directory / "secret"
    kept.write_text(secret + "\n")
    kept.chmod(0o600)
    path = directory / "theirs.yaml"
    path.write_text(
        f"system: {system}\nconnect: {json.dumps(list(running))}\n{more}"
        f"security:\n  ca_file: {authority}\n  auth: {{{auth}}}\n{security}"
    )
    return str(path)


@pytest.fixture
def guarded_log(gauge: Path, tmp_path: Path, certificates: Certificates) -> Iterator[str]:
    """The address of a reference log that encrypts and knows one user."""
    users = tmp_path / "users"
    users.write_text(f"bench:{SECRET}\n")
    users.chmod(0o600)
    arguments = ["--certificate", str(certificates.certificate), "--key", str(certificates.key)]
    with reference_log(gauge, tmp_path / "log-data", *arguments, "--users", str(users)) as address:
        yield address


@pytest.mark.server
@pytest.mark.parametrize("mechanism", ["scram-sha-512", "scram-sha-256", "plain"])
def test_a_log_with_users_is_measured(
    gauge: Path, tmp_path: Path, guarded_log: str, certificates: Certificates, mechanism: str
) -> None:
    auth = f"mechanism: {mechanism}, username: bench, password_file: secret"
    file = system_file(tmp_path, "gauge-log", [guarded_log], certificates.authority, auth)
    (found,) = measured(gauge, tmp_path, "--system", file)
    assert (found["tls"], found["authentication"], found["attached"]) == ("on", mechanism, True)
    assert_without(tmp_path / "runs", SECRET)


@pytest.mark.server
def test_the_lab_asks_a_guarded_broker_itself(guarded_log: str, certificates: Certificates) -> None:
    tls = certificates.security.tls
    for mechanism in ("scram-sha-512", "scram-sha-256", "plain"):
        known = Security(tls, Auth(mechanism, "bench", SECRET))
        assert kafka_broker.describe(guarded_log, known).brokers == 1
    other = make_certificates(certificates.directory.parent / "other", [])
    stranger = Auth("scram-sha-512", "bench", "another-" + SECRET)
    for security, code, said in (
        (Security(tls, stranger), "login_refused", '"bench" cannot log in with SCRAM-SHA-512: '),
        (Security(tls), "closed", "over TLS, that asks for these credentials"),
        (None, "closed", "in plain text, that asks for these credentials"),
        (other.security, "tls_refused", "not signed by the given CA: .* security.ca_file"),
    ):
        with pytest.raises(kafka_broker.NotDescribed, match=said) as raised:
            kafka_broker.describe(guarded_log, security)
        assert raised.value.code == code
        assert SECRET not in str(raised.value)


@pytest.mark.server
def test_a_wrong_password_fails_the_trial_and_is_not_told(
    gauge: Path, tmp_path: Path, guarded_log: str, certificates: Certificates
) -> None:
    auth = "mechanism: scram-sha-256, username: bench, password_file: secret"
    file = system_file(tmp_path, "gauge-log", [guarded_log], certificates.authority, auth)
    (tmp_path / "secret").write_text("another-" + SECRET)
    process = lab(gauge, tmp_path, "run", *SMALL, "--system", file, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 3, out
    assert "wrong password" in out
    assert SECRET not in out
    assert_without(tmp_path / "runs", SECRET)


@pytest.mark.server
@pytest.mark.parametrize(
    ("server", "auth"),
    [
        (
            f'authorization {{ user: bench, password: "{SECRET}" }}\n',
            "mechanism: plain, username: bench, password_file: secret",
        ),
        (f'authorization {{ token: "{SECRET}" }}\n', "mechanism: token, token_file: secret"),
    ],
)
def test_a_nats_server_with_credentials_is_measured(
    gauge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, auth: str
) -> None:
    written = nats_server.configuration_file
    monkeypatch.setattr(nats_server, "configuration_file", lambda *args: written(*args) + server)
    running = Nats().start(SystemRequest(tls=True), tmp_path / "nats", print)
    try:
        file = attached_file(tmp_path, running, auth)
        (found,) = measured(gauge, tmp_path, "--system", file)
    finally:
        running.stop()
    assert found["authentication"] == auth.split(",")[0].removeprefix("mechanism: ")
    assert_without(tmp_path / "runs", SECRET)


def attached_file(directory: Path, running: RunningSystem, auth: str, **others: str) -> str:
    """A system file for a running system, as if somebody else had started it."""
    connection = running.connection
    authority = directory / "authority.pem"
    authority.write_text(connection["security"]["tls"]["ca_pem"])
    return system_file(directory, running.name, connection["bootstrap"], authority, auth, **others)


@pytest.mark.jvm
def test_kafka_with_scram_is_measured(gauge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = "org.apache.kafka.common.security"
    written = kafka_settings.node_settings

    def with_users(*args: Any) -> Mapping[str, str]:
        """Clients must say who they are; of two users one is in the file, the other in the cluster's metadata."""
        node = {key: value.replace("SSL:", "SASL_SSL:") for key, value in written(*args).items()}
        node["listener.security.protocol.map"] = "SASL_SSL:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        return node | {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{login}.plain.PlainLoginModule required user_admin="{SECRET}";',
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        }

    def as_admin(certificates: Certificates | None) -> Security | None:
        assert certificates is not None
        return Security(certificates.security.tls, Auth("plain", "admin", SECRET))

    monkeypatch.setattr(kafka_settings, "node_settings", with_users)
    monkeypatch.setattr(kafka_cluster, "security_of", as_admin)
    running = Kafka().start(SystemRequest(tls=True), tmp_path / "kafka", print)
    try:
        auth = "mechanism: scram-sha-512, username: bench, password_file: secret"
        file = attached_file(tmp_path, running, auth)
        add_user(running, tmp_path / "authority.pem")
        (found,) = measured(gauge, tmp_path, "--system", file)
    finally:
        running.stop()
        running.wipe()
    assert (found["tls"], found["authentication"], found["attached"]) == ("on", "scram-sha-512", True)
    assert_without(tmp_path / "runs", SECRET)


def add_user(running: RunningSystem, authority: Path) -> None:
    """Makes `bench` known to Kafka, through librdkafka."""
    admin = AdminClient(
        {
            "bootstrap.servers": ",".join(running.connection["bootstrap"]),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": SECRET,
        }
    )
    user = UserScramCredentialUpsertion(
        "bench", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), SECRET.encode()
    )
    for done in admin.alter_user_scram_credentials([user]).values():
        done.result(30)


# ---------------------------------------------------------------------- certificates of clients


@dataclass(frozen=True)
class Client:
    """A client's certificate, its key, and the authority that signed it."""

    authority: Path
    lines: str
    """Of `security` in a system file."""


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """A certificate for `guest`, whom a new RabbitMQ knows."""

    def signed(name: str, key: ec.EllipticCurvePrivateKey, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clients")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        return builder.sign(signer, hashes.SHA256())

    signer, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "clients.pem").write_bytes(signed("clients", signer, ca=True).public_bytes(Encoding.PEM))
    (tmp_path / "client.pem").write_bytes(signed("guest", own, ca=False).public_bytes(Encoding.PEM))
    key = tmp_path / "client.key"
    key.touch(mode=0o600)
    key.write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Client(tmp_path / "clients.pem", "  certificate_file: client.pem\n  key_file: client.key\n")


@pytest.mark.server
@needs_rabbitmq
def test_rabbitmq_knows_a_client_by_its_certificate(
    gauge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    # Its plugin for streams does not, in the version that is tested with (docs/security.md).
    plugins = rabbitmq_settings.plugins_file
    monkeypatch.setattr(
        rabbitmq_settings,
        "plugins_file",
        lambda found, *, has_metrics: (
            plugins(found, has_metrics=has_metrics)
            .replace("[", "[rabbitmq_auth_mechanism_ssl,", 1)
            .replace(",]", "]")
        ),
    )
    theirs = {
        "auth_mechanisms.1": "EXTERNAL",
        "ssl_cert_login_from": "common_name",
        "ssl_options.cacertfile": str(client.authority),
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "true",
    }
    request = SystemRequest(tls=True, options={"queue": "classic", "config": theirs}, trusted=True)
    running = RabbitMq().start(request, tmp_path / "rabbitmq", print)
    try:
        file = attached_file(
            tmp_path, running, "mechanism: external", more="queue: classic\n", security=client.lines
        )
        (found,) = measured(gauge, tmp_path, "--system", file)
    finally:
        running.stop()
        running.wipe()
    assert (found["tls"], found["authentication"], found["attached"]) == ("on", "external", True)
    assert_without(tmp_path / "runs", "PRIVATE KEY")


def web_token(secret: bytes, subject: str) -> str:
    """A JSON web token (RFC 7519) with HMAC-SHA-256."""

    def part(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")

    said = part(b'{"alg":"HS256"}') + "." + part(json.dumps({"sub": subject}).encode())
    return said + "." + part(hmac.digest(secret, said.encode("ascii"), "sha256"))


@pytest.mark.jvm
def test_pulsar_knows_a_client_by_its_token_or_its_certificate(
    gauge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    secret = SECRET.ljust(32, "-").encode("ascii")
    admin, bench = web_token(secret, "admin"), web_token(secret, "bench")
    theirs = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
    broker = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{theirs}Token,{theirs}Tls",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(secret).decode('ascii')}",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{admin}",
    }
    written = pulsar_tls.tls_settings
    monkeypatch.setattr(
        pulsar_tls,
        "tls_settings",
        lambda *args: written(*args) | {"tlsTrustCertsFilePath": str(client.authority)},
    )
    for name in ("get", "request"):
        asked = functools.partial(getattr(httpx, name), headers={"Authorization": f"Bearer {admin}"})
        monkeypatch.setattr(httpx, name, asked)
    request = SystemRequest(tls=True, options={"broker": broker}, trusted=True)
    running = Pulsar().start(request, tmp_path / "pulsar", print)
    try:
        more = f"admin: {json.dumps(running.connection['options']['admin'])}\n"
        file = attached_file(
            tmp_path, running, "mechanism: token, token_file: secret", secret=bench, more=more
        )
        (by_token,) = measured(gauge, tmp_path, "--system", file)
        file = attached_file(tmp_path, running, "mechanism: external", security=client.lines, more=more)
        (by_certificate,) = measured(gauge, tmp_path, "--system", file)
        file = attached_file(
            tmp_path, running, "mechanism: token, token_file: secret", secret=bench[:-9], more=more
        )
        process = lab(gauge, tmp_path, "run", *SMALL, "--system", file, stderr=subprocess.STDOUT)
        out, _ = process.communicate(timeout=120)
    finally:
        running.stop()
        running.wipe()
    assert (by_token["tls"], by_token["authentication"]) == ("on", "token")
    assert (by_certificate["tls"], by_certificate["authentication"]) == ("on", "external")
    assert process.returncode == 3, out
    assert bench[:-9] not in out
    for hidden in (bench, bench[:-9], "PRIVATE KEY"):
        assert_without(tmp_path / "runs", hidden)
