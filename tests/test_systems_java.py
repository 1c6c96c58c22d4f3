"""Which Java is found, and what is said when none is."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamgauge.systems.support import java
from streamgauge.vocabulary.errors import SystemFailure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', ("17.0.15", 17)),
        ('java version "1.8.0_292"', ("1.8.0_292", 8)),
        ('openjdk version "21" 2023-09-19', ("21", 21)),
        ('openjdk version "25-ea" 2025-09-16', ("25-ea", 25)),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2"', ("11.0.2", 11)),
        ("command not found", None),
        ('version "next"', None),
    ],
)
def test_version_is_read_in_the_old_and_the_new_scheme(text: str, expected: tuple[str, int] | None) -> None:
    assert java.parse_version(text) == expected


def stand_in(directory: Path, version: str) -> Path:
    """A java command that says a version: this machine need not have an old one."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Java anywhere."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setattr(java, "JVM_DIRECTORY", empty)
    return tmp_path


def test_missing_java_names_the_package(nowhere: Path) -> None:
    with pytest.raises(
        SystemFailure, match=r"no Java found .*apt-get install openjdk-17-jre-headless"
    ) as failure:
        java.find_java()
    assert str(nowhere / "empty") in str(failure.value)


@pytest.mark.usefixtures("nowhere")
def test_too_old_java_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = stand_in(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(SystemFailure) as failure:
        java.find_java()
    assert f"{old} (JAVA_HOME) is Java 11.0.2" in str(failure.value)
    assert "install Java 17 or newer" in str(failure.value)


@pytest.mark.usefixtures("nowhere")
def test_a_newer_java_elsewhere_is_taken_when_java_home_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "old", "1.8.0_292")
    new = stand_in(tmp_path / "jvm" / "java-21", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setattr(java, "JVM_DIRECTORY", tmp_path / "jvm")
    found = java.find_java()
    assert (found.executable, found.feature, found.home) == (new, 21, tmp_path / "jvm" / "java-21")


@pytest.mark.usefixtures("nowhere")
def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = stand_in(tmp_path / "home", "17.0.1")
    on_path = stand_in(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert java.find_java().executable == chosen


@pytest.mark.usefixtures("nowhere")
def test_a_java_that_does_not_work_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = stand_in(tmp_path / "broken", "17.0.1")
    broken.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(SystemFailure, match=r"does not work: `java -version` does not tell a version"):
        java.find_java()
