"""The smallest effect that matters, figure by figure: what is smaller is no difference worth a sentence."""

from __future__ import annotations

import math
import re

OTHERS = 1.1
MARGINS = (
    (re.compile(r".*(msgs_s|mb_s)|achieved_share"), 1.05),
    (re.compile(r".*\.(p9\d.*|max)"), 1.5),
)
"""Names of figures, and the smallest ratio that matters. Rates repeat well and are bought by the percent; tails differ from trial to trial by half."""


def margin_of(figure: str, asked: float | None = None) -> float:
    """The smallest ratio that matters, above 1. `asked`: what a claim says itself."""
    if asked is not None:
        return asked
    return next((margin for names, margin in MARGINS if names.fullmatch(figure)), OTHERS)


def within(low: float, high: float, margin: float) -> bool:
    """Whether an interval of logarithms lies where no difference matters."""
    return -math.log(margin) < low and high < math.log(margin)
