"""Faults and durability experiments with the real gauge: the reference log, killed and on disks that lose power."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from lab_support import lab
from streamgauge.systems.support import network, powercut

needs_namespaces = pytest.mark.skipif(network.missing() is not None, reason=str(network.missing()))
needs_fuse = pytest.mark.skipif(powercut.missing() is not None, reason=str(powercut.missing()))


def durability(gauge: Path, directory: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the result of the only system."""
    process = lab(
        gauge, directory, "durability", "--quick", "--seed", "1", *arguments, stderr=subprocess.STDOUT
    )
    said, _ = process.communicate(timeout=200)
    found = json.loads((directory / "runs" / "latest" / "durability.json").read_text("utf-8"))
    assert found["results"][0]["status"] == "complete", said
    return process.returncode, found["results"][0]


def mounts(below: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(below) in line]


def test_a_kill_and_a_restart_are_marked_and_nothing_is_lost(gauge: Path, tmp_path: Path) -> None:
    faults = ("--fault", "kill:1@2s,restart@3s", "--fault", "stop:node-1@5s,cont@5500ms")
    process = lab(
        gauge,
        tmp_path,
        "run",
        "--rate",
        "2000",
        "--duration",
        "7s",
        "--warmup",
        "1s",
        *faults,
        stderr=subprocess.STDOUT,
    )
    said, _ = process.communicate(timeout=120)
    assert process.returncode in (0, 1), said
    result = json.loads((tmp_path / "runs/latest/trials/001/result.json").read_text("utf-8"))
    found = result["faults"]
    assert [fault["asked"]["action"] for fault in found["faults"]] == ["kill", "restart", "stop", "cont"]
    kill, restart, _, _ = found["faults"]
    assert kill["from_s"] == pytest.approx(3.0, abs=0.2)
    assert kill["gap_s"] > 0.9
    assert restart["ready_s"] is not None
    assert found["unavailable_s"] == pytest.approx(kill["gap_s"])
    # A disk that takes 0.1 s for a sync in the last second is one behind which the load has not caught up before the end.
    caught_up_s = kill["from_s"] + (found["caught_up_s"] or found["recovered_s"] or math.inf)
    after = ["after"] if caught_up_s <= 7.0 else []
    assert [phase["name"] for phase in found["phases"]] == ["before", "during", *after]
    assert found["phases"][1]["publish_ms"]["p99"] > 500
    assert result["audit"]["balanced"]
    assert result["audit"]["lost"] == 0
    report = (tmp_path / "runs/latest/report.html").read_text("utf-8")
    assert "kill node-1" in report
    assert "Before, during and after the faults" in report


@needs_namespaces
def test_a_network_that_is_cut_and_healed_is_a_gap_and_no_loss(gauge: Path, tmp_path: Path) -> None:
    faults = ("--fault", "cut-network:leader@2s,heal@3s")
    load = ("--rate", "1000", "--duration", "6s", "--warmup", "1s")
    process = lab(gauge, tmp_path, "run", *load, *faults, stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode in (0, 1), said
    result = json.loads((tmp_path / "runs/latest/trials/001/result.json").read_text("utf-8"))
    cut, heal = result["faults"]["faults"]
    assert (cut["parts"], heal["parts"]) == (["node-1"], ["node-1"])
    assert cut["gap_s"] > 0.9
    assert (result["audit"]["balanced"], result["audit"]["lost"]) == (True, 0)
    assert "cut-network node-1" in (tmp_path / "runs/latest/report.html").read_text("utf-8")
    assert not [path for path in Path("/sys/class/net").iterdir() if path.name == f"sg{process.pid}"]


def test_a_network_that_cannot_be_cut_is_refused_before_anything_starts(gauge: Path, tmp_path: Path) -> None:
    asked = ("--system", "rabbitmq", "--fault", "cut-network:1@2s")
    process = lab(gauge, tmp_path, "run", *asked, stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "cut-network" in said
    assert "RabbitMQ is started on loopback alone" in said
    assert not (tmp_path / "runs").exists()


@needs_fuse
def test_a_study_answers_every_statement_and_goes_on(gauge: Path, tmp_path: Path) -> None:
    asked = ("study", "durability", "--quick", "--only", "gauge-log-fsync", "--repeats", "1", "--seed", "1")
    process = lab(gauge, tmp_path, *asked, stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    assert "Reference log, fsync" in said
    assert "not run: gauge-log-async" in said
    found = json.loads((tmp_path / "runs/latest/durability.json").read_text("utf-8"))
    assert found["study"]["cells"] == ["gauge-log-fsync"]
    assert found["results"][0]["finding"]["measured"] == "L3"
    report = (tmp_path / "runs/latest/report.html").read_text("utf-8")
    assert report.count("Not shown.") == 8
    assert "not measured (not among --only)" in report
    process = lab(gauge, tmp_path, "study", "durability", "--resume", stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "1 of them done" in said


@needs_fuse
def test_synced_messages_survive_power_cuts_and_the_slope_is_one(gauge: Path, tmp_path: Path) -> None:
    status, result = durability(gauge, tmp_path, "gauge-log", "--durability", "L3", "--cuts", "4")
    assert status == 0
    assert (result["finding"]["declared"], result["finding"]["measured"]) == ("L3", "L3")
    (slope,) = result["response"]["slopes"]
    if max(slope["slopes"]) - min(slope["slopes"]) <= 0.4:
        assert slope["slope"] == pytest.approx(1.0, abs=0.25)
        assert slope["waits"]
    else:
        # Neighbours have come or gone: rounds that differ never make it look as if nothing was waited for, and what they leave open is said.
        assert slope["waits"] is not False
        unclear = any("was not told by the doses" in one for one in result["finding"]["sentences"])
        assert unclear == (slope["waits"] is None), result["finding"]
    power = next(one for one in result["summaries"] if one["kind"] == "power cut")
    assert (power["conclusive"], power["with_loss"], power["lost"]) == (4, 0, 0)
    assert mounts(tmp_path) == []


@needs_fuse
def test_a_log_that_acknowledges_too_early_is_found_out(gauge: Path, tmp_path: Path) -> None:
    (tmp_path / "early.yaml").write_text("system: gauge-log\ndurability: L3\nfault: early-ack\n", "utf-8")
    # What is under way when a cut comes differs with the load, so that what survives by chance may be all of it: not four times, with nothing kept.
    status, result = durability(gauge, tmp_path, "early.yaml", "--cuts", "4", "--survivors", "none")
    assert status == 1
    assert (result["finding"]["declared"], result["finding"]["measured"]) == ("L3", "L4")
    assert result["response"]["disks"] == 0
    power = next(one for one in result["summaries"] if one["kind"] == "power cut")
    assert power["with_loss"] >= 1


@needs_fuse
@pytest.mark.parametrize(
    ("fault", "asked", "told"),
    [
        # Cuts 1 and 2 are a kill and a stop, 3 is the first power cut, and the last one follows a failed sync. A torn write may end where a
        # commit does, or be of a commit that fits in a sector: the log starts then, and the next cut of six is another chance.
        # Likewise a name that no sync kept may survive.
        ("ack-at-any-sync", ("--survivors", "none", "--cuts", "4"), "acknowledge"),
        (
            "ignore-failed-sync",
            ("--cuts", "1", "--replay", "4"),
            "It acknowledges what a failed sync has lost: cut 4 (failed sync of all",
        ),
        (
            "refuse-torn-tail",
            ("--survivors", "torn-512", "--at", "sync#40/*.log", "--cuts", "6"),
            "gauge log: the journal ends in",
        ),
        (
            "forget-directory-sync",
            ("--survivors", "posix-names", "--cuts", "4"),
            "It relies on names that no sync of a directory kept: cut",
        ),
    ],
)
def test_a_log_that_neglects_its_disk_is_found_out(
    gauge: Path, tmp_path: Path, fault: str, asked: tuple[str, ...], told: str
) -> None:
    (tmp_path / "faulty.yaml").write_text(f"system: gauge-log\ndurability: L3\nfault: {fault}\n", "utf-8")
    status, result = durability(gauge, tmp_path, "faulty.yaml", "--experiments", "cuts", *asked)
    assert status == 1
    assert any(told in one for one in result["finding"]["against"]), result["finding"]
    assert ".log on node-1" in str(result["finding"]["against"]) or fault == "refuse-torn-tail"


@needs_fuse
def test_a_power_cut_of_a_run_is_told_with_its_kind_and_seed(gauge: Path, tmp_path: Path) -> None:
    (tmp_path / "log.yaml").write_text("system: gauge-log\ndurability: L3\n", "utf-8")
    faults = ("--fault", "power-cut=versions:1@1s/write#5/*.log,restart@2s")
    load = ("--system", "log.yaml", "--rate", "1000", "--duration", "4s", "--warmup", "1s")
    process = lab(gauge, tmp_path, "run", *load, *faults, stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode in (0, 1), said
    result = json.loads((tmp_path / "runs/latest/trials/001/result.json").read_text("utf-8"))
    cut = result["faults"]["faults"][0]
    assert (cut["asked"]["place"]["deed"], cut["cut"]["survivors"]) == ("write", "versions")
    assert result["audit"]["lost"] == 0
    report = (tmp_path / "runs/latest/report.html").read_text("utf-8")
    assert f"survivors: versions, seed {cut['cut']['seed']}" in report


@needs_fuse
def test_a_killed_lab_leaves_no_process_and_no_mount(gauge: Path, tmp_path: Path) -> None:
    process = lab(
        gauge,
        tmp_path,
        "durability",
        "gauge-log",
        "--experiments",
        "cuts",
        "--cuts",
        "50",
        stderr=subprocess.STDOUT,
    )
    deadline_s = time.monotonic() + 60
    while not mounts(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert mounts(tmp_path)
    time.sleep(2.0)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    while (mounts(tmp_path) or _left(tmp_path)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert mounts(tmp_path) == []
    assert _left(tmp_path) == []


def _left(directory: Path) -> list[str]:
    """Command lines of processes that work below a directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(directory) in line and "pytest" not in line:
            found.append(line)
    return found
