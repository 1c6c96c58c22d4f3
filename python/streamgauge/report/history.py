"""A figure over many runs, in words and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamgauge.analysis.history import History
from streamgauge.report.gates import cell_text, junit_suite, markdown_table, with_unit
from streamgauge.vocabulary.figures import higher_is_better, unit_of
from streamgauge.vocabulary.format import instant, significant

TITLES = ("started", "run", "trials", "median", "95 % interval", "")


def rows(history: History, figure: str) -> list[tuple[str, ...]]:
    """A line of a table (TITLES) for each run, oldest first."""
    changes = {change.at: change for change in history.changes}
    found: list[tuple[str, ...]] = []
    for at, point in enumerate(history.points):
        interval = "-"
        if point.interval is not None:
            interval = f"{significant(point.interval[0])} - {significant(point.interval[1])}"
        change = changes.get(at)
        mark = ""
        if change is not None:
            mark = f"<- changes: {significant(change.before)} to {significant(change.after)}"
        trials = f"{point.trials}" + ("" if point.valid else " (invalid)")
        started = instant(point.started_unix_ms)
        found.append((started, point.run_id, trials, with_unit(point.median, figure, 4), interval, mark))
    return found


def markdown(histories: Sequence[History], figure: str, workload: str) -> str:
    """A heading, a table and a sentence for each system."""
    parts = []
    for one in histories:
        table = markdown_table(TITLES, [[cell_text(text) for text in row] for row in rows(one, figure)])
        parts += [f"### {cell_text(f'{figure} of {workload} on {one.title}')}", table, cell_text(one.summary)]
    return "\n\n".join(parts) + "\n"


def junit(histories: Sequence[History], figure: str, workload: str) -> str:
    """A test case for each system: one whose level last changed for the worse is a failure, one with too few runs is left undecided, as an error."""
    cases = [(f"{workload}, {one.title}", figure, _kind(one, figure), one.summary) for one in histories]
    return junit_suite("history", cases)


def as_json(history: History, figure: str) -> dict[str, Any]:
    """All points and changes, with numbers as they are."""
    return {
        "of": history.title,
        "figure": figure,
        "unit": unit_of(figure) or None,
        "runs": [
            {
                "run": point.run_id,
                "started_unix_ms": point.started_unix_ms,
                "trials": point.trials,
                "valid": point.valid,
                "median": point.median,
                "interval_95": None if point.interval is None else list(point.interval),
            }
            for point in history.points
        ],
        "changes": [
            {"run": history.points[one.at].run_id, "before": one.before, "after": one.after}
            for one in history.changes
        ],
        "summary": history.summary,
    }


def _kind(history: History, figure: str) -> str | None:
    if not history.enough:
        return "error"
    if not history.changes:
        return None
    last = history.changes[-1]
    return None if (last.after > last.before) == higher_is_better(figure) else "failure"
