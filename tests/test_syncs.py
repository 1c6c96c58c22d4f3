"""How long processes wait for their syncs: the real program that asks the kernel, and what becomes of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest
from streamgauge.runner.resources import ResourceSampler, Watched
from streamgauge.runner.syncs import Syncs
from streamgauge.systems.support import privileges

TRACING = Path("/sys/kernel/tracing/events/syscalls/sys_enter_fsync/id")


def is_permitted() -> bool:
    """Root may, wherever the kernel's trace file system is there, or root is the machine's own and may mount it."""
    if os.geteuid() != 0:
        return False
    if TRACING.exists():
        return True
    is_the_machines_own = Path("/proc/self/uid_map").read_text("utf-8").split()[2] == str(2**32 - 1)
    has_one = "tracefs" in Path("/proc/filesystems").read_text("utf-8")
    return has_one and is_the_machines_own and privileges.has(privileges.SYS_ADMIN[1])


def sync(path: Path, times: int) -> None:
    with path.open("wb") as file:
        for _ in range(times):
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())


def test_syncs_of_a_process_are_counted_where_it_is_permitted(real_gauge: Path, tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text("utf-8")
    syncs = Syncs(real_gauge)
    assert Path("/proc/self/mountinfo").read_text("utf-8") == before, "a mount of its own is nobody else's"
    sync(tmp_path / "file", 3)
    found = syncs.totals()
    if found is not None:
        assert found[os.getpid()].calls == 3
        assert 0 < found[os.getpid()].wait_s < 60
    else:
        assert not is_permitted()
    syncs.end()
    syncs.end()
    assert syncs.totals() is None


def syncs_of(tmp_path: Path, script: str) -> Syncs:
    """With a shell script in place of the program."""
    program = tmp_path / "gauge"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    return Syncs(program)


def test_a_program_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    syncs = syncs_of(tmp_path, "echo ready\nexec sleep 60")
    begun_s = time.monotonic()
    assert syncs.totals() is None
    assert syncs.totals() is None
    assert time.monotonic() - begun_s < 10, "half a second, and then never again"
    syncs.end()


@pytest.mark.parametrize("says", ["exit 3", "echo something else", "echo 'no trace file system' >&2; exit 1"])
def test_where_it_cannot_be_seen_nothing_is_told_and_no_zombie_stays(tmp_path: Path, says: str) -> None:
    syncs = syncs_of(tmp_path, says)
    assert not psutil.pid_exists(syncs.pid)
    assert syncs.totals() is None
    syncs.end()


def test_one_that_dies_is_asked_no_more(tmp_path: Path) -> None:
    syncs = syncs_of(tmp_path, "echo ready\nexec 0<&-")
    time.sleep(0.2)
    assert syncs.totals() is None
    assert not psutil.pid_exists(syncs.pid)
    syncs.end()


def test_rows_of_the_system_tell_its_syncs(real_gauge: Path, tmp_path: Path) -> None:
    kept: list[dict[str, object]] = []
    watched = [Watched("system", "node-1", os.getpid())]
    syncs = Syncs(real_gauge)
    sampler = ResourceSampler(time.monotonic(), 0.2, watched, kept.extend, syncs=syncs)
    sampler.start()
    until_s = time.monotonic() + 20.0
    while len([row for row in kept if row["scope"] == "system"]) < 3:
        assert time.monotonic() < until_s
        sync(tmp_path / "file", 5)
    sampler.stop()
    rows = [row for row in kept if row["scope"] == "system"]
    if is_permitted():
        assert sum(int(str(row["syncs"])) for row in rows) > 0
        assert all(float(str(row["sync_s"])) >= 0 for row in rows)
    else:
        assert not any("syncs" in row and row["syncs"] for row in rows)
    assert not any("syncs" in row for row in kept if row["scope"] == "lab")
