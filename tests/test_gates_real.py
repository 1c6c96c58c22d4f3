"""Gates and exit statuses with the real gauge and the reference log: what a build ends with."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from lab_support import ROOT, lab, reference_log
from quiet import Witness, note_disturbance
from ruamel.yaml import YAML

SHORT = ("--rate", "1000", "--duration", "3s", "--warmup", "1s")
P50, P99 = ("--fail-if", "publish_ms.p50 > 1.1"), ("--fail-if", "publish_ms.p99 > 1.1")
LATEST = ("--baseline", "latest")


def ended(gauge: Path, directory: Path, *arguments: str) -> tuple[int, str]:
    process = lab(gauge, directory, *arguments)
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout + stderr


@pytest.fixture(scope="module")
def baseline(gauge: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str | None]:
    """A directory with a run that is to be a baseline, and what disturbed the machine meanwhile if its trial has no figures: then nothing may be compared
    with it. Of one with bounds only the lab itself says so; of one that is invalid, too, where no witness saw anything: its generator was late, as one is
    that waits for a page of its program from the disk."""
    directory = tmp_path_factory.mktemp("gates")
    witness = Witness()
    status, output = ended(gauge, directory, "run", *SHORT)
    word = word_of(directory / "runs/latest")
    assert status == (1 if word == "invalid" else 0), output
    found = None
    if word == "invalid":
        found = witness.disturbance()
        if found is None:
            assert "The generator was late by itself" in output, output
            found = "the generator of the baseline was late"
    if word == "bounds only":
        found = "the baseline has bounds only"
    witness.end()
    return directory, found


@pytest.fixture
def home(baseline: tuple[Path, str | None], request: pytest.FixtureRequest) -> Path:
    """The directory with the run that is a baseline, and with no other."""
    directory, found = baseline
    if found is not None:
        note_disturbance(request, found)
    (directory / "runs/latest").unlink()
    (directory / "runs/latest").symlink_to(min(one.name for one in (directory / "runs").glob("2*")))
    return directory


def word_of(run: Path) -> str:
    word: str = json.loads((run / "trials/001/result.json").read_text("utf-8"))["validity"]["word"]
    return word


def is_valid(run: Path) -> bool:
    return word_of(run) in ("valid", "disturbed")


def outcomes(home: Path) -> dict[str, str]:
    document = json.loads((home / "gates.json").read_text("utf-8"))
    return {one["figure"]: one["outcome"] for one in document["gates"]}


def refused(home: Path, status: int, output: str) -> bool:
    """Whether the baseline's trial has no figures; then that has to be what ended a run that was to be compared with it."""
    before = min((home / "runs").glob("2*"))
    if is_valid(before):
        return False
    assert status == 2, output
    assert f"no trial of {before.name} that could be compared with is valid" in output
    assert (home / "runs/latest").resolve() == before, "nothing was measured"
    return True


def test_a_longer_linger_fails_against_the_latest_run_before_it(gauge: Path, home: Path) -> None:
    baseline = (home / "runs" / "latest").resolve()
    before = baseline.name
    status, output = ended(
        gauge, home, "run", *SHORT, "--linger", "30ms", *P50, *P99, *LATEST, "--json", "gates.json"
    )
    if refused(home, status, output):
        return
    latest = (home / "runs" / "latest").resolve()
    assert latest.name != before
    assert output.count(f"baseline: {before} (") == 2, "said before and after"
    assert "[differs from its baseline in linger_ms: 1 and 30]" in output
    if is_valid(baseline) and is_valid(latest):
        assert status == 4, output
        assert "publish p50 was " in output
        each = outcomes(home)
        # A baseline whose p99 was made by one stretch of its three seconds does not know it well enough to decide.
        may = {"publish_ms.p50": ("failed",), "publish_ms.p99": ("failed", "undecided")}
        assert each.keys() == may.keys()
        assert all(outcome in may[figure] for figure, outcome in each.items()), output
    elif word_of(latest) == "invalid":
        assert status == 1, output
        assert set(outcomes(home).values()) == {"undecided"}
    else:
        # Bounds decide where they are far enough apart.
        found = set(outcomes(home).values())
        assert (status, found <= {"failed", "undecided"}) == (4 if "failed" in found else 5, True), output


def test_the_same_again_does_not_fail(gauge: Path, home: Path) -> None:
    gates = (*P50, *LATEST, "--undecided", "pass", "--json", "gates.json", "--junit", "gates.xml")
    status, output = ended(gauge, home, "run", *SHORT, *gates)
    if refused(home, status, output):
        return
    assert status == (1 if word_of(home / "runs/latest") == "invalid" else 0), output
    found = set(outcomes(home).values())
    assert found <= {"passed", "undecided"}, output
    assert ("gate UNDECIDED" in output) == ("undecided" in found)
    assert ("<error" in (home / "gates.xml").read_text("utf-8")) == ("undecided" in found)
    status, output = ended(gauge, home, "compare", "latest", "latest", *P99)
    assert status == 5, output


def test_messages_that_were_lost_end_a_run_with_a_status_of_their_own(gauge: Path, tmp_path: Path) -> None:
    """The log deletes what a slow consumer has not read yet."""
    (tmp_path / "slow.yaml").write_text(
        "messageSize: 1000\npartitionsPerTopic: 1\nrate: 20k\nduration: 4s\nwarmup: 1s\nprocessing: 200us\n",
        encoding="utf-8",
    )
    retention = ("--retention-mib", "16", "--segment-mib", "16")
    with reference_log(gauge, tmp_path / "log", *retention) as address:
        load = ("slow.yaml", "--system", "gauge-log", "--connect", address)
        status, output = ended(gauge, tmp_path, "run", *load, "--fail-if", "publish_ms.p99 > 0.0001")
    assert status == 6, output
    assert "fail if publish_ms.p99 > 0.0001" in output
    assert "acknowledged messages of trial 1 (gauge-log, slow) were never received" in output


def test_an_invalid_trial_and_a_wrong_option_have_statuses_of_their_own(gauge: Path, tmp_path: Path) -> None:
    (tmp_path / "throttled.yaml").write_text("system: gauge-log\nlimit_mb_s: 1\n", encoding="utf-8")
    load = (
        "--system",
        "throttled.yaml",
        "--rate",
        "4k",
        "--size",
        "1kB",
        "--duration",
        "3s",
        "--warmup",
        "1s",
    )
    status, output = ended(gauge, tmp_path, "run", *load, "--fail-if", "publish_ms.p99 > 0.0001")
    assert status == 1, output
    assert "gate UNDECIDED" in output
    assert "no trial is valid" in output
    status, output = ended(gauge, tmp_path, "run", *load, *P99, *LATEST)
    assert refused(tmp_path, status, output)
    status, output = ended(gauge, tmp_path, "run", *SHORT, "--fail-if", "publish_ms.p98 > 1")
    assert status == 2
    assert "did you mean 'publish_ms.p9" in output


def examples() -> list[list[list[str]]]:
    """The lab's commands in each example of docs/gate-in-ci.md, as a shell reads them."""
    page = (ROOT / "docs" / "gate-in-ci.md").read_text("utf-8")
    github, gitlab = [
        YAML(typ="safe").load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    ]
    steps = [step.get("run", "") for step in github["jobs"]["gate"]["steps"]]
    return [
        [shlex.split(line)[1:] for line in lines if line.startswith("streamgauge ")]
        for lines in (steps, gitlab["performance"]["script"])
    ]


def test_the_examples_of_the_page_run_as_they_are_written(gauge: Path, tmp_path: Path) -> None:
    github, gitlab = examples()
    plain = {"head/config/": "config/", "$GITHUB_STEP_SUMMARY": "gates.md"}
    for one, other in zip(github, gitlab, strict=True):
        text = " ".join(one)
        for found, replaced in plain.items():
            text = text.replace(found, replaced)
        assert text == " ".join(other), "both examples make the same run"
    for where in ("base/config", "config"):
        (tmp_path / where).mkdir(parents=True)
        (tmp_path / where / "system.yaml").write_text("system: gauge-log\n", encoding="utf-8")
        (tmp_path / where / "workload.yaml").write_text(
            "rate: 1k\nduration: 2s\nwarmup: 1s\n", encoding="utf-8"
        )
    measured, gated = ([word if word != "5" else "1" for word in command] for command in gitlab)
    status, output = ended(gauge, tmp_path, *measured)
    assert status in (0, 1), output
    status, output = ended(gauge, tmp_path, *gated)
    # A crowded machine may make a trial invalid: then no baseline is accepted, or the gates stay undecided.
    assert status in (0, 1, 4, 5) or "is valid" in output, output
    if status != 2:
        assert (tmp_path / "gates.xml").read_text("utf-8").count("<testcase ") == 3
        assert (tmp_path / "gates.md").read_text("utf-8").count("| `publish_") == 3
