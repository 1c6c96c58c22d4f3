"""Profiles of real trials: the functions of broker and generator that everybody knows are in them, and what cannot be had is a remark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from lab_support import lab, result
from streamgauge.model.result_columns import PROFILE_COLUMNS
from streamgauge.runner.profiles import perf
from streamgauge.store.parquet import read_rows

TRIAL = Path("runs/latest/trials/001")


def functions(directory: Path, process: str, state: str, found: dict[str, Any]) -> set[str]:
    """All functions that were on the stack of a process in the measured phase."""
    (measured,) = [phase for phase in found["phases"] if phase["name"] == "measure"]
    return {
        name
        for row in read_rows(directory / TRIAL / "profile.parquet", PROFILE_COLUMNS)
        if (row["process"], row["state"]) == (process, state)
        and measured["from_s"] <= row["start_s"] < measured["until_s"]
        for name in row["stack"].split(";")
    }


@pytest.mark.server
def test_generator_and_reference_log_are_profiled_or_it_is_said_why_not(
    real_gauge: Path, tmp_path: Path
) -> None:
    asked = ["--rate", "20k", "--warmup", "1s", "--duration", "5s", "--profile"]
    with lab(real_gauge, tmp_path, "run", "1-topic-16-partitions-100b", *asked) as process:
        said = process.communicate(timeout=150)
    found = result(tmp_path)
    assert found["status"] == "complete", said
    assert found["workload"]["extra"]["profile"] is True
    left = [path.name for path in (tmp_path / TRIAL).rglob("*") if path.suffix in (".perf", ".jfc")]
    assert left == [], "copies of stacks hold what was in memory"
    reason = perf.why_not()
    if reason is not None:
        assert any(reason in note for note in found["validity"]["warnings"]), found["validity"]
        return
    profiled = {(one["process"], one["role"]): one for one in found["profiled"]["profiles"]}
    assert set(profiled) == {("gauge-log", "system"), ("worker-0", "worker")}, said
    assert "gauge_worker::lane::run" in functions(tmp_path, "worker-0", "cpu", found)
    assert "gauge_log::net::server::Server::run" in functions(tmp_path, "gauge-log", "cpu", found)
    assert "Where the time went" in (tmp_path / "runs/latest/report.html").read_text("utf-8")


@pytest.mark.server
def test_a_trial_goes_on_where_nothing_can_be_sampled(
    real_gauge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "bin"
    refusing.mkdir()
    (refusing / "perf").write_text("#!/bin/sh\necho 'Error: permission is denied' >&2\nexit 1\n")
    (refusing / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{refusing}{os.pathsep}{os.environ['PATH']}")
    asked = ["--rate", "2k", "--warmup", "1s", "--duration", "2s", "--profile"]
    with lab(real_gauge, tmp_path, "run", "1-topic-16-partitions-100b", *asked) as process:
        said = process.communicate(timeout=150)
    found = result(tmp_path)
    assert found["status"] == "complete", said
    assert found["profiled"] is None
    (note,) = [one for one in found["validity"]["warnings"] if "could not be profiled" in one]
    assert note.startswith("gauge-log and worker-0 could not be profiled: perf is not permitted to sample")
    assert "sysctl kernel.perf_event_paranoid=2" in note


@pytest.mark.jvm
def test_a_kafka_broker_is_profiled_by_its_own_flight_recorder(real_gauge: Path, tmp_path: Path) -> None:
    # A request for each message: with batches the broker had hardly twenty samples in Java, of which a fifth is in its log.
    load = ["--rate", "4k", "--linger", "0ms", "--warmup", "2s", "--duration", "6s"]
    asked = ["--system", "kafka", *load, "--profile"]
    with lab(real_gauge, tmp_path, "run", "1-topic-16-partitions-1kb", *asked) as process:
        said = process.communicate(timeout=300)
    found = result(tmp_path)
    assert found["status"] == "complete", said
    assert {one["state"] for one in found["profiled"]["profiles"] if one["process"] == "node-1"} >= {
        "java",
        "native",
    }
    reason = perf.why_not()
    if reason is None:
        # What the recorder does not see: the kernel's part, and the JVM's own threads.
        used = functions(tmp_path, "node-1", "cpu", found)
        assert "[code made at run time]" in used
        assert any(name.endswith(" [kernel]") for name in used)
        assert any(name.startswith(("Compile", "GraphBuilder")) for name in used), sorted(used)
    else:
        assert any(reason in note for note in found["validity"]["warnings"])
    ran = functions(tmp_path, "node-1", "java", found)
    assert "kafka.server.KafkaRequestHandler.run" in ran
    assert any(name.startswith(("kafka.log.", "org.apache.kafka.storage.")) for name in ran), sorted(ran)
    waited = functions(tmp_path, "node-1", "native", found)
    assert "org.apache.kafka.common.network.Selector.poll" in waited
    recorded = tmp_path / TRIAL / "logs/profiles/node-1.jfr"
    content = recorded.read_bytes()
    assert content.startswith(b"FLR\0")
    for secret in (b"PATH=", b"java.class.path", str(tmp_path).encode()):
        assert secret not in content
    manifest = json.loads((tmp_path / "runs/latest/manifest.json").read_text("utf-8"))
    assert manifest["workloads"][0]["extra"]["profile"] is True
