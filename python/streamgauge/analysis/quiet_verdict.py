"""What a trial on a disturbed machine is worth: one of four words, with what may be concluded; and whose fault it was that messages left late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.analysis.quiet import QuietInterval
from streamgauge.analysis.quiet_away import ALL_SEEN, Unseen
from streamgauge.analysis.quiet_bounds import Told
from streamgauge.analysis.quiet_check import Attraction
from streamgauge.model.percentiles import NS_PER_MS
from streamgauge.model.result_quiet import Begin, Word
from streamgauge.vocabulary.bounds import DISTURBED_SHARE_MAX
from streamgauge.vocabulary.format import joined, percent, trimmed
from streamgauge.vocabulary.histograms import Histogram, merge

ABOVE_P99 = 0.01
"""So many messages a p99 leaves out."""
TOUCHED = 0.1
"""A percentile is moved by disturbance where this part of what lies above it may be of disturbed time."""
BLURRED = " Part of that may be the kernel's work for the system itself, which could not be told from it (CAP_PERFMON lets the workers see it)."


@dataclass(frozen=True)
class Verdict:
    """A word, and what may be concluded."""

    word: Word
    sentence: str


def verdict(
    *,
    own_faults: Sequence[str],
    watched: bool,
    disturbed_share: float,
    unseen_share: float = 0.0,
    held_up: str = "",
    figures_missing: Sequence[str],
    figures_told: Sequence[str],
    attracted: Attraction,
    blurred: bool = False,
) -> Verdict:
    """`blurred`: whether what the system did itself could not be told from disturbance.
    `held_up`: why no figure stands although nobody here is at fault, if so.
    `own_faults`: sentences, why the generator or the settings spoil the trial, apart from any disturbance. `unseen_share`: of quiet time, in which a CPU was
    away and no probe saw it. `watched`: a probe told when CPUs were not to be
    had. `figures_missing`, `figures_told`: names of the headline figures that quiet time does not give, and of those that it gives."""
    if own_faults:
        return Verdict(
            Word.invalid,
            f"{' '.join(own_faults)} That was not the machine: nothing can be concluded about the system.",
        )
    if not watched:
        return Verdict(
            Word.valid,
            "Nothing watched whether the CPUs were to be had: what the machine did is in the figures, and cannot be told from what the system did.",
        )
    share = percent(disturbed_share, 1)
    if disturbed_share + unseen_share <= DISTURBED_SHARE_MAX:
        return Verdict(
            Word.valid, f"{share} of the time was disturbed. {_reach(disturbed_share + unseen_share)}"
        )
    part = _unseen(unseen_share) + (BLURRED if blurred else "")
    if held_up:
        return Verdict(
            Word.bounds_only,
            f"{share} of the time was disturbed.{part} {held_up} Each figure lies between its bounds; no more can be concluded.",
        )
    if attracted.kind is not Begin.independent and not (attracted.doubt and figures_told):
        return Verdict(
            Word.bounds_only,
            f"{share} of the time was disturbed.{part} {attracted.sentence} Each figure lies between its bounds; no more can be concluded.",
        )
    if not figures_told:
        return Verdict(
            Word.bounds_only,
            f"{share} of the time was disturbed, and quiet time is too short for any figure.{part} Each lies between its bounds; no more can be concluded.",
        )
    rest = f" Of {joined(list(figures_missing))} only the bounds stand." if figures_missing else ""
    if attracted.doubt:
        rest = f" {attracted.sentence} The intervals hold whatever those disturbances may hide.{rest}"
    return Verdict(
        Word.disturbed,
        f"{share} of the time was disturbed.{part} Figures of quiet time are the system's, with the intervals beside them; those as they came are also the "
        f"machine's.{rest}",
    )


def _unseen(share: float) -> str:
    """Where it is too much to be left unsaid."""
    if share <= DISTURBED_SHARE_MAX:
        return ""
    return f" For another {percent(share, 1)} a CPU was away in pieces too short to be seen: that is in every figure, and the intervals allow for it."


def _reach(disturbed_share: float) -> str:
    """Up to which percentile so little disturbance does not matter."""
    if disturbed_share <= 0:
        return "The figures as they came are the system's."
    above = disturbed_share / TOUCHED
    if above >= 0.5:
        return "The figures as they came may be the machine's in part; those of quiet time stand beside them."
    # Rounded down: two digits of what lies above.
    digits = max(0, 1 - math.floor(math.log10(100 * above)))
    reached = math.floor(100 * (1 - above) * 10**digits) / 10**digits
    return (
        f"Figures as they came up to p{trimmed(reached, 6)} are the system's; further up they may be the machine's, and those of quiet time stand beside "
        "them."
    )


@dataclass(frozen=True)
class OwnLateness:
    """Whose fault it was that messages left late, or that answers were read late."""

    metric: str
    """send_delay, ack_delay or receive_delay."""
    own: bool | None
    """Whether the generator was late by itself, in quiet time; None where that cannot be told."""
    came_late_msgs: int
    """Messages that were later than allowed, as they came."""
    own_late_msgs: int
    """Of them, those that were late in quiet time already."""
    bound_ms: float
    quiet: Told
    unseen_share: float = 0.0
    """Where that is why it cannot be told: for so much of quiet time the CPU was away and no probe saw it."""
    quiet_late_share: float = 0.0
    """Of the messages of quiet time, those that were late."""

    @property
    def machine_share(self) -> float:
        """Of the messages that were late, how many the machine held up."""
        if not self.came_late_msgs:
            return 0.0
        return max(0.0, 1.0 - self.own_late_msgs / self.came_late_msgs)

    @property
    def sentence(self) -> str:
        """For the reader; empty where nothing was late."""
        delay = self.metric.replace("_", " ")
        if self.own:
            seen = self.quiet.value if self.quiet.value is not None else self.quiet.at_least
            least = "" if self.quiet.value is not None else "at least "
            return (
                f"The generator was late by itself: in quiet time p99 of {delay} is {least}{trimmed(seen)} ms, allowed are "
                f"{trimmed(self.bound_ms)} ms."
            )
        if not self.came_late_msgs:
            return ""
        held = (
            f"the machine held up {percent(self.machine_share)} of the messages whose {delay} was above "
            f"{trimmed(self.bound_ms)} ms"
        )
        if self.own is None:
            why = f"too little quiet time; {held}"
            if self.unseen_share:
                why = (
                    f"for {percent(self.unseen_share, 1)} of quiet time a CPU was away in pieces too short to be seen, which may be why "
                    f"{percent(self.quiet_late_share, 1)} of its messages were late"
                )
            return f"Whether the generator was late by itself cannot be told: {why}."
        return f"The generator was on time in quiet time; {held}."


def own_lateness(
    metric: str,
    intervals: Sequence[QuietInterval],
    quiet: Told,
    bound_ms: float,
    unseen: Unseen = ALL_SEEN,
) -> OwnLateness:
    """A delay of the generator against what is allowed. `intervals`: of that delay. `quiet`: its p99 of quiet time (quiet_bounds.figures). The generator
    answers only for quiet time: what was late there when a span began counts as its own, what a span delayed does not, and whose fault it was cannot be told
    where the CPU may have been away without a probe seeing it (`unseen`)."""
    bound_ns = bound_ms * NS_PER_MS
    own = merge([histogram for one in intervals for histogram in (one.quiet, one.censored)])
    came = merge(one.came for one in intervals)
    least = quiet.value if quiet.value is not None else quiet.at_least
    beyond = sum(one.beyond for one in intervals)
    own_late = _above(own, bound_ns) + beyond
    is_late = least > bound_ms
    is_unseen = is_late and _may_explain(unseen, own, own_late, beyond, bound_ms)
    is_own: bool | None = None
    if is_unseen:
        is_own = None
    elif is_late:
        is_own = True
    elif quiet.value is not None or (quiet.at_most is not None and quiet.at_most <= bound_ms):
        is_own = False
    return OwnLateness(
        metric=metric,
        own=is_own,
        came_late_msgs=_above(came, bound_ns) + sum(one.came_beyond for one in intervals),
        own_late_msgs=own_late,
        bound_ms=bound_ms,
        quiet=quiet,
        unseen_share=unseen.of_one_cpu if is_unseen else 0.0,
        quiet_late_share=own_late / max(own.count, 1),
    )


def _may_explain(unseen: Unseen, own: Histogram, late: int, beyond: int, bound_ms: float) -> bool:
    """Whether no more than what a p99 leaves out were late of the messages that no unseen piece can have held up: those that were later than the longest piece,
    and those that are more than were due in all of them. `own`: of quiet time; `late`: of them and of the `beyond`, above `bound_ms`."""
    count = max(own.count, 1)
    surely = _above(own, max(bound_ms, unseen.longest_ms) * NS_PER_MS) + beyond
    return max(surely / count, late / count - unseen.of_one_cpu) <= ABOVE_P99 and unseen.of_one_cpu > 0


def _above(histogram: Histogram, bound_ns: float) -> int:
    return round(histogram.share_above(bound_ns) * histogram.count)
