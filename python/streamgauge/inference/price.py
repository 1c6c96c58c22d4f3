"""Which cells to run again, and how often: what is left of a budget goes to the claims that it can decide.

A contrast is paired by round, so all cells of a claim run equally often; how often, its price says, which grows with the variance of what it compares
(power.py). Claims are bought in the order of their cost, cheapest first, and share what they have in common: a cell, or a start of a variant, is paid for
once. What is left then goes to the next claim, as far as it reaches. A cell that no undecided claim needs is not run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamgauge.inference.study import Judged


@dataclass(frozen=True)
class Costs:
    """What a round costs."""

    trial_s: Mapping[str, float]
    """Cell -> seconds of one trial. A cell that is not in it cannot be run."""
    start_s: Mapping[str, float]
    """Variant -> seconds of one start with its heating."""
    variant_of: Mapping[str, str]
    """Cell -> variant."""

    def of(self, rounds: Mapping[str, int]) -> float:
        """Seconds for so many rounds of each cell, with the starts that they need."""
        starts: dict[str, int] = {}
        for cell, count in rounds.items():
            variant = self.variant_of[cell]
            starts[variant] = max(starts.get(variant, 0), count)
        trials_s = sum(count * self.trial_s[cell] for cell, count in rounds.items())
        return trials_s + sum(count * self.start_s[variant] for variant, count in starts.items())


def seconds(judged: Judged, costs: Costs) -> float | None:
    """What an undecided claim would cost by itself; None where it has no price."""
    if judged.price is None or judged.price.rounds is None:
        return None
    wanted = dict.fromkeys(cells_of(judged), judged.price.rounds)
    return costs.of(wanted) if all(cell in costs.trial_s for cell in wanted) else None


def wanted_cells(judged: Sequence[Judged], costs: Costs, left_s: float) -> dict[str, int]:
    """Cell -> how many further rounds of it serve undecided claims within so many seconds. A cell that none of them needs is not in it; empty where nothing
    is undecided, nothing can be decided any more, or not one round can be paid for."""
    prices = [(cost, at) for at, one in enumerate(judged) if (cost := seconds(one, costs)) is not None]
    wanted: dict[str, int] = {}
    for _, at in sorted(prices):
        price = judged[at].price
        assert price is not None, "only claims with a price cost seconds"
        for rounds in range(price.rounds or 0, 0, -1):
            more = wanted | {cell: max(rounds, wanted.get(cell, 0)) for cell in cells_of(judged[at])}
            if costs.of(more) <= left_s:
                wanted = more
                break
    return wanted


def cells_of(judged: Judged) -> list[str]:
    """The cells that an undecided claim still needs: those of tests that are decided serve it no more."""
    return list(
        dict.fromkeys(cell for one in judged.tests if one.price is not None for cell in one.test.cells)
    )
