"""The tests of a fresh clone are compiled once, before several processes load them: each of these would compile for itself what it finds as it was written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def is_compiled(test: Path) -> bool:
    """Whether pytest has kept what it made of a file, and that is not older than the file."""
    name = f"{test.stem}.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    made = test.parent / "__pycache__" / name
    return made.exists() and made.stat().st_mtime >= test.stat().st_mtime


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """One process loads them all. What is wrong with one of them, those that run it say."""
    if not all(map(is_compiled, TESTS.glob("test_*.py"))):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", *config.args]
        subprocess.run(
            command, cwd=config.rootpath, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
