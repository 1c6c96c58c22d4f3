"""What is shipped: the contents of the wheel and of the source distribution, and the two commands."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PYPROJECT["project"]["version"]
JUNK = {"target", "runs", "dist", ".git", ".venv", ".ci", "__pycache__", "node_modules"}
PACKAGED_BYTES_MAX = 20_000_000


def run(*command: str | Path) -> str:
    """Runs a command in the root of the tree and returns its output; its messages are the failure's text."""
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {"PATH": os.pathsep.join([scripts, os.environ["PATH"]])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(*arguments: str | Path) -> None:
    """Runs this environment's maturin. A wheel reuses what cargo built before, so that it takes a second."""
    if shutil.which("maturin", path=sysconfig.get_path("scripts")) is None:
        pytest.fail(f"maturin is not installed beside {sys.executable}; run the tests with make test")
    run("maturin", *arguments)


def package_files() -> set[str]:
    """The files of the Python package in the tree, relative to python/."""
    package = ROOT / "python"
    found = (path.relative_to(package) for path in (package / "streamgauge").rglob("*") if path.is_file())
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def assert_no_junk(names: set[str]) -> None:
    for name in names:
        path = PurePosixPath(name)
        assert not JUNK & set(path.parts), f"{name} does not belong into a package"
        assert path.suffix not in {".pyc", ".so", ".jar", ".log", ".tmp"}, (
            f"{name} does not belong into a package"
        )


def test_the_wheel_holds_the_package_and_both_commands_and_nothing_else(tmp_path: Path) -> None:
    build("build", "--release", "--quiet", "--out", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < PACKAGED_BYTES_MAX
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        scripts = f"streamgauge-{VERSION}.data/scripts"
        assert archive.read(f"{scripts}/gauge")[:4] == b"\x7fELF"
        assert archive.read(f"{scripts}/streamgauge").startswith(b"#!python\n")
        # pip installs a script with the mode that it has in the wheel.
        assert archive.getinfo(f"{scripts}/streamgauge").external_attr >> 16 & 0o111 == 0o111
    assert_no_junk(names)
    metadata = {name for name in names if name.startswith(f"streamgauge-{VERSION}.dist-info/")}
    man = f"streamgauge-{VERSION}.data/data/share/man/man1"
    pages = {f"{man}/{path.name}" for path in (ROOT / "streamgauge.data/data/share/man/man1").iterdir()}
    assert f"{man}/streamgauge-run.1" in pages
    assert names - metadata == package_files() | {f"{scripts}/gauge", f"{scripts}/streamgauge"} | pages
    licences = {PurePosixPath(name).name for name in metadata if "/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}
    assert names_found_in(wheel, tmp_path / "fresh") == sorted(
        PYPROJECT["project"]["entry-points"]["streamgauge.systems"]
    )


def names_found_in(wheel: Path, directory: Path) -> list[str]:
    """The systems that what is in a wheel finds, unpacked as pip does it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from streamgauge.systems.registry import systems; print(*(one.name for one in systems().values()))",
        ],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_sdist_holds_what_a_build_needs_and_nothing_else(tmp_path: Path) -> None:
    build("sdist", "--out", tmp_path)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert sdist.stat().st_size < PACKAGED_BYTES_MAX
    with tarfile.open(sdist) as archive:
        prefix = f"streamgauge-{VERSION}/"
        names = {member.name.removeprefix(prefix) for member in archive.getmembers() if member.isfile()}
    assert_no_junk(names)
    needed = {
        ".cargo/config.toml",
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "NOTICE",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
        "streamgauge.data/scripts/streamgauge",
        "tools/build_backend.py",
    }
    sources = {f"python/{name}" for name in package_files()}
    crates = {name for name in names if name.startswith("crates/")}
    man = {name for name in names if name.startswith("streamgauge.data/data/share/man/man1/")}
    assert "streamgauge.data/data/share/man/man1/streamgauge-run.1" in man
    assert names - crates - man == needed | sources
    assert "crates/gauge/src/main.rs" in crates


def test_the_two_languages_agree_on_the_version() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert cargo["workspace"]["package"]["version"] == VERSION


def test_both_commands_are_installed() -> None:
    try:
        installed = importlib.metadata.version("streamgauge")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("streamgauge is not installed in this environment; make test installs it")
    assert installed == VERSION
    scripts = Path(sysconfig.get_path("scripts"))
    assert run(scripts / "gauge", "--version").split() == ["gauge", VERSION]
    assert re.match(r"#!.*python", (scripts / "streamgauge").read_text())
    assert os.access(scripts / "streamgauge", os.X_OK)
