"""deploy/Containerfile: built where there is a builder, and otherwise done step by step with what is here.

Step by step means: the context as .containerignore leaves it; each RUN of the build's stage on this machine's tree, where cargo and pip find their work done;
each COPY with what it takes; the binary in a root file system of its own; the wheel in an environment of its own. A RUN that is not known here fails the test.
"""

from __future__ import annotations

import email
import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "deploy" / "Containerfile"
BUILD_TIMEOUT_S = 1800
DISTROLESS_CC = {
    "linux-vdso",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
    "libc",
    "libm",
    "libgcc_s",
    "libstdc++",
    "libpthread",
    "libdl",
    "librt",
}
"""Libraries of the worker's base (those of Debian's libc6, libgcc-s1 and libstdc++6) that a Rust program could need."""


@dataclass
class Stage:
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Instructions with what follows them."""

    def all(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.steps if name == instruction]


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = Stage(base)
        else:
            list(found.values())[-1].steps.append((instruction, " ".join(rest.split())))
    return found


def builder() -> str | None:
    """A program that can build images here: one whose engine answers."""
    for name in ("podman", "docker", "buildah"):
        if (
            shutil.which(name)
            and subprocess.run([name, "info"], capture_output=True, timeout=60, check=False).returncode == 0
        ):
            return name
    return None


def run(*command: str | Path, directory: Path = ROOT, timeout_s: float = 600) -> str:
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (
        f"{shlex.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


def test_every_base_is_taken_by_its_digest() -> None:
    found = stages()
    assert list(found) == ["build", "worker", "lab"]
    for name, stage in found.items():
        assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", stage.base), f"{name}: {stage.base}"


@pytest.mark.timeout(2 * BUILD_TIMEOUT_S)
def test_the_images_are_built_and_their_programs_run(tmp_path: Path) -> None:
    engine = builder()
    if engine is None:
        done_by_hand(tmp_path)
        return
    for target, command in (("worker", "--version"), ("lab", "--help")):
        tag = f"streamgauge-test-{target}"
        run(engine, "build", "--file", FILE, "--target", target, "--tag", tag, ".", timeout_s=BUILD_TIMEOUT_S)
        if engine != "buildah":
            assert run(engine, "run", "--rm", tag, command)


def done_by_hand(work: Path) -> None:
    found = stages()
    context_holds_what_is_tracked(work / "source")
    wheel = build_stage(found["build"], work / "source", work / "wheels")
    worker_stage(found["worker"], work / "worker")
    lab_stage(found["lab"], wheel, work)


def context_holds_what_is_tracked(into: Path) -> None:
    """Copies the context as a builder would. Every tracked file gets there, and nothing that is big or secret."""
    patterns = (ROOT / ".containerignore").read_text(encoding="utf-8").split()

    def ignored(directory: str, names: list[str]) -> set[str]:
        here = Path(directory).relative_to(ROOT)
        return {
            name
            for name in names
            for pattern in patterns
            if fnmatch.fnmatch((here / name).as_posix(), pattern)
            or fnmatch.fnmatch(f"./{here / name}", pattern)
        }

    shutil.copytree(ROOT, into, ignore=ignored, symlinks=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    lost = [
        name
        for name in tracked.stdout.split("\0")
        if name and (ROOT / name).exists() and not (into / name).exists()
    ]
    assert not lost, f"not in the context: {lost}"
    for name in (".git", ".venv", "target", "runs", "deploy/ansible/token"):
        assert not (into / name).exists(), f"{name} is in the context"


def build_stage(stage: Stage, source: Path, wheels: Path) -> Path:
    """Runs the stage's commands; returns the wheel."""
    assert stage.all("COPY") == [". ."]
    packages, binary, wheel = stage.all("RUN")
    # Debian's packages are not installed on the machine of a test.
    assert re.match(
        r"apt-get update && apt-get install --yes --no-install-recommends( [a-z0-9-]+)+ && rm -rf", packages
    )
    # In the context: manifests, lock and sources agree. On the tree: the same command, whose work cargo finds done.
    run("cargo", "metadata", "--locked", "--format-version", "1", directory=source)
    assert binary == "cargo build --release --locked --package gauge"
    run(*shlex.split(binary), timeout_s=BUILD_TIMEOUT_S)
    environment, *rest = wheel.split(" && ")
    assert environment == "python3 -m venv /venv"
    wheels.mkdir()
    for command in rest:
        # This environment has maturin of the same lock.
        run("bash", "-c", command.replace("/venv", sys.prefix).replace("/wheels", str(wheels)))
    assert (wheels / "kubernetes.txt").read_bytes() == (
        source / "requirements" / "kubernetes.txt"
    ).read_bytes()
    (built,) = wheels.glob("*.whl")
    return built


def worker_stage(stage: Stage, root: Path) -> None:
    """The binary needs only libraries of the base, and runs in a root that has nothing else."""
    (copied,) = stage.all("COPY")
    taken, put = copied.removeprefix("--from=build ").split()
    gauge = ROOT / Path(taken).relative_to("/source")
    assert gauge.is_file()
    run(ROOT / "deploy" / "worker-rootfs.sh", gauge, root)
    libraries = {
        name.split(".so")[0]
        for name in re.findall(r"^\s*(?:\S*/)?([^\s/]+\.so\S*)", run("ldd", gauge), re.MULTILINE)
    }
    assert libraries <= DISTROLESS_CC
    assert (root / put.lstrip("/")).stat().st_mode & 0o111 == 0o111
    assert stage.all("ENTRYPOINT") == [f'["{put}"]']
    assert run("unshare", "--map-root-user", "--root", root, put, "--version").startswith("gauge ")


def lab_stage(stage: Stage, wheel: Path, work: Path) -> None:
    """The wheel's own requirements are those of the lock, and the entry point is there once it is installed."""
    assert stage.all("COPY") == ["--from=build /wheels /wheels"]
    (installed,) = stage.all("RUN")
    locked, package, _ = installed.split(" && ")
    assert locked == "pip install --no-cache-dir --require-hashes --requirement /wheels/kubernetes.txt"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    lines = (wheel.parent / "kubernetes.txt").read_text(encoding="utf-8").splitlines()
    locked_names = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    for requirement in map(Requirement, asked):
        if requirement.marker is None or requirement.marker.evaluate({"extra": "kubernetes"}):
            assert canonicalize_name(requirement.name) in locked_names
    run(sys.executable, "-m", "venv", work / "lab")
    command = package.replace("/wheels", str(wheel.parent)).replace("pip ", f"{work}/lab/bin/pip ", 1)
    run("bash", "-c", command)
    (entry,) = re.findall(r'"(\w+)"', stage.all("ENTRYPOINT")[0])
    assert os.access(work / "lab" / "bin" / entry, os.X_OK)
