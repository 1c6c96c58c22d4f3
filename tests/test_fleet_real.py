"""Several real workers on the reference log: the books balance over all, clocks are corrected, losses are noticed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hosts
import lab_support
import psutil
import pytest
from streamgauge.vocabulary.gauge_binary import find_gauge

WORKLOAD = """\
name: shared
topics: 1
partitionsPerTopic: 8
messageSize: 100
producersPerTopic: 4
subscriptionsPerTopic: 1
consumerPerSubscription: 4
rate: 4000
warmup: 1s
duration: 5s
"""
pytestmark = [pytest.mark.server, pytest.mark.usefixtures("one_probe")]
NOTICED_S = 10.0
"""A lost worker is noticed within 3 s on a machine that does nothing else. Far more is allowed here, and far less than what remains of the trial,
at whose end it would be noticed in any case."""


def lab(directory: Path, *arguments: str, workload: str = WORKLOAD) -> subprocess.Popen[str]:
    (directory / "shared.yaml").write_text(workload)
    return lab_support.lab(
        # So many messages as were asked for, however disturbed the machine is.
        find_gauge(),
        directory,
        "run",
        "shared.yaml",
        *arguments,
        stderr=subprocess.STDOUT,
    )


def run(directory: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """The result of a run that may be invalid on a crowded machine, and what was printed."""
    process = lab(directory, *arguments)
    out, _ = process.communicate(timeout=150)
    assert process.returncode in (0, 1), out
    return lab_support.result(directory), out


def check_books(found: dict[str, Any]) -> None:
    audit = found["audit"]
    assert audit["clean"], audit
    assert audit["sent"] == audit["subscriptions"][0]["unique"] == 24_000
    # On a crowded machine what waited before the measured phase is acknowledged within it.
    assert found["publish_rate_msgs_s"] == pytest.approx(4000, rel=0.05)


@pytest.mark.parametrize("topology", ["same", "split"])
def test_the_books_of_several_workers_balance(tmp_path: Path, topology: str) -> None:
    found, out = run(tmp_path, "--workers", "3", "--topology", topology)
    check_books(found)
    names = {lane["worker"] for lane in found["lanes"]}
    assert names == {"worker-0", "worker-1", "worker-2"}, out
    assert found["end_to_end_bound_ms"] is None
    roles = {lane["worker"]: lane["role"] for lane in found["lanes"]}
    if topology == "split":
        assert set(roles.values()) == {"producer", "consumer"}


def test_a_swarm_measures_its_own_messages_and_audits_all(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "--workers", "3", "--topology", "swarm")
    check_books(found)
    audits = found["audit"]["subscriptions"]
    assert sorted(one["name"] for one in audits) == ["s-0-worker-0", "s-0-worker-1", "s-0-worker-2"]
    assert all(one["unique"] == 24_000 and one["balanced"] for one in audits)
    latencies = found["end_to_end_by_subscription_ms"]
    window_msgs = found["publish_ms"]["count"]
    assert sum(one["count"] for one in latencies.values()) == pytest.approx(window_msgs, rel=0.02)
    notes = json.loads((tmp_path / "runs/latest/manifest.json").read_text(encoding="utf-8"))["notes"]
    trial = (tmp_path / "runs/latest/trials/001/trial.json").read_text(encoding="utf-8")
    assert "each of 3 workers reads everything" in f"{notes} {trial}"


def test_64_workers_start_run_and_stop_as_one(tmp_path: Path) -> None:
    many = WORKLOAD.replace("producersPerTopic: 4", "producersPerTopic: 64").replace(
        "consumerPerSubscription: 4", "consumerPerSubscription: 64"
    )
    process = lab(tmp_path, "--workers", "64", workload=many.replace("Topic: 8", "Topic: 64"))
    peak_bytes = 0
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            peak_bytes = max(peak_bytes, psutil.Process(process.pid).memory_info().rss)
        time.sleep(0.2)
    assert process.returncode in (0, 1), process.stdout and process.stdout.read()
    check_books(lab_support.result(tmp_path))
    assert 0 < peak_bytes < 500e6


@pytest.mark.parametrize("on_loss", ["end", "go-on"])
def test_a_lost_worker_is_noticed_and_marked(tmp_path: Path, on_loss: str) -> None:
    events = tmp_path / "events.jsonl"
    lasts = ("--duration", "40s" if on_loss == "end" else "8s")
    process = lab(tmp_path, "--workers", "2", "--on-worker-loss", on_loss, "--events", str(events), *lasts)
    deadline = time.monotonic() + 60
    while '"interval"' not in (events.read_text() if events.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    workers = [one for one in psutil.Process(process.pid).children() if "worker" in one.cmdline()[1:2]]
    min(workers, key=lambda one: one.pid).kill()
    killed_s = time.monotonic()
    if on_loss == "end":
        while "worker lost" not in events.read_text():
            assert time.monotonic() - killed_s < NOTICED_S
            time.sleep(0.05)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == (3 if on_loss == "end" else 1), out
    found = lab_support.result(tmp_path)
    assert not found["validity"]["valid"]
    reasons = " ".join(found["validity"]["reasons"])
    assert "worker lost: worker-0" in reasons or "worker lost: the worker" in reasons, reasons
    if on_loss == "go-on":
        assert "took over its rate" in reasons
        assert found["status"] == "complete"


def test_a_worker_that_answers_nothing_is_noticed_while_its_answer_is_waited_for(tmp_path: Path) -> None:
    """As a host that was cut off: connections stay open and nothing comes, not even an error."""
    events = tmp_path / "events.jsonl"
    process = lab(tmp_path, "--workers", "2", "--events", str(events), "--duration", "40s")
    deadline = time.monotonic() + 60
    while '"interval"' not in (events.read_text() if events.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    workers = [one for one in psutil.Process(process.pid).children() if "worker" in one.cmdline()[1:2]]
    stopped = max(workers, key=lambda one: one.pid)
    stopped.suspend()
    stopped_s = time.monotonic()
    while "worker lost" not in events.read_text():
        assert time.monotonic() - stopped_s < NOTICED_S
        time.sleep(0.02)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3, out
    assert "worker lost: worker-1" in " ".join(lab_support.result(tmp_path)["validity"]["reasons"])
    assert not stopped.is_running()


@pytest.fixture
def two(real_gauge: Path, tmp_path: Path) -> Iterator[Path]:
    """Two workers with TLS and a token, one with a clock that is 50 ms ahead and gains 100 ppm."""
    seats = [
        hosts.Seat(name, words=("--skew-clock", skew), keys=f"roles: {role}, ")
        for name, role, skew in (("sends", "producers", "50,100"), ("receives", "consumers", "0,0"))
    ]
    with hosts.started(real_gauge, tmp_path, seats) as file:
        yield file


def test_clocks_of_hosts_are_recovered_within_the_bound(tmp_path: Path, two: Path) -> None:
    found, out = run(tmp_path, "--fleet", str(two))
    check_books(found)
    trial = json.loads((tmp_path / "runs/latest/trials/001/trial.json").read_text(encoding="utf-8"))
    clocks = trial["finish"]["clocks"]
    pair = next(one for one in clocks["pairs"] if one["asker"] == "receives")
    # The clock gains 0.1 ms per second, and the worker ran some seconds before and during the trial.
    assert 50.0 - pair["bound_ms"] <= pair["ahead_ms"] <= 60.0, clocks
    assert clocks["loops"]["looked_at"] == 1
    through = found["end_to_end_ms"]
    assert found["end_to_end_bound_ms"] == clocks["bound_ms"] < 25.0
    # Uncorrected, every latency would be 50 ms below the truth.
    assert through["min"] >= -clocks["bound_ms"]
    assert through["p50"] >= found["publish_ms"]["min"] - clocks["bound_ms"]
    doubtful = clocks["bound_ms"] > 0.2 * through["p50"]
    assert ("End-to-end latencies are uncertain" in out) == doubtful
    token = (tmp_path / "identity/token").read_text().strip()
    kept = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not any(token.encode() in path.read_bytes() for path in kept)
    assert token not in out


def test_a_worker_that_is_another_is_not_trusted(tmp_path: Path, two: Path) -> None:
    text = two.read_text()
    pinned = text.split("sha256:")[1][:64]
    two.write_text(text.replace(pinned, "0" * 64, 1))
    process = lab(tmp_path, "--fleet", str(two))
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 3
    assert f"shows a certificate with the fingerprint sha256:{pinned}, expected sha256:0000" in out.replace(
        "\n", " "
    ), out
