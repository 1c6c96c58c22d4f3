"""Trials on OMB's workers: on ours that speak OMB's protocol, and on OMB's own where some are named.

STREAMGAUGE_OMB_WORKERS=http://127.0.0.1:8080[,...] names OMB's own (they are not to be had from a registry, so that nothing can start them here).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab_support
import pytest
from streamgauge.report import export, html

WORKLOAD = """\
name: shared
topics: 1
partitionsPerTopic: 4
messageSize: 100
producersPerTopic: 2
subscriptionsPerTopic: 1
consumerPerSubscription: 1
rate: 2000
warmup: 1s
duration: 5s
"""
pytestmark = pytest.mark.server


@contextlib.contextmanager
def omb_workers(gauge: Path, count: int) -> Iterator[list[tuple[str, subprocess.Popen[str]]]]:
    """Workers that speak OMB's protocol, by their URLs."""
    command = [str(gauge), "worker", "--omb", "--listen", "127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            assert process.stdout is not None
            found.append((f"http://{process.stdout.readline().removeprefix('ready ').strip()}", process))
        yield found


def lab(gauge: Path, directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return lab_support.lab(gauge, directory, *arguments, stderr=subprocess.STDOUT)


def run(
    gauge: Path, directory: Path, urls: list[str], *arguments: str, workload: str = WORKLOAD
) -> tuple[dict[str, Any], str]:
    """The result of a run that may be invalid on a crowded machine, and what was printed."""
    (directory / "shared.yaml").write_text(workload)
    fleet = ("--fleet", f"omb:{','.join(urls)}") if urls else ()
    process = lab(gauge, directory, "run", "shared.yaml", *fleet, *arguments)
    out, _ = process.communicate(timeout=200)
    assert process.returncode in (0, 1), out
    return lab_support.result(directory), out


def check(found: dict[str, Any], rate: float) -> None:
    """What OMB tells is there, what it does not tell is missing and said to be."""
    assert found["status"] == "complete", found["failure"]
    # On a crowded machine what waited before the measured phase is acknowledged within it.
    assert found["publish_rate_msgs_s"] == pytest.approx(rate, rel=0.05)
    assert found["consume_rate_msgs_s"] == pytest.approx(rate, rel=0.05)
    # Workers of ours tell histograms 0.2 s after the counters.
    assert found["service_ms"]["count"] == pytest.approx(5 * rate, rel=0.06)
    assert found["end_to_end_ms"]["count"] == pytest.approx(5 * rate, rel=0.06)
    assert found["send_delay_ms"]["p99"] is not None
    assert (found["publish_ms"]["p99"], found["publish_ms"]["count"]) == (None, 0)
    assert (found["waiting_msgs_max"], found["retries"]) == (None, None)
    assert {"publish_ms", "audit", "waiting_msgs_max", "retries"} <= set(found["untold"])
    audit = found["audit"]
    assert (audit["enabled"], audit["clean"]) == (False, False)
    assert "keep no books" in audit["missing"]
    assert not [reason for reason in found["validity"]["reasons"] if "books" in reason or "hold" in reason]
    assert found["cpu"]["workers_s"] > 0, "the worker is on this machine"


@pytest.mark.parametrize("count", [1, 2], ids=["one worker", "two workers"])
def test_a_trial_on_workers_that_speak_ombs_protocol(gauge: Path, tmp_path: Path, count: int) -> None:
    with omb_workers(gauge, count) as workers:
        urls = [url for url, _ in workers]
        found, out = run(gauge, tmp_path, urls)
        check(found, 2000)
        assert "service p50" in out
        assert "not proved" in out
        assert "Every message is accounted for" not in out
        # It is idle again: the next trial finds it so.
        assert lab(gauge, tmp_path, "fleet", "clean", f"omb:{','.join(urls)}").wait(60) == 0


def test_reports_comparisons_and_exports_say_what_is_missing(gauge: Path, tmp_path: Path) -> None:
    with omb_workers(gauge, 1) as workers:
        run(gauge, tmp_path, [workers[0][0]])
    theirs = (tmp_path / "runs/latest").resolve()
    page = html.write(theirs).read_text(encoding="utf-8")
    assert "service p99 <small>" in page
    assert "is not told by the workers that drove it" in page
    assert "Not told:" in page
    exported = json.loads(next(iter(export.to_omb(theirs, tmp_path / "out"))).read_text())
    assert exported["aggregatedPublishLatency99pct"] > 0
    run(gauge, tmp_path, [])
    out, _ = lab(gauge, tmp_path, "compare", str(theirs), "latest").communicate(timeout=60)
    assert "service_ms.p99" in out
    assert "not compared: publish_ms" in out
    assert "they differ in client: OMB's worker" in out


def test_a_backlog_is_read_by_pausing_and_resuming(gauge: Path, tmp_path: Path) -> None:
    workload = WORKLOAD.replace("duration: 5s", "duration: 3s\nbacklog: {size: 1MB, after: 2s}")
    with omb_workers(gauge, 1) as workers:
        found, _ = run(gauge, tmp_path, [workers[0][0]], workload=workload)
    caught = found["catch_up"]
    assert caught["built"]
    assert caught["caught_up"]
    assert caught["phases"][0]["service_ms"]["count"] > 0
    assert caught["phases"][0]["publish_ms"]["count"] == 0


def test_steps_change_the_rate(gauge: Path, tmp_path: Path) -> None:
    workload = WORKLOAD.replace("warmup: 1s", "warmup: 0s\nsteps: [{at: 3s, rate: 6000}]")
    with omb_workers(gauge, 1) as workers:
        found, _ = run(gauge, tmp_path, [workers[0][0]], workload=workload)
    assert found["publish_rate_msgs_s"] == pytest.approx((3 * 2000 + 2 * 6000) / 5, rel=0.03)


def test_a_worker_that_is_killed_ends_the_trial(gauge: Path, tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text(WORKLOAD.replace("duration: 5s", "duration: 60s"))
    with omb_workers(gauge, 2) as workers:
        urls = ",".join(url for url, _ in workers)
        process = lab(gauge, tmp_path, "run", "shared.yaml", "--fleet", f"omb:{urls}")
        file = tmp_path / "runs/latest/trials/001/intervals.jsonl"
        deadline_s = time.monotonic() + 60
        while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        workers[1][1].kill()
        out, _ = process.communicate(timeout=60)
    found = lab_support.result(tmp_path)
    assert process.returncode == 3, out
    assert found["status"] == "failed"
    assert f"worker lost: OMB worker {workers[1][0]} is gone" in found["failure"]


def test_a_worker_that_is_taken_is_not_taken_over(gauge: Path, tmp_path: Path) -> None:
    workload = WORKLOAD.replace("duration: 5s", "duration: 60s")
    (tmp_path / "shared.yaml").write_text(workload)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/shared.yaml").write_text(workload)
    with omb_workers(gauge, 1) as workers:
        url = workers[0][0]
        first = lab(gauge, tmp_path, "run", "shared.yaml", "--fleet", f"omb:{url}")
        file = tmp_path / "runs/latest/trials/001/intervals.jsonl"
        deadline_s = time.monotonic() + 60
        while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        second = lab(gauge, tmp_path / "other", "run", "shared.yaml", "--fleet", f"omb:{url}")
        out, _ = second.communicate(timeout=60)
        assert "drives a load for somebody" in out
        # A lab that is killed leaves it at work, and this ends it.
        first.kill()
        first.wait()
        clean = lab(gauge, tmp_path, "fleet", "clean", f"omb:{url}")
        out, _ = clean.communicate(timeout=60)
        assert out == f"{url}: stopped\n"


@pytest.mark.jvm
@pytest.mark.skipif(
    not os.environ.get("STREAMGAUGE_OMB_WORKERS"),
    reason="STREAMGAUGE_OMB_WORKERS names no workers of OMB's own",
)
def test_a_trial_on_ombs_own_workers(gauge: Path, tmp_path: Path) -> None:
    urls = os.environ["STREAMGAUGE_OMB_WORKERS"].split(",")
    found, _ = run(gauge, tmp_path, urls, "--system", "kafka")
    check(found, 2000)
    assert found["client"] == "OMB's worker, its Kafka driver"
