"""The lab's layers: what `make lint` (import-linter) cannot see, and that docs/architecture.md draws what it checks."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest
import streamgauge.cli.app
from sources import around, files, nodes
from streamgauge.cli.deferred import WORK, load

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "python"
LAZY = "streamgauge.cli.deferred"
"""The one module that may import when it is called."""
BY_NAME = ("import_module", "__import__")


def modules() -> dict[str, Path]:
    """Name -> file of each module of ours."""
    found = {}
    for path in files():
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(node: ast.AST) -> Iterator[str]:
    """Modules of ours that an import names, whether or not it names something within them."""
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names if one.name.partition(".")[0] == "streamgauge")
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "modules are named in full"
        module = node.module or ""
        if module.partition(".")[0] == "streamgauge":
            for one in node.names:
                inner = f"{module}.{one.name}"
                yield inner if inner in MODULES else module


def in_functions(module: str) -> set[str]:
    file = MODULES[module]
    return {
        name
        for node in nodes(file)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and around(file, node.lineno)
        for name in imported(node)
    }


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, in its order; empty when there is none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        path.append(module)
        for other in sorted(graph[module]):
            found = visit(other)
            if found:
                return found
        path.pop()
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module))), [])


def layers() -> list[str]:
    """The contract's layers from top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (found,) = [one["layers"] for one in contracts if one["id"] == "layers"]
    assert not any("ignore_imports" in one for one in contracts), "no exceptions"
    return list(found)


def test_nothing_of_ours_is_imported_within_a_function() -> None:
    found = {module: names for module in MODULES if (names := in_functions(module))}
    assert found == {}, "import at the top; what a command does is loaded by cli/deferred.py"


def imports_by_name(module: str) -> bool:
    """Whether it may import a module of ours by a name that it computes or holds as a text."""
    for node in nodes(MODULES[module]):
        if not isinstance(node, ast.Call) or _called(node.func) not in BY_NAME:
            continue
        name = node.args[0] if node.args else None
        if not isinstance(name, ast.Constant) or str(name.value).partition(".")[0] == "streamgauge":
            return True
    return False


def _called(function: ast.expr) -> str | None:
    """The last part of its name."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def test_one_module_imports_by_name() -> None:
    assert [module for module in MODULES if imports_by_name(module)] == [LAZY]


def test_no_circle_between_files() -> None:
    graph = {
        module: {name for node in nodes(file) for name in imported(node)} - {module}
        for module, file in MODULES.items()
    }
    assert circle(graph) == [], "what is imported for its types alone counts, too"


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_architecture_draws_the_contract() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"from top to bottom.*?```text\n(.*?)\n```", page, re.DOTALL)
    assert drawn is not None
    assert [line.strip() for line in drawn[1].splitlines()] == layers()
    table = re.findall(r"^\| `([a-z]+)(?:/|\.py)` \|", page, re.MULTILINE)
    rooms = [room.strip() for layer in layers() for room in layer.split("|")]
    assert sorted(table) == sorted(rooms)


def test_the_walk_leads_past_what_there_is() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.partition("## A walk")[2].partition("\n## ")[0]
    steps = [step for step in walk.split("\n\n") if step.startswith("**")]
    assert len(steps) == 4
    for step in steps:
        told = re.findall(r"`([^`]+)`", step)
        files = [
            ROOT / ("" if name.startswith("crates/") else "python/streamgauge") / name
            for name in told
            if "/" in name
        ]
        text = "\n".join(file.read_text("utf-8") for file in files)
        names = [name for name in told if re.fullmatch(r"[A-Za-z_.]*[A-Z_][A-Za-z_.]*", name)]
        assert names
        for name in names:
            assert all(part in text for part in name.split(".")), name


@pytest.mark.parametrize("work", sorted(WORK))
def test_a_command_declares_what_its_work_takes(work: str) -> None:
    declared, does = WORK[work], load(work)
    assert list(inspect.signature(declared).parameters) == list(inspect.signature(does).parameters)
    assert get_type_hints(declared) == get_type_hints(does)


def test_every_command_is_declared_apart_from_its_work() -> None:
    commands = [
        *streamgauge.cli.app.app.registered_commands,
        *(
            command
            for group in streamgauge.cli.app.app.registered_groups
            for command in (group.typer_instance.registered_commands if group.typer_instance else ())
        ),
    ]
    declared = {inspect.unwrap(one.callback) for one in commands if one.callback is not None}
    assert declared == set(WORK.values())
