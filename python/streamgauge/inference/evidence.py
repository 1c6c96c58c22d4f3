"""What was measured of a test's number, and what that says of its bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamgauge.inference.contrast import (
    OLD_DESIGN,
    Contrast,
    Kind,
    Raw,
    moderate,
    of_one,
    of_two,
    usual_variance,
)
from streamgauge.inference.samples import Bounded, Measured, Sample
from streamgauge.inference.sequential import ROUNDS_MIN
from streamgauge.inference.spread import Prior, learn, spread_of
from streamgauge.inference.steps import asked, margin, named
from streamgauge.inference.verdict import Asked, Chances, chances, reach
from streamgauge.model.study_file import CheckFile
from streamgauge.vocabulary.format import plural, trimmed

NO_RATIO = "a figure is zero: no ratio"


@dataclass(frozen=True)
class Evidence:
    """Of one step of a test."""

    check: CheckFile
    asked: Asked
    contrasts: tuple[Contrast, ...] = ()
    """The estimate; of a spread one for each pair of cells (none below 1). Empty where there is none, or where bounds are all there is."""
    chances: Chances | None = None
    """None where there is nothing to judge by."""
    why: str = ""
    note: str = ""
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def rounds(self) -> int:
        """How many independent units the estimate rests on."""
        return min((one.shape.units for one in self.contrasts), default=0)

    @property
    def margin(self) -> float | None:
        """The smallest ratio that matters, where it plays a part."""
        return margin(self.check)

    @property
    def leans_against(self) -> bool:
        """Whether the estimate itself is not what is asked."""
        if not self.contrasts:
            return False
        found = max(one.estimate for one in self.contrasts)
        near = self.asked.margin is not None and abs(found) < self.asked.margin
        return near or not self.asked.low < found < self.asked.high

    def interval(self, level: float) -> tuple[float, float, float] | None:
        """The number with the ends of its interval at a two-sided level, in its unit or as a ratio. Of a spread: what at least one pair of cells differs
        by, and what no pair differs by more than. Infinite ends where nothing tells how the number varies."""
        if not self.contrasts:
            return None
        value = max(one.estimate for one in self.contrasts)
        if self.chances is None:
            low, high = -math.inf, math.inf
        else:
            pairs = 1 if self.check.spread is None else 2 * len(self.contrasts)
            low = max(reach(one, level / pairs)[0] for one in self.contrasts)
            high = max(reach(one, level)[1] for one in self.contrasts)
        if self.contrasts[0].linear:
            return value, low, high
        if self.check.spread is not None:
            low = max(low, 0.0)
        return math.exp(value), math.exp(low), math.exp(high)

    def printed(self, printed: Callable[[str, str], float | None]) -> float | None:
        """The same number from printed figures; None where they are not numbers."""
        told = [printed(cell, figure) for cell, figure in named(self.check)]
        known = [one for one in told if one is not None]
        if len(known) < len(told):
            return None
        if self.check.value is not None:
            return known[0]
        first, second = known[:2] if self.check.ratio is not None else (max(known), min(known))
        return first / second if second > 0 else None


class Weighing:
    """All evidence of a study, up to a round."""

    def __init__(
        self, sample: Callable[[str, str], Sample], cells: Sequence[str], void: Mapping[int, str]
    ) -> None:
        """`cells`: those that tell how figures vary. `void`: rounds that do not count, and why."""
        self._whole = sample
        self._cells = cells
        self._void = void
        self._until: float = math.inf
        self._read: dict[tuple[str, str], Sample] = {}
        self._priors: dict[str, dict[tuple[Kind, int], list[tuple[float, float]]]] = {}

    def until(self, rounds: int | None) -> None:
        """Nothing after this round counts from now on (None: all do)."""
        self._until = math.inf if rounds is None else rounds
        self._priors.clear()

    def never(self, step: CheckFile) -> bool:
        """Whether one of its cells is no part of what is run."""
        samples = [self._sample(cell, figure) for cell, figure in named(step)]
        return any(not (one.measured or one.bounded or one.ran) for one in samples)

    def of(self, step: CheckFile) -> Evidence:
        """What is known of a step's number."""
        cells = named(step)
        measured = [self._measured(*one) for one in cells]
        on_logs = asked(step, linear=False)
        bounded = [self._bounded(*one) for one in cells]
        if any(bounded) and len(cells) <= 2 and min(map(len, measured)) < ROUNDS_MIN:
            return self._by_bounds(step, measured, bounded)
        missing = tuple(
            (cell, self._why(cell, figure))
            for (cell, figure), values in zip(cells, measured, strict=True)
            if not values
        )
        if missing:
            return Evidence(step, on_logs, missing=missing)
        if step.value is not None:
            raws: list[Raw | None] = [of_one(measured[0])]
        elif step.ratio is not None:
            raws = [of_two(measured[0], measured[1])]
        else:
            raws = [of_two(a, b) for a, b in itertools.combinations(measured, 2)]
        known = [one for one in raws if one is not None]
        if len(known) < len(raws):
            return Evidence(step, on_logs, missing=((" and ".join(cell for cell, _ in cells), NO_RATIO),))
        return self._weighed(step, known, [cell for cell, _ in cells], measured)

    def _weighed(
        self, step: CheckFile, raws: list[Raw], cells: list[str], measured: list[list[Measured]]
    ) -> Evidence:
        found = [
            moderate(
                raw, None if raw.linear else self._prior(step.figure, raw.shape.kind, len(raw.shape.counts))
            )
            for raw in raws
        ]
        if step.spread is not None:
            found = [_turned(one) for one in found]
        question = asked(step, linear=raws[0].linear)
        kept = tuple(found)
        if min(one.shape.units for one in found) < ROUNDS_MIN:
            kept = tuple(self._as_experience(step.figure, one) for one in found)
            told = [
                self._how_few(cell, step.figure, len(values))
                for cell, values in zip(cells, measured, strict=True)
                if len(values) < ROUNDS_MIN
            ]
            few = "; ".join(dict.fromkeys(told)) or "too few rounds have all of its cells"
            return Evidence(step, question, kept, why=f"no interval ({ROUNDS_MIN} rounds are needed): {few}")
        note = OLD_DESIGN if any(raw.shape.starts for raw in raws) else ""
        told_by = _of_spread(found, question) if step.spread is not None else chances(found[0], question)
        return Evidence(step, question, kept, told_by, note=note)

    def _as_experience(self, figure: str, found: Contrast) -> Contrast:
        """Too few values tell nothing of their spread; for a price experience will do."""
        usual = usual_variance(spread_of(figure, paced=False), found.shape.kind)
        return replace(found, variance=max(found.variance, usual))

    def _by_bounds(
        self, step: CheckFile, measured: list[list[Measured]], bounded: list[list[Bounded]]
    ) -> Evidence:
        """Where a disturbed machine has left bounds in place of figures: what they decide in each of ROUNDS_MIN rounds. Each round's bound stands for its
        figure, which lies beyond it; so the mean of the bounds is a bound of the mean."""
        sides = [_ends(values, bounds) for values, bounds in zip(measured, bounded, strict=True)]
        rounds = sorted(set.intersection(*(set(side) for side in sides)))
        question = asked(step, linear=False)
        lows, highs = [], []
        for number in rounds:
            start = "/".join(side[number][0] for side in sides)
            ends = [side[number][1:] for side in sides]
            low, high = ends[0]
            if len(ends) == 2:
                low, high = low / ends[1][1], high / ends[1][0] if ends[1][0] > 0 else math.inf
            lows.append(Measured(low, number, start))
            highs.append(Measured(high, number, start))
        told = [
            (f"at least {trimmed(min(one.value for one in lows))}" if lows else "", lows, False),
            (f"at most {trimmed(max(one.value for one in highs))}" if highs else "", highs, True),
        ]
        for text, values, from_above in told:
            decided = self._decided(question, values, from_above=from_above)
            if decided is not None:
                return Evidence(
                    step,
                    question,
                    chances=decided,
                    note=f"by bounds alone: {text} in each of {len(rounds)} rounds",
                )
        why = f"a disturbed machine has left bounds, which decide nothing in {plural(len(rounds), 'round')}"
        return Evidence(step, question, why=why)

    @staticmethod
    def _decided(question: Asked, values: list[Measured], *, from_above: bool) -> Chances | None:
        """What bounds on one side of the number say; None where one of them is none, or decides nothing by itself."""
        if len(values) < ROUNDS_MIN or not all(0 < one.value < math.inf for one in values):
            return None
        known = chances(moderate(of_one(values), None), question)
        logs = [math.log(one.value) for one in values]
        if from_above:
            holds = question.low == -math.inf and max(logs) < question.high
            refuted = max(logs) <= question.low
        else:
            holds = question.high == math.inf and min(logs) > question.low
            refuted = min(logs) >= question.high
        if not holds and not refuted:
            return None
        return Chances(known.holds if holds else 1.0, known.refuted if refuted else 1.0, 1.0)

    def _sample(self, cell: str, figure: str) -> Sample:
        if (cell, figure) not in self._read:
            self._read[cell, figure] = self._whole(cell, figure)
        return self._read[cell, figure]

    def _counts(self, number: int) -> bool:
        return number <= self._until and number not in self._void

    def _measured(self, cell: str, figure: str) -> list[Measured]:
        return [one for one in self._sample(cell, figure).measured if self._counts(one.round)]

    def _bounded(self, cell: str, figure: str) -> list[Bounded]:
        return [one for one in self._sample(cell, figure).bounded if self._counts(one.round)]

    def _why(self, cell: str, figure: str) -> str:
        sample = self._sample(cell, figure)
        if sample.measured:
            reasons = dict.fromkeys(
                self._void[one.round] for one in sample.measured if one.round in self._void
            )
            return f"all its rounds are void: {'; '.join(reasons)}" if reasons else "not measured yet"
        return sample.why or "no figure"

    def _how_few(self, cell: str, figure: str, count: int) -> str:
        sample = self._sample(cell, figure)
        void = sum(one.round in self._void for one in sample.measured)
        if void:
            return f"{plural(void, 'round')} of {cell} void ({'; '.join(dict.fromkeys(self._void.values()))})"
        if sample.ran > count:
            return f"{count} of {plural(sample.ran, 'trial')} of {cell} gave it"
        return f"{cell} ran {'once' if count == 1 else f'{count} times'}"

    def _prior(self, figure: str, kind: Kind, sides: int) -> Prior | None:
        """What the study's cells tell of variances of this kind."""
        if figure not in self._priors:
            self._priors[figure] = self._variances(figure)
        return learn(self._priors[figure].get((kind, sides), ()))

    def _variances(self, figure: str) -> dict[tuple[Kind, int], list[tuple[float, float]]]:
        """Of each cell, and of each cell with the next one that gives a difference of a kind: no more of them than there are cells, lest few say the same
        often."""
        found: dict[tuple[Kind, int], list[tuple[float, float]]] = {}
        series = [self._measured(cell, figure) for cell in self._cells]
        series = [one for one in series if len(one) > 1 and min(value.value for value in one) > 0]
        for place, values in enumerate(series):
            raws = [of_one(values)]
            kinds: set[tuple[Kind, int]] = set()
            raws += [raw for other in series[place + 1 :] if (raw := of_two(other, values)) is not None]
            for raw in raws:
                key = (raw.shape.kind, len(raw.shape.counts))
                if key not in kinds and raw.shape.freedom:
                    kinds.add(key)
                    found.setdefault(key, []).append((raw.variance, raw.shape.freedom))
        return found


def _ends(values: Sequence[Measured], bounds: Sequence[Bounded]) -> dict[int, tuple[str, float, float]]:
    """Round -> start, and what the figure is at least and at most."""
    found = {one.round: (one.start, one.value, one.value) for one in values}
    open_ = {
        one.round: (one.start, one.at_least, math.inf if one.at_most is None else one.at_most)
        for one in bounds
    }
    return open_ | found


def _turned(found: Contrast) -> Contrast:
    """The larger over the smaller."""
    return replace(found, estimate=abs(found.estimate))


def _of_spread(found: Sequence[Contrast], question: Asked) -> Chances:
    """The largest over the smallest is below a bound when all ratios are (each may be tested at the full level), and above it when any is: with Bonferroni's
    correction for all ordered pairs, for data have picked the extremes."""
    above = [chances(one, Asked(low=question.low)) for one in found]
    below = [chances(one, Asked(high=question.high)) for one in found]
    pairs = 2 * len(found)
    over = min(1.0, pairs * min(one.holds for one in above)) if question.low > -math.inf else 0.0
    under = max(one.holds for one in below) if question.high < math.inf else 0.0
    not_over = max(one.refuted for one in above) if question.low > -math.inf else 1.0
    not_under = min(1.0, pairs * min(one.refuted for one in below)) if question.high < math.inf else 1.0
    return Chances(max(over, under), min(not_over, not_under), 1.0)
