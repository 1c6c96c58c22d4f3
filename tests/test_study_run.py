"""A tiny study on the reference log, from its file to its report; killed in the middle and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from lab_support import lab
from streamgauge.cli.app import run as program
from streamgauge.vocabulary.gauge_binary import find_gauge

STUDY = """
study: tiny
title: A tiny study
source: {publisher: streamgauge, published: "2026"}
systems:
  log: {system: gauge-log, title: Reference log, level: L4, nodes: 1}
  none: {system: gauge-log, title: "A log that cannot be had", level: L4, version: "9.9", nodes: 1}
workload: {messageSize: 100, rate: 2000}
cells:
  - cell: "log-{partitions}"
    title: "{partitions} partitions"
    each: {partitions: [1, 4]}
    system: log
    workload: {partitionsPerTopic: "{partitions}"}
  - {cell: cannot-run, system: none}
published:
  log-1: {publish_ms: {p99: 3.5}}
  log-4: {publish_ms: {p99: 7}}
scales:
  laptop: {warmup: 1s, duration: 2s}
  quick: {warmup: 0s, duration: 1s, repeats: 3, restart: block}
claims:
  - claim: "Four partitions cost less than 1,000 times one"
    tests: [{figure: publish_ms.p50, ratio: [log-4, log-1], below: 1000, printed: obvious}]
  - claim: "Four partitions cost as much as one, to a thousandth"
    tests: [{figure: publish_ms.p50, ratio: [log-4, log-1], between: [0.999, 1.001]}]
  - claim: "What cannot run shows nothing"
    tests: [{figure: publish_ms.p99, ratio: [cannot-run, log-1], above: 1}]
pages:
  - {title: Table, table: [publish_ms.p99, end_to_end_ms.mean], cells: ["*"]}
  - {title: Bars, bars: publish_ms.p99, cells: ["*"]}
  - {title: Over time, over_time: end_to_end_ms.mean, cells: ["*"]}
  - {title: By percentile, percentiles: publish_ms, cells: ["*"]}
"""


def trials(run: Path) -> dict[int, dict[str, Any]]:
    found = {}
    for path in sorted(run.glob("trials/*/result.json")):
        found[int(path.parent.name)] = json.loads(path.read_text("utf-8"))
    return found


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str], within_s: float) -> None:
    """While the lab goes on."""
    deadline_s = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < deadline_s
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.02)


@pytest.mark.server
def test_a_study_is_killed_resumed_reported_and_given_more_time(tmp_path: Path) -> None:
    gauge = find_gauge()
    # Nothing is heated where each trial has a start of its own.
    (tmp_path / "tiny.yaml").write_text(STUDY.replace("restart: block", "restart: trial"), encoding="utf-8")
    process = lab(gauge, tmp_path, "study", "tiny.yaml", "--quick", "--seed", "3")
    runs = tmp_path / "runs"
    wait_until(lambda: len(list(runs.glob("*/trials/*/result.json"))) >= 3, process, within_s=90)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    run = (runs / "latest").resolve()
    plan = json.loads((run / "study.json").read_text("utf-8"))
    before = {number: result["started_unix_ms"] for number, result in trials(run).items()}

    process = lab(gauge, tmp_path, "study", "latest", "--resume")
    _, stderr = process.communicate(timeout=200)
    # A cell that cannot run and a crowded machine leave trials invalid; nothing else may go wrong.
    assert process.returncode == 1, stderr
    assert f"{len(before)} of {len(plan['trials'])} trials done" in stderr

    results = trials(run)
    assert sorted(results) == [trial["number"] for trial in plan["trials"]]
    for number, started_unix_ms in before.items():
        assert results[number]["started_unix_ms"] == started_unix_ms
    order = [results[number]["workload"]["name"] for number in sorted(results)]
    assert order == [trial["cell"] for trial in plan["trials"]]
    starts = [results[number]["started_unix_ms"] for number in sorted(results)]
    assert starts == sorted(starts)
    failures = {result["workload"]["name"] for result in results.values() if result["status"] == "failed"}
    assert failures == {"cannot-run"}
    assert all("9.9" in result["failure"] for result in results.values() if result["status"] == "failed")
    assert not list(run.glob("systems"))

    page = (run / "report.html").read_text("utf-8")
    assert len(page) < 5_000_000
    assert (run / "trials.html").is_file()
    for text in (
        "Does it hold here?",
        "Four partitions cost less",
        "7.00",
        "gauge-log@9.9",
        "lower is better",
        "<svg",
    ):
        assert text in page
    assert "http" not in page.replace("http-equiv", "")
    probes = json.loads((run / "manifest.json").read_text("utf-8"))["probes"]
    assert {probe["next_trial"] for probe in probes} >= {1, len(results) + 1}, "around each round"

    process = lab(gauge, tmp_path, "study", "latest", "--resume", "--budget", "50s")
    stdout, stderr = process.communicate(timeout=200)
    # One claim nothing decides; on a crowded machine trials of another may be missing, too.
    assert re.search(r"[12] claims? still in doubt: round 4, of 2 cells", stderr), stderr
    more = trials(run)
    assert {one: more[one]["started_unix_ms"] for one in results} == {
        one: results[one]["started_unix_ms"] for one in results
    }
    assert {more[one]["workload"]["name"] for one in more if one not in results} == {"log-1", "log-4"}
    # Where the machine left no trial of a cell to judge by, or changed in each of its rounds, nothing is shown of it.
    void = set(re.findall(r"Round (\d+) is void", (run / "report.html").read_text("utf-8")))
    believed = {
        one["workload"]["name"]
        for one in more.values()
        if (one["validity"] or {}).get("valid") and str(one["repeat"]) not in void
    }
    assert program(["verify", str(run)]) in (0, 5)
    # Of trials that are not, bounds may be known.
    told = (
        ["Undecided: "]
        if {"log-1", "log-4"} <= believed
        else ["Undecided: ", "Not shown: Four partitions cost less"]
    )
    assert any(one in " ".join(stdout.split()) for one in told), stdout


@pytest.mark.server
def test_a_trial_in_which_the_generator_was_late_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(STUDY, encoding="utf-8")
    process = lab(
        find_gauge(), tmp_path, "study", "tiny.yaml", "--quick", "--only", "log-1", "--repeats", "1"
    )
    run = tmp_path / "runs" / "latest"
    deadline_s = time.monotonic() + 90
    # The first two trials warm the system up.
    while not (run / "repeated").exists():
        assert time.monotonic() < deadline_s
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        if (run / "trials" / "003").exists():
            with contextlib.suppress(psutil.Error):
                for worker in psutil.Process(process.pid).children():
                    if "worker" in worker.cmdline()[1:2]:
                        worker.suspend()
                        time.sleep(0.1)
                        worker.resume()
        time.sleep(0.05)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode in (0, 1), stderr
    # A worker that stands still as a whole has no CPU for its probes either: that is a disturbance where they are at work.
    assert re.search(
        r"trial 3 \(log-1\) was repeated: (The generator was late|.* of the time was disturbed)", stderr
    ), stderr
    spoiled = json.loads((run / "repeated" / "003-1" / "result.json").read_text("utf-8"))
    assert spoiled["validity"]["disturbed"]
    assert sorted(trials(run)) == [1, 2, 3]
    # What makes it again may be disturbed by others in its turn.
    assert {path.name.partition("-")[0] for path in (run / "repeated").iterdir()} == {"003"}
    assert "trial 3 (log-1) was repeated" in (run / "report.html").read_text("utf-8")
    # In a site the trials that warmed the system up are not counted, either.
    assert program(["publish", str(run.resolve()), "--to", str(tmp_path / "site")]) == 0
    assert [path.name for path in (tmp_path / "site/workloads").iterdir()] == ["log-1.html"]
    page = (tmp_path / "site/index.html").read_text("utf-8")
    assert "warming-up" not in page
    assert "rehearsal" not in page


@pytest.mark.server
def test_a_start_that_takes_the_place_of_another_is_heated_like_that(tmp_path: Path) -> None:
    """What a block still lacks when its start has ended, as the lab was killed or a trial failed, is not measured on a cold one."""
    (tmp_path / "tiny.yaml").write_text(STUDY, encoding="utf-8")
    process = lab(
        find_gauge(), tmp_path, "study", "tiny.yaml", "--quick", "--only", "log-*", "--repeats", "1"
    )
    run = tmp_path / "runs" / "latest"
    # The first two trials heat the start, for 45 s at most.
    wait_until((run / "trials/003/result.json").exists, process, within_s=120)
    process.kill()
    process.communicate(timeout=30)
    process = lab(find_gauge(), tmp_path, "study", "latest", "--resume")
    _, stderr = process.communicate(timeout=200)
    found = trials(run)
    assert sorted(found) == [1, 2, 3, 4], stderr
    began = [found[number]["started_unix_ms"] for number in (3, 1, 2, 4)]
    assert began == sorted(began)
    assert {"001-1", "002-1"} <= {path.name for path in (run / "repeated").iterdir()}
    manifest = json.loads((run / "manifest.json").read_text("utf-8"))
    assert manifest["trials"] == [f"trials/00{number}" for number in (1, 2, 3, 4)]
    assert "was repeated: the start that it heated has ended" in " ".join(manifest["notes"])


def test_what_cannot_be_resumed_is_said(tmp_path: Path) -> None:
    process = lab(find_gauge(), tmp_path, "study", "kesque-2019", "--resume")
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "--resume: no run of kesque-2019" in stderr
    process = lab(find_gauge(), tmp_path, "study", "kesque-2019", "--resume", "--seed", "1")
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "leave it out with --resume" in stderr
