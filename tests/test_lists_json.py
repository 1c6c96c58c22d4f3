"""`--json` of the commands that list: one document on standard output, with the keys of docs/results.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sample_run import write_run
from streamgauge.cli.app import run
from streamgauge.cli.study_trials import _scale
from streamgauge.model.checked_study import experiment_study_names, study_names
from streamgauge.model.library import library_names
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def test_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "workloads")["workloads"]
    assert [one["name"] for one in found] == library_names()
    assert all(set(one) == {"name", "group", "summary"} for one in found)
    (one,) = document(capsys, "workloads", "1-topic-1-partition-1kb")["workloads"]
    assert one["text"].startswith("# ")


def test_studies(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "studies")["studies"]
    assert [one["name"] for one in found] == [*study_names(), *experiment_study_names()]
    counted = {"trials": "claims", "durability": "statements"}
    for one in found:
        keys = {"name", "kind", "title", "publisher", "published", "cells", counted[one["kind"]]}
        assert set(one) == keys


def test_systems(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "systems", "list")["systems"]
    assert [one["name"] for one in found] == list(systems())
    assert all(set(one) == {"name", "title", "version", "installed", "missing"} for one in found)


def test_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert document(capsys, "list", "--out", str(tmp_path)) == {"runs": []}
    directory = tmp_path / "a-run"
    write_run(directory)
    broken = tmp_path / "zz-broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    first, second = document(capsys, "list", "--out", str(tmp_path))["runs"]
    assert set(first) == {"run", "path", "status", "started_unix_ms", "trials"}
    assert (first["run"], first["path"]) == (directory.name, str(directory))
    assert (second["run"], second["status"]) == ("zz-broken", "unreadable")
    shown = document(capsys, "show", str(directory), "--out", str(tmp_path))
    assert set(shown) == {"run", "path", "durability", "trials"}
    assert shown["trials"] == [
        json.loads(path.read_text()) for path in sorted(directory.glob("trials/*/result.json"))
    ]


def test_into_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "found.json"
    assert run(["studies", "--json", str(target)]) == 0
    assert "kesque-2019" in capsys.readouterr().out
    assert json.loads(target.read_text())["studies"]


@pytest.mark.parametrize(
    ("scale", "quick", "meant"),
    [
        (None, False, "laptop"),
        ("quick", False, "quick"),
        (None, True, "quick"),
        ("quick", True, "quick"),
        ("full", False, "full"),
    ],
)
def test_quick_is_a_scale(scale: str | None, quick: bool, meant: str) -> None:
    assert _scale(scale, quick) == meant


@pytest.mark.parametrize(("scale", "quick"), [("quik", False), ("full", True), ("laptop", True)])
def test_a_scale_that_contradicts_or_is_none_is_refused(scale: str, quick: bool) -> None:
    with pytest.raises(InputError, match=r"expected full, laptop or quick; did you mean|leave out one of"):
        _scale(scale, quick)


@pytest.mark.parametrize(
    "command", [["run"], ["study"], ["durability"], ["systems", "up"], ["systems", "logs"]]
)
def test_help_has_words_and_no_names_of_types(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert run([*command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "<int" not in out
    if command == ["study"]:
        assert "full|laptop|quick" in out
