"""The one way in which the command line loads what a command does: when it is done.

A command is declared in `commands/`, where its name, options and help are and nothing that takes long to load. Its work is a function elsewhere, named
"module:function", which takes what was declared by the same names (tests/test_layers.py compares the two). So `--help` and the shell's tab key load
declarations alone, and every other module of the lab imports what it needs at its top.

`run` loads in two steps: what is wrong with the input is told before what measures and reports is loaded (execute.py).
"""

from __future__ import annotations

import functools
import gc
import importlib
from collections.abc import Callable
from typing import Any, ParamSpec

Declared = ParamSpec("Declared")

WORK: dict[str, Callable[..., None]] = {}
"""The work of each command that was declared -> its declaration."""


def load(name: str) -> Any:
    """The function "module:function"."""
    module, _, function = name.partition(":")
    # What is loaded stays: to look through it for garbage, again and again while more of it comes, takes a sixth of the time that loading does.
    gc.disable()
    try:
        return getattr(importlib.import_module(module), function)
    finally:
        gc.freeze()
        gc.enable()


def deferred(work: str) -> Callable[[Callable[Declared, None]], Callable[Declared, None]]:
    """Makes a declaration, whose body is its help alone, a command that does `work`."""

    def declare(declaration: Callable[Declared, None]) -> Callable[Declared, None]:
        WORK[work] = declaration

        @functools.wraps(declaration)
        def command(*positional: Declared.args, **given: Declared.kwargs) -> None:
            load(work)(*positional, **given)

        return command

    return declare
