"""What the machine did, in plain words: disturbance, bounds, and figures as they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.quiet_cells import told
from streamgauge.inference.looks import ALPHA
from streamgauge.inference.margins import margin_of
from streamgauge.inference.number import ROUNDS_MAX, Number
from streamgauge.model.result import TrialResult
from streamgauge.model.result_quiet import QuietTime
from streamgauge.vocabulary.format import capital, milliseconds, percent, plural, seconds

CAUSES = {
    "host": "the host",
    "real-time": "other real-time programs",
    "softirq": "interrupts",
    "unknown": "nobody that an account tells of",
}
"""Who took a CPU, as a sentence names it."""
PROBES_SHARE_TOLD = 0.02
"""Of each CPU: probes are to take half of it."""


def bounds_ms(cell: Cell, name: str, percentile: str) -> tuple[float | None, float | None]:
    """Between what a latency lies that has no figure; None where there is no such bound, as where a trial knows nothing of it: what the others are at least
    is not what the cell is."""
    found = told(cell, f"{name}.{percentile}")
    return (None, None) if found is None else (found.at_least or None, found.at_most)


def latency_text(cell: Cell, name: str, percentile: str) -> str:
    """For a table: the median of a latency over the trials of a cell, or what bounds it where not all of them know it."""
    value = cell.median(lambda trial: getattr(trial.standing_ms(name), percentile))
    bounds = bounds_text(*bounds_ms(cell, name, percentile)) if value is None else ""
    return bounds or milliseconds(value)


def bounds_text(low: float | None, high: float | None) -> str:
    """For a table: `0.5\u20132.1`, `\u2265 0.5`, `\u2264 2.1`; empty where nothing is known."""
    if low is not None and high is not None:
        return f"{milliseconds(low)}\u2013{milliseconds(high)}"
    if low is not None:
        return f"\u2265 {milliseconds(low)}"
    return "" if high is None else f"\u2264 {milliseconds(high)}"


def between(low: float | None, high: float | None) -> str:
    """For a sentence: `between 0.5 and 2.1 ms`; empty where nothing is known."""
    if low is not None and high is not None:
        return f"between {milliseconds(low)} and {milliseconds(high)} ms"
    if low is not None:
        return f"at least {milliseconds(low)} ms"
    return "" if high is None else f"at most {milliseconds(high)} ms"


def quiet_sentence(trial: TrialResult) -> str:
    """How often the machine was disturbed, for how long, and whose doing it was, and what it cost to see that where it was much; empty where nothing is to be
    told."""
    quiet = trial.quiet
    if quiet is None:
        return ""
    if not quiet.watched:
        return f"Nothing watched whether CPUs were to be had: {quiet.why_not}" if quiet.why_not else ""
    return " ".join(sentence for sentence in (_disturbed(quiet), _dear(quiet)) if sentence)


def _dear(quiet: QuietTime) -> str:
    share = quiet.probes_cpu_share or 0.0
    if share < PROBES_SHARE_TOLD:
        return ""
    return f"Watching for disturbance took {percent(share, 1)} of each CPU: waking up is expensive on this machine."


def _disturbed(quiet: QuietTime) -> str:
    if not quiet.disturbed_share:
        return ""
    causes = ", ".join(
        f"{CAUSES.get(cause, cause)} {seconds(span_s)}"
        for cause, span_s in sorted(quiet.windows_s_by_cause.items(), key=lambda item: -item[1])
    )
    longest = f", the longest of {milliseconds(quiet.longest_ms)} ms" if quiet.longest_ms is not None else ""
    return f"{capital(plural(quiet.windows, 'time'))} a CPU was not to be had{longest}" + (
        f" ({causes})." if causes else "."
    )


def as_it_came(trial: TrialResult) -> str:
    """The figures that the machine is in, where others stand; empty elsewhere."""
    if not trial.validity.not_as_it_came:
        return ""
    parts = [
        f"{title} p50 {milliseconds(came.p50)}, p99 {milliseconds(came.p99)} ms"
        for title, came in (
            (trial.headline, trial.publish_ms if trial.headline == "publish" else trial.service_ms),
            ("end-to-end", trial.end_to_end_ms),
        )
        if came.count
    ]
    return f"As they came, with what the machine did in them: {'; '.join(parts)}." if parts else ""


def disturbed_share(results: Sequence[TrialResult]) -> float | None:
    """Of the measured time of all trials that were watched; None where none was."""
    return _share(results, lambda quiet: quiet.disturbed_share)


def unseen_share(results: Sequence[TrialResult]) -> float:
    """Of the same time, in which a CPU was away in pieces too short for windows."""
    return _share(results, lambda quiet: quiet.unseen_share) or 0.0


def _share(results: Sequence[TrialResult], of: Callable[[QuietTime], float | None]) -> float | None:
    found = [trial.quiet for trial in results if trial.quiet is not None and trial.quiet.watched]
    total_s = sum(one.seconds for one in found)
    return sum((of(one) or 0.0) * one.seconds for one in found) / total_s if total_s else None


def repeats_tell(number: Number, figure: str) -> str:
    """How many repeats, in all, would tell a difference that these do not."""
    repeats = number.rounds_to_tell(number.nearest_decision(margin_of(figure)), ALPHA / 2.0)
    if repeats is None:
        return f"not even {ROUNDS_MAX} repeats would tell them apart"
    return f"about {repeats} repeats would tell (run --repeat {repeats})"
