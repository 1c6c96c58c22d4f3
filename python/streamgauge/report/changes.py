"""What has changed since: cells that a study measured at the version of its document and at today's, figure by figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.checks import Verdict
from streamgauge.inference.claims import Judged
from streamgauge.vocabulary.figures import higher_is_better, title_of
from streamgauge.vocabulary.format import plural, significant

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
    word: str
    tone: str


def changes_of(outcome: StudyOutcome) -> list[Change]:
    """Every cell that was planned at both versions, in the study's order."""
    return [_change(outcome, judged) for judged in outcome.changes]


def told(changes: Sequence[Change]) -> list[str]:
    """The first page's answer: what is higher and lower now, and what makes no difference, a sentence each."""
    sentences = []
    for word in (WORDS[Verdict.refuted], WORDS[Verdict.holds], WORDS[Verdict.equivalent]):
        named = [
            f"{one.figure} of {one.cell}" + (f" {one.ratio} times" if "now" in word else "")
            for one in changes
            if one.word == word
        ]
        if named:
            sentences.append(f"{word.capitalize()}: {'; '.join(named)}.")
    left = sum(one.tone == "plain" and one.word != WORDS[Verdict.equivalent] for one in changes)
    if left and not sentences:
        sentences.append("Nothing is shown to have changed, and nothing to be as it was.")
    if left:
        sentences.append(f"{plural(left, 'figure')} {'is' if left == 1 else 'are'} undecided.")
    return sentences


def _change(outcome: StudyOutcome, judged: Judged) -> Change:
    (test,) = judged.tests
    figure = test.test.figure
    now, before = (outcome.figure(cell, figure) for cell in test.test.cells)
    ratio = ""
    if test.measured is not None:
        ratio = significant(test.measured.value)
        if test.measured.interval is not None:
            ratio += f" [{', '.join(significant(one) for one in test.measured.interval)}]"
    good = {Verdict.holds: higher_is_better(figure), Verdict.refuted: not higher_is_better(figure)}
    tone = {True: "good", False: "bad", None: "plain"}[good.get(judged.verdict)]
    return Change(
        cell=judged.claim.claim,
        figure=title_of(figure),
        before=None if before is None else before.median,
        now=None if now is None else now.median,
        ratio=ratio,
        word=WORDS[judged.verdict],
        tone=tone,
    )
