"""Why a system did not come back after a cut: its own words against it, or nothing that tells.

That it is not there in time may be the machine's fault. It counts against the system where its log, from the restart on, says that it cannot go on with
what it found, or where it ended by itself; not where it lacked a port, memory or room.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

KILLED = "SIGKILL"
NUMBERS = re.compile(r"[0-9]+")
LINES_MAX = 4
LINE_CHARACTERS_MAX = 300
ENVIRONMENT = re.compile(
    r"address already in use|EADDRINUSE|cannot assign requested address|cannot allocate memory|out ?of ?memory|no space left|too many open files|"
    r"eaddrinuse|another (process|instance)|unable to create (native )?thread",
    re.IGNORECASE,
)
"""What a machine lacks."""
LOUD = re.compile(
    r"\b(error|fatal|panic|severe|crash|critical|exception|refus|cannot|could not|failed)", re.IGNORECASE
)
DATA = re.compile(
    r"corrupt|\btorn\b|truncat|checksum|\bcrc\b|invalid (record|segment|entry|header|offset)|damage|recover|inconsisten|unclean|bad (record|block|magic)|"
    r"missing (file|segment|entry|ledger)|no such file|unexpected (eof|end)|journal|ledger|segment|snapshot|\bwal\b|state is",
    re.IGNORECASE,
)
"""What is about the data."""
GOES_ON = re.compile(
    r"(still|is) recovering|recovering stream state from index errored|rebuil[dt]", re.IGNORECASE
)
"""What a system says that is about to mend it: its check waits for that, and so must whoever judges it. NATS reads a stream anew when its index is older
than its messages, as after every kill."""


@dataclass(frozen=True)
class Silence:
    """A part that does not serve: how its process ended (None: it runs), and the lines of its log since it was started."""

    part: str
    ending: str | None
    lines: Sequence[str]


def refused(silent: Sequence[Silence]) -> list[str]:
    """What counts against the system, part by part: quoted lines, or how it ended. Empty where the machine may be to blame."""
    if any(ENVIRONMENT.search(line) for one in silent for line in one.lines):
        return []
    told = []
    for one in silent:
        about_data = [
            line for line in one.lines if LOUD.search(line) and DATA.search(line) and not GOES_ON.search(line)
        ]
        loud = [line for line in one.lines if LOUD.search(line)]
        if one.ending is not None and KILLED in one.ending:
            continue  # Nobody says so of himself: the kernel, for memory, or a person.
        if one.ending is not None:
            quoted = about_data or loud or list(one.lines)
            words = " / ".join(_short(line) for line in _distinct(quoted)[-LINES_MAX:]) or "it said nothing"
            told.append(f"{one.part} {one.ending}: {words}")
        elif about_data:
            told.append(
                f"{one.part}: {' / '.join(_short(line) for line in _distinct(about_data)[-LINES_MAX:])}"
            )
    return told


def _distinct(lines: Sequence[str]) -> list[str]:
    """Lines that say the same, their numbers aside, once: the first of them."""
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(NUMBERS.sub("", line), line)
    return list(found.values())


def _short(line: str) -> str:
    text = line.strip()
    return text if len(text) <= LINE_CHARACTERS_MAX else f"{text[:LINE_CHARACTERS_MAX]}..."
