"""Whole runs with TLS and with credentials, on stand-ins for the system and the gauge: what is measured, told, and never
written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_doubles import write_gauge

TESTS = Path(__file__).resolve().parent
SECRET = "correct-horse-battery-staple"
SHORT = ("--rate", "500", "--duration", "2s", "--warmup", "1s")


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`streamgauge run` with the doubles, to its end."""
    write_gauge(directory)
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "python")])
    return subprocess.run(
        [sys.executable, str(TESTS / "lab_doubles.py"), "run", *SHORT, *arguments, "--out", "runs"],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=120,
        check=False,
        env={**os.environ, "GAUGE": str(directory / "gauge"), "PYTHONPATH": path, **environment},
    )


def everything_below(directory: Path) -> Iterator[tuple[Path, bytes]]:
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


@pytest.fixture
def broker() -> Iterator[str]:
    """The address of something that runs already and says "ok", as the double's broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"ok")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def system_file(tmp_path: Path, broker: str) -> Path:
    secret = tmp_path / "password"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    file = tmp_path / "theirs.yaml"
    file.write_text(
        f"system: double\nconnect: {broker}\nsecurity:\n  auth: {{mechanism: plain, username: bench, password_file: password}}\n"
    )
    return file


def test_trials_without_and_with_tls_are_a_pair(tmp_path: Path) -> None:
    done = run(tmp_path, "--system", "double", "--tls", "both")
    assert done.returncode == 0, done.stderr
    trials = sorted((tmp_path / "runs" / "latest").resolve().glob("trials/*"))
    results = [json.loads((trial / "result.json").read_text()) for trial in trials]
    assert [(one["system"], one["tls"]) for one in results] == [("double", "off"), ("double+tls", "on")]
    assert results[0]["seed"] == results[1]["seed"], "both meet the same arrivals"
    assert "What TLS costs: Double 1" in done.stdout
    report = (tmp_path / "runs" / "latest" / "report.html").read_text()
    assert "What TLS costs" in report
    assert "Double 1 with TLS" in report
    manifest = json.loads((tmp_path / "runs" / "latest" / "manifest.json").read_text())
    assert [one["tls"] for one in manifest["systems"]] == ["off", "on"]
    for path, content in everything_below(tmp_path / "runs"):
        assert b"PRIVATE KEY" not in content, path


def test_a_password_is_in_no_file_of_a_run(tmp_path: Path, system_file: Path) -> None:
    done = run(tmp_path, "--system", str(system_file), "--events", "events.jsonl")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "runs" / "latest" / "trials" / "001" / "result.json").read_text())
    assert (result["tls"], result["authentication"]) == ("off", "plain")
    assert any("in plain text" in warning for warning in result["validity"]["warnings"])
    assert_hidden(tmp_path, done)


def test_a_worker_that_repeats_the_password_does_not_bring_it_into_the_run(
    tmp_path: Path, system_file: Path
) -> None:
    done = run(tmp_path, "--system", str(system_file), "--events", "events.jsonl", DOUBLE_TALKS="1")
    assert done.returncode == 3
    assert "(hidden)" in (tmp_path / "runs" / "latest" / "trials" / "001" / "result.json").read_text()
    assert_hidden(tmp_path, done)


def assert_hidden(directory: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert SECRET not in done.stdout + done.stderr
    for path, content in everything_below(directory):
        if path.name != "password":
            assert SECRET.encode() not in content, path


def test_a_secret_that_everybody_can_read_ends_the_run_before_it_begins(
    tmp_path: Path, system_file: Path
) -> None:
    (tmp_path / "password").chmod(0o644)
    done = run(tmp_path, "--system", str(system_file))
    assert done.returncode == 2
    assert "can be read by everybody (mode 0644): chmod 600" in done.stderr
    assert not (tmp_path / "runs").exists()
