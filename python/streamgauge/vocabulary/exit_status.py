"""Exit statuses of the `streamgauge` program: one list, which every command uses, `--help` prints and docs/exit-status.md explains."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitStatus(IntEnum):
    """What became of a command, for scripts."""

    DONE = 0
    INVALID = 1
    WRONG_INPUT = 2
    FAILED = 3
    GATE_FAILED = 4
    GATE_UNDECIDED = 5
    LOST = 6
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    """Whoever read the output has left (128 + SIGPIPE), as for any program in a pipe."""


MEANINGS = {
    ExitStatus.DONE: "done; no trial is invalid, every gate has passed",
    ExitStatus.INVALID: "a trial is invalid",
    ExitStatus.WRONG_INPUT: "the input is wrong",
    ExitStatus.FAILED: "a system or a worker has failed",
    ExitStatus.GATE_FAILED: "a gate has failed (--fail-if)",
    ExitStatus.GATE_UNDECIDED: "a gate is undecided (--undecided pass: 0 instead)",
    ExitStatus.LOST: "the audit found that acknowledged messages were lost",
    ExitStatus.INTERRUPTED: "stopped by the user",
}

PRECEDENCE = (
    ExitStatus.INTERRUPTED,
    ExitStatus.WRONG_INPUT,
    ExitStatus.LOST,
    ExitStatus.FAILED,
    ExitStatus.GATE_FAILED,
    ExitStatus.INVALID,
    ExitStatus.GATE_UNDECIDED,
)
"""Where several apply. What the run has shown about the system comes before what it could not show: messages that are lost stay lost when another trial
fails, and a gate that failed on valid trials is not excused by an invalid one. So a script that tries again after 1, 3 or 5 hides no finding."""

EPILOG = "\n".join(
    (
        "\b",
        "Exit status (docs/exit-status.md):",
        *(f"  {status.value:>3}  {meaning}" for status, meaning in MEANINGS.items()),
        "Where several apply: " + " before ".join(str(status.value) for status in PRECEDENCE) + ".",
    )
)
"""The list below the help of a command; the first line keeps click from filling the lines anew."""


def most_urgent(statuses: Iterable[ExitStatus]) -> ExitStatus:
    """The one of them that a command ends with."""
    found = set(statuses)
    return next((status for status in PRECEDENCE if status in found), ExitStatus.DONE)
