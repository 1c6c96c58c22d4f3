"""Systems that are compared do the same work before they acknowledge, unless they are asked not to: one durability level for all of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from streamgauge.model.system_file import SystemChoice
from streamgauge.model.system_kind import SystemKind
from streamgauge.vocabulary.errors import SystemInputError
from streamgauge.vocabulary.levels import MEANINGS, Level

KindType = TypeVar("KindType", bound=SystemKind)

OWN = "default"
"""`--durability default`: each system's own."""
ORDER: dict[bool, tuple[Level, ...]] = {False: ("L4", "L3"), True: ("L2", "L1", "L4", "L3")}
"""By whether there are nodes to replicate to; what most systems do by themselves comes first."""
REPLICATED_FROM = 3
"""Nodes."""


def alike(
    choices: Sequence[SystemChoice[KindType]], asked: str | None
) -> tuple[list[SystemChoice[KindType]], str]:
    """The systems with one level, and in a sentence which and why; empty where there is nothing to say. What a system file says of its system, and what a
    cluster that runs already does, stays as it is."""
    given = list(choices)
    if asked is not None and asked != OWN:
        level = next((one.request.level for one in given if one.request.level is not None), None)
        return given, "" if level is None else f"durability {_told(level)}, as asked"
    if len({one.name.partition("+")[0] for one in given}) < 2:
        return given, ""
    if asked == OWN:
        return (
            given,
            "durability: each system's own, as asked: results say which, and different levels are not compared like with like",
        )
    if any(one.request.connect or one.request.source or one.request.level for one in given):
        return (
            given,
            "durability: each system's own, since a system file or a cluster that runs has its say; --durability sets one for all",
        )
    replicated = all(one.request.nodes >= REPLICATED_FROM for one in given)
    for level in ORDER[replicated]:
        found = [replace(one, request=replace(one.request, level=level)) for one in given]
        if all(map(_possible, found)):
            return found, (
                f"durability {_told(level)} for all, so that like is compared with like; --durability {OWN} gives each its own, --durability L1 ... L4 another"
            )
    return (
        given,
        "durability: each system's own, since there is no level that all of them have: different levels are not compared like with like",
    )


def _told(level: Level) -> str:
    return f"{level} ({MEANINGS[level]})"


def _possible(choice: SystemChoice[KindType]) -> bool:
    try:
        choice.system.check(choice.request)
    except SystemInputError:
        return False
    return True
