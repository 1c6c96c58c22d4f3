"""Commands of the user around the blocks of a study: when they are run, what they find, and what is not measured when they fail."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lab_support import lab
from streamgauge.model.checked_study import parse_study
from streamgauge.model.hooks_file import read_hooks
from streamgauge.model.scaling import Machine
from streamgauge.model.study_plan import StudyPlan
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.study_trust import refuse_untrusted_plan
from streamgauge.model.trust import Trust
from streamgauge.runner.hooks import Hooks
from streamgauge.runner.observer import Observer
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import check_ours, read_plan, write_plan
from streamgauge.systems.registry import systems
from streamgauge.systems.support import processes
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.gauge_binary import find_gauge
from test_lab_runs import alive
from test_study_model import TEXT

MACHINE = Machine(8, 64 << 30, 500.0)
TWO: dict[str, tuple[str, ...]] = {"log-sync": ("127.0.0.1:1",), "log-async": ("127.0.0.1:1",)}


def hooks_file(directory: Path, text: str) -> Path:
    path = directory / "hooks.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def planned(
    directory: Path, text: str, connect: dict[str, tuple[str, ...]] = TWO, scale: str = "laptop"
) -> StudyPlan:
    study = parse_study(TEXT, "small.yaml", systems())
    hooks = read_hooks(path := hooks_file(directory, text), study, Trust((path.resolve(),)))
    wishes = Wishes(scale=scale, seed=7, repeats=2, connect=connect, hooks=hooks)  # type: ignore[arg-type]
    return plan_study(study, wishes, MACHINE)


@dataclass
class Listening(Observer):
    said: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        self.said.append(text)


def called(run: Path, plan: StudyPlan, observer: Observer | None = None) -> list[str]:
    """All trials of a plan as far as its hooks go; why each was not measured."""
    hooks = Hooks(run, observer or Listening())
    found = [hooks.before(plan, trial, plan.cell(trial.cell)) or "" for trial in plan.trials]
    hooks.close()
    return found


EACH = "\n".join(
    f"{name}: [sh, -c, 'echo {name} $STREAMGAUGE_SYSTEM $STREAMGAUGE_LEVEL $STREAMGAUGE_ADDRESS $STREAMGAUGE_KIND >> called']"
    for name in ("stop", "drop-caches", "start", "reconfigure")
)


def test_systems_come_one_after_the_other_with_their_hooks(tmp_path: Path) -> None:
    plan = planned(tmp_path, EACH)
    assert not any(called(tmp_path / "run", plan))
    lines = (tmp_path / "called").read_text("utf-8").splitlines()
    words = [line.split()[:2] for line in lines]
    # Of each system: two trials that heat it and its two cells, in each of two rounds.
    a_block = ["reconfigure", "start", *["drop-caches"] * 4, "stop"]
    assert [word for word, _ in words] == a_block * 4
    assert len({system for _, system in words[:7]}) == 1
    assert {system for _, system in words[:14]} == {"log-sync", "log-async"}
    level = {"log-sync": "L3", "log-async": "L4"}[words[0][1]]
    assert lines[0] == f"reconfigure {words[0][1]} {level} 127.0.0.1:1 gauge-log"


def test_without_clusters_the_order_is_as_ever() -> None:
    study = parse_study(TEXT, "small.yaml", systems())
    plan = plan_study(study, Wishes(scale="laptop", seed=7), MACHINE)
    assert not any(cell.heats for cell in plan.cells)
    assert all(cell.fresh for cell in plan.cells)
    connected = plan_study(study, Wishes(scale="laptop", seed=7, connect=TWO), MACHINE)
    assert [cell.system for cell in connected.cells if cell.heats] == ["log-sync"] * 2 + ["log-async"] * 2
    one = plan_study(study, Wishes(scale="laptop", seed=7, connect={"gauge-log": ("a:1",)}), MACHINE)
    assert len({trial.block for trial in one.trials if trial.round == 1}) == 2, (
        "what is made of one cluster is told apart"
    )


def test_a_hook_that_fails_ends_its_block_and_says_why(tmp_path: Path) -> None:
    text = EACH.replace(
        "reconfigure: [sh, -c, '",
        "reconfigure: [sh, -c, 'test $STREAMGAUGE_SYSTEM = log-async || { echo no such host; exit 3; }; ",
    )
    plan = planned(tmp_path, text)
    why = called(tmp_path / "run", plan)
    for trial, said in zip(plan.trials, why, strict=True):
        if plan.cell(trial.cell).system == "log-async":
            assert not said
        else:
            assert said.startswith(
                "not measured: the hook 'reconfigure' for log-sync exited with status 3; its last lines: no such host"
            )
            assert f"hooks/block-{trial.block:03d}-reconfigure.log" in said
    lines = (tmp_path / "called").read_text("utf-8")
    assert "start log-sync" not in lines
    assert "drop-caches log-sync" not in lines
    assert lines.count("stop log-sync") == 2, "what may have been begun is put in order"


def test_a_hook_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    text = "stop: [true]\nstart: {run: [sh, -c, 'sleep 60 & echo $! > pid; wait'], timeout: 1s, systems: [log-a*]}"
    began_s = time.monotonic()
    why = called(tmp_path / "run", planned(tmp_path, text.replace("[true]", "['true']")))
    assert time.monotonic() - began_s < 30
    assert {one.split(";")[0].split(",")[0] for one in why} == {
        "",
        "not measured: the hook 'start' for log-async took longer than 1s and was ended",
    }
    assert not alive(int((tmp_path / "pid").read_text("utf-8")))


def test_a_stop_that_fails_is_a_problem_of_its_own(tmp_path: Path) -> None:
    observer = Listening()
    plan = planned(tmp_path, "stop: ['false']")
    assert not any(called(tmp_path / "run", plan, observer))
    assert len(observer.said) == 4
    assert "the hook 'stop' for log-" in observer.said[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no hook is in it: expected one of reconfigure, start, drop-caches, stop"),
        ("\nstrat: [a]", "hooks.yaml:2.*unknown key 'strat'"),
        (
            "\nstart: {run: ['true'], systems: [log-asink]}",
            "hooks.yaml:2.*'log-asink' meets no system of small.*log-async",
        ),
        ("\n\nstop: [./no-such.sh]", "hooks.yaml:3.*no program './no-such.sh'"),
        ("\nstart: {timeout: 1s}", "hooks.yaml:2.*run"),
        ("\nstart: {run: ['true'], timeout: soon}", "hooks.yaml:2.*timeout"),
    ],
)
def test_a_hooks_file_that_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        planned(tmp_path, text)


def test_a_hooks_file_is_code(tmp_path: Path) -> None:
    study = parse_study(TEXT, "small.yaml", systems())
    with pytest.raises(InputError, match=r"run with your account; .*--trust-file .*hooks\.yaml"):
        read_hooks(hooks_file(tmp_path, "stop: ['true']"), study, Trust())
    directory = RunDirectory.create(tmp_path / "runs", "small")
    write_plan(directory, planned(tmp_path, "stop: ['true']"))
    plan, path = read_plan(directory.path), directory.path / "study.json"
    check_ours(plan, directory.path)
    with pytest.raises(
        InputError, match=r"hooks: commands that run with your account; .*--trust-file .*study\.json"
    ):
        refuse_untrusted_plan(plan, Trust(), path, systems())
    refuse_untrusted_plan(plan, Trust((path.resolve(),)), path, systems())


def test_hooks_without_a_cluster_are_refused(tmp_path: Path) -> None:
    path = hooks_file(tmp_path, "stop: ['true']")
    process = lab(
        find_gauge(), tmp_path, "study", "kesque-2019", "--hooks", str(path), "--trust-file", str(path)
    )
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "none is named (--connect)" in " ".join(stderr.split())


STUDY = """
study: tiny
title: A tiny study
source: {publisher: streamgauge, published: "2026"}
systems:
  log-sync: {system: gauge-log, title: "Log, fsync", level: L3, nodes: 1}
  log-async: {system: gauge-log, title: "Log, no fsync", level: L4, nodes: 1}
workload: {messageSize: 100, rate: 1000}
cells: [{cell: sync, system: log-sync}, {cell: async, system: log-async}]
published: {sync: {publish_ms: {p50: 3}}}
scales:
  full: {warmup: 1s, duration: 1s, repeats: 1, cells: {"*": {fresh: true}}}
  laptop: {nodes: 1}
  quick: {nodes: 1}
claims: [{claim: fsync costs, tests: [{figure: publish_ms.p50, ratio: [sync, async], above: 1.0}]}]
pages: [{title: Table, table: [publish_ms.p50], cells: ["*"]}]
"""
HOOK = """#!/bin/sh
set -e
case "$STREAMGAUGE_HOOK" in
reconfigure) [ -n "$FORGETS" ] || echo "$STREAMGAUGE_LEVEL" > level;;
start)
  case "$(cat level)" in L3) durability=fsync;; *) durability=async;; esac
  mkdir -p data
  setsid "$GAUGE" log --listen "$STREAMGAUGE_ADDRESS" --data data --durability $durability > log 2>&1 &
  echo $! > pid
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do grep -q ready log && exit 0; sleep 0.5; done
  exit 1;;
stop) kill "$(cat pid)"; while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.1; done; rm -rf data;;
esac
"""


@pytest.mark.server
@pytest.mark.usefixtures("one_probe")
@pytest.mark.parametrize("forgets", ["", "yes"])
def test_a_variant_that_was_not_reconfigured_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: str
) -> None:
    monkeypatch.setenv("FORGETS", forgets)
    (tmp_path / "tiny.yaml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "level").write_text("L4\n", encoding="utf-8")
    script = tmp_path / "hook.sh"
    script.write_text(HOOK, encoding="utf-8")
    script.chmod(0o755)
    hooks_file(
        tmp_path,
        "timeout: 30s\n" + "".join(f"{name}: [./hook.sh]\n" for name in ("reconfigure", "start", "stop")),
    )
    asked = ["--scale", "full", "--connect", f"gauge-log=127.0.0.1:{processes.free_ports(1)[0]}"]
    process = lab(
        find_gauge(),
        tmp_path,
        "study",
        "tiny.yaml",
        *asked,
        "--hooks",
        "hooks.yaml",
        "--trust-file",
        "hooks.yaml",
        "--seed",
        "3",
    )
    _, stderr = process.communicate(timeout=200)
    assert process.returncode in (0, 1), stderr
    run = (tmp_path / "runs/latest").resolve()
    found = {}
    for path in run.glob("trials/*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        found[result["workload"]["name"]] = result
    assert found["async"]["durability"]["declared"] == "L4"
    page = " ".join((run / "report.html").read_text("utf-8").split())
    if forgets:
        assert found["sync"]["durability"]["declared"] == "L4"
        assert not found["sync"]["validity"]["valid"]
        assert "durability L3 was asked for, but the log reports async" in " ".join(
            found["sync"]["validity"]["reasons"]
        )
        assert "not shown" in page
    else:
        assert found["sync"]["durability"]["declared"] == "L3"
        assert not found["sync"]["durability"]["mismatches"]
    logs = sorted(path.name for path in (run / "hooks").iterdir())
    assert [name.split("-", 2)[2] for name in logs] == ["reconfigure.log", "start.log", "stop.log"] * 2
    assert not alive(int((tmp_path / "pid").read_text("utf-8"))), "what was started was stopped"
