"""The shell's tab key: what it offers, in a real bash, and that it answers before anybody notices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin

import lab_support
import pytest
from costs import cpu_s
from pydantic import BaseModel
from streamgauge.cli import complete
from streamgauge.model.checked_study import experiment_study_names, study_names
from streamgauge.model.library import library_names
from streamgauge.model.result import TrialResult
from streamgauge.model.result_quiet import QuietLatency
from streamgauge.systems.support.cache import cache_root
from streamgauge.vocabulary.figures import RESULT_FIGURES

ANSWER_LIBRARIES = 4.0
"""CPU of an answer, over that of a Python which loads two libraries that it needs in any case. It is 1.6 to 2.1 times as much."""
LIBRARIES = "import pydantic, typer"
NO_FIGURES = (
    "workload",
    "durability",
    "validity",
    "steadiness",
    "format",
    "trial",
    "repeat",
    "seed",
    "nodes",
)
HEAVY = ("numpy", "scipy", "pyarrow", "duckdb", "rich", "ruamel", "cryptography", "httpx", "psutil")


def offered(line: str, directory: Path, **environment: str) -> list[str]:
    """What is offered where the line ends, as bash asks for it."""
    parts = line.split(" ")
    done = subprocess.run(
        [*lab_support.COMMAND],
        cwd=directory,
        env={
            **os.environ,
            "_STREAMGAUGE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(parts) - 1),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


def make_run(out: Path, name: str) -> None:
    (out / name).mkdir(parents=True)
    (out / name / "manifest.json").write_text("{}")


def numbers(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Names of all numbers in a result, in its order; what was asked for and verdicts left out."""
    for name, field in model.model_fields.items():
        if not prefix and name in NO_FIGURES:
            continue
        optional = get_origin(field.annotation) is UnionType
        for kind in get_args(field.annotation) if optional else (field.annotation,):
            if not isinstance(kind, type) or get_origin(kind) is not None or issubclass(kind, bool):
                continue
            if issubclass(kind, (int, float)):
                yield f"{prefix}{name}"
            elif (
                issubclass(kind, BaseModel) and kind is not QuietLatency
            ):  # What stands of it is the figure of its latency.
                yield from numbers(kind, f"{prefix}{name}.")


def test_names_are_those_of_who_knows_them() -> None:
    assert tuple(numbers(TrialResult)) == RESULT_FIGURES
    found = {path.stem for path in (complete.PACKAGE / "studies").rglob("*.yaml")}
    assert found == {*study_names(), *experiment_study_names()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("streamgauge stud", ["study", "studies"]),
        ("streamgauge run 1-topic-16-partitions-100", ["1-topic-16-partitions-100b"]),
        ("streamgauge run --durability ", ["L1", "L2", "L3", "L4", "default"]),
        ("streamgauge run --tls ", ["on", "off", "both"]),
        ("streamgauge run --topology s", ["same", "split", "swarm"]),
        ("streamgauge run --fault kill:1@10s,rest", ["kill:1@10s,restart"]),
        ("streamgauge run --fail-if publish_ms.p99_", ["publish_ms.p99_9", "publish_ms.p99_99"]),
        ("streamgauge study kesq", ["kesque-2019"]),
        ("streamgauge study --scale q", ["quick"]),
        ("streamgauge systems up kaf", ["kafka"]),
        ("streamgauge durability kafka,nat", ["kafka,nats"]),
        (
            "streamgauge compare a b --figures publish_ms.p99,publish_ms.p50",
            ["publish_ms.p99,publish_ms.p50"],
        ),
    ],
)
def test_values_are_offered(tmp_path: Path, line: str, expected: list[str]) -> None:
    assert offered(line, tmp_path, STREAMGAUGE_CACHE=str(tmp_path)) == expected


def test_installed_versions_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    (cache_root() / "installed" / "kafka" / "9.9.9").mkdir(parents=True)
    assert offered("streamgauge run --system nats,kaf", tmp_path) == ["nats,kafka", "nats,kafka@9.9.9"]


def test_runs_are_those_below_out(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "20260101-a")
    make_run(tmp_path / "runs", "20260102-b")
    (tmp_path / "runs" / "stray").mkdir()
    make_run(tmp_path / "other", "20260103-c")
    assert offered("streamgauge show ", tmp_path) == ["latest", "20260102-b", "20260101-a"]
    assert offered("streamgauge show --out other 2", tmp_path) == ["20260103-c"]
    assert offered("streamgauge show --out nowhere ", tmp_path) == []


def test_every_workload_is_offered(tmp_path: Path) -> None:
    assert offered("streamgauge run ", tmp_path) == library_names()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(tmp_path: Path, shell: str) -> None:
    done = subprocess.run(
        [*lab_support.COMMAND, "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"_STREAMGAUGE_COMPLETE=complete_{shell}" in done.stdout


def test_a_real_bash_completes_once_it_is_installed(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "streamgauge"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{lab_support.PROGRAM}\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "STREAMGAUGE_CACHE": str(tmp_path)}
    script = (
        # bash asks its parent which shell it is, as a user's does.
        "streamgauge --install-completion >&2; source ~/.bashrc\n"
        "COMP_WORDS=(streamgauge study --scale ''); COMP_CWORD=3\n"
        'function=$(complete -p streamgauge | sed "s/.*-F \\([^ ]*\\).*/\\1/")\n'
        '"$function" streamgauge; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["full", "laptop", "quick"], done.stderr


@pytest.mark.parametrize("line", ["streamgauge ", "streamgauge run 1-", "streamgauge run --fail-if p"])
def test_an_answer_is_there_at_once(tmp_path: Path, line: str) -> None:
    # Time on the processor, beside that of a program that is known: how fast a processor is depends on who else uses its caches. The
    # best of five, as the first one reads files that are not in memory.
    times = [
        (
            cpu_s_of(lambda: offered(line, tmp_path)),
            cpu_s_of(lambda: subprocess.run([sys.executable, "-c", LIBRARIES], check=True)),
        )
        for _ in range(5)
    ]
    answer_s, libraries_s = (min(each) for each in zip(*times, strict=True))
    assert answer_s < ANSWER_LIBRARIES * libraries_s


def cpu_s_of(programs: Callable[[], object]) -> float:
    """CPU of the programs that it starts and waits for."""
    before_s = cpu_s()
    programs()
    return cpu_s() - before_s


def test_nothing_heavy_is_loaded_for_it(tmp_path: Path) -> None:
    told = f"import atexit, sys; atexit.register(lambda: print(*(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)); {lab_support.PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", told],
        cwd=tmp_path,
        env={
            **os.environ,
            "_STREAMGAUGE_COMPLETE": "complete_bash",
            "COMP_WORDS": "streamgauge run 1",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1-topic-16-partitions-100b" in done.stdout
    assert done.stderr.strip() == ""
