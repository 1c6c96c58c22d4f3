"""Whole published studies on this machine, each for a quarter of an hour and more: `make test-long` (docs/testing.md)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from lab_support import lab

HOURS_S = 3 * 3600


@pytest.mark.timeout(HOURS_S)
def test_a_log_that_keeps_its_promise_is_acquitted_fifty_times(real_gauge: Path, tmp_path: Path) -> None:
    asked = (
        "durability",
        "gauge-log",
        "--durability",
        "L3",
        "--experiments",
        "cuts",
        "--cuts",
        "50",
        "--seed",
        "1",
    )
    process = lab(real_gauge, tmp_path, *asked, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=HOURS_S)
    assert process.returncode == 0, out
    (result,) = json.loads((tmp_path / "runs/latest/durability.json").read_text("utf-8"))["results"]
    power = [cut for cut in result["cuts"] if cut["kind"] == "power cut"]
    assert (len(power), [cut for cut in power if cut["lost"] or cut["failure"]]) == (50, [])
    assert result["finding"]["against"] == []


@pytest.mark.timeout(HOURS_S)
@pytest.mark.parametrize("study", ["kesque-2019", "streamnative-2020", "confluent-2020", "durability"])
def test_a_published_study_is_repeated_whole(real_gauge: Path, tmp_path: Path, study: str) -> None:
    process = lab(real_gauge, tmp_path, "study", study, "--quick", "--seed", "1", stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=HOURS_S)
    # A trial that a crowded machine made invalid is told by status 1, and by the report.
    assert process.returncode in (0, 1), out
    run = (tmp_path / "runs" / "latest").resolve()
    assert (run / "report.html").is_file()
    assert "Traceback" not in out
    results = [json.loads(path.read_text("utf-8")) for path in run.glob("trials/*/result.json")]
    assert results or (run / "durability.json").is_file()
    assert not [one["failure"] for one in results if one["status"] == "failed"]
    assert not [one for one in results if one["audit"]["enabled"] and not one["audit"]["balanced"]]
    print(out)
