"""What a command has found, for programs and pages: `--json`, `--markdown`, `--junit` and `--html`; and the gates on it, as they were asked for."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.cli.options import Undecided
from streamgauge.vocabulary.errors import InputError, Problem
from streamgauge.vocabulary.format import joined


@dataclass(frozen=True)
class Outputs:
    """Where a finding is written, besides the screen."""

    json: str | None = None
    markdown: str | None = None
    junit: str | None = None
    html: str | None = None

    @property
    def on_stdout(self) -> bool:
        """Whether standard output is for one of them; what people read then goes to standard error."""
        return "-" in self._targets.values()

    @property
    def any(self) -> bool:
        """Whether something is written at all."""
        return any(self._targets.values())

    @property
    def _targets(self) -> dict[str, str | None]:
        return {"--json": self.json, "--markdown": self.markdown, "--junit": self.junit, "--html": self.html}

    def check(self) -> None:
        """Before anything is started. Raises InputError."""
        problems = []
        if sum(target == "-" for target in self._targets.values()) > 1:
            problems.append(Problem(f"of {joined(list(self._targets))} only one can have standard output"))
        for option, target in self._targets.items():
            if target not in (None, "-") and (
                Path(str(target)).is_dir() or not Path(str(target)).parent.is_dir()
            ):
                problems.append(
                    Problem(f"{option} {target}: expected a file in a directory that exists, or -")
                )
        if problems:
            raise InputError(problems)

    def write(self, document: dict[str, Any], markdown: str = "", junit: str = "", html: str = "") -> None:
        """Writes one finding in all forms that were asked for. Raises OSError."""
        for target, text in (
            (self.json, json.dumps(document, indent=1, ensure_ascii=False) + "\n"),
            (self.markdown, markdown),
            (self.junit, junit),
            (self.html, html),
        ):
            if target == "-":
                sys.stdout.write(text)
            elif target is not None:
                Path(target).write_text(text, encoding="utf-8")


ON_SCREEN = Outputs()
"""Nowhere besides."""


@dataclass(frozen=True)
class Asked:
    """Gates as they were asked for; texts are not yet read."""

    fail_if: tuple[str, ...] = ()
    baseline: str | None = None
    undecided: Undecided | None = None
    outputs: Outputs = ON_SCREEN
