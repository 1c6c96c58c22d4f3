"""The lab's own sources, parsed once for all tests that look at them (they are a group: tests/lanes.py)."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "streamgauge"


def files() -> Iterator[Path]:
    """Every module of the lab."""
    yield from sorted(PACKAGE.rglob("*.py"))


@functools.cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All of its syntax tree, what lies outside before what lies within."""
    return tuple(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def functions(file: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Those of a file, methods and inner ones included."""
    return [one for one in nodes(file) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]


def around(file: Path, line: int) -> list[str]:
    """Names of the functions in which a line lies, the innermost last."""
    return [one.name for one in functions(file) if one.lineno <= line <= (one.end_lineno or 0)]
