"""Numbers of a result by the names that they have in result.json, as gates, comparisons and histories are given them: `publish_ms.p99`,
`cpu.system_us_per_msg`. (Those of studies, `model.figures`, have titles and are computed.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from streamgauge.model.errors import InputError, nearest
from streamgauge.model.result import TrialResult

LEFT_OUT = ("workload", "durability", "validity", "steadiness", "format", "trial", "repeat", "seed", "nodes")
"""What was asked for, and verdicts: no figures."""

HIGHER_IS_BETTER = ("publish_rate_", "consume_rate_", "achieved_share", "search.low", "search.high")


def known_figures() -> list[str]:
    """Names of all numbers in a result, in its order."""
    return list(_numbers(TrialResult, ""))


def check_figure(name: str) -> str:
    """The name, if it is one. Raises InputError."""
    known = known_figures()
    if name not in known:
        hint = nearest(name, known)
        raise InputError(
            f"no figure '{name}'{hint or '; expected one such as publish_ms.p99, publish_rate_msgs_s, audit.lost'}"
        )
    return name


def figure(result: TrialResult, name: str) -> float | None:
    """A figure of a result; None where it is not known."""
    value: Any = result
    for step in name.split("."):
        if value is None:
            return None
        value = getattr(value, step)
    return None if value is None else float(value)


def higher_is_better(name: str) -> bool:
    """Whether more of it is better; of latencies, costs and losses less is."""
    return name.startswith(HIGHER_IS_BETTER)


def _numbers(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if not prefix and name in LEFT_OUT:
            continue
        kinds = [
            kind for kind in (get_args(field.annotation) or (field.annotation,)) if isinstance(kind, type)
        ]
        for kind in kinds:
            if issubclass(kind, bool):
                continue
            if issubclass(kind, (int, float)):
                yield f"{prefix}{name}"
            elif issubclass(kind, BaseModel):
                yield from _numbers(kind, f"{prefix}{name}.")
