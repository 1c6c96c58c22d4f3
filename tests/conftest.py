"""What several test modules ask for."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from streamgauge.fleet.base import FleetFailure
from streamgauge.fleet.binary import find_gauge


@pytest.fixture(scope="session")
def real_gauge() -> Path:
    """The gauge as it is."""
    try:
        return find_gauge()
    except FleetFailure as failure:
        pytest.fail(f"{failure}; run the tests with make test")


@pytest.fixture(scope="session")
def gauge(real_gauge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gauge, which probes the machine once for all: a run does that twice, for 3 s each, and most tests are not about it."""
    directory = tmp_path_factory.mktemp("gauge")
    command = [str(real_gauge), "probe", "--short", "--json", "--dir", str(directory)]
    found = subprocess.run(command, capture_output=True, check=True, timeout=60)
    (directory / "probe.json").write_bytes(found.stdout)
    path = directory / "gauge"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = probe ]; then exec cat {shlex.quote(str(directory / "probe.json"))}; fi\n'
        f'exec {shlex.quote(str(real_gauge))} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def one_probe(gauge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for what finds its gauge itself."""
    monkeypatch.setenv("GAUGE", str(gauge))
