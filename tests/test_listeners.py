"""Where systems listen: on loopback, and with `--at` at that address nothing but what workers must reach."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import lab_support
import psutil
import pytest
from streamgauge.model.security import Security, Tls
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.rabbitmq.system import installed_version
from streamgauge.systems.registry import systems
from streamgauge.systems.support import kafka_broker
from streamgauge.systems.support.network import OnAddress
from streamgauge.systems.support.processes import LOOPBACK

BEYOND = "127.0.0.2"
"""Treated as an address that others reach: nothing in the lab takes it for the loopback address that it uses itself."""
needs_rabbitmq = pytest.mark.skipif(installed_version() is None, reason="RabbitMQ is not installed")
SMALL = {"heap": "512m"}


class Listeners(threading.Thread):
    """Every TCP address on which a descendant of this process listens, however short."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found: set[tuple[str, int]] = set()
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            self.look()
            self._done.wait(0.05)

    def look(self) -> None:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                for one in child.net_connections("tcp"):
                    if one.status == psutil.CONN_LISTEN and one.laddr:
                        address = ipaddress.ip_address(one.laddr.ip)
                        mapped = getattr(address, "ipv4_mapped", None)
                        self.found.add((str(mapped or address), one.laddr.port))

    def end(self) -> None:
        self._done.set()
        self.join()
        self.look()

    def beyond(self) -> set[tuple[str, int]]:
        """Those that are not at the lab's own loopback address."""
        return {one for one in self.found if one[0] not in (LOOPBACK, "::1")}


@contextlib.contextmanager
def started(name: str, directory: Path, request: SystemRequest) -> Iterator[tuple[RunningSystem, Listeners]]:
    """A system that runs, and where it has listened until then."""
    listeners = Listeners()
    listeners.start()
    try:
        running = systems()[name].start(request, directory / name, print)
    finally:
        listeners.end()
    try:
        yield running, listeners
    finally:
        running.stop()
        running.wipe()


def for_workers(running: RunningSystem) -> set[tuple[str, int]]:
    """What the workers are told to connect to."""
    connection = running.connection
    addresses = [*connection["bootstrap"], *connection["options"].get("admin", [])]
    return {(host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses)}


@pytest.mark.parametrize(
    ("name", "nodes", "options"),
    [
        pytest.param("gauge-log", 1, {}, marks=pytest.mark.server),
        pytest.param("nats", 3, {}, marks=pytest.mark.server),
        pytest.param("rabbitmq", 3, {"queue": "stream"}, marks=[pytest.mark.server, needs_rabbitmq]),
        pytest.param("kafka", 1, SMALL, marks=pytest.mark.jvm),
        pytest.param("pulsar", 1, {}, marks=pytest.mark.jvm),
    ],
)
def test_systems_listen_on_loopback_alone(
    tmp_path: Path, name: str, nodes: int, options: dict[str, object]
) -> None:
    with started(name, tmp_path, SystemRequest(nodes=nodes, options=options)) as (running, listeners):
        assert listeners.found >= for_workers(running)
        assert not listeners.beyond()
        # Messages and configurations are nobody else's to read either.
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("name", "nodes", "options", "guarded"),
    [
        pytest.param("gauge-log", 1, {}, False, marks=pytest.mark.server),
        pytest.param("gauge-log", 1, {}, True, marks=pytest.mark.server),
        pytest.param("nats", 3, {}, False, marks=pytest.mark.server),
        pytest.param("nats", 3, {}, True, marks=pytest.mark.server),
        pytest.param("kafka", 1, SMALL, False, marks=pytest.mark.jvm),
        pytest.param("kafka", 3, SMALL, True, marks=pytest.mark.jvm),
        pytest.param("pulsar", 1, {}, True, marks=pytest.mark.jvm),
    ],
)
def test_elsewhere_only_what_workers_must_reach_listens(
    tmp_path: Path, name: str, nodes: int, options: dict[str, object], guarded: bool
) -> None:
    request = SystemRequest(
        nodes=nodes, options=options, placement=OnAddress(BEYOND), tls=guarded, guarded=guarded
    )
    with started(name, tmp_path, request) as (running, listeners):
        assert listeners.beyond() == for_workers(running)
        if guarded:
            strangers_are_refused(running)
            secrets_are_ours_alone(tmp_path / name, running)


def strangers_are_refused(running: RunningSystem) -> None:
    """Who speaks TLS and has no credentials gets nothing. What is true of whoever has them, trials show (below)."""
    host, _, port = running.connection["bootstrap"][0].rpartition(":")
    assert running.connection["security"]["auth"]
    trust = ssl.create_default_context(cadata=running.connection["security"]["tls"]["ca_pem"])
    if running.name == "pulsar":
        (web,) = running.connection["options"]["admin"]
        for path in ("/admin/v2/tenants", "/admin/v2/brokers/configuration/runtime", "/metrics/"):
            assert httpx.get(f"https://{web}{path}", verify=trust, trust_env=False).status_code == 401
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            trust.wrap_socket(plain, server_hostname=host) as secured,
        ):
            # CONNECT without any authentication; what comes is ERROR (14) and not CONNECTED (3).
            secured.sendall(bytes.fromhex("0000000d 00000009 0802 1205 0a0178 2013"))
            assert secured.recv(4096)[8:10] == bytes([0x08, 14])
    elif running.name == "nats":
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
