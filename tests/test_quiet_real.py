"""Quiet time with the real gauge: a thief that takes CPUs away beside a load, and a system that stands still by itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lab_support
import psutil
import pytest
from quiet import Witness
from streamgauge.systems.support.processes import await_standing
from thief import thief

LOAD = ("run", "--rate", "5000", "--warmup", "2s")


def ended(gauge: Path, directory: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """The result of a run that its trials did not fail, unless the host made the generator late, and what was printed."""
    process = lab_support.lab(gauge, directory, *arguments, stderr=subprocess.STDOUT, waits_for_quiet=True)
    out, _ = process.communicate(timeout=150)
    found = lab_support.result(directory)
    assert process.returncode == (1 if is_late_beside_the_host(found) else 0), out
    return found, out


def is_late_beside_the_host(found: dict[str, Any]) -> bool:
    """Invalid for the generator's lateness and nothing else, where the host took CPU as well: what it takes in pieces of less than half a millisecond no
    probe sees, and wake-ups are late by them."""
    validity = found["validity"]
    return bool(
        validity["word"] == "invalid"
        and all(reason.startswith("The generator was late") for reason in validity["reasons"])
        and host_takes(found)
    )


def host_takes(found: dict[str, Any]) -> bool:
    """Whether the host took so much that it is felt."""
    cpu = found["cpu"]
    return bool((cpu["steal_s"] or 0.0) >= 0.05 * cpu["cores"] * cpu["duration_s"])


def is_the_thief_alone(found: dict[str, Any]) -> bool:
    """The thief itself is the others' 0.2; more of it are programs of normal priority, which are no disturbance, but what is behind by them takes longer
    to recover from the thief. The host may take its part as well."""
    return bool(found["cpu"]["others_share"] < 0.4) and not host_takes(found)


def await_measuring(events: Path) -> None:
    """Until a run's events tell that it measures."""
    deadline_s = time.monotonic() + 60
    while not (
        events.exists()
        and any(one.get("phase") == "measure" for one in map(json.loads, events.read_text().splitlines()))
    ):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def stand_still(process: psutil.Process, for_s: float) -> float:
    """Stops a process and lets it go on. Returns for how long it stood."""
    process.send_signal(signal.SIGSTOP)
    await_standing("the process", [process.pid])
    from_s = time.monotonic()
    threading.Event().wait(for_s)
    stood_s = time.monotonic() - from_s
    process.send_signal(signal.SIGCONT)
    return stood_s


def test_the_witness_of_other_tests_sees_what_the_lab_sees() -> None:
    """It must: a test that asks it whether the machine was quiet takes the lab's word for wrong if not."""
    with thief(0.1, 0.002, 0.002):
        witness = Witness()
        time.sleep(4.0)
        found = witness.disturbance()
        witness.end()
    assert found is not None


@pytest.mark.quiet
def test_what_a_thief_takes_is_not_in_the_figures(gauge: Path, tmp_path: Path) -> None:
    with thief(0.1, 0.01, 0.03, "all"):
        found, out = ended(gauge, tmp_path, *LOAD, "--duration", "8s")
    quiet = found["quiet"]
    assert quiet["watched"], quiet["why_not"]
    assert found["validity"]["word"] in ("disturbed", "bounds only") or is_late_beside_the_host(found), out
    assert quiet["disturbed_share"] > 0.1
    assert quiet["windows_s_by_cause"]["real-time"] > 0.5
    if is_the_thief_alone(found):
        assert quiet["disturbed_share"] < 0.95
    p99 = quiet["publish_ms"]["p99"]
    assert found["publish_ms"]["p99"] > 5, "the thief is in the figures as they came"
    assert p99["at_least"] < found["publish_ms"]["p99"]
    if found["validity"]["word"] == "disturbed":
        assert p99["value"] <= found["publish_ms"]["p99"]
        if is_the_thief_alone(found):
            assert p99["value"] < found["publish_ms"]["p99"] / 2
        lasted_s = found["phases"][-1]["from_s"] if found["phases"] else 0.0
        assert quiet["quiet_s"] > 6 or lasted_s > 20, "it waits for quiet time, three times as long at most"
    # Each message is in exactly one part.
    parts = quiet["publish_ms"]
    all_msgs = parts["quiet_msgs"] + parts["censored_msgs"] + parts["left_out_msgs"]
    assert all_msgs == pytest.approx(found["publish_ms"]["count"], rel=0.01)


@pytest.mark.quiet
def test_a_system_that_stands_still_is_not_disturbed(gauge: Path, tmp_path: Path) -> None:
    """A SIGSTOP of 300 ms is the system's own: it stays in the tail of quiet time."""
    asked = (*LOAD, "--duration", "8s", "--events", "events.jsonl")
    process = lab_support.lab(gauge, tmp_path, *asked, waits_for_quiet=True)
    await_measuring(tmp_path / "events.jsonl")
    (log,) = (
        one for one in psutil.Process(process.pid).children(recursive=True) if one.cmdline()[1:2] == ["log"]
    )
    stood_s = stand_still(log, 0.3)
    process.communicate(timeout=150)
    found = lab_support.result(tmp_path)
    assert found["publish_ms"]["max"] > 250
    # All that were due while it stood wait for its end, the first of them longest: 1 % of all for longer than this. It is less where the trial went on for
    # its quiet time.
    implied_ms = 1e3 * (stood_s - 0.01 * found["quiet"]["seconds"])
    p99 = found["quiet"]["publish_ms"]["p99"]
    if p99["value"] is None:
        # A window of 2 ms is next to nothing of a trial, which is valid; but one that cuts the stop leaves none who saw all of it.
        assert found["quiet"]["windows"] > 0
    elif found["validity"]["word"] == "valid":
        assert p99["value"] > 0.9 * implied_ms
    else:
        # One stop that windows have cut is hardly known, and the interval says so.
        assert p99["value"] > 0.25 * implied_ms
    assert p99["at_most"] is None or p99["at_most"] > 0.9 * implied_ms


def test_a_generator_that_is_stopped_was_away_where_others_are_busy(gauge: Path, tmp_path: Path) -> None:
    """Then CPUs have something to run meanwhile, of lower priority than the probes: what they wait for is no work of the kernel for it."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)
    ]
    try:
        asked = ("run", "--rate", "1000", "--warmup", "1s", "--duration", "6s", "--quiet-limit", "1")
        process = lab_support.lab(gauge, tmp_path, *asked, "--events", "events.jsonl")
        await_measuring(tmp_path / "events.jsonl")
        (worker,) = (
            one for one in psutil.Process(process.pid).children() if one.cmdline()[1:2] == ["worker"]
        )
        stood_s = 0.0
        for _ in range(3):
            stood_s += stand_still(worker, 0.4)
            threading.Event().wait(0.6)
        process.communicate(timeout=150)
    finally:
        for one in spinning:
            one.kill()
            one.wait()
    quiet = lab_support.result(tmp_path)["quiet"]
    assert quiet["watched"], quiet["why_not"]
    assert quiet["away_share"] * quiet["seconds"] > 0.9 * stood_s


def test_without_the_right_to_real_time_priority_nothing_is_claimed(gauge: Path, tmp_path: Path) -> None:
    command = [
        "setpriv",
        "--inh-caps",
        "-all",
        "--ambient-caps",
        "-all",
        "--bounding-set",
        "-all",
        "--no-new-privs",
    ]
    environment = {"PYTHONPATH": str(lab_support.ROOT / "python"), "GAUGE": str(gauge)}
    done = subprocess.run(
        [*command, "prlimit", "--rtprio=0", *lab_support.COMMAND, *LOAD, "--duration", "3s"],
        cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    quiet = lab_support.result(tmp_path)["quiet"]
    assert not quiet["watched"]
    assert "real-time priority" in quiet["why_not"]
    assert "CAP_SYS_NICE" in quiet["why_not"]
    assert quiet["publish_ms"] is None


def made_group(files: dict[str, str]) -> Path | None:
    """A control group of its own, with the first of these files that the kernel knows written; None where none can be made here."""
    for top in map(Path, ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup")):
        group = top / f"streamgauge-test-{os.getpid()}-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            for name in files:
                if (group / name).exists():
                    (group / name).write_text(files[name])
                    return group
            group.rmdir()
    return None


def why_not(gauge: Path, directory: Path, files: dict[str, str]) -> str:
    """Why a short trial was not watched that ran in a control group with these; where none can be made, in a mount namespace that has them in its place."""
    group = made_group(files)
    if group is not None:
        joined = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        command = ["sh", "-c", joined, "sh"]
    else:
        double = directory / "cgroup"
        double.mkdir()
        for name, text in files.items():
            (double / name).write_text(text)
        command = ["unshare", "-m", "sh", "-c", f'mount --bind {double} /sys/fs/cgroup && exec "$@"', "sh"]
    load = ("run", "--rate", "500", "--warmup", "1s", "--duration", "1s")
    environment = {**os.environ, "PYTHONPATH": str(lab_support.ROOT / "python"), "GAUGE": str(gauge)}
    done = subprocess.run(
        [*command, *lab_support.COMMAND, *load], cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if group is not None:
        group.rmdir()
    assert done.returncode in (0, 1), done.stderr
    quiet = lab_support.result(directory)["quiet"]
    assert not quiet["watched"]
    assert quiet["publish_ms"] is None
    return str(quiet["why_not"])


def test_under_a_quota_nothing_is_claimed(gauge: Path, tmp_path: Path) -> None:
    """The kernel stops threads of normal priority then where no probe sees it."""
    quota_us = 75_000 * (os.cpu_count() or 1)
    said = why_not(gauge, tmp_path, {"cpu.max": f"{quota_us} 100000", "cpu.cfs_quota_us": f"{quota_us}"})
    assert f"a quota of {quota_us / 100_000:.2f} CPUs" in said
    assert "cpuset" in said, "what to do instead"


def test_in_a_group_without_real_time_nothing_is_claimed(gauge: Path, tmp_path: Path) -> None:
    """As a container is on kernels that divide real time among groups: a right of the process would not help."""
    said = why_not(gauge, tmp_path, {"cpu.rt_runtime_us": "0"})
    assert "cpu.rt_runtime_us is 0" in said
    assert "--cpu-rt-runtime" in said, "what to grant"
