"""The first line: what a run of one workload says of its systems, and how much of the time was disturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streamgauge.analysis.cells import Cell, cells, headline_p99
from streamgauge.analysis.curves import curves
from streamgauge.analysis.quiet_bounds import Told
from streamgauge.analysis.quiet_cells import share, told
from streamgauge.analysis.quiet_compare import Beside, beside
from streamgauge.inference.experience import TAIL_SPREAD, number_of
from streamgauge.inference.number import Number
from streamgauge.model.result import TrialResult
from streamgauge.report import curve
from streamgauge.report.quiet_words import between, disturbed_share, repeats_tell, unseen_share
from streamgauge.vocabulary.bounds import DISTURBED_SHARE_MAX
from streamgauge.vocabulary.format import joined, milliseconds, percent, rate, trimmed

FIGURE = "p99"


def answer(results: Sequence[TrialResult]) -> str:
    """A sentence or two. Of several systems the fastest is what the others are compared with."""
    found = cells(results)
    if not found:
        return "Nothing was measured: no trial has a result."
    lines = curves(results)
    if lines:
        return " ".join(
            [curve.sentence(lines), _sky(results, has_figures=any(line.sustained for line in lines))]
        ).strip()
    known = [(cell, figure) for cell in found if (figure := _figure(cell)) is not None]
    out = [cell for cell in found if all(cell is not one for one, _ in known)]
    parts = [_figures(known)] if known else []
    parts += [_comparison(base, other) for base, other in _pairs(known)]
    parts += [f"{cell.first.system_title} gives no figure: {_why(cell)}" for cell in out]
    has_figures = any(figure.value is not None for _, figure in known) if known else None
    return " ".join([*parts, _sky(results, has_figures=has_figures)]).strip()


def _figure(cell: Cell) -> Told | None:
    """p99 of publish latency with its interval or bounds; None where nothing of it is known."""
    name = f"{cell.first.headline}_ms"
    if all(trial.validity.is_invalid for trial in cell.trials):
        return None
    bounded = told(cell, f"{name}.{FIGURE}")
    value = cell.median(lambda trial: getattr(trial.standing_ms(name), FIGURE)) if cell.valid else None
    if value is None:
        return (
            bounded if bounded is not None and (bounded.at_least > 0 or bounded.at_most is not None) else None
        )
    if bounded is None or bounded.value is None:
        return Told(value, value, value)
    return Told(value, min(bounded.at_least, value), bounded.at_most)


def _figures(known: Sequence[tuple[Cell, Told]]) -> str:
    first = known[0][0].first
    at = f"At {rate(first.workload.rate_msgs_s)} msg/s" if first.workload.rate_msgs_s else "At its most"
    each = [f"{_low(figure)} for {cell.first.system_title}" for cell, figure in known]
    return (
        f"{at} of {first.workload.message_size_bytes} B, p99 of {first.headline} latency is {joined(each)}."
    )


def _low(figure: Told) -> str:
    if figure.value is not None:
        return f"{milliseconds(figure.value)} ms"
    return between(figure.at_least or None, figure.at_most)


def _pairs(known: Sequence[tuple[Cell, Told]]) -> list[tuple[tuple[Cell, Told], tuple[Cell, Told]]]:
    if len(known) < 2:
        return []
    base, *others = sorted(
        known, key=lambda one: one[1].value if one[1].value is not None else one[1].at_least
    )
    return [(base, other) for other in others]


def _comparison(base: tuple[Cell, Told], other: tuple[Cell, Told]) -> str:
    ratio = _ratio(base[0], other[0])
    if ratio is not None and ratio.rounds > 1:
        return _by_repeats(base[0], other[0], ratio)
    found: Beside = beside(base[1], other[1], share(base[0]), share(other[0]))
    names = f"{other[0].first.system_title}'s"
    if found.at_least <= 1:
        return f"{_open(base[0], other[0])}."
    if found.value is None:
        return f"{names} is at least {trimmed(found.at_least)} times as high, whatever the machine did."
    was = f"{names} was {trimmed(found.value)} times as high in these trials"
    if ratio is None:
        return f"{was}; by how much runs of the same differ they do not tell."
    if ratio.interval()[0] <= 1:
        return f"{was}, and runs of the same differ by as much: {_tell(base[0], ratio)}."
    return f"{names} is {trimmed(found.value)} times as high (at least {trimmed(found.at_least)} times in these trials)."


def _by_repeats(base: Cell, other: Cell, ratio: Number) -> str:
    """Of systems that were measured several times, what these trials together say; bounds of single trials are no part of it."""
    names = f"{other.first.system_title}'s"
    low, high = ratio.interval()
    if ratio.value <= 1:
        return f"{_open(base, other)}: {_tell(base, ratio)}."
    # Each side's figure is a median over its trials, and their quotient may be another.
    times = f"{trimmed(ratio.value)} times as high on average"
    if low <= 1:
        return f"{names} was {times} in these trials, and runs of the same differ by as much: {_tell(base, ratio)}."
    trials = (
        f"{ratio.rounds} trials each"
        if len(set(ratio.counts)) == 1
        else f"{joined([str(count) for count in ratio.counts])} trials"
    )
    return f"{names} is {times} (95 %: {trimmed(low)} to {trimmed(high)} times; {trials})."


def _open(base: Cell, other: Cell) -> str:
    return f"Which of {base.first.system_title} and {other.first.system_title} is faster, these trials do not tell"


def _tell(base: Cell, ratio: Number) -> str:
    return repeats_tell(ratio, f"{base.first.headline}_ms.{FIGURE}")


def _ratio(base: Cell, other: Cell) -> Number | None:
    """By what these trials show and by experience; None where a side has no valid trial."""
    sides = [headline_p99(cell.valid) for cell in (base, other)]
    return number_of(sides[1], sides[0], TAIL_SPREAD, one_run=True) if all(sides) else None


def _why(cell: Cell) -> str:
    """Why it has no figure: each reason, with how many of several trials have it, the most frequent first."""
    found = Counter(map(_reason, cell.trials))
    if len(found) == 1:
        return next(iter(found))
    total = len(cell.trials)
    return " ".join(f"{count} of {total} trials: {reason}" for reason, count in found.most_common())


def _reason(trial: TrialResult) -> str:
    if trial.status == "failed":
        return trial.failure or "it failed."
    reasons = trial.validity.reasons or [trial.validity.conclusion]
    return _overload(trial, reasons) or " ".join(reasons) if any(reasons) else "nothing was measured."


def _overload(trial: TrialResult, reasons: Sequence[str]) -> str:
    """Of a rate that was not reached, and not for the generator's sake, that alone: what else is wrong follows from it, and stands below. Empty otherwise."""
    rate_msgs_s, achieved = trial.workload.rate_msgs_s, trial.achieved_share
    missed = any(one.startswith("Achieved ") for one in reasons)
    ours = any("generator was late" in one or "the generator's limit" in one for one in reasons)
    if not missed or ours or rate_msgs_s is None or achieved is None:
        return ""
    return (
        f"it did not keep up. Of {rate(rate_msgs_s)} msg/s {percent(achieved, 1)} were acknowledged, so that latencies would be those of a queue that grows "
        "(--rate sustainable finds what it takes)."
    )


def _sky(results: Sequence[TrialResult], *, has_figures: bool | None) -> str:
    """How disturbed it was, and what became of that. `has_figures`: None where there are not even bounds."""
    disturbed = disturbed_share(results)
    if disturbed is None:
        why = next(
            (trial.quiet.why_not for trial in results if trial.quiet is not None and trial.quiet.why_not),
            None,
        )
        return f"What the machine did is in these figures, as nothing watched it: {why}." if why else ""
    # What rounds to nothing was there all the same.
    share = "Less than 0.1 %" if 0 < disturbed < 0.0005 else percent(disturbed, 1)
    if has_figures is None:
        return f"{share} of the time was disturbed."
    taken = "and is not in these figures" if has_figures else "which leaves bounds alone"
    unseen = unseen_share(results)
    is_in_them = has_figures and unseen > DISTURBED_SHARE_MAX
    rest = f"; another {percent(unseen, 1)}, in pieces too short to be seen, is" if is_in_them else ""
    return f"{share} of the time the machine was disturbed, {taken}{rest}."
