"""A site of results: files alone, which work from a disk as well as from a web server, and ask nothing of any network.

    index.html                      all results, narrowed by filters; what is ticked is compared
    compare.html                    any of them beside each other: what differs in the machines first, then ratios, then settings
    runs/RUN/report.html            the report of a run, and RUN.streamgauge.zip beside it, from which it was made
    workloads/NAME.html             a workload over versions and time
    studies/NAME.html               the runs of a study

All pairs are compared ahead, by the engine of `streamgauge compare`, and drawn by the same templates; a script of the page only shows those that are picked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.compare import compare
from streamgauge.analysis.history import History, histories_of
from streamgauge.analysis.machine_class import machine_class
from streamgauge.analysis.match import ASKED, traits_of
from streamgauge.analysis.sides import Side, beside
from streamgauge.analysis.verify.rules import Verification
from streamgauge.model.result import Manifest
from streamgauge.report import charts, colours, comparison, history_page, html, machines, study_page, words
from streamgauge.report.assets_of import asset, policy
from streamgauge.report.forest import of_figures
from streamgauge.report.pages import inline
from streamgauge.report.pages import render as render_page
from streamgauge.report.quiet_words import latency_text
from streamgauge.report.run import Run, pretty, read_run
from streamgauge.report.verdict_words import counted
from streamgauge.report.verification import MEANINGS, broken
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import is_study
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.figures import title_of
from streamgauge.vocabulary.format import instant, plural, significant

SIDES_MAX = 40
"""So many results are compared with each other: 780 pairs. Of more, the newest."""
VALUE_CHARACTERS_MAX = 200
FIGURE = "publish_ms.p99"
"""Over time."""
FILTERS = ("system", "version", "level", "workload", "machine", "grade")
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Published:
    """A result of the site."""

    directory: RunDirectory
    """Of what is passed on: nothing else is read."""
    manifest: Manifest
    run: Run
    verification: Verification
    file: str
    """Name of the packed file."""

    @functools.cached_property
    def counted(self) -> Run:
        """The run without what only heated a start of a system."""
        if not is_study(self.directory.path):
            return self.run
        heating = {cell.cell for cell in study_page.outcome_of(self.run).plan.cells if cell.heats}
        kept = [
            (result, directory)
            for result, directory in zip(self.run.results, self.run.directories, strict=True)
            if result.workload.name not in heating
        ]
        results, directories = tuple(one for one, _ in kept), tuple(one for _, one in kept)
        return dataclasses.replace(self.run, results=results, directories=directories)

    @property
    def place(self) -> str:
        """Of its directory, from the site's top."""
        return f"runs/{safe(self.manifest.run_id)}"

    @property
    def machine(self) -> str:
        """The class of its machine."""
        return machine_class(self.manifest.host, self.manifest.probes)


def read(directory: RunDirectory, verification: Verification, file: str) -> Published:
    """A result that is to be published. Raises InputError."""
    run = read_run(directory.path)
    if run.manifest is None or not run.results:
        raise InputError(
            f"{directory.path}: holds no results of streamgauge; expected a run with trials that ended"
        )
    return Published(directory, run.manifest, run, verification, file)


def safe(name: str) -> str:
    """A name as that of a file."""
    return _SAFE.sub("-", name).strip("-.")[:120] or "unnamed"


def pages(found: Sequence[Published]) -> Iterator[tuple[str, str]]:
    """Path from the site's top and text of every page but the reports of single results."""
    found = sorted(found, key=lambda one: (one.manifest.started_unix_ms, one.manifest.run_id))
    sides = _sides(found)
    workloads = sorted({cell.first.workload.name for one in found for cell in one.counted.cells})
    studies = _studies(found)
    yield "index.html", _index(found, sides, workloads, sorted(studies))
    yield "compare.html", _compare(sides)
    for name in workloads:
        yield f"workloads/{safe(name)}.html", history_page.render(_histories(found, name), FIGURE, name)
    for name, runs_of in studies.items():
        yield f"studies/{safe(name)}.html", _study(name, runs_of)


def _histories(found: Sequence[Published], workload: str) -> list[History]:
    """None where no run knows the figure: on a machine that was never quiet its trials give bounds."""
    with contextlib.suppress(InputError):
        return histories_of([one.directory for one in found], workload, FIGURE, place="the site")
    return []


def reports(one: Published) -> Iterator[tuple[str, str]]:
    """The same of a result's own pages."""
    if is_study(one.directory.path):
        yield f"{one.place}/report.html", study_page.render(one.run)
        yield f"{one.place}/{study_page.TRIALS_NAME}", html.render(one.run)
    else:
        yield f"{one.place}/report.html", html.render(one.run)


@dataclass(frozen=True)
class _Side:
    """What can be picked: one system of a run."""

    of: Published
    side: Side
    number: int

    @property
    def name(self) -> str:
        first = self.side.cells[0].first
        levels = sorted({cell.first.durability.declared or "level unknown" for cell in self.side.cells})
        return f"{words.system_name(first)}, {', '.join(levels)}, {instant(self.of.manifest.started_unix_ms)}"


def _sides(found: Sequence[Published]) -> list[_Side]:
    sides = []
    for one in found:
        complete = cells([result for result in one.counted.results if result.status == "complete"])
        for system in dict.fromkeys(cell.first.system for cell in complete):
            mine = tuple(cell for cell in complete if cell.first.system == system)
            sides.append((one, Side(one.manifest.run_id, one.manifest.run_id, one.manifest, mine)))
    return [_Side(one, side, number) for number, (one, side) in enumerate(sides)]


def _index(
    found: Sequence[Published], sides: Sequence[_Side], workloads: Sequence[str], studies: Sequence[str]
) -> str:
    script = asset("study.js") + asset("site.js")
    rows = [_row(one, cell, sides) for one in reversed(found) for cell in one.counted.cells]
    return render_page(
        "site.html",
        title="Results",
        policy=inline(policy(script)),
        rows=rows,
        choices={name: sorted({row["values"][name] for row in rows}) for name in FILTERS},
        runs=plural(len(found), "run"),
        workloads=[(name, f"workloads/{safe(name)}.html") for name in workloads],
        studies=[(name, f"studies/{safe(name)}.html") for name in studies],
        meanings=MEANINGS,
        manifest=None,
        script=inline(script),
    )


def _row(one: Published, cell: Cell, sides: Sequence[_Side]) -> dict[str, Any]:
    first = cell.first
    middle = cell.middle(lambda result: result.headline_ms.p99)
    side = next(
        (each.number for each in sides if each.of is one and each.side.cells[0].first.system == first.system),
        None,
    )
    unmet = [requirement.sentence for requirement in one.verification.publishing if not requirement.met]
    return {
        "values": {
            "system": first.system_title,
            "version": first.system_version,
            "level": first.durability.declared or "not known",
            "workload": first.workload.name,
            "machine": one.machine,
            "grade": one.verification.grade,
        },
        "side": side,
        "run": one.manifest.run_id,
        "place": one.place,
        "file": f"{one.place}/{one.file}",
        "started": instant(one.manifest.started_unix_ms),
        "load": words.load(first.workload),
        "p99": latency_text(cell, f"{first.headline}_ms", "p99"),
        "within": f"{significant(middle.bounds[0])} to {significant(middle.bounds[1])}"
        if middle and middle.trials > 1
        else "",
        "rate": significant(cell.median(lambda result: result.standing_rate("publish_rate_msgs_s"))),
        "validity": words.cell_validity(cell),
        "audit": words.cell_audit(cell),
        "tone": {"verified": "good", "consistent": "good", "not verifiable": "warn"}.get(
            one.verification.grade, "bad"
        ),
        "broken": broken(one.verification),
        "unmet": unmet,
    }


def _compare(sides: Sequence[_Side]) -> str:
    script = asset("study.js") + asset("compare.js")
    kept = sides[-SIDES_MAX:]
    pairs = [
        made for left, right in itertools.combinations(kept, 2) if (made := _pair(left, right)) is not None
    ]
    data = {"sides": [_told(one) for one in kept]}
    return render_page(
        "site_compare.html",
        title="Results beside each other",
        policy=inline(policy(script)),
        sides=[(one.number, one.name, one.of.machine, one.of.verification.grade) for one in reversed(kept)],
        left_out=len(sides) - len(kept),
        most=SIDES_MAX,
        titles=comparison.TITLES,
        pairs=pairs,
        data=inline(charts.island(data)),
        manifest=None,
        script=inline(script),
    )


def _told(one: _Side) -> dict[str, Any]:
    """What stands beside that of others: the machine, and settings by their names."""
    settings: dict[str, str] = {}
    for cell in one.side.cells:
        several = f"{cell.workload_name}: " if len(one.side.cells) > 1 else ""
        told = {name.removeprefix(ASKED).replace("_", " "): value for name, value in traits_of(cell).items()}
        told |= {f"{name} (read back)": value for name, value in cell.first.durability.settings.items()}
        settings |= {f"{several}{name}": _text(value) for name, value in told.items()}
    return {
        "number": one.number,
        "name": one.name,
        "machine": {"class": one.of.machine, **{row[0]: row[1] for row in machines.rows([one.side])}},
        "settings": settings,
        "grade": one.of.verification.grade,
        "report": f"{one.of.place}/report.html",
    }


def _text(value: Any) -> str:
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else pretty(value)
    return text[:VALUE_CHARACTERS_MAX]


def _pair(left: _Side, right: _Side) -> dict[str, Any] | None:
    """Two sides, compared; None where they have no workload in common, or it is not clear which cell belongs beside which."""
    try:
        matched = beside(left.side, right.side)
    except InputError:
        return None
    colour = colours.of([right.side.cells[0].first.system_title])[0].css
    return {
        "left": left.number,
        "right": right.number,
        "comparisons": [
            {
                "heading": comparison.heading(found),
                "verdict": comparison.verdict(found),
                "warnings": comparison.warnings(found),
                "forest": of_figures(
                    f"Ratios of {comparison.heading(found)}", [("", one, colour) for one in found.figures]
                ),
                "rows": [(title_of(one.figure), *comparison.row(one)[1:]) for one in found.figures],
                "colour": colour,
            }
            for found in (compare(base, other) for base, other in matched.pairs)
        ],
        "notes": matched.notes,
    }


def _studies(found: Sequence[Published]) -> dict[str, list[Published]]:
    studies: dict[str, list[Published]] = {}
    for one in found:
        if is_study(one.directory.path):
            studies.setdefault(study_page.outcome_of(one.run).study.title, []).append(one)
    return studies


def _study(name: str, runs: Sequence[Published]) -> str:
    script = asset("study.js")
    return render_page(
        "site_study.html",
        title=name,
        policy=inline(policy(script)),
        rows=[
            (
                one.manifest.run_id,
                f"../{one.place}/report.html",
                instant(one.manifest.started_unix_ms),
                one.machine,
                _verdicts(one.run),
                one.verification.grade,
            )
            for one in reversed(runs)
        ],
        manifest=None,
        script=inline(script),
    )


def _verdicts(run: Run) -> str:
    return str(counted(study_page.outcome_of(run)))
