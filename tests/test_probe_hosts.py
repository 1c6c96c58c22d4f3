"""A study that has every disk of every machine probed first, and keeps what was found: two real agents with two directories each."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_support import lab
from streamgauge.vocabulary.gauge_binary import find_gauge, ready_address

START_S = 60
RUN_S = 240
MIB = 1 << 20
STUDY = """
study: tiny
title: A tiny study
source: {publisher: streamgauge, published: "2026"}
systems: {log: {system: gauge-log, title: Reference log, level: L4, nodes: 1}}
workload: {messageSize: 100}
cells: [{cell: steady, system: log, workload: {rate: 1000}}]
published: {steady: {publish_ms: {p99: 3}}}
scales:
  laptop: {nodes: 1}
  quick: {nodes: 1, warmup: 0s, duration: 1s, repeats: 1, restart: trial}
pages: [{title: Table, table: [publish_ms.p99], cells: ["*"]}]
"""


@contextlib.contextmanager
def agent(directory: Path, *disks: Path, more: tuple[str, ...] = ()) -> Iterator[str]:
    """The address of an agent that may probe these."""
    directory.mkdir()
    command = [
        str(find_gauge()),
        "agent",
        *(part for disk in disks for part in ("--probe-dir", str(disk))),
        *more,
    ]
    log = directory / "log"
    with log.open("wb") as sink, subprocess.Popen(command, stdout=sink) as child:
        try:
            until = time.monotonic() + START_S
            while (address := ready_address(log)) is None:
                assert child.poll() is None, log.read_text("utf-8")
                assert time.monotonic() < until
                time.sleep(0.05)
            yield address
        finally:
            child.terminate()


def study(directory: Path, *arguments: str) -> tuple[int, str]:
    (directory / "tiny.yaml").write_text(STUDY, encoding="utf-8")
    process = lab(find_gauge(), directory, "study", "tiny.yaml", "--quick", "--seed", "3", *arguments)
    try:
        told, errors = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
    return process.returncode, told + errors


@pytest.mark.server
def test_every_disk_of_every_machine_is_kept_and_shown(tmp_path: Path) -> None:
    disks = [tmp_path / name for name in ("a-1", "a-2", "b-1", "b-2")]
    for disk in disks:
        disk.mkdir()
    more = ("--probe-bytes", str(8 * MIB))
    with agent(tmp_path / "a", *disks[:2], more=more) as a, agent(tmp_path / "b", *disks[2:], more=more) as b:
        asked = ("--probe-bytes", "8MiB", "--probe-fsync", "3s")
        status, told = study(tmp_path, "--probe-hosts", a, "--probe-hosts", b, *asked)
        assert status in (0, 1), told
        refused = study(tmp_path, "--probe-hosts", a, "--probe-bytes", "16MiB")
    manifest = json.loads((tmp_path / "runs/latest/manifest.json").read_text("utf-8"))
    found = manifest["disks"]
    assert [(disk["host"], disk["dir"]) for disk in found] == [
        (address, str(disk)) for address, disk in zip([a, a, b, b], disks, strict=True)
    ]
    for disk in found:
        assert disk["written_bytes"] == 8 * MIB
        assert disk["write_mb_s"] > 0
        # Of three seconds the last one may not be whole.
        assert 2 <= len(disk["fsync_ms_p99_by_second"]) <= 3
        assert (
            min(disk["fsync_ms_p99_by_second"])
            <= disk["fsync_ms_p99"]
            <= max(*disk["fsync_ms_p99_by_second"], disk["fsync_ms_max"])
        )
        assert (
            0 < disk["fsync_ms_p50"] <= disk["fsync_ms_p99"] <= disk["fsync_ms_p99_9"] <= disk["fsync_ms_max"]
        )
    page = (tmp_path / "runs/latest/report.html").read_text("utf-8")
    assert "Every disk of every machine" in page
    assert "99th percentile of an fsync, second by second" in page
    for disk in disks:
        assert re.search(rf"<code>{re.escape(str(disk))}</code>", page)
        assert not list(disk.iterdir()), "what was written there is removed"
    assert refused[0] == 2
    assert "this agent lets 8388608 be written to a disk" in refused[1]


@pytest.mark.server
def test_an_agent_that_may_write_nowhere_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with agent(tmp_path / "a") as address:
        status, told = study(tmp_path, "--probe-hosts", address)
    assert status == 2
    assert "started without --probe-dir" in told
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*/trials/*"))


@pytest.mark.parametrize("option", [("--probe-bytes", "1GiB"), ("--probe-fsync", "1m")])
def test_what_is_asked_of_disks_without_machines_is_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    status, told = study(tmp_path, *option)
    assert status == 2
    assert f"{option[0]}: of which machines? name their agents with --probe-hosts" in told


@pytest.mark.parametrize("time", ["1s", "11m", "long"])
def test_a_time_that_is_none_is_refused_before_anything_is_probed(tmp_path: Path, time: str) -> None:
    status, told = study(tmp_path, "--probe-hosts", "127.0.0.1:1", "--probe-fsync", time)
    assert status == 2
    assert f"--probe-fsync {time}: " in told
    assert "expected" in told
    assert "probing" not in told
