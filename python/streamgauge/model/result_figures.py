"""Numbers of a result by the names that they have in result.json, as gates, comparisons and histories are given them: `publish_ms.p99`,
`cpu.system_us_per_msg`. In the columns of queries and exports a name has `_` for `.` (`publish_ms_p99`): both are taken here.
(Those of studies, `model.figures`, have titles and are computed.)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from streamgauge.model.errors import InputError, nearest
from streamgauge.model.result import TrialResult

LEFT_OUT = ("workload", "durability", "validity", "steadiness", "format", "trial", "repeat", "seed", "nodes")
"""What was asked for, and verdicts: no figures."""

HIGHER_IS_BETTER = ("publish_rate_", "consume_rate_", "achieved_share", "search.low", "search.high")

UNITS = {
    "us_per_msg": "us/msg", "msgs_s": "msg/s", "mb_s": "MB/s", "ms": "ms", "us": "us", "s": "s",
    "bytes": "B", "msgs": "messages", "percent": "%",
}  # fmt: skip
"""The last words of a name, longest first, and how people write them."""
COUNTS = re.compile(r"audit\..*|failed_msgs|retries|.*\.(count|overflow|negative)")
"""What was counted message by message: a fact about each trial, and no estimate."""


def known_figures() -> list[str]:
    """Names of all numbers in a result, in its order. What is in lists and free mappings (subscriptions, processes) has no name of its own."""
    return list(_numbers(TrialResult, ""))


def check_figure(name: str) -> str:
    """The name as it is in result.json, if it is one there or in a query. Raises InputError."""
    known = {one.replace(".", "_"): one for one in known_figures()}
    found = known.get(name.replace(".", "_"))
    if found is None:
        hint = nearest(name, known.values())
        raise InputError(
            f"no figure '{name}'{hint or '; expected one such as publish_ms.p99, publish_rate_msgs_s, audit.lost'} "
            "(names are those of result.json; publish_ms_p99, as queries have it, is the same)"
        )
    return found


def title_of(name: str) -> str:
    """How people say it, without the unit: `publish_ms.p99` is "publish p99"."""
    steps = [_parted(step)[0] for step in name.split(".")]
    steps[-1] = re.sub(r"^(p\d+)_(\d+)$", r"\1.\2", steps[-1])
    words = " ".join(step for step in steps if step).replace("_", " ")
    return words.replace("cpu", "CPU").replace("end to end", "end-to-end")


def unit_of(name: str) -> str:
    """The unit of a figure, as people write it; empty for shares, ratios and counts."""
    if is_count(name):
        return ""
    units = [_parted(step)[1] for step in name.split(".")]
    return next((unit for unit in reversed(units) if unit), "")


def is_count(name: str) -> bool:
    """Whether a figure was counted, so that each trial's value is exact."""
    return COUNTS.fullmatch(name) is not None


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


def _parted(step: str) -> tuple[str, str]:
    """A step of a name without its unit, and the unit."""
    found = next((end for end in UNITS if step == end or f"_{end}_" in f"_{step}_"), None)
    if found is None:
        return step, ""
    return f"_{step}_".replace(f"_{found}_", "_").strip("_"), UNITS[found]


def _numbers(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if not prefix and name in LEFT_OUT:
            continue
        optional = get_origin(field.annotation) is UnionType
        for kind in get_args(field.annotation) if optional else (field.annotation,):
            if not isinstance(kind, type) or get_origin(kind) is not None or issubclass(kind, bool):
                continue
            if issubclass(kind, (int, float)):
                yield f"{prefix}{name}"
            elif issubclass(kind, BaseModel):
                yield from _numbers(kind, f"{prefix}{name}.")
