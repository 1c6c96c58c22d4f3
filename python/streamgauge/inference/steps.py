"""What a test of a study file asks, step by step and in words."""

from __future__ import annotations

import math

from streamgauge.inference.margins import margin_of
from streamgauge.inference.verdict import Asked
from streamgauge.model.study_file import CheckFile


def steps_of(check: CheckFile) -> list[CheckFile]:
    """Rising and falling are a ratio per step; the others are one number."""
    cells = check.rising or check.falling
    if cells is None:
        return [check]
    bound: dict[str, float] = {"above": 1.0} if check.rising else {"below": 1.0}
    no_steps = {"rising": None, "falling": None}
    return [
        check.model_copy(update={**no_steps, "ratio": [later, earlier], **bound})
        for later, earlier in zip(cells[1:], cells[:-1], strict=True)
    ]


def bounds(check: CheckFile) -> tuple[float, float]:
    """The open interval in which the number must lie."""
    if check.between is not None:
        return check.between[0], check.between[1]
    return (
        -math.inf if check.above is None else check.above,
        math.inf if check.below is None else check.below,
    )


def margin(check: CheckFile) -> float | None:
    """The smallest ratio that matters, where that plays a part: of ratios that are asked to be above 1, or below."""
    return margin_of(check.figure, check.margin) if check.compares_with_one else None


def asked(check: CheckFile, *, linear: bool) -> Asked:
    """On the scale of its estimate."""
    low, high = bounds(check)
    if linear:
        return Asked(low, high)
    smallest = margin(check)
    return Asked(_log(low), _log(high), None if smallest is None else math.log(smallest))


def named(check: CheckFile) -> list[tuple[str, str]]:
    """The cells of a step's number, each with its figure."""
    cells = [check.value] if check.value is not None else list(check.ratio or check.spread or [])
    figures = [check.figure] * len(cells)
    if check.ratio is not None and check.of is not None:
        figures[1] = check.of
    return list(zip(cells, figures, strict=True))


def text_of(check: CheckFile) -> str:
    """What is compared, in words."""
    if check.value is not None:
        return check.value
    if check.ratio is not None:
        return f"{check.ratio[0]} / {check.ratio[1]}"
    return f"largest / smallest of {', '.join(check.spread or [])}"


def _log(bound: float) -> float:
    if bound == math.inf:
        return math.inf
    return math.log(bound) if bound > 0 else -math.inf
