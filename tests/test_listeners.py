"""With `--at`, systems listen at that address for nothing but what workers must reach: what the conformance suite, which watches every start, does not start
(several nodes elsewhere, nodes elsewhere without credentials)."""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lab_support
import psutil
import pytest
from streamgauge.conformance.listeners import Listeners, for_workers, listening
from streamgauge.model.security import Security, Tls
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.rabbitmq.system import installed_version
from streamgauge.systems.registry import systems
from streamgauge.systems.support import kafka_broker
from streamgauge.systems.support.network import OnAddress

BEYOND = "127.0.0.2"
"""Treated as an address that others reach: nothing in the lab takes it for the loopback address that it uses itself."""
needs_rabbitmq = pytest.mark.skipif(installed_version() is None, reason="RabbitMQ is not installed")
SMALL = {"heap": "512m"}


@contextlib.contextmanager
def started(name: str, directory: Path, request: SystemRequest) -> Iterator[tuple[RunningSystem, Listeners]]:
    """A system that runs, and where it has listened until then."""
    with Listeners() as listeners:
        running = systems()[name].start(request, directory / name, print)
    try:
        yield running, listeners
    finally:
        running.stop()
        running.wipe()


OPEN_FOR_A_MOMENT = """
import socket, time
with socket.create_server((%r, 0), family=%s) as listener:
    print(listener.getsockname()[1], flush=True)
    time.sleep(0.5)
"""


@pytest.mark.parametrize(
    ("address", "family", "seen"),
    [
        ("", "socket.AF_INET", "0.0.0.0"),
        ("::", "socket.AF_INET6", "::"),
        ("127.0.0.2", "socket.AF_INET", "127.0.0.2"),
    ],
)
def test_what_is_open_for_a_moment_is_seen(address: str, family: str, seen: str) -> None:
    with Listeners() as listeners:
        done = subprocess.run(
            [sys.executable, "-S", "-c", OPEN_FOR_A_MOMENT % (address, family)],
            capture_output=True,
            check=True,
        )
    assert listeners.beyond_loopback() == {(seen, int(done.stdout))}


@needs_rabbitmq
@pytest.mark.server
def test_a_node_with_streams_listens_on_loopback_alone(rabbitmq_streams: RunningSystem) -> None:
    found = listening(psutil.Process(process.pid) for process in rabbitmq_streams.processes())
    assert found >= for_workers(rabbitmq_streams.connection)
    assert {host for host, _ in found} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("name", "nodes", "options", "guarded"),
    [
        pytest.param("gauge-log", 1, {}, False, marks=pytest.mark.server),
        pytest.param("gauge-log", 1, {}, True, marks=pytest.mark.server),
        pytest.param("nats", 3, {}, False, marks=pytest.mark.server),
        pytest.param("nats", 3, {}, True, marks=pytest.mark.server),
        pytest.param("kafka", 1, SMALL, False, marks=pytest.mark.jvm),
        pytest.param("kafka", 3, SMALL, True, marks=pytest.mark.jvm),
    ],
)
def test_elsewhere_only_what_workers_must_reach_listens(
    tmp_path: Path, name: str, nodes: int, options: dict[str, object], guarded: bool
) -> None:
    request = SystemRequest(
        nodes=nodes, options=options, placement=OnAddress(BEYOND), tls=guarded, guarded=guarded
    )
    with started(name, tmp_path, request) as (running, listeners):
        assert listeners.beyond_loopback() == for_workers(running.connection)
        if guarded:
            strangers_are_refused(running)
            secrets_are_ours_alone(tmp_path / name, running)


def strangers_are_refused(running: RunningSystem) -> None:
    """Who speaks TLS and has no credentials gets nothing. What is true of whoever has them, trials show (below)."""
    host, _, port = running.connection["bootstrap"][0].rpartition(":")
    assert running.connection["security"]["auth"]
    trust = ssl.create_default_context(cadata=running.connection["security"]["tls"]["ca_pem"])
    if running.name == "nats":
        with socket.create_connection((host, int(port)), 10) as plain:
            assert b'"auth_required":true' in plain.recv(4096)
            with trust.wrap_socket(plain, server_hostname=host) as secured:
                secured.sendall(b"CONNECT {}\r\nPING\r\n")
                assert b"Authorization Violation" in secured.recv(4096)
    else:
        nobody = Security(Tls(ca_pem=running.connection["security"]["tls"]["ca_pem"]))
        with pytest.raises(kafka_broker.NotDescribed) as raised:
            kafka_broker.describe(f"{host}:{port}", nobody)
        assert raised.value.code == "closed"


def secrets_are_ours_alone(directory: Path, running: RunningSystem) -> None:
    """The secret is in files of mode 0600 below a directory of mode 0700, and in nothing that is kept."""
    auth = running.connection["security"]["auth"]
    secret = auth.get("password") or auth["token"]
    holding = [
        path for path in directory.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert holding
    for path in holding:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert secret not in str(running.configuration())
    running.collect_logs(directory / "kept")
    assert not any(
        secret.encode() in path.read_bytes() for path in (directory / "kept").rglob("*") if path.is_file()
    )
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            assert secret not in " ".join(child.cmdline())


@pytest.mark.server
def test_workers_log_in_with_the_credentials_of_the_start(gauge: Path, tmp_path: Path) -> None:
    load = ("--rate", "500", "--duration", "2s", "--warmup", "1s", "--system", "gauge-log")
    process = lab_support.lab(
        gauge, tmp_path, "run", *load, "--at", BEYOND, "--tls", "on", stderr=subprocess.STDOUT
    )
    out, _ = process.communicate(timeout=240)
    assert process.returncode in (0, 1), out
    found = lab_support.result(tmp_path)
    assert found["audit"]["clean"]
    assert found["tls"] == "on"
    assert found["authentication"]
    assert f"clients are served at {BEYOND} over TLS, once they have logged in" in " ".join(out.split())
