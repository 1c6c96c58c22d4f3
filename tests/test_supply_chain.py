"""What is locked: every crate and every Python package with a checksum, of versions that the project asks for, under licences that it allows; and the bill of
materials. `make audit` asks the lists of known vulnerabilities, for which a network is needed (docs/dependencies.md)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DENY = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
LOCKS = {
    "build": PROJECT["build-system"]["requires"],
    "run": PROJECT["project"]["dependencies"],
    "kubernetes": PROJECT["project"]["dependencies"]
    + PROJECT["project"]["optional-dependencies"]["kubernetes"],
    "dev": [
        *PROJECT["project"]["dependencies"],
        *(line for group in PROJECT["project"]["optional-dependencies"].values() for line in group),
    ],
    "ansible": (ROOT / "requirements/ansible.in").read_text(encoding="utf-8").splitlines(),
}
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")


def tracked(*patterns: str) -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in done.stdout.split("\0") if name]


# ---------------------------------------------------------------------- Python


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """The packages of a lock, and the SHA-256 of their files."""
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [
        (Requirement(line.split("--hash")[0].strip()), re.findall(r"--hash=(\S+)", line)) for line in lines
    ]


def wanted(requirement: Requirement, python: str, machine: str) -> bool:
    """Whether a machine needs it at all."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


def chosen(name: str, python: str, machine: str) -> dict[str, str]:
    """The versions that a machine gets. Fails when it would get two of a package."""
    found: dict[str, str] = {}
    for requirement, _ in locked(name):
        if wanted(requirement, python, machine):
            package = canonicalize_name(requirement.name)
            assert package not in found, f"requirements/{name}.txt: two versions of {package}"
            found[package] = str(requirement.specifier).removeprefix("==")
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_python_package_has_one_version_and_checksums(name: str) -> None:
    packages = locked(name)
    assert packages
    for requirement, hashes in packages:
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), f"{requirement}: not one version"
        assert requirement.url is None, f"{requirement}: from an address"
        assert hashes, f"{requirement}: no checksum"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text, "an address of somebody's package index"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_is_what_the_project_asks_for(name: str, python: str, machine: str) -> None:
    versions = chosen(name, python, machine)
    for line in LOCKS[name]:
        asked = Requirement(line)
        if not wanted(asked, python, machine):
            continue
        version = versions.get(canonicalize_name(asked.name))
        assert version is not None, f"{asked} is not in requirements/{name}.txt: make lock"
        assert asked.specifier.contains(version), (
            f"requirements/{name}.txt has {version} of {asked}: make lock"
        )
    # A package that is installed to run is the one that was tested.
    tested = chosen("dev", python, machine)
    assert name in ("build", "ansible") or versions.items() <= tested.items()


# ---------------------------------------------------------------------- Rust


def cargo_locks() -> list[Path]:
    return tracked("Cargo.lock", "*/Cargo.lock")


@pytest.mark.parametrize("lock", cargo_locks(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_locked_crate_is_ours_or_from_the_registry_with_its_checksum(lock: Path) -> None:
    ours = {
        tomllib.loads(path.read_text(encoding="utf-8")).get("package", {}).get("name")
        for path in tracked("*Cargo.toml")
    }
    allowed = {f"registry+{address}" for address in DENY["sources"]["allow-registry"]}
    for package in tomllib.loads(lock.read_text(encoding="utf-8"))["package"]:
        if "source" not in package:
            assert package["name"] in ours, f"{package['name']} is from a path and not ours"
            continue
        assert package["source"] in allowed, f"{package['name']} is from {package['source']}"
        assert re.fullmatch(r"[0-9a-f]{64}", package.get("checksum", "")), f"{package['name']}: no checksum"


def test_what_fuzzing_is_built_of_is_what_everybody_has() -> None:
    """The same versions and profile: cargo builds them once. After a change to Cargo.lock: cp Cargo.lock fuzz/ && (cd fuzz && cargo metadata > /dev/null)."""
    ours, of_fuzzing = (
        {
            (package["name"], package["version"])
            for package in tomllib.loads((ROOT / lock).read_text("utf-8"))["package"]
        }
        for lock in ("Cargo.lock", "fuzz/Cargo.lock")
    )
    assert {name for name, _ in of_fuzzing - ours} == {"gauge-fuzz", "libfuzzer-sys", "arbitrary"}
    profiles = [
        tomllib.loads((ROOT / file).read_text("utf-8"))["profile"]
        for file in ("Cargo.toml", "fuzz/Cargo.toml")
    ]
    assert profiles[0] == profiles[1]


def licensed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met by licences that are allowed. A slash is the older way to write OR."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def one_of() -> bool:
        met = all_of()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = all_of() or met
        return met

    def all_of() -> bool:
        met = single()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = single() and met
        return met

    def single() -> bool:
        token = tokens.pop(0)
        if token == "(":
            met = one_of()
            assert tokens.pop(0) == ")", expression
            return met
        if tokens[:1] == ["WITH"]:
            token = f"{token} {tokens.pop(0)} {tokens.pop(0)}"
        return token in allowed

    return one_of()


def test_licence_expressions_are_understood() -> None:
    allowed = {"MIT", "Apache-2.0"}
    assert licensed("MIT OR GPL-3.0", allowed)
    assert licensed("GPL-3.0/MIT", allowed)
    assert licensed("(GPL-3.0 OR MIT) AND Apache-2.0", allowed)
    assert not licensed("MIT AND GPL-3.0", allowed)
    assert not licensed("Apache-2.0 WITH LLVM-exception", allowed)
    assert not licensed("GPL-3.0 OR MIT AND ISC", allowed)


def metadata() -> dict[str, Any]:
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_every_crate_has_a_licence_that_is_allowed() -> None:
    allowed = set(DENY["licenses"]["allow"])
    for package in metadata()["packages"]:
        name = f"{package['name']} {package['version']}"
        assert package["license"], f"{name} names no licence"
        assert licensed(package["license"], allowed), (
            f"{name}: {package['license']} is not allowed by deny.toml"
        )


def test_everything_is_built_with_the_lock() -> None:
    assert PROJECT["tool"]["maturin"]["locked"] is True
    for path in tracked("Makefile", ".ci/*", "tools/*", "deploy/*"):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(
            r"cargo (?:build|test|clippy|run|bench|install|metadata|deny)\b[^\n`]*", text
        ):
            assert "--locked" in command, f"{path.relative_to(ROOT)}: {command}"
        for command in re.findall(r"pip install[^\n`)]*--requirement[^\n]*", text):
            assert "--require-hashes" in command, f"{path.relative_to(ROOT)}: {command}"


# ---------------------------------------------------------------------- the bill of materials


def bill() -> str:
    command = [sys.executable, str(ROOT / "tools/sbom.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_bill_of_materials_is_cyclonedx_and_has_everything_that_is_shipped() -> None:
    from cyclonedx.schema import SchemaVersion  # Late: a second of CPU, in every process of the suite.
    from cyclonedx.validation.json import JsonStrictValidator

    text = bill()
    assert text == bill(), "the same sources give the same bytes"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    components = {each["bom-ref"]: each for each in bom["components"]}
    references = components.keys() | {bom["metadata"]["component"]["bom-ref"]}
    assert len(components) == len(bom["components"])
    for package, hashes in locked("run"):
        version = str(package.specifier).removeprefix("==")
        (reference,) = components[f"pkg:pypi/{package.name}@{version}"]["externalReferences"]
        assert [each["content"] for each in reference["hashes"]] == [each[7:] for each in hashes]
    # What the compiler is told to link is in it, and what only tests need is not.
    tree = [
        "cargo",
        "tree",
        "--locked",
        "--package",
        "gauge",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]
    listed = subprocess.run(tree, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    linked = {
        f"pkg:cargo/{name}@{version}" for name, version in re.findall(r"^(\S+) v(\S+)", listed, re.MULTILINE)
    }
    required = {
        each["bom-ref"]
        for each in bom["components"]
        if each["scope"] == "required" and each["purl"].startswith("pkg:cargo/")
    }
    assert required == linked
    assert "pkg:cargo/proptest@" not in text
    for each in bom["dependencies"]:
        assert {each["ref"], *each["dependsOn"]} <= references
