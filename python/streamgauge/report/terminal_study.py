"""The claims of a study on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.checks import Tested, Verdict
from streamgauge.inference.claims import Judged
from streamgauge.report import further
from streamgauge.report.changes import changes_of, told
from streamgauge.report.verdict_words import asked, counted, decided_when, found, void_rounds, why
from streamgauge.vocabulary.format import significant

TABLE_WIDTH_MIN = 100
STYLES = {Verdict.holds: "green", Verdict.refuted: "red"}
"""All else is neutral."""


def print_claims(outcome: StudyOutcome, console: Console) -> None:
    """What was found, in words; then claim, printed, here, verdict, and why, where nothing was shown."""
    console.print(f"{counted(outcome)}.", markup=False, highlight=False, style="bold")
    for title, claims in found(outcome):
        console.print(f"{title}: {'; '.join(claims)}.", markup=False, highlight=False)
    changed = told(changes_of(outcome))
    if changed:
        console.print(f"What has changed since: {' '.join(changed)}", markup=False, highlight=False)
    console.print()
    told_of = [judged for judged in outcome.asked if not outcome.outside(judged)]
    if console.width < TABLE_WIDTH_MIN:
        _print_blocks(outcome, told_of, console)
    elif told_of:
        console.print(_table(outcome, told_of))
    _print_outside(outcome, console)
    for sentence in void_rounds(outcome):
        console.print(sentence, markup=False, highlight=False)
    see = further.see([one.result for one in outcome.trials])
    if see:
        console.print(f"see {see}", markup=False, highlight=False, soft_wrap=True)


def _table(outcome: StudyOutcome, claims: Sequence[Judged]) -> Table:
    table = Table(title=escape(outcome.study.title), title_justify="left", show_lines=True)
    for title in ("claim", "printed", "here [95 % interval]", "verdict"):
        table.add_column(title)
    for judged in claims:
        verdict, reason = _verdict(outcome, judged)
        table.add_row(
            escape(judged.claim.claim),
            "\n".join(escape(_printed(test)) for test in judged.tests),
            "\n".join(
                escape(f"{_figure(outcome, test)}: {_measured(test)}, {asked(test)}") for test in judged.tests
            ),
            f"{verdict}\n{reason}" if reason else verdict,
        )
    return table


def _print_blocks(outcome: StudyOutcome, claims: Sequence[Judged], console: Console) -> None:
    """Where four columns would cut words in two: one claim below the other."""
    console.print(escape(outcome.study.title), style="italic")
    for judged in claims:
        verdict, reason = _verdict(outcome, judged)
        tests = [
            escape(
                f"{_figure(outcome, test)}: printed {_printed(test)}, here {_measured(test)}, {asked(test)}"
            )
            for test in judged.tests
        ]
        lines = [f"{verdict}: {reason}" if reason else verdict, *tests]
        console.print(f"\n{escape(judged.claim.claim)}", highlight=False)
        for line in lines:
            console.print(Padding(line, (0, 0, 0, 2)), highlight=False)


def _print_outside(outcome: StudyOutcome, console: Console) -> None:
    """Claims of which the scale cannot tell, by name: why stands above, once for all that have the same reason."""
    outside = [judged for judged in outcome.asked if outcome.outside(judged)]
    if not outside:
        return
    console.print(f"\nNot part of scale {outcome.plan.scale}, for what is said above:", highlight=False)
    for judged in outside:
        printed = "; ".join(map(_printed, judged.tests))
        line = escape(f"{judged.claim.claim}: printed {printed}")
        console.print(Padding(line, (0, 0, 0, 2)), highlight=False)


def _verdict(outcome: StudyOutcome, judged: Judged) -> tuple[str, str]:
    """In its colour; and when it was decided, or why it was not."""
    reason = escape(
        "; ".join(decided_when(outcome, judged)) if judged.verdict.decided else why(outcome, judged)
    )
    style = STYLES.get(judged.verdict)
    return f"[{style}]{judged.verdict}[/]" if style else str(judged.verdict), reason


def _figure(outcome: StudyOutcome, test: Tested) -> str:
    """What is compared: of a time less is better, of a rate more."""
    return outcome.study.figures[test.test.figure].title


def _printed(test: Tested) -> str:
    if test.test.printed:
        return test.test.printed
    return "-" if test.printed is None else significant(test.printed)


def _measured(test: Tested) -> str:
    return "-" if test.measured is None else test.measured.text
