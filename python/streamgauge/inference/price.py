"""What undecided claims would cost, and which cells to run for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamgauge.inference.study import Judged


@dataclass(frozen=True)
class Costs:
    """What a round costs."""

    trial_s: Mapping[str, float]
    """Cell -> seconds of one trial."""
    start_s: Mapping[str, float]
    """Variant -> seconds of one start with its heating."""
    variant_of: Mapping[str, str]
    """Cell -> variant."""

    def of(self, cells: Sequence[str]) -> float:
        """Seconds of one round of these cells, with the starts that they need."""
        raise NotImplementedError


def wanted_cells(judged: Sequence[Judged], costs: Costs, left_s: float) -> dict[str, int]:
    """Cell -> how many further rounds of it serve undecided claims within so many seconds. A cell that none of them needs is not in it; empty where nothing is
    undecided, or nothing can be decided any more."""
    raise NotImplementedError
