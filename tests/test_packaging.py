"""What is shipped: the contents of the wheel and of the source distribution, the two commands, and that they work where nothing else is."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


CARGO_S = 900
"""Whoever makes a wheel waits for the build of Rust's test programs, which has what other tests leave of the cores (tools/suite.py)."""


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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build("build", "--release", "--quiet", "--out", place)
    (found,) = place.glob("*.whl")
    return found


@pytest.mark.timeout(CARGO_S)
def test_the_wheel_holds_the_package_and_both_commands_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
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


def declared(name: str) -> dict[str, importlib.metadata.Distribution]:
    """What a distribution says that it needs, without its extras, and what that needs in turn: by canonical names."""
    found: dict[str, importlib.metadata.Distribution] = {}
    left = [(name, "")]
    while left:
        wanted, extra = left.pop()
        key = canonicalize_name(wanted)
        if (here := found.get(key)) is None:
            here = found[key] = importlib.metadata.distribution(wanted)
        elif not extra:
            continue
        for line in here.requires or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                left += [(need.name, one) for one in ("", *need.extras)]
    del found[canonicalize_name(name)]
    return found


def lend(needed: Iterable[importlib.metadata.Distribution], to: Path) -> None:
    """Links to what was installed here with these distributions, and to nothing else of this environment."""
    to.mkdir()
    for one in needed:
        place = Path(str(one.locate_file("")))
        for top in {path.parts[0] for path in one.files or () if path.parts[0] not in ("..", "__pycache__")}:
            if not (to / top).exists() and not top.endswith(".pth"):
                (to / top).symlink_to(place / top)


@pytest.mark.timeout(CARGO_S)
def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """Nothing of the tree, and of packages those alone that it declares: an import of another one would fail. They are lent by this environment, so that no
    index is asked."""
    own = tmp_path / "env"
    venv.create(own, with_pip=False)
    python = own / "bin" / "python"
    run(
        *(
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ),
        *("--no-index", "--no-deps", wheel),
    )
    lent = tmp_path / "lent"
    lend(declared("streamgauge").values(), lent)
    packages = sysconfig.get_path("purelib", vars={"base": str(own), "platbase": str(own)})
    (Path(packages) / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    environment = kept | {
        "HOME": str(tmp_path),
        "PATH": f"{own / 'bin'}:/usr/bin:/bin",
        "COLUMNS": "200",
    }

    def say(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    assert say("streamgauge", "--version").split()[:2] == ["streamgauge", VERSION]
    assert say("gauge", "--version").split() == ["gauge", VERSION]
    assert "compare" in say("streamgauge", "--help")
    listed = say("streamgauge", "systems", "list")
    for name in PYPROJECT["project"]["entry-points"]["streamgauge.systems"]:
        assert re.search(rf"^{name}\b", listed, re.MULTILINE), listed
    assert f"{own}/bin/gauge" in listed.replace("\n", "")
    assert (own / "share/man/man1/streamgauge-run.1").is_file()
    where = say(python, "-c", "import streamgauge, sys; print(streamgauge.__file__, *sys.path)")
    assert str(ROOT) not in where
    load = ("--rate", "500", "--duration", "1s", "--warmup", "0s", "--system", "gauge-log")
    said = say("streamgauge", "run", "1-topic-16-partitions-1kb", *load)
    assert "Every message is accounted for." in said
    (report,) = elsewhere.glob("runs/2*/report.html")
    assert report.stat().st_size > 10_000


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
    # cargo would refuse to build it otherwise: the lock may know of nothing from elsewhere that is not in it.
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    found = subprocess.run(command, cwd=tmp_path / prefix, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


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
