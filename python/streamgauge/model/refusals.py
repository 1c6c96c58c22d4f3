"""Where a problem of a workload is shown: at the option or at the line that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.model.document import Document, Location
from streamgauge.vocabulary.errors import Problem


class Refusals:
    """Collects problems at the first of some keys that is there: at the line of the file, or at the option that has set it."""

    def __init__(self, document: Document, problems: list[Problem]) -> None:
        self._document = document
        self._problems = problems

    def __call__(self, message: str, *keys: str) -> None:
        present = [key for key in keys if self._find(key) is not None]
        location = self._find(present[0]) if present else ()
        self._problems.append(self._document.problem(message, location or ()))

    def is_set(self, key: str) -> bool:
        """Whether the value of a key is an option's."""
        return self._document.is_set(tuple(key.split(".")))

    def _find(self, dotted: str) -> Location | None:
        node: Any = self._document.values
        location = tuple(dotted.split("."))
        for step in location:
            if not isinstance(node, Mapping) or step not in node:
                return None
            node = node[step]
        return location
