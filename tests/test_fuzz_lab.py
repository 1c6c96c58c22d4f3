"""The inputs that fuzzing the lab's parsers begins with, and those that it once found something with, each run once (fuzz/README.md)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FUZZ = Path(__file__).resolve().parent.parent / "fuzz"
NAMES = [
    *("lab-workloads", "lab-studies", "lab-durability-studies", "lab-systems"),
    *(
        "lab-results",
        "lab-manifests",
        "lab-contexts",
        "lab-intervals",
        "lab-histograms",
        "lab-tables",
        "lab-omb-results",
    ),
]


@pytest.fixture(scope="module")
def lab() -> ModuleType:
    """fuzz/lab.py, as a module."""
    spec = importlib.util.spec_from_file_location("fuzz_lab", FUZZ / "lab.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_parser_of_somebody_elses_files_is_a_target(lab: ModuleType) -> None:
    assert list(lab.targets()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_regressions_are_read_or_refused(lab: ModuleType, name: str) -> None:
    target = lab.targets()[name]
    regressions = [path.read_bytes() for path in sorted((FUZZ / "regressions" / name).glob("*"))]
    inputs = [*target.seeds(), *regressions]
    assert inputs
    for data in (*inputs, b"", b"\0", *(one[: len(one) // 2] for one in inputs)):
        lab.run(target, data)


def test_what_was_found_belongs_to_a_target(lab: ModuleType) -> None:
    found = {path.name for path in (FUZZ / "regressions").glob("lab-*")}
    assert found <= set(lab.targets())


@pytest.mark.parametrize(
    "name", ["lab-workloads", "lab-studies", "lab-durability-studies", "lab-systems", "lab-histograms"]
)
def test_seeds_reach_the_end_of_a_parser(lab: ModuleType, name: str) -> None:
    """What ships is read without an error: fuzzing begins behind the first refusal."""
    target = lab.targets()[name]
    for data in target.seeds():
        target.run(data)
