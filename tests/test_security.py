"""TLS and credentials in the lab, without a server: certificates, settings, system files, what is refused, and what is
never said."""

from __future__ import annotations

import json
import re
import ssl
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_run import KAFKA, LOG, Shape, workload, write_run
from streamgauge.analysis.cells import cells
from streamgauge.analysis.encryption import costs, figures_of
from streamgauge.fleet.client import WorkerClient
from streamgauge.model import security
from streamgauge.model.checked_study import parse_study
from streamgauge.model.omb_driver import advice
from streamgauge.model.scaling import Machine
from streamgauge.model.security import Auth, Security, Tls
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.system_file import SystemChoice, SystemOverrides, choose_systems, parse_tls
from streamgauge.model.system_kind import check_security
from streamgauge.model.system_request import SystemRequest, is_encrypted, mechanism_of
from streamgauge.model.trust import Trust
from streamgauge.report import encryption
from streamgauge.runner.study_systems import choice_of
from streamgauge.systems.base import System
from streamgauge.systems.kafka import settings as kafka_settings
from streamgauge.systems.nats import server as nats_server
from streamgauge.systems.pulsar import settings as pulsar_settings
from streamgauge.systems.pulsar import tls as pulsar_tls
from streamgauge.systems.rabbitmq import settings as rabbitmq_settings
from streamgauge.systems.registry import systems
from streamgauge.systems.support.certificates import Certificates, forget, make_certificates
from streamgauge.vocabulary.errors import InputError, SystemInputError, WorkerRefused
from systems_support import NATS_LAUNCH

SECRET = "hunter2-of-the-night"


# ---------------------------------------------------------------------- certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "keys", ["198.18.7.1", "node-1.test"])


def handshake(certificates: Certificates, client: ssl.SSLContext, name: str) -> None:
    """A handshake in memory: a server with the certificate, a client that expects the name."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.both)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    for _ in range(10):
        done = 0
        for side in sides:
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
        if done == 2:
            return
    raise AssertionError("the handshake did not end")


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "localhost", "198.18.7.1", "node-1.test"])
def test_clients_of_a_started_system_accept_its_certificate(certificates: Certificates, name: str) -> None:
    assert certificates.security.tls is not None
    handshake(certificates, certificates.security.tls.context(), name)


def test_another_name_and_another_authority_are_not_accepted(
    certificates: Certificates, tmp_path: Path
) -> None:
    assert certificates.security.tls is not None
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'elsewhere\.test'"):
        handshake(certificates, certificates.security.tls.context(), "elsewhere.test")
    other = make_certificates(tmp_path / "other", []).security.tls
    assert other is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificates, other.context(), "localhost")
    handshake(certificates, replace(other, verify=False).context(), "localhost")


def test_keys_are_private_and_go_with_the_data(certificates: Certificates, tmp_path: Path) -> None:
    for path in (certificates.key, certificates.both):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "PRIVATE KEY" in path.read_text()
    assert stat.S_IMODE(certificates.directory.stat().st_mode) == 0o700
    for path in (certificates.authority, certificates.certificate):
        assert "PRIVATE KEY" not in path.read_text()
    assert "PRIVATE KEY" not in json.dumps(certificates.security.request())
    first = certificates.authority.read_text()
    again = make_certificates(certificates.directory, [])
    assert again.authority.read_text() != first, "each start has an authority of its own"
    forget(certificates)
    forget(certificates)
    forget(None)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- settings


def test_kafkas_clients_get_a_listener_of_their_own(certificates: Certificates) -> None:
    listeners = kafka_settings.Listeners(["h:1", "h:2"], ["h:3", "h:4"], ["h:5", "h:6"], is_encrypted=True)
    node = kafka_settings.node_settings(2, listeners, "/data")
    assert node["listeners"] == "SSL://h:2,INTERNAL://h:6,CONTROLLER://h:4"
    assert node["advertised.listeners"] == "SSL://h:2,INTERNAL://h:6"
    assert node["inter.broker.listener.name"] == "INTERNAL"
    assert node["listener.security.protocol.map"] == "SSL:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert kafka_settings.tls_settings(str(certificates.both)) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.both),
        "ssl.client.auth": "none",
    }
    with pytest.raises(SystemInputError, match="use `tls`"):
        kafka_settings.parse_options(SystemRequest(options={"broker": {"ssl.keystore.type": "JKS"}}))


def test_the_other_systems_listen_with_tls_alone(certificates: Certificates) -> None:
    launch = replace(NATS_LAUNCH, tls=True)
    text = nats_server.configuration_file(launch, 1, [nats_server.Ports(1, 2, 3)], 1000, certificates)
    assert f'tls {{\n  cert_file: "{certificates.certificate}"\n  key_file: "{certificates.key}"\n' in text
    text = rabbitmq_settings.configuration_file(
        5671, ["gauge1@localhost"], rabbitmq_settings.Options(), 5551, certificates
    )
    lines = dict(line.split(" = ") for line in text.splitlines())
    assert lines["listeners.tcp"] == lines["stream.listeners.tcp"] == "none"
    assert lines["listeners.ssl.default"] == "127.0.0.1:5671"
    assert lines["stream.listeners.ssl.1"] == "127.0.0.1:5551"
    assert lines["stream.advertised_tls_port"] == "5551"
    assert lines["ssl_options.keyfile"] == str(certificates.key)
    ports = pulsar_settings.NodePorts(1, 2, 3, 4, broker_tls=5, web_tls=6)
    pulsar = pulsar_tls.tls_settings(ports, certificates)
    assert (pulsar["brokerServicePortTls"], pulsar["webServicePortTls"]) == ("5", "6")
    assert pulsar["tlsKeyFilePath"] == str(certificates.key)
    assert pulsar_tls.tls_settings(ports, None) == {}


# ---------------------------------------------------------------------- the option --tls


def chosen(text: str, **overrides: Any) -> list[SystemChoice[System]]:
    return choose_systems(text, SystemOverrides(**overrides), systems())


def test_both_is_each_system_without_and_with_tls() -> None:
    found = chosen("gauge-log,kafka@4.3.1", tls=parse_tls("both"))
    assert [(one.name, one.request.tls) for one in found] == [
        ("gauge-log", False),
        ("gauge-log+tls", True),
        ("kafka@4.3.1", False),
        ("kafka@4.3.1+tls", True),
    ]
    assert parse_tls("off,on") == parse_tls("both")
    assert [one.name for one in chosen("nats", tls=parse_tls("on"))] == ["nats+tls"]
    assert [one.request.tls for one in chosen("nats", tls=parse_tls("off"))] == [False]
    assert parse_tls(None) is None
    with pytest.raises(InputError, match="expected on, off, or both"):
        parse_tls("yes")


def test_tls_is_made_for_systems_that_are_started(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nats already runs \(connect\).*section 'security'"):
        chosen("nats", connect=("127.0.0.1:4222",), tls=(True,))
    file = tmp_path / "mine.yaml"
    file.write_text("system: nats\ntls: true\n")
    assert chosen(str(file))[0].request.tls
    assert [one.name for one in chosen(str(file), tls=(False, True))] == ["mine", "mine+tls"]
    file.write_text("system: nats\ntls: true\nconnect: 127.0.0.1:4222\n")
    with pytest.raises(InputError, match=re.escape(str(file)) + ".*section 'security'"):
        chosen(str(file))
    file.write_text("system: nats\ntls: maybe\n")
    with pytest.raises(InputError, match=r"mine.yaml:2: tls: expected true or false, found maybe"):
        chosen(str(file))


# ---------------------------------------------------------------------- the section `security`

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, certificates: Certificates) -> Write:
    """Writes a system file of a running Kafka beside an authority, a client's certificate and files with secrets."""
    (tmp_path / "ca.pem").write_text(certificates.authority.read_text())
    (tmp_path / "client.pem").write_text(certificates.certificate.read_text())
    for name, content in (
        ("client.key", certificates.key.read_text()),
        ("password", SECRET + "\n"),
        ("empty", "\n"),
        ("open.key", certificates.key.read_text()),
        ("open", SECRET),
    ):
        path = tmp_path / name
        path.write_text(content)
        path.chmod(0o644 if name.startswith("open") else 0o600)

    def made(section: str, system: str = "kafka", more: str = "") -> Path:
        path = tmp_path / "cluster.yaml"
        path.write_text(f"system: {system}\nconnect: broker.test:9093\n{more}security:\n{section}")
        return path

    return made


def test_a_system_file_says_how_a_cluster_is_reached(write: Write, certificates: Certificates) -> None:
    file = write(
        "  ca_file: ca.pem\n  certificate_file: client.pem\n  key_file: client.key\n  server_name: kafka.test\n"
        "  auth: {mechanism: scram-sha-512, username: bench, password_file: password}\n"
    )
    request = chosen(str(file))[0].request
    assert request.security is not None
    assert request.security.request() == {
        "tls": {
            "ca_pem": certificates.authority.read_text(),
            "certificate_pem": certificates.certificate.read_text(),
            "key_pem": certificates.key.read_text(),
            "server_name": "kafka.test",
            "verify": True,
        },
        "auth": {"mechanism": "scram-sha-512", "username": "bench", "password": SECRET},
    }
    assert is_encrypted(request)
    assert mechanism_of(request) == "scram-sha-512"
    for shown in (repr(request), str(request), json.dumps(request.security.told())):
        assert SECRET not in shown
        assert "PRIVATE KEY" not in shown
    assert request.security.told() == {
        "tls": {"verify": True, "server_name": "kafka.test", "client_certificate": True},
        "authentication": {"mechanism": "scram-sha-512", "username": "bench"},
    }


def test_secrets_come_from_the_environment_too(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_TOKEN", SECRET)
    file = write("  auth: {mechanism: token, token_env: BENCH_TOKEN}\n", system="pulsar")
    found = chosen(str(file), trust=Trust.parse([str(file)]))[0].request.security
    assert found == Security(auth=Auth("token", secret=SECRET))
    assert found.in_plain_sight()
    assert not replace(found, tls=Tls(verify=False)).in_plain_sight()


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("  {}\n", r"cluster.yaml:\d: security: says nothing: expected ca_file"),
        ("  verify: true\n", r"cluster.yaml:\d: security: ca_file is missing: no authorities come with"),
        ("  cafile: ca.pem\n", r"cluster.yaml:4: unknown key 'cafile'; did you mean 'ca_file'"),
        ("  ca_file: none.pem\n", r"cluster.yaml:4: security.ca_file: no such file: .*none.pem"),
        ("  ca_file: password\n", "security.ca_file: password holds no certificate in PEM"),
        ("  ca_file: ca.pem\n  verify: false\n", "security.ca_file: has no meaning with verify: false"),
        ("  ca_file: ca.pem\n  key_file: client.key\n", "security.key_file: needs certificate_file"),
        (
            "  ca_file: ca.pem\n  certificate_file: client.pem\n  key_file: open.key\n",
            r"cluster.yaml:6: security.key_file: open.key can be read by everybody \(mode 0644\): chmod 600 ",
        ),
        (
            "  ca_file: ca.pem\n  certificate_file: ca.pem\n  key_file: client.key\n",
            "the certificates cannot be used",
        ),
        ("  auth: {mechanism: kerberos}\n", "expected one of 'plain', 'scram-sha-256'"),
        (
            "  auth: {mechanism: plain, username: u, password: p}\n",
            "secrets are not written into system files",
        ),
        ("  auth: {mechanism: plain, password_file: password}\n", "username is missing"),
        ("  auth: {mechanism: plain, username: u}\n", "expected one of password_file and password_env"),
        (
            "  auth: {mechanism: plain, username: u, password_file: password, password_env: X}\n",
            "expected only one of",
        ),
        (
            "  auth: {mechanism: plain, username: u, password_env: NOT_THERE}\n",
            "the environment variable NOT_THERE is not set: set it to the password",
        ),
        (
            "  auth: {mechanism: plain, username: u, password_file: empty}\n",
            "the password alone, in one line",
        ),
        (
            "  auth: {mechanism: plain, username: u, password_file: open}\n",
            r"security.auth.password_file: open can be read by everybody \(mode 0644\): chmod 600",
        ),
        (
            "  auth: {mechanism: plain, username: u, token_file: password}\n",
            "auth.token_file: has no meaning with mechanism: plain",
        ),
        ("  auth: {mechanism: external}\n", "give certificate_file and key_file"),
        (
            "  auth: {mechanism: token, token_file: password}\n",
            "Kafka does not know token; expected one of: plain",
        ),
    ],
)
def test_what_is_wrong_with_a_section_is_told_and_no_secret_with_it(
    write: Write, section: str, expected: str
) -> None:
    with pytest.raises(InputError, match=expected) as raised:
        chosen(str(write(section)))
    assert SECRET not in str(raised.value)


def test_all_problems_of_a_section_are_told_at_once(write: Write) -> None:
    with pytest.raises(InputError) as raised:
        chosen(str(write("  server_name: x\n  auth: {mechanism: plain}\n")))
    told = str(raised.value)
    for part in ("ca_file is missing", "username is missing", "expected one of password_file"):
        assert part in told


@pytest.mark.parametrize(
    ("system", "mechanism", "possible"),
    [
        ("kafka", "nkey", "plain, scram-sha-256, scram-sha-512"),
        ("gauge-log", "external", "plain, scram-sha-256, scram-sha-512"),
        ("rabbitmq", "token", "plain, external"),
        ("nats", "scram-sha-256", "plain, token, nkey"),
        ("pulsar", "plain", "external, token"),
    ],
)
def test_a_mechanism_that_a_system_does_not_know_is_refused(
    system: str, mechanism: security.Mechanism, possible: str
) -> None:
    request = SystemRequest(
        connect=("h:1",), security=Security(auth=Auth(mechanism, "u", SECRET)), source="f"
    )
    with pytest.raises(SystemInputError) as raised:
        check_security(systems()[system], request)
    assert str(raised.value).startswith("f: security.auth.mechanism: ")
    assert str(raised.value).endswith(f"expected one of: {possible}")


def test_credentials_are_given_once(write: Write) -> None:
    section = "  auth: {mechanism: plain, username: u, password_file: password}\n"
    with pytest.raises(InputError, match=r"user and security\.auth both say who the client is"):
        chosen(str(write(section, system="rabbitmq", more="user: bench\n")))
    section = "  auth: {mechanism: token, token_file: password}\n"
    with pytest.raises(InputError, match=r"client\.token and security\.auth both say"):
        chosen(str(write(section, system="pulsar", more="client: {token: abc}\n")))


def test_a_started_system_has_no_section(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("system: nats\nsecurity: {verify: false}\n")
    with pytest.raises(InputError, match="'tls: true' or --tls on"):
        chosen(str(file))


# ---------------------------------------------------------------------- OMB's drivers


def test_a_driver_file_of_omb_is_told_what_to_write_instead(tmp_path: Path) -> None:
    file = tmp_path / "driver-kafka.yaml"
    file.write_text(
        "driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n"
        "commonConfig: |\n  bootstrap.servers=broker:9093\n  security.protocol=SASL_SSL\n"
        "  sasl.mechanism=SCRAM-SHA-256\n"
        f'  sasl.jaas.config=org.ScramLoginModule required username="u" password="{SECRET}";\n'
        f"  ssl.truststore.password={SECRET}\n"
    )
    with pytest.raises(InputError) as raised:
        chosen(str(file))
    told = str(raised.value)
    assert told.startswith(f"{file}:1: ")
    for part in (
        "'system: kafka'",
        "sasl.jaas.config, sasl.mechanism, security.protocol, ssl.truststore.password",
        "mechanism: scram-sha-256, username: ..., password_file: ...",
        "docs/security.md",
    ):
        assert part in told
    assert SECRET not in told


def test_a_driver_without_security_is_told_nothing_of_it() -> None:
    told = advice(
        {"driverClass": "a.b.PulsarBenchmarkDriver", "client": {"serviceUrl": "pulsar://h:6650"}}, systems()
    )
    assert "'system: pulsar'" in told
    assert "security" not in told
    told = advice(
        {"driverClass": "a.b.PulsarBenchmarkDriver", "client": {"tlsTrustCertsFilePath": "/ca"}}, systems()
    )
    assert "tlsTrustCertsFilePath" in told


def test_a_driver_of_no_known_system_is_not_taken_for_another() -> None:
    for driver in ("io.openmessaging.benchmark.driver.redis.RedisBenchmarkDriver", "a.NotKafkaAtAll", ""):
        told = advice({"driverClass": driver}, systems())
        assert "drives none of the systems here (with drivers of OMB: kafka, nats, pulsar, rabbitmq)" in told
        assert "system: kafka" not in told


# ---------------------------------------------------------------------- secrets, costs


def test_a_worker_that_repeats_a_secret_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    body = {"system": {"security": {"auth": {"mechanism": "plain", "username": "u", "password": SECRET}}}}
    for answer in (
        httpx.Response(502, json={"error": {"code": "system", "message": f"bad {SECRET}!", "field": None}}),
        httpx.Response(500, text=f"what is {SECRET}?"),
    ):
        client = WorkerClient("127.0.0.1:1")
        monkeypatch.setattr(client._http, "request", lambda *_, answer=answer, **__: answer)
        with pytest.raises(WorkerRefused) as raised:
            client.create_trial(body)
        assert "(hidden)" in str(raised.value)
        assert SECRET not in str(raised.value)


def test_what_tls_costs_is_told_for_each_pair(tmp_path: Path) -> None:
    with_tls: Shape = replace(KAFKA, system="kafka+tls", tls="on", publish_ms=1.4, system_cpu=0.9)
    asked = workload(rate=500, seconds=4)
    found = cells(write_run(tmp_path, (LOG, KAFKA, with_tls), asked, repeats=3))
    (pair,) = costs(found)
    assert (pair.base.first.system, pair.other.first.system) == ("kafka", "kafka+tls")
    ratios = {one.figure: one.difference.ratio.value for one in pair.figures if one.difference}
    assert ratios["publish_ms.p50"] > 1.3
    assert "publish_rate_msgs_s" not in ratios, "the rate was given"
    (grid,) = encryption.grids(found)
    assert grid.title == "What TLS costs: Apache Kafka 4.3.1, L4, 1-topic-16-partitions-100b"
    assert grid.rows[0][0] == "publish p50 ms"
    assert "higher (worse)" in grid.rows[0][-1]
    assert "What TLS costs" in grid.title
    assert list(encryption.grids(found[:2])) == []
    free = found[1].first.model_copy(update={"workload": workload(rate=None)})
    assert "publish_rate_msgs_s" in figures_of(cells([free])[0])


# ---------------------------------------------------------------------- studies

STUDY = """\
study: small
title: TLS
source: {publisher: me, published: "2026"}
systems:
  log: {system: gauge-log, title: Log, level: L4, nodes: 1}
workload: {rate: 1000, duration: 2s, warmup: 0s}
cells:
  - cell: "log-{tls}"
    each: {tls: ["off", "on"]}
    system: log
    tls: "{tls}"
  - cell: log-always
    system: log
    tls: true
scales:
  laptop: {}
  quick: {restart: block}
"""
MACHINE = Machine(2, 8 << 30, 1000.0)


def test_a_cell_of_a_study_says_whether_tls_is_on() -> None:
    study = parse_study(STUDY, "small.yaml", systems())
    assert {cell.name: cell.tls for cell in study.cells} == {
        "log-off": False,
        "log-on": True,
        "log-always": True,
    }
    plan = plan_study(study, Wishes(scale="quick", seed=1), MACHINE)
    assert choice_of(plan.cell("log-on")).request.tls
    assert not choice_of(plan.cell("log-off")).request.tls
    blocks = {trial.block: plan.cell(trial.cell).tls for trial in plan.trials}
    assert set(blocks.values()) == {False, True}, "with TLS it is another instance than without"
    assert all(plan.cell(trial.cell).tls == blocks[trial.block] for trial in plan.trials)


def test_what_a_study_cannot_encrypt_is_told_at_its_line() -> None:
    with pytest.raises(InputError, match=r"small.yaml:14: tls: expected true, false, on or off, found often"):
        parse_study(STUDY.replace("tls: true", "tls: often"), "small.yaml", systems())
    study = parse_study(STUDY, "small.yaml", systems())
    with pytest.raises(InputError, match=r"cell 'log-always': tls is for systems that streamgauge starts"):
        plan_study(study, Wishes(scale="quick", seed=1, connect={"gauge-log": ("h:1",)}), MACHINE)
