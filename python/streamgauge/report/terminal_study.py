"""The claims of a study on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streamgauge.analysis.claims import Tested
from streamgauge.analysis.study import StudyOutcome
from streamgauge.report.format import significant

STYLES = {"holds": "green", "does not hold": "red", "not shown": "yellow"}


def print_claims(outcome: StudyOutcome, console: Console) -> None:
    """Claim, printed, here, verdict; and why, where nothing was shown."""
    table = Table(title=escape(outcome.study.written.title), title_justify="left", show_lines=True)
    for title in ("claim", "printed", "here [95 % interval]", "verdict"):
        table.add_column(title)
    for judged in outcome.claims:
        verdict = f"[{STYLES[judged.verdict]}]{judged.verdict}[/]"
        if judged.verdict == "not shown" and judged.why:
            verdict += f"\n{escape(judged.why)}"
        table.add_row(
            escape(judged.claim.claim),
            "\n".join(escape(_printed(test)) for test in judged.tests),
            "\n".join(escape(_measured(test)) for test in judged.tests),
            verdict,
        )
    console.print(table)
    for drift in outcome.drifted:
        console.print(
            f"invalid: {drift.title} went from {significant(drift.before)} to {significant(drift.after)} while the study ran",
            markup=False,
            highlight=False,
        )


def _printed(test: Tested) -> str:
    if test.test.printed:
        return test.test.printed
    return "-" if test.printed is None else significant(test.printed)


def _measured(test: Tested) -> str:
    if test.measured is None:
        return "-"
    text = significant(test.measured.value)
    if test.measured.interval is not None:
        text += f" [{significant(test.measured.interval[0])}, {significant(test.measured.interval[1])}]"
    return text
