"""Archives of classes: made once by a start of their own, used as long as they fit, and never needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import Progress, RunningSystem
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.support import class_archive
from streamgauge.systems.support.cache import Cache, Installation
from streamgauge.systems.support.class_archive import ClassArchives
from streamgauge.systems.support.java import Java
from streamgauge.systems.support.java_system import JavaLaunch, JavaSystem
from streamgauge.vocabulary.errors import SystemFailure


class Stopped:
    """A cluster whose JVMs write what they were told to write, as they end."""

    def __init__(self, launch: JavaLaunch) -> None:
        self.launch = launch

    def stop(self) -> None:
        for flag in self.launch.classes.flags("node"):
            name, _, path = flag.partition("=")
            if name == "-XX:ArchiveClassesAtExit":
                Path(path).write_bytes(b"classes")


class Toy(Kafka):
    """Kafka's place among the systems, with a jar and no JVM."""

    def __init__(self, cache: Cache, java: Java) -> None:
        super().__init__(cache)
        self.java = java
        self.started: list[JavaLaunch] = []
        self.fails = False

    def installation(self, version: str, java: Java, progress: Progress) -> Installation:  # noqa: ARG002
        def fetch(into: Path) -> Mapping[str, Any]:
            (into / "a.jar").write_bytes(b"jar")
            return {"from": "test"}

        return self.cache.obtain(self.name, version, fetch, progress)

    def launch(self, request: SystemRequest, directory: Path, progress: Progress) -> Any:
        version = request.version or self.default_version
        installation = self.installation(version, self.java, progress)
        return JavaLaunch(
            version=version, nodes=1, directory=directory, java=self.java, installation=installation
        )

    def start_cluster(self, launch: Any, progress: Progress) -> RunningSystem:  # noqa: ARG002
        if self.fails and launch.classes.are_written:
            raise SystemFailure("no memory")
        self.started.append(launch)
        return cast(RunningSystem, Stopped(launch))


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """A JVM whose own classes are in an archive."""
    home = tmp_path / "jdk"
    for name in ("bin/java", class_archive.SHARED_BY_THE_JVM, "lib/server/libjvm.so", "lib/modules"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"of the JVM")
    return Java(home / "bin" / "java", "17.0.15", 17)


@pytest.fixture
def toy(tmp_path: Path, java: Java) -> Toy:
    return Toy(Cache(tmp_path / "cache"), java)


def start(system: JavaSystem[Any], directory: Path, said: list[str]) -> list[str]:
    """The flags for the classes of a start of the user's."""
    running = cast(Stopped, system.start(SystemRequest(), directory, said.append))
    return running.launch.classes.flags("node")


def test_they_are_made_once_and_every_later_start_has_them(toy: Toy, tmp_path: Path) -> None:
    said: list[str] = []
    first, second = (start(toy, tmp_path / name, said) for name in "ab")
    assert first == second == [f"-XX:SharedArchiveFile={_archive(toy)}"]
    assert [one.classes.are_written for one in toy.started] == [True, False, False]
    assert sum("archiving the classes" in line for line in said) == 1
    assert not list((toy.cache.root / "partial").iterdir())


def test_a_kind_that_has_none_starts_without(tmp_path: Path) -> None:
    assert ClassArchives(tmp_path).flags("node") == class_archive.NONE.flags("node") == []


@pytest.mark.parametrize("what", ["a jar", "the JVM"])
def test_of_other_files_they_are_made_anew_and_the_old_ones_go(toy: Toy, tmp_path: Path, what: str) -> None:
    start(toy, tmp_path / "a", [])
    before = _archive(toy)
    root = toy.cache.path("kafka", toy.default_version)
    os.utime(root / "a.jar" if what == "a jar" else toy.java.home / "lib" / "modules", ns=(1, 1))
    start(toy, tmp_path / "b", [])
    assert _archive(toy) != before
    assert not before.exists()


def test_one_that_was_changed_is_not_used(toy: Toy, tmp_path: Path) -> None:
    start(toy, tmp_path / "a", [])
    _archive(toy).write_bytes(b"evil")
    said: list[str] = []
    start(toy, tmp_path / "b", said)
    assert _archive(toy).read_bytes() == b"classes"
    assert any("node.jsa has 4 bytes instead of 7" in line for line in said)


def test_where_none_can_be_made_the_user_has_the_system_all_the_same(toy: Toy, tmp_path: Path) -> None:
    toy.fails = True
    said: list[str] = []
    assert start(toy, tmp_path / "a", said) == []
    assert said[-1].endswith("so that starts take longer: no memory")
    (toy.java.home / class_archive.SHARED_BY_THE_JVM).unlink()
    said.clear()
    assert start(toy, tmp_path / "b", said) == []
    assert not any("classes" in line for line in said)


def _archive(toy: Toy) -> Path:
    [found] = toy.cache.root.glob("installed/kafka-classes/*/node.jsa")
    return found
