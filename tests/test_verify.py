"""What is forged is noticed, whoever made new digests; what is honest passes, of every kind that is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import passed_on
import pyarrow.parquet as pq
import pytest
import stored_trials
from lab_support import lab
from streamgauge.analysis.trial import analyse
from streamgauge.analysis.verify.rules import RULES, Verification
from streamgauge.analysis.verify.whole import verify
from streamgauge.cli.app import run as program
from streamgauge.cli.passed_on import opened, told_level
from streamgauge.model.result import Manifest
from streamgauge.store.directory import RunDirectory, TrialDirectory
from streamgauge.store.submission import pack, unpack
from streamgauge.vocabulary.version import version


def checked(file: Path) -> Verification:
    with opened([str(file)], file.parent) as (one,):
        return one.verified()


def broken(found: Verification) -> set[str]:
    return {one.rule for one in found.findings if one.outcome == "broken"}


@pytest.mark.parametrize("file", [passed_on.ARRIVALS, passed_on.FIXED_RATE], ids=lambda one: one.name)
def test_an_honest_file_is_verified(file: Path) -> None:
    found = checked(file)
    assert [one for one in found.findings if one.outcome != "holds"] == []
    assert found.grade == "verified"
    assert {one.rule for one in found.findings} == set(RULES)


@pytest.mark.parametrize("name", passed_on.FORGERIES)
def test_what_was_changed_is_noticed(name: str, tmp_path: Path) -> None:
    forgery = passed_on.FORGERIES[name]
    run = passed_on.unpacked(passed_on.ARRIVALS, tmp_path / "run")
    forgery.change(run)
    before = passed_on.packed_as_it_was(passed_on.ARRIVALS, run, tmp_path / "before.zip")
    assert unpack(before, tmp_path / "before").wrong
    again = tmp_path / "again.zip"
    pack(run, again)
    found = checked(again)
    assert found.grade == "contradicted"
    assert forgery.noticed_by <= broken(found), broken(found)
    assert "digests" not in broken(found)


def test_a_bench_whose_rate_was_found_is_consistent(tmp_path: Path) -> None:
    """What its command asked for is not what it went on with, and nobody knows when it was changed."""
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path)

    def as_bench(manifest: dict[str, Any]) -> None:
        manifest["command"] = ["streamgauge", "bench"]
        manifest["workloads"][0]["rate_msgs_s"] *= 2

    passed_on.edit(run.path / "manifest.json", as_bench)
    found = verify(run, told_level)
    assert broken(found) == set()
    assert found.outcome("schedule") == "unknown"
    assert found.grade == "consistent"

    def faster(context: dict[str, Any]) -> None:
        context["rate_msgs_s"] *= 2

    passed_on.edit(passed_on.trial(run) / "trial.json", faster)
    assert "schedule" in broken(verify(run, told_level)), "the measured phase is still counted"


def test_a_file_of_another_version_is_not_called_verified(tmp_path: Path) -> None:
    run = passed_on.unpacked(passed_on.ARRIVALS, tmp_path)
    passed_on.edit(run.path / "manifest.json", passed_on.putting(streamgauge_version="0.0.1"))
    found = verify(run, told_level)
    assert found.grade == "consistent"
    assert found.outcome("judgement") == "unknown"


@pytest.mark.parametrize("name", ["intervals.parquet", "trial.json", "result.json"])
def test_without_raw_data_nothing_is_verifiable(name: str, tmp_path: Path) -> None:
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path)
    (run.path / "trials/001" / name).unlink()
    assert verify(run, told_level).grade == "not verifiable"


def as_run(name: str, directory: Path) -> RunDirectory:
    """A kept trial as the only one of a run, whose command and seed nobody kept."""
    run = RunDirectory(directory / "run")
    trial = run.trial(1)
    stored_trials.unpack(name, trial.path)
    context = trial.read_context()
    assert context is not None
    context = context.model_copy(update={"trial": 1})
    trial.write_context(context)
    TrialDirectory(trial.path).write_result(analyse(context, trial.path))
    host = context.probes[0].get("host", {}) if context.probes else {}
    run.write_manifest(
        Manifest(
            run_id=context.run_id, streamgauge_version=version(), command=[], started_unix_ms=context.started_unix_ms,
            ended_unix_ms=context.ended_unix_ms, status="complete", seed=0, systems=[], workloads=[], host=host,
            probes=context.probes, trials=["trials/001"],
        )
    )  # fmt: skip
    return run


@pytest.mark.parametrize("name", stored_trials.names())
def test_a_kept_trial_is_consistent(name: str, tmp_path: Path) -> None:
    found = verify(as_run(name, tmp_path), told_level)
    if name.startswith("double-"):
        # Their gauge makes its histograms up, and they do not add up: that is noticed, and nothing else.
        assert broken(found) <= {"parts"}
    elif name == "omb-worker-taken":
        assert found.grade == "not verifiable", "nothing was measured"
    else:
        assert broken(found) == set()
        assert found.grade == "consistent"


def test_the_rules_are_those_of_the_page() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs/publishing.md").read_text("utf-8")
    assert [name for name in RULES if f"**{name}**" not in page] == []


def test_statuses_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "told.json"
    assert program(["verify", str(passed_on.FIXED_RATE), "--json", str(told)]) == 0
    assert "verified: every figure follows" in capsys.readouterr().out
    (one,) = json.loads(told.read_text("utf-8"))["results"]
    assert (one["grade"], one["publishable"]) == ("verified", False)
    assert {rule["rule"]: rule["outcome"] for rule in one["rules"]} == dict.fromkeys(RULES, "holds")
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path / "run")
    passed_on.edit(run.path / "trials/001/result.json", passed_on.putting(publish_ms__p50=0.001))
    assert program(["verify", str(run.path), str(passed_on.FIXED_RATE)]) == 1
    assert "publish_ms.p50 is 0.001" in capsys.readouterr().out
    (run.path / "trials/001/intervals.parquet").unlink()
    assert program(["verify", str(run.path)]) == 5


def test_a_real_run_is_verified(gauge: Path, tmp_path: Path) -> None:
    arguments = ("run", "1-topic-1-partition-100b", "--rate", "500", "--duration", "1s", "--warmup", "1s")
    with lab(gauge, tmp_path, *arguments) as process:
        said = process.communicate(timeout=120)
    assert process.returncode in (0, 1), said
    assert (
        program(["submit", "latest", "--out", str(tmp_path / "runs"), "--file", str(tmp_path / "one.zip")])
        == 0
    )
    found = checked(tmp_path / "one.zip")
    assert [one for one in found.findings if one.outcome != "holds"] == []
    shutil.rmtree(tmp_path / "runs")
    assert [path.name for path in tmp_path.iterdir()] == ["one.zip"]


def test_a_real_overload_is_verified(gauge: Path, tmp_path: Path) -> None:
    """What waits for room is a part of publish latency, too."""
    (tmp_path / "slow.yaml").write_text("system: gauge-log\nlimit_mb_s: 2\n", encoding="utf-8")
    arguments = (
        "run",
        "1-topic-1-partition-1kb",
        "--system",
        "slow.yaml",
        "--rate",
        "20k",
        "--duration",
        "3s",
        "--warmup",
        "3s",
    )
    with lab(gauge, tmp_path, *arguments) as process:
        said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    run = (tmp_path / "runs" / "latest").resolve()
    held_s = pq.read_table(run / "trials/001/intervals.parquet").column("backpressured_s").drop_null()
    assert sum(held_s.to_pylist()) > 1, "it was not held back"
    assert broken(checked(run)) == set()
