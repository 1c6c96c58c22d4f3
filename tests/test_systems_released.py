"""Downloads against the checksums that streamgauge is released with: what differs is neither unpacked, built nor run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from streamgauge.systems.kafka import jmx
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.nats.system import MODULE, Nats, build
from streamgauge.systems.pulsar.system import Pulsar
from streamgauge.systems.support import class_archive, released
from streamgauge.systems.support.cache import Cache
from streamgauge.vocabulary.errors import SystemFailure

RIGHT = {"libs/a.jar": hashlib.sha256(b"right").hexdigest()}
SHA256 = re.compile(r"[0-9a-f]{64}")


def bringing(content: bytes, name: str = "a.jar") -> Any:
    def fetch(into: Path) -> Mapping[str, Any]:
        (into / "libs").mkdir()
        (into / "libs" / name).write_bytes(content)
        return {"from": "test"}

    return fetch


def never(into: Path) -> Mapping[str, Any]:
    raise AssertionError(f"fetched again into {into}")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


# ---------------------------------------------------------------------- what is released


@pytest.mark.parametrize("system", [Kafka, Pulsar])
def test_every_file_of_a_default_version_has_a_checksum(system: type[Kafka | Pulsar]) -> None:
    files = released.files(system.name, system.default_version)
    assert files is not None
    assert len(files) > 50
    assert all(SHA256.fullmatch(checksum) for checksum in files.values())
    assert any(name.endswith(".jar") and system.default_version in name for name in files)


def test_the_default_archive_and_module_have_a_checksum_and_no_old_file_is_left() -> None:
    archive = f"pulsar-server-distribution-{Pulsar.default_version}-bin.tar.gz"
    assert SHA256.fullmatch(str(released.archive(archive)))
    assert str(released.module(MODULE, Nats.default_version)).startswith("h1:")
    assert released.module(MODULE, "2.0.0") is None
    expected = {f"{system.name}-{system.default_version}.sha256" for system in (Kafka, Pulsar)}
    expected.add(f"{jmx.NAME}-{jmx.VERSION}.sha256")
    present = {path.name for path in released.FOLDER.iterdir()}
    assert present == expected | {released.ARCHIVES, released.MODULES}


# ---------------------------------------------------------------------- the cache


@pytest.mark.parametrize(
    ("fetch", "words"),
    [
        (bringing(b"wrong"), r"libs/a\.jar has SHA-256 [0-9a-f]{64}, and streamgauge was released with"),
        (bringing(b"right", "b.jar"), r"libs/b\.jar is not among the files.*and 1 more"),
    ],
)
def test_a_download_that_differs_is_refused_and_nothing_of_it_is_kept(
    cache: Cache, fetch: Any, words: str
) -> None:
    with pytest.raises(SystemFailure, match=rf"download of thing 1\.0 is not what.*{words}"):
        cache.obtain("thing", "1.0", fetch, print, RIGHT)
    assert not cache.path("thing", "1.0").exists()
    assert list((cache.root / "partial").iterdir()) == []


def test_a_file_changed_with_its_time_kept_is_noticed_before_it_runs(cache: Cache) -> None:
    file = cache.obtain("thing", "1.0", bringing(b"right"), print).path / "libs" / "a.jar"
    before = file.stat()
    file.write_bytes(b"wrong")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    said: list[str] = []
    cache.obtain("thing", "1.0", bringing(b"right"), said.append)
    assert "in the cache is damaged (libs/a.jar has another checksum): fetching it again" in said[0]
    assert file.read_bytes() == b"right"


def test_a_file_changed_together_with_the_manifest_is_noticed(cache: Cache) -> None:
    path = cache.obtain("thing", "1.0", bringing(b"right"), print, RIGHT).path
    (path / "libs" / "a.jar").write_bytes(b"wrong")
    manifest = json.loads((path / "manifest.json").read_text())
    entry = manifest["files"]["libs/a.jar"]
    entry["sha256"] = hashlib.sha256(b"wrong").hexdigest()
    entry["mtime_ns"] = (path / "libs" / "a.jar").stat().st_mtime_ns
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert cache.verify("thing", "1.0") == []
    said: list[str] = []
    found = cache.obtain("thing", "1.0", bringing(b"right"), said.append, RIGHT)
    assert "is damaged (libs/a.jar has SHA-256" in said[0]
    assert found.sha256 == RIGHT
    cache.obtain("thing", "1.0", never, print, RIGHT)


# ---------------------------------------------------------------------- Kafka and Pulsar


@pytest.fixture
def fake_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that is no longer what it was: an mvn that brings the files of a folder, and says what it was asked."""
    folder, program = tmp_path / "repository", tmp_path / "bin" / "mvn"
    folder.mkdir()
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/asked\n'
        'for given in "$@"; do case $given in -DoutputDirectory=*) '
        f'cp {folder}/* "${{given#*=}}" ;; esac; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return folder


def test_another_jar_of_a_default_version_is_refused(fake_maven: Path, cache: Cache) -> None:
    (fake_maven / f"kafka_2.13-{Kafka.default_version}.jar").write_bytes(b"with a passenger")
    with pytest.raises(
        SystemFailure, match=r"kafka 4.*kafka_2\.13-.*jar has SHA-256.*compare with the publisher"
    ):
        Kafka(cache).install(None, print)
    asked = (fake_maven.parent / "asked").read_text()
    assert re.search(r":maven-dependency-plugin:\d+\.\d+\.\d+:copy-dependencies", asked), (
        "any plugin would do"
    )


def test_of_a_version_without_released_checksums_it_is_said_who_checked(
    fake_maven: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake_maven / "kafka_2.13-3.9.1.jar").write_bytes(b"some jar")
    # Such a jar starts nothing whose classes an archive could hold.
    monkeypatch.setattr(class_archive, "can_be_made", lambda _java: False)
    said: list[str] = []
    Kafka(cache).install("3.9.1", said.append)
    assert "Kafka 3.9.1 is not a default version" in said[-1]
    assert "only what Maven's repository says of its own files was checked" in said[-1]
    found = cache.find("kafka", "3.9.1")
    assert found is not None
    assert found.source["checked_against"] == "what Maven's repository says of its own files"


def test_another_archive_of_a_default_version_is_refused_before_it_is_unpacked(
    fake_maven: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"pulsar-server-distribution-{Pulsar.default_version}-bin.tar.gz"
    with tarfile.open(fake_maven / name, "w:gz") as archive:
        for file in ("p/lib/a.jar", "p/conf/broker.conf"):
            member = tarfile.TarInfo(file)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))

    monkeypatch.setattr("streamgauge.systems.pulsar.system.unpack", never)
    with pytest.raises(SystemFailure, match=rf"download of Pulsar .*{re.escape(name)} has SHA-256"):
        Pulsar(cache).install(None, print)


# ---------------------------------------------------------------------- NATS


def fake_go(folder: Path) -> Path:
    """A Go whose module proxy and checksum database agree on other sources."""
    sources, program = folder / "module", folder / "go"
    sources.mkdir()
    (sources / "main.go").write_text("package main // with a passenger\n")
    program.write_text(
        "#!/bin/sh\n"
        f'case $1 in mod) printf \'{{\\n\\t"Dir": "%s"\\n}}\\n\' {sources} ;; '
        f"build) touch {folder}/built; touch $5; esac\n"
    )
    program.chmod(0o755)
    return program


def test_other_sources_of_a_default_version_are_refused_before_they_are_built(tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    go = str(fake_go(tmp_path))
    with pytest.raises(SystemFailure, match=r"download of NATS .* has SHA-256 h1:.*released with h1:"):
        build(go, Nats.default_version, into, tmp_path / "log", print)
    assert not (tmp_path / "built").exists()
    said: list[str] = []
    source = build(go, "2.14.0", into, tmp_path / "log", said.append)
    assert "only what Go's checksum database says was checked" in said[-1]
    assert source["go_sum"].startswith("h1:")
    assert (tmp_path / "built").exists()


def test_a_module_is_hashed_as_go_does(tmp_path: Path) -> None:
    """The example was made with golang.org/x/mod/sumdb/dirhash."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "go.mod").write_text("module example.org/m\n")
    (tmp_path / "sub" / "a.go").write_text("package sub\n")
    assert (
        released.module_hash(tmp_path, "example.org/m@v1.0.0")
        == "h1:CwpaMA7cfwrRtQl3FfLJqg0iCYkhR2dT38Piz9Pf20g="
    )
