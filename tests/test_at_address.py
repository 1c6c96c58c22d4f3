"""Systems that are started on another address of this machine than loopback (`run --at`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import lab_support
import pytest

OTHER = "127.0.0.2"
"""Also loopback, so that nobody else can reach it, and not the address that is used without --at."""


def run(gauge: Path, directory: Path, *arguments: str) -> tuple[int, str]:
    process = lab_support.lab(gauge, directory, "run", *arguments, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=60)
    return process.returncode, " ".join(out.split())


def test_a_system_is_started_and_measured_where_it_was_asked_for(gauge: Path, tmp_path: Path) -> None:
    what = ("--rate", "1000", "--duration", "2s", "--warmup", "1s", "--at", OTHER, "--insecure")
    status, out = run(gauge, tmp_path, *what)
    assert status in (0, 1), out
    told = f"note: gauge-log: clients are served at {OTHER} whoever they are, in plain text (--insecure)"
    assert told in out
    assert lab_support.result(tmp_path)["audit"]["clean"]
    log = (tmp_path / "runs/latest/trials/001/logs/gauge-log.log").read_text(encoding="utf-8")
    assert f"ready {OTHER}:" in log


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--at", "203.0.113.7"), "--at 203.0.113.7: is no address of this machine"),
        (("--at", "broker-1"), "--at broker-1: is no IP address"),
        (("--at", "0.0.0.0"), "is every address and so none that clients could be told"),
        (("--at", OTHER, "--system", "rabbitmq"), "rabbitmq is started on loopback alone"),
        (
            ("--at", OTHER),
            "gauge-log would serve whoever reaches that address, in plain text: expected --tls on",
        ),
        (("--at", OTHER, "--tls", "off"), "or --insecure when the network is yours alone"),
        (
            ("--at", OTHER, "--tls", "both"),
            "gauge-log would serve whoever reaches that address, in plain text",
        ),
        (("--insecure",), "--insecure: says who is served at an address (--at); leave it out"),
        (
            ("--at", OTHER, "--tls", "on", "--system", "kafka", "--fleet", "omb:http://127.0.0.1:1"),
            "OMB's drivers are written here for plain text, without credentials",
        ),
        (
            ("--at", OTHER, "--system", "kafka", "--connect", "127.0.0.1:9092"),
            "kafka is not started, it runs already",
        ),
    ],
)
def test_what_cannot_be_there_is_refused(
    gauge: Path, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    status, out = run(gauge, tmp_path, *arguments)
    assert status == 2, out
    assert expected in out
    assert "Traceback" not in out


def test_workers_elsewhere_do_not_reach_loopback(gauge: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text('hosts: [{name: far, address: "203.0.113.7:7400", token_file: token, ca: ca.pem}]\n')
    for name in ("token", "ca.pem"):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0o600)
    status, out = run(gauge, tmp_path, "--fleet", str(hosts))
    assert status == 2, out
    assert (
        "gauge-log would be started here on loopback, where workers on other machines cannot reach it" in out
    )
    assert "--at ADDRESS" in out
