"""An option whose value may be left out: `--live` and `--live ADDRESS`.

Neither typer nor the shell can tell `--live ADDRESS` from `--live WORKLOAD`; an address can be told from a workload, so what follows is taken where it
looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

LIVE = "--live"
ANY_PORT = "127.0.0.1:0"
"""What `--live` says when no address follows it."""
_ADDRESS = re.compile(r"(?:[\w.-]*|\[[0-9A-Fa-f:.]*\]):?\d+")
"""PORT or HOST:PORT, with whatever host: what is wrong with it is told later."""


class LiveCommand(TyperCommand):
    """A command that has `--live [ADDRESS]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        return super().parse_args(ctx, with_address(args))


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments with an address after each `--live` that has none."""
    found: list[str] = []
    given = list(arguments)
    for at, argument in enumerate(given):
        if argument == "--":
            return found + given[at:]
        follows = given[at + 1] if at + 1 < len(given) else ""
        if argument == LIVE and not _ADDRESS.fullmatch(follows):
            argument = f"{LIVE}={ANY_PORT}"
        found.append(argument)
    return found
