"""Where a problem of a workload is shown: at the option or at the line that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.model.document import Document, Location
from streamgauge.model.overrides import Overrides
from streamgauge.vocabulary.errors import Problem


class Refusals:
    """Collects problems at the option that set a value, or else at the line of the file's key."""

    def __init__(self, document: Document, overrides: Overrides, problems: list[Problem]) -> None:
        self._document = document
        self._overrides = overrides
        self._problems = problems

    def __call__(self, message: str, *keys: str, option: str | None = None, override: Any = None) -> None:
        if option is not None and override is not None:
            self._problems.append(Problem(f"{option} {message}"))
            return
        present = [key for key in keys if self._find(key) is not None]
        location = self._find(present[0]) if present else ()
        self._problems.append(self._document.problem(message, location or ()))

    def _find(self, dotted: str) -> Location | None:
        node: Any = self._document.values
        location = tuple(dotted.split("."))
        for step in location:
            if not isinstance(node, Mapping) or step not in node:
                return None
            node = node[step]
        return location
