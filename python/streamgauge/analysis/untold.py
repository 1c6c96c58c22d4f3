"""What workers that are not ours do not tell is absent from a result, and not 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamgauge.analysis.intervals import Row, total


def told(rows: Sequence[Row], column: str) -> bool:
    """Whether any row has a value; no row at all tells that there was nothing."""
    return not rows or any(row[column] is not None for row in rows)


def told_total(rows: Sequence[Row], column: str) -> int | None:
    """Sum of a whole-number column; None where nobody told it."""
    return total(rows, column) if told(rows, column) else None


def told_max(rows: Sequence[Row], column: str) -> int | None:
    """Largest value of a whole-number column; None where nobody told it."""
    return max((int(row[column] or 0) for row in rows), default=0) if told(rows, column) else None


def remarks(finish: Mapping[str, Any] | None) -> list[str]:
    """What the workers have to say of how they measured, a sentence each."""
    found = (finish or {}).get("remarks")
    return [str(one) for one in found] if isinstance(found, list) else []
