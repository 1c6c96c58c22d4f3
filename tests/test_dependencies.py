"""Who installs streamgauge gets what it imports and nothing besides."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sources import files, nodes

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def imported() -> set[str]:
    """Distributions that modules of the package import, wherever in a module that is."""
    modules: set[str] = set()
    for path in files():
        for node in nodes(path):
            if isinstance(node, ast.Import):
                modules |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules.add(node.module.partition(".")[0])
    distributions = packages_distributions()
    foreign = modules - sys.stdlib_module_names - {"streamgauge"}
    return {canonicalize_name(distributions.get(module, [module])[0]) for module in foreign}


def test_what_is_installed_to_run_is_what_is_imported() -> None:
    extras = names(
        [
            line
            for extra in ("pandas", "kubernetes", "conformance")
            for line in PROJECT["optional-dependencies"][extra]
        ]
    )
    wanted = names(PROJECT["dependencies"])
    found = imported()
    assert wanted <= found, f"only tests import {sorted(wanted - found)}: they belong into the extra dev"
    assert found <= wanted | extras | {"pydantic-core"}, (
        "imported, and not a dependency (pydantic brings pydantic-core)"
    )
