"""The cache: fetched once, verified on use, never half there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from streamgauge.systems.support.cache import Cache, cache_root
from streamgauge.vocabulary.errors import SystemFailure


class Fetcher:
    """Writes two files and counts how often it had to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, into: Path) -> Mapping[str, Any]:
        self.calls += 1
        (into / "libs").mkdir()
        (into / "libs" / "a.jar").write_bytes(b"a" * 1000)
        (into / "b.jar").write_bytes(b"b" * 2000)
        return {"from": "test"}


@pytest.fixture
def fetch() -> Fetcher:
    return Fetcher()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


said: list[str] = []


def obtain(cache: Cache, fetch: Callable[[Path], Mapping[str, Any]]) -> Path:
    said.clear()
    return cache.obtain("thing", "1.0", fetch, said.append).path


def test_it_is_fetched_once(cache: Cache, fetch: Fetcher) -> None:
    path = obtain(cache, fetch)
    assert obtain(cache, fetch) == path
    assert fetch.calls == 1
    found = cache.find("thing", "1.0")
    assert found is not None
    assert set(found.sha256) == {"libs/a.jar", "b.jar"}
    assert found.source == {"from": "test"}
    assert cache.verify("thing", "1.0") == []
    assert cache.versions("thing") == ["1.0"]


def truncate(path: Path) -> None:
    (path / "b.jar").write_bytes(b"b" * 1999)


def overwrite(path: Path) -> None:
    (path / "b.jar").write_bytes(b"c" * 2000)


def delete(path: Path) -> None:
    (path / "libs" / "a.jar").unlink()


def add(path: Path) -> None:
    (path / "libs" / "stray.jar").write_bytes(b"x")


def forget(path: Path) -> None:
    (path / "manifest.json").unlink()


def garble(path: Path) -> None:
    (path / "manifest.json").write_text('{"format": 1, "files"')


@pytest.mark.parametrize("damage", [truncate, overwrite, delete, add, forget, garble])
def test_a_damaged_installation_is_found_removed_and_fetched_again(
    cache: Cache, fetch: Fetcher, damage: Callable[[Path], None]
) -> None:
    path = obtain(cache, fetch)
    damage(path)
    assert cache.find("thing", "1.0") is None
    assert cache.verify("thing", "1.0") != []
    assert obtain(cache, fetch) == path
    assert fetch.calls == 2
    assert "thing 1.0 in the cache is damaged" in said[0]
    assert cache.verify("thing", "1.0") == []


def test_a_change_that_keeps_size_and_time_is_found_by_full_verification(
    cache: Cache, fetch: Fetcher
) -> None:
    path = obtain(cache, fetch)
    file = path / "b.jar"
    before = file.stat()
    file.write_bytes(b"c" * 2000)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.find("thing", "1.0") is not None
    assert cache.verify("thing", "1.0") == ["b.jar has another checksum"]


def test_a_touched_but_unchanged_file_is_no_damage(cache: Cache, fetch: Fetcher) -> None:
    path = obtain(cache, fetch)
    os.utime(path / "b.jar", (1, 1))
    assert cache.find("thing", "1.0") is not None


def test_a_failed_fetch_leaves_nothing(cache: Cache, fetch: Fetcher) -> None:
    def fail(into: Path) -> Mapping[str, Any]:
        fetch(into)
        raise SystemFailure("the mirror is gone")

    with pytest.raises(SystemFailure, match="the mirror is gone"):
        obtain(cache, fail)
    assert not cache.path("thing", "1.0").exists()
    assert list((cache.root / "partial").iterdir()) == []
    obtain(cache, fetch)


def test_an_empty_download_is_a_failure(cache: Cache) -> None:
    with pytest.raises(SystemFailure, match=r"the download of thing 1\.0 is empty"):
        obtain(cache, lambda into: {"from": str(into)})


def test_rubbish_of_a_killed_fetch_is_removed(cache: Cache, fetch: Fetcher) -> None:
    rubbish = cache.root / "partial" / "thing-1.0-dead"
    rubbish.mkdir(parents=True)
    obtain(cache, fetch)
    assert not rubbish.exists()


def test_two_runs_at_once_fetch_once(cache: Cache, tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from streamgauge.systems.support.cache import Cache

        def fetch(into):
            with open({str(tmp_path / "fetched")!r}, "a") as log:
                log.write("fetched\\n")
            time.sleep(0.5)
            (into / "file").write_text("x")
            return {{}}

        Cache(Path({str(cache.root)!r})).obtain("thing", "1.0", fetch, print)
        """
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    output = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert (tmp_path / "fetched").read_text() == "fetched\n"
    assert sum("waiting for another streamgauge" in text for text in output) <= 1


def test_an_unwritable_cache_says_what_to_do(tmp_path: Path, fetch: Fetcher) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SystemFailure, match=r"cannot write the cache directory .*STREAMGAUGE_CACHE"):
        Cache(tmp_path / "file").obtain("thing", "1.0", fetch, print)


def test_removing(cache: Cache, fetch: Fetcher) -> None:
    obtain(cache, fetch)
    cache.remove("thing", "1.0")
    cache.remove("thing", "1.0")
    assert cache.versions("thing") == []


def test_the_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.setenv("STREAMGAUGE_CACHE", "")
    assert cache_root() == Path.home() / ".cache" / "streamgauge"


def test_the_manifest_names_every_file(cache: Cache, fetch: Fetcher) -> None:
    manifest = json.loads((obtain(cache, fetch) / "manifest.json").read_text())
    assert {name: entry["size"] for name, entry in manifest["files"].items()} == {
        "libs/a.jar": 1000,
        "b.jar": 2000,
    }
