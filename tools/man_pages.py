"""Writes the man pages of the lab's commands from their declarations, to streamgauge.data/data/share/man/man1, from where the wheel installs them.
tests/test_man_pages.py tells when they are out of date.

    PYTHONPATH=python .venv/bin/python tools/man_pages.py
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from streamgauge.cli.app import app
from streamgauge.vocabulary.exit_status import MEANINGS
from streamgauge.vocabulary.version import version

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "streamgauge.data/data/share/man/man1"
NAME = "streamgauge"


def pages() -> dict[Path, str]:
    """Path -> text of every page."""
    group: Any = typer.main.get_command(app)
    found = {DIRECTORY / f"{NAME}.1": _overview(group)}
    for name, command in sorted(group.commands.items()):
        found[DIRECTORY / f"{NAME}-{name}.1"] = _page(f"{NAME} {name}", command)
    return found


def _overview(group: Any) -> str:
    lines = [
        *_head(NAME, _first(group.help)),
        ".SH SYNOPSIS",
        f".B {NAME}",
        r"\fICOMMAND\fR [\fIOPTIONS\fR]",
        ".SH COMMANDS",
    ]
    for name, command in sorted(group.commands.items()):
        lines += [".TP", rf"\fB{_roff(name)}\fR", _roff(_first(command.help))]
    lines += [
        *_statuses(),
        ".SH SEE ALSO",
        ", ".join(rf"\fB{NAME}\-{_roff(name)}\fR(1)" for name in sorted(group.commands)),
    ]
    return "\n".join(lines) + "\n"


def _page(name: str, command: Any) -> str:
    lines = _head(name.replace(" ", "-"), _first(command.help))
    inner = getattr(command, "commands", None)
    if inner:
        lines += [".SH SYNOPSIS", rf".B {_roff(name)}", r"\fICOMMAND\fR [\fIOPTIONS\fR]"]
        for each, below in sorted(inner.items()):
            lines += [
                ".SH " + _roff(f"{name} {each}").upper(),
                *_usage(f"{name} {each}", below),
                ".PP",
                _roff(_words(below.help)),
            ]
            lines += _parameters(below)
    else:
        lines += [
            ".SH SYNOPSIS",
            *_usage(name, command),
            ".SH DESCRIPTION",
            _roff(_words(command.help)),
            *_section(command),
        ]
    lines += [*_statuses(), ".SH SEE ALSO", rf"\fB{NAME}\fR(1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, about: str) -> list[str]:
    return [
        '.\\" Written by tools/man_pages.py from the declarations of the command line.',
        f'.TH "{_roff(name.upper())}" 1 "" "streamgauge {_roff(version())}" "streamgauge"',
        ".SH NAME",
        rf"{_roff(name)} \- {_roff(about)}",
    ]


def _usage(name: str, command: Any) -> list[str]:
    arguments = " ".join(
        rf"\fI{_roff(_metavar(one))}\fR" for one in command.params if one.param_type_name == "argument"
    )
    return [f".B {_roff(name)}", rf"[\fIOPTIONS\fR] {arguments}".strip()]


def _section(command: Any) -> list[str]:
    found = _parameters(command)
    return [".SH OPTIONS", *found] if found else []


def _parameters(command: Any) -> list[str]:
    lines = []
    for one in command.params:
        told = _words(getattr(one, "help", "") or "")
        if one.param_type_name == "argument":
            lines += [".TP", rf"\fI{_roff(_metavar(one))}\fR", _roff(told)]
        elif not getattr(one, "hidden", False):
            names = ", ".join(rf"\fB{_roff(name)}\fR" for name in (*one.opts, *one.secondary_opts))
            value = "" if one.is_flag else rf" \fI{_roff(_metavar(one))}\fR"
            lines += [".TP", f"{names}{value}", _roff(told)]
    return lines


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _statuses() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for status, meaning in MEANINGS.items():
        yield from (".TP", str(status.value), _roff(meaning))


def _first(text: str | None) -> str:
    """The first sentence, without its stop."""
    return re.split(r"(?<=\.)\s", _words(text or ""), maxsplit=1)[0].rstrip(".")


def _words(text: str) -> str:
    return " ".join(text.split())


def _roff(text: str) -> str:
    r"""Text that troff takes as it is: `\-` is the hyphen that can be copied, and no line begins with a command."""
    found = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{found}" if found.startswith((".", "'")) else found


if __name__ == "__main__":
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    written = pages()
    for old in DIRECTORY.glob("*.1"):
        if old not in written:
            old.unlink()
    for path, text in written.items():
        path.write_text(text, "utf-8")
