"""The statements of publications beside what was measured, on a terminal and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.text import Text

from streamgauge.analysis.statements import Answer, Measured, answers
from streamgauge.model.durability import DurabilityReport
from streamgauge.model.durability_study import DurabilityStudyFile, disputed, parse_durability_study

TONES = {"holds": "good", "does not hold": "bad", "not shown": "warn"}
STYLES = {"holds": "bold green", "does not hold": "bold red", "not shown": "bold yellow"}


def answered(found: DurabilityReport) -> list[Answer]:
    """Every statement of a study; in other runs those that something measured has to do with."""
    if found.study is not None:
        return answers(written_of(found), found.results, found.study.left_out)
    told = answers(written_of(found), found.results)
    return [answer for answer in told if any(one.result is not None for one in answer.measured)]


def written_of(found: DurabilityReport) -> DurabilityStudyFile:
    """The study's file as the run was started with; of a run that is no study, the one that ships."""
    if found.study is not None:
        return parse_durability_study(found.study.text, found.study.file).written
    return disputed().written


def html(told: Sequence[Answer]) -> str:
    """A section; empty without an answer."""
    if not told:
        return ""
    items = "".join(_html_answer(answer) for answer in told)
    return f"<section><h2>What publications say, and what was measured</h2>{items}</section>"


def _html_answer(answer: Answer) -> str:
    written = answer.written
    by = escape(written.by)
    source = f'<a href="{escape(written.link)}" rel="noopener">{by}</a>' if written.link else by
    remark = f" <small>({escape(written.remark)})</small>" if written.remark else ""
    rows = "".join(f"<li>{escape(_measured(one))}</li>" for one in answer.measured if one.result is not None)
    return (
        f"<h3>&ldquo;{escape(written.statement)}&rdquo; <small>{source}</small></h3>"
        f'<p class="verdict {TONES[answer.verdict]}"><span><strong>{escape(answer.verdict.capitalize())}.</strong> '
        f"{escape(answer.why)}{remark}</span></p><ul>{rows}</ul>"
    )


def _measured(one: Measured) -> str:
    """System, setting, level: what the evidence is of."""
    result = one.result
    assert result is not None, "asked for what was measured alone"
    options = ", ".join(f"{key}: {value}" for key, value in sorted(result.options.items()))
    nodes = "1 node" if result.nodes == 1 else f"{result.nodes} nodes"
    ended = "" if result.status == "complete" else f"; {result.status}"
    return (
        f"{one.cell}: {result.system_title} {result.system_version}, {nodes}{f', {options}' if options else ''}; "
        f"declared {result.finding.declared or 'unknown'}, measured {result.finding.measured or 'not shown'}{ended}"
    )


def print_answers(told: Sequence[Answer], console: Console) -> None:
    """On a terminal."""
    for answer in told:
        console.print()
        console.print(Text(f'"{answer.written.statement}" ({answer.written.by})', style="bold"))
        line = Text(f"  {answer.verdict}", style=STYLES[answer.verdict])
        line.append(f": {answer.why}", style="none")
        console.print(line)
        if answer.written.remark:
            console.print(f"  ({answer.written.remark})", markup=False, highlight=False)
        for one in answer.measured:
            if one.result is not None:
                console.print(f"    {_measured(one)}", markup=False, highlight=False)
