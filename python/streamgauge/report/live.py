"""The page that shows a run while it goes on: the report's plots with what is known so far.

Everything here is a value: cli/watch_page.py keeps what is told to it, and asks for points, sentences and the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.analysis.intervals import Intervals, Row
from streamgauge.analysis.study_outcome import read_outcome
from streamgauge.model.percentiles import CURVE_STEPS_PER_DECADE, curve
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Headline
from streamgauge.report import charts, verdict_words
from streamgauge.report.answer import answer
from streamgauge.report.assets_of import CHART_SCRIPTS, asset
from streamgauge.report.glossary import TERMS
from streamgauge.report.pages import inline
from streamgauge.report.pages import render as render_page
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import is_study, read_plan
from streamgauge.vocabulary.histograms import Histogram, merge
from streamgauge.vocabulary.phases import EXTRA_READER, MEASURE

_BODY = re.compile(rb"(?<=<body>)")
STYLES = ("uPlot.min.css", "report.css", "live.css")


@dataclass(frozen=True)
class Point:
    """One interval in the charts over time."""

    values: Mapping[str, float | None]
    """`time`, and the series of the report's data island (charts.over_time)."""
    away: Sequence[Sequence[float]]
    """[from, until] in which a CPU was not to be had."""


def point(intervals: Intervals, resources: list[Row], headline: Headline, load_end_s: float) -> Point:
    """What one interval adds to the charts. `load_end_s`: where the schedule ended, infinite before that is known."""
    extra = EXTRA_READER in intervals.subscriptions()
    lined_up = charts.on_one_axis(intervals, resources, extra=extra)
    values: dict[str, float | None] = {
        "time": charts.rounded(float(lined_up.start_s[0] + lined_up.duration_s[0] / 2))
    }
    for name, (value,) in charts.over_time(lined_up, headline, load_end_s).items():
        values[name] = value
    return Point(values, charts.away(intervals))


class Curves:
    """Latency by percentile, of the messages of the measured phase so far."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Histogram, int]] = {}
        self._told: dict[str, list[float | None]] | None = None
        """Made when somebody asks, and then for all who do."""

    def add(self, intervals: Intervals, headline: Headline) -> None:
        """Adds what an interval has of the measured phase."""
        for name, metric in (("publish", headline), ("end_to_end", "end_to_end")):
            of = intervals.without(EXTRA_READER) if name == "end_to_end" else intervals
            found = of.histogram(metric, MEASURE)
            if not found.count:
                continue
            before, negative = self._found.get(name, (None, 0))
            negative += of.beyond("end_to_end", MEASURE).negative if name == "end_to_end" else 0
            self._found[name] = (found if before is None else merge([before, found]), negative)
            self._told = None

    def told(self) -> dict[str, list[float | None]]:
        """As in the report's data island."""
        if self._told is None:
            self._told = {
                name: [charts.rounded(value) for value in curve(*self._found[name])]
                if name in self._found
                else []
                for name in ("publish", "end_to_end")
            }
        return self._told


def empty_island() -> dict[str, Any]:
    """The data island before anything is known."""
    return {
        "workloads": [],
        "subjects": [],
        "trials": [],
        # What systems tell of themselves is read when the trial is over.
        "own": [],
        "ownSpared": [],
        "stepsPerDecade": CURVE_STEPS_PER_DECADE,
        "live": True,
    }


def so_far(directory: Path, results: Sequence[TrialResult]) -> list[str]:
    """What can be said by now: the first sentence of the report, or of a study its claims. Raises InputError for a run that cannot be read."""
    if not results:
        return []
    if is_study(directory):
        manifest = RunDirectory(directory).read_manifest()
        outcome = read_outcome(directory, read_plan(directory), manifest, results)
        claims = [
            f"{verdict_words.TITLES[one.verdict]}: {one.claim.claim}"
            for one in outcome.asked
            if not outcome.outside(one)
        ]
        return [f"{verdict_words.counted(outcome)}, so far.", *claims]
    if len({one.workload.name for one in results}) == 1:
        return [answer(results)]
    names = dict.fromkeys(one.workload.name for one in results)
    return [f"{name}: {answer([one for one in results if one.workload.name == name])}" for name in names]


def page() -> str:
    """The page; it fetches what it shows (assets/live.js)."""
    return render_page(
        "live.html",
        title="Live",
        policy=inline(
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'"
        ),
        terms=TERMS,
        data=inline(charts.island(empty_island())),
    )


def scripts() -> str:
    """All scripts of the page, in the order in which they build on each other."""
    licence = asset("uPlot.LICENSE").replace("*/", "")
    return "\n".join(
        [
            f"/* uPlot:\n{licence}\n*/",
            asset("uPlot.iife.min.js"),
            *map(asset, CHART_SCRIPTS),
            asset("live.js"),
        ]
    )


def styles() -> str:
    """All styles of the page."""
    return "\n".join(map(asset, STYLES))


def served(report: bytes, shown_path: str) -> bytes:
    """A report as the lab serves it: above it stands where the file is."""
    told = render_page("served.html", path=shown_path)
    return _BODY.sub(lambda _: b"\n" + told.encode(), report, count=1)
