"""The claims of a study on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.study import Judged, Tested
from streamgauge.report.verdicts import STYLES, counted, interval_text, reasons
from streamgauge.vocabulary.format import significant

TABLE_WIDTH_MIN = 100


def print_claims(outcome: StudyOutcome, console: Console) -> None:
    """Claim, printed, here, verdict; and why, where nothing was shown."""
    if console.width < TABLE_WIDTH_MIN:
        _print_blocks(outcome, console)
    else:
        console.print(_table(outcome))
    console.print(counted(outcome.claims), markup=False, highlight=False)
    for drift in outcome.drifted:
        console.print(
            f"invalid: {drift.title} went from {significant(drift.before)} to {significant(drift.after)} while the study ran",
            markup=False,
            highlight=False,
        )


def _table(outcome: StudyOutcome) -> Table:
    table = Table(title=escape(outcome.study.title), title_justify="left", show_lines=True)
    for title in ("claim", "printed", "here [95 % interval]", "verdict"):
        table.add_column(title)
    for judged in outcome.claims:
        verdict, why = _verdict(judged)
        table.add_row(
            escape(judged.claim.claim),
            "\n".join(escape(_printed(test)) for test in judged.tests),
            "\n".join(escape(_measured(test)) for test in judged.tests),
            f"{verdict}\n{why}" if why else verdict,
        )
    return table


def _print_blocks(outcome: StudyOutcome, console: Console) -> None:
    """Where four columns would cut words in two: one claim below the other."""
    console.print(escape(outcome.study.title), style="italic")
    for judged in outcome.claims:
        verdict, why = _verdict(judged)
        tests = [f"printed {escape(_printed(test))}, here {escape(_measured(test))}" for test in judged.tests]
        lines = [f"{verdict}: {why}" if why else verdict, *tests]
        console.print(f"\n{escape(judged.claim.claim)}", highlight=False)
        for line in lines:
            console.print(Padding(line, (0, 0, 0, 2)), highlight=False)


def _verdict(judged: Judged) -> tuple[str, str]:
    """In its colour; and what has to be said of it."""
    why = escape("; ".join(reasons(judged)))
    return f"[{STYLES[judged.verdict]}]{judged.verdict}[/]", why


def _printed(test: Tested) -> str:
    if test.test.printed:
        return test.test.printed
    return "-" if test.printed is None else significant(test.printed)


def _measured(test: Tested) -> str:
    if test.measured is None:
        return "-"
    return significant(test.measured.value) + interval_text(test.measured)
