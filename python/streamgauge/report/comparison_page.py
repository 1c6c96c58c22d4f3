"""The page of a comparison: the sentence first, then ratios with their margins, then what differs in settings and machines. One file, as a run's report.

All verdicts are those of report/comparison.py, which the terminal says, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.cells import Cell
from streamgauge.analysis.compare import Comparison
from streamgauge.analysis.match import ASKED, traits_of
from streamgauge.analysis.quiet_cells import share
from streamgauge.analysis.sides import Beside, Side
from streamgauge.report import colours, comparison, machines, words
from streamgauge.report.assets_of import page_script, policy
from streamgauge.report.forest import of_figures
from streamgauge.report.pages import inline
from streamgauge.report.pages import render as render_page
from streamgauge.report.run import pretty
from streamgauge.vocabulary.figures import title_of
from streamgauge.vocabulary.format import instant, joined, percent, plural
from streamgauge.vocabulary.levels import MEANINGS

SETTINGS_MAX = 400
"""Of so many settings each is shown."""
VALUE_MAX = 300
"""Characters of a setting."""
NOT_THERE = "-"


@dataclass(frozen=True)
class Settings:
    """Settings of cells beside each other; `differ` and `alike` are rows of a name and a value for each."""

    title: str
    heads: Sequence[str]
    differ: Sequence[tuple[str, ...]]
    alike: Sequence[tuple[str, ...]]
    left_out: int


def render(found: Sequence[Beside], comparisons: Sequence[Comparison], home: str = "") -> str:
    """The page as text. `comparisons`: of all pairs of `found`, in their order. `home`: where runs are listed, for a page that is served."""
    script = page_script()
    sides = [found[0].base, *(one.other for one in found)]
    groups = _groups(comparisons)
    cells = list({id(cell): cell for group in groups for cell in group}.values())
    shades = dict(zip(map(id, cells), colours.of(cell.first.system_title for cell in cells), strict=True))
    return render_page(
        "comparison.html",
        title=_title(sides),
        policy=inline(policy(script)),
        home=home,
        facts=[plural(len(sides), "side"), f"base: {_name(sides[0])}"],
        machines=machines.apart(sides),
        machine_rows=machines.rows(sides),
        machine_heads=[_name(side) for side in sides],
        comparisons=[_comparison(one, shades, alone=len(comparisons) == 1) for one in comparisons],
        cells=[_cell(cell, shades[id(cell)].css) for cell in cells],
        settings=[_settings(group) for group in groups],
        notes=list(dict.fromkeys(note for one in found for note in one.notes)),
        pairs=[
            (comparison.side(one.base), comparison.side(one.other), one.base.workload_name)
            for one in comparisons
        ],
        manifest=None,
        script=inline(script),
    )


def _title(sides: Sequence[Side]) -> str:
    names = [words.system_name(side.cells[0].first) for side in sides]
    base, others = names[0], list(dict.fromkeys(names[1:]))
    if set(names) == {base}:
        return f"{base}: {plural(len(sides), 'run')} beside each other"
    return f"{joined(others)} against {base}"


def _name(side: Side) -> str:
    """System and run."""
    systems = list(dict.fromkeys(words.system_name(cell.first) for cell in side.cells))
    return f"{joined(systems)} ({side.run_id})"


def _groups(comparisons: Sequence[Comparison]) -> list[list[Cell]]:
    """Each base with all that stands beside it."""
    groups: dict[int, list[Cell]] = {}
    for one in comparisons:
        groups.setdefault(id(one.base), [one.base]).append(one.other)
    return list(groups.values())


def _comparison(found: Comparison, shades: Mapping[int, colours.Colour], *, alone: bool) -> dict[str, Any]:
    colour = shades[id(found.other)].css
    heading = comparison.heading(found)
    rows = [(title_of(one.figure), *comparison.row(one)) for one in found.figures]
    return {
        "heading": heading,
        "verdict": comparison.verdict(found),
        "warnings": comparison.warnings(found),
        "colour": colour,
        "forest": of_figures(
            "Ratios" if alone else f"Ratios of {heading}", [("", one, colour) for one in found.figures]
        ),
        "titles": comparison.TITLES[1:],
        "rows": rows,
        "tones": [_tone(one.differs, row[-1]) for one, row in zip(found.figures, rows, strict=True)],
        "bounded": [(title_of(name), one.sentence) for name, one in found.bounded],
    }


def _tone(differs: bool, verdict: str) -> str:
    if not differs:
        return "plain"
    return "good" if verdict.endswith("(better)") else "bad"


def _cell(cell: Cell, colour: str) -> dict[str, Any]:
    first = cell.first
    level = first.durability.declared
    watched = any(trial.quiet is not None and trial.quiet.watched for trial in cell.trials)
    return {
        "name": comparison.side(cell),
        "colour": colour,
        "workload": f"{cell.workload_name}: {words.load(first.workload)}",
        "level": f"{level}: {MEANINGS[level]}" if level in MEANINGS else words.level(first),
        "started": instant(first.started_unix_ms),
        "validity": words.cell_validity(cell),
        "audit": words.cell_audit(cell),
        "disturbed": percent(share(cell), 1) if watched else "nothing watched",
        "run": first.run_id,
        "name_of_workload": cell.workload_name,
    }


def _settings(group: Sequence[Cell]) -> Settings:
    """What was asked and what the live systems said; what only systems of another kind have is no difference, and is left to their own reports."""
    found = [_traits(cell) for cell in group]
    live = [{key: _text(value) for key, value in cell.first.durability.settings.items()} for cell in group]
    if len({cell.first.system_title for cell in group}) > 1:
        common = set.intersection(*map(set, live))
        live = [{key: value for key, value in one.items() if key in common} for one in live]
    found = [
        asked | {f"{key} (read back)": value for key, value in one.items()}
        for asked, one in zip(found, live, strict=True)
    ]
    names = list(dict.fromkeys(name for one in found for name in one))
    rows = [(name, *(one.get(name, NOT_THERE) for one in found)) for name in names]
    differ = [row for row in rows if len(set(row[1:])) > 1]
    alike = [row for row in rows if len(set(row[1:])) == 1]
    kept = alike[: max(0, SETTINGS_MAX - len(differ))]
    return Settings(
        group[0].workload_name,
        [comparison.side(cell) for cell in group],
        differ[:SETTINGS_MAX],
        kept,
        len(rows) - len(differ[:SETTINGS_MAX]) - len(kept),
    )


def _traits(cell: Cell) -> dict[str, str]:
    return {
        name.removeprefix(ASKED).replace("_", " "): _text(value) for name, value in traits_of(cell).items()
    }


def _text(value: Any) -> str:
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else pretty(value)
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}..."
