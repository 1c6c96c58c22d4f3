"""How often verdicts were right on pairs whose truth is known, as a table of Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from streamgauge.inference.checks import Verdict
from streamgauge.inference.distributions import share_interval
from streamgauge.inference.estimates import median_interval
from streamgauge.model.calibration import FIGURES, Answer, Pair
from streamgauge.report.gates import markdown_table
from streamgauge.vocabulary.format import plural, significant

TITLES = (
    "added delay",
    "figure",
    "pairs",
    "B / A over all pairs",
    "higher",
    "lower",
    "no difference that matters",
    "undecided",
    "rounds",
    "of those foreseen",
)


def table(pairs: Sequence[Pair]) -> list[str]:
    """A line of what was compared, the table, and how often a difference was said."""
    if not pairs:
        return ["no pair was measured"]
    first = pairs[0]
    effects = sorted({one.effect_percent for one in pairs})
    rows = [_row(effect, figure, pairs) for effect in effects for figure in FIGURES]
    return [
        f"{first.system} against itself at {first.rate_msgs_s:g} msg/s:",
        "",
        markdown_table(TITLES, rows),
        "",
        *(_shown(effect, pairs) for effect in effects),
    ]


def _shown(effect: float, pairs: Sequence[Pair]) -> str:
    """How often a difference was said, and of how large a share of pairs that may be so."""
    alike = [one for one in pairs if one.effect_percent == effect]
    if effect:
        seen = sum(one.answers[0].verdict == Verdict.holds for one in alike)
        what = f"with {effect:g} % added were found to be higher in {FIGURES[0]}"
    else:
        seen = sum(
            any(answer.verdict in (Verdict.holds, Verdict.refuted) for answer in one.answers) for one in alike
        )
        what = f"of the same were said to differ in one of {len(FIGURES)} figures"
    low, high = (f"{100 * one:.0f}" for one in share_interval(seen, len(alike)))
    return f"{seen} of {plural(len(alike), 'pair')} {what}: so it is of {low} to {high} % of them (95 %)."


def _row(effect: float, figure: str, pairs: Sequence[Pair]) -> list[str]:
    answers = [
        answer
        for one in pairs
        if one.effect_percent == effect
        for answer in one.answers
        if answer.figure == figure
    ]
    verdicts = [answer.verdict for answer in answers]
    order = (Verdict.holds, Verdict.refuted, Verdict.equivalent)
    counts = [verdicts.count(verdict.value) for verdict in order]
    return [
        f"{effect:g} %" if effect else "none",
        figure,
        str(len(answers)),
        _pooled(answers),
        *map(str, counts),
        str(len(answers) - sum(counts)),
        significant(statistics.median(answer.decided_after or answer.rounds for answer in answers)),
        _foreseen(answers),
    ]


def _pooled(answers: Sequence[Answer]) -> str:
    ratios = [answer.ratio for answer in answers if answer.ratio]
    if not ratios:
        return "-"
    value = math.exp(statistics.fmean(map(math.log, ratios)))
    interval = median_interval(ratios)
    return f"{value:.3f}" if interval is None else f"{value:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


def _foreseen(answers: Sequence[Answer]) -> str:
    """Rounds that decided over those that the first look foresaw, the median."""
    found = [
        answer.decided_after / answer.predicted
        for answer in answers
        if answer.predicted and answer.decided_after
    ]
    return f"{statistics.median(found):.2f} of {len(found)}" if found else "-"
