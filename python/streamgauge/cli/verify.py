"""`streamgauge verify`: whether results can be what was measured."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from streamgauge.analysis.verify.rules import Grade, Verification
from streamgauge.cli.carry_out import ended
from streamgauge.cli.outputs import Outputs
from streamgauge.cli.passed_on import opened
from streamgauge.report.verification import as_json, lines
from streamgauge.vocabulary.exit_status import ExitStatus, most_urgent

STATUSES: dict[Grade, ExitStatus] = {
    "verified": ExitStatus.DONE,
    "consistent": ExitStatus.DONE,
    "not verifiable": ExitStatus.GATE_UNDECIDED,
    "contradicted": ExitStatus.INVALID,
}


def verify(results: list[str], json: str | None, out: Path) -> None:
    """The work of commands/verify.py."""
    outputs = Outputs(json)
    outputs.check()
    console = Console(stderr=outputs.on_stdout)
    found: list[tuple[str, Verification]] = []
    with opened(results, out) as passed_on:
        for one in passed_on:
            verification = one.verified()
            found.append((one.asked, verification))
            for line in lines(one.asked, verification):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    outputs.write({"results": [as_json(asked, one) for asked, one in found]})
    raise typer.Exit(ended(most_urgent(STATUSES[one.grade] for _, one in found)))
