"""What has changed since: cells that a study measured at the version of its document and at today's, figure by figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.checks import Verdict
from streamgauge.inference.claims import Judged
from streamgauge.vocabulary.figures import STUDY_FIGURES, title_of
from streamgauge.vocabulary.format import plural

WORDS = {
    Verdict.holds: "higher now",
    Verdict.refuted: "lower now",
    Verdict.equivalent: "no difference that matters",
    Verdict.undecided: "undecided",
    Verdict.not_shown: "not measured at both",
}


@dataclass(frozen=True)
class Change:
    """One figure of a cell, at both versions."""

    cell: str
    figure: str
    """Its title."""
    before: float | None
    now: float | None
    """Medians."""
    ratio: str
    """Today's over the former, with its 95 % interval; empty where there is none."""
    verdict: Verdict
    tone: str

    @property
    def word(self) -> str:
        """The verdict, in words."""
        return WORDS[self.verdict]


def changes_of(outcome: StudyOutcome) -> list[Change]:
    """Every cell that was planned at both versions, in the study's order."""
    return [_change(outcome, judged) for judged in outcome.changes]


def told(changes: Sequence[Change]) -> list[str]:
    """The first page's answer: what is higher and lower now, and what makes no difference, a sentence each."""
    sentences = []
    for verdict in (Verdict.refuted, Verdict.holds, Verdict.equivalent):
        named = [
            f"{one.figure} of {one.cell}" + ("" if verdict is Verdict.equivalent else f" {one.ratio} times")
            for one in changes
            if one.verdict is verdict
        ]
        if named:
            sentences.append(f"{WORDS[verdict].capitalize()}: {'; '.join(named)}.")
    left = sum(not one.verdict.decided for one in changes)
    if left and not sentences:
        sentences.append("Nothing is shown to have changed, and nothing to be as it was.")
    if left:
        sentences.append(f"{plural(left, 'figure')} {'is' if left == 1 else 'are'} undecided.")
    return sentences


def _change(outcome: StudyOutcome, judged: Judged) -> Change:
    (test,) = judged.tests
    figure = test.test.figure
    now, before = (outcome.figure(cell, figure) for cell in test.test.cells)
    return Change(
        cell=judged.claim.claim,
        figure=title_of(figure),
        before=None if before is None else before.median,
        now=None if now is None else now.median,
        ratio="" if test.measured is None else test.measured.text,
        verdict=judged.verdict,
        tone=tone_of(figure, judged.verdict),
    )


def tone_of(figure: str, verdict: Verdict) -> str:
    """Whether what has changed is for the better."""
    now = {Verdict.holds: "higher", Verdict.refuted: "lower"}.get(verdict)
    if now is None:
        return "plain"
    return "good" if STUDY_FIGURES[figure].better == now else "bad"
