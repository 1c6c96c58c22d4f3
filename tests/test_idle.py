"""CPUs that are kept awake (`idle: poll`): recorded, not counted as use, gone with the trial; refused where it cannot be."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from lab_support import lab, result
from streamgauge.runner.awake import Awake
from streamgauge.vocabulary.gauge_binary import find_gauge

LOAD = ("--rate", "2000", "--duration", "3s", "--warmup", "1s")


@pytest.mark.server
def test_cpus_that_are_kept_awake_are_not_busy(tmp_path: Path) -> None:
    process = lab(find_gauge(), tmp_path, "run", "--system", "gauge-log", *LOAD, "--idle", "poll")
    _, stderr = process.communicate(timeout=120)
    found = result(tmp_path)
    assert found["status"] == "complete", stderr
    assert found["workload"]["extra"]["idle"] == "poll"
    # Two spinning threads would be all of the machine.
    used_s = sum(found["cpu"][f"{who}_s"] or 0.0 for who in ("workers", "system", "others"))
    assert used_s < found["cpu"]["cores"] * found["cpu"]["duration_s"] * 0.9
    assert not [
        one for one in psutil.process_iter(["cmdline"]) if f"--parent-pid {process.pid}" in _words(one)
    ]


def test_what_keeps_them_awake_gives_way_and_ends() -> None:
    awake = Awake()
    process = psutil.Process(awake.pid)
    threads = Path(f"/proc/{awake.pid}/task")
    # Field 41 of stat is the policy: 5 is SCHED_IDLE. The main thread only waits.
    policies = {
        path.name: (path / "stat").read_text().rpartition(")")[2].split()[38]
        for path in threads.iterdir()
        if (path / "comm").read_text().startswith("idle-")
    }
    assert len(policies) == len(psutil.Process().cpu_affinity())
    assert set(policies.values()) == {"5"}
    awake.end()
    awake.end()
    assert not process.is_running()


def test_it_is_refused_where_others_would_have_to_be_kept_awake(tmp_path: Path) -> None:
    process = lab(
        find_gauge(),
        tmp_path,
        "run",
        "--system",
        "kafka",
        "--connect",
        "127.0.0.1:1",
        "--idle",
        "poll",
    )
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "idle poll keeps CPUs of this machine awake" in stderr
    process = lab(find_gauge(), tmp_path, "run", "--idle", "pole")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--idle" in stderr
    assert "poll" in stderr


def _words(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or ())
