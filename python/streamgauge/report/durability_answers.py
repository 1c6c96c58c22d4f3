"""The statements of publications beside what was measured, on a terminal and for templates/answers.html."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from streamgauge.analysis.statements import MeasuredCell, StatementAnswer, answers
from streamgauge.inference.checks import Verdict
from streamgauge.model.durability import DurabilityReport
from streamgauge.model.durability_study import DurabilityStudyFile, disputed, parse_durability_study
from streamgauge.report.verdict_words import tone_of
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.format import plural

STYLES = {Verdict.holds: "bold green", Verdict.refuted: "bold red"}


def answered(found: DurabilityReport) -> list[StatementAnswer]:
    """Every statement of a study; in other runs those that something measured has to do with."""
    if found.study is not None:
        return answers(written_of(found), found.results, found.study.left_out)
    told = answers(written_of(found), found.results)
    return [answer for answer in told if any(one.result is not None for one in answer.measured)]


def written_of(found: DurabilityReport) -> DurabilityStudyFile:
    """The study's file as the run was started with; of a run that is no study, the one that ships."""
    if found.study is not None:
        return parse_durability_study(found.study.text, found.study.file, None).written
    return disputed(systems()).written


def shown(told: Sequence[StatementAnswer]) -> list[dict[str, Any]]:
    """What the page tells of each answer."""
    return [
        {
            "written": answer.written,
            "verdict": answer.verdict,
            "tone": tone_of(answer.verdict),
            "why": answer.why,
            "measured": [_measured(one) for one in answer.measured if one.result is not None],
        }
        for answer in told
    ]


def _measured(one: MeasuredCell) -> str:
    """System, setting, level: what the evidence is of."""
    result = one.result
    assert result is not None, "asked for what was measured alone"
    options = ", ".join(f"{key}: {value}" for key, value in sorted(result.options.items()))
    nodes = plural(result.nodes, "node")
    ended = "" if result.status == "complete" else f"; {result.status}"
    return (
        f"{one.cell}: {result.system_title} {result.system_version}, {nodes}{f', {options}' if options else ''}; "
        f"declared {result.finding.declared or 'unknown'}, measured {result.finding.measured or 'not shown'}{ended}"
    )


def print_answers(told: Sequence[StatementAnswer], console: Console) -> None:
    """On a terminal."""
    for answer in told:
        console.print()
        console.print(Text(f'"{answer.written.statement}" ({answer.written.by})', style="bold"))
        line = Text(f"  {answer.verdict}", style=STYLES.get(answer.verdict, "bold"))
        line.append(f": {answer.why}", style="none")
        console.print(line)
        if answer.written.remark:
            console.print(f"  ({answer.written.remark})", markup=False, highlight=False)
        for one in answer.measured:
            if one.result is not None:
                console.print(f"    {_measured(one)}", markup=False, highlight=False)
