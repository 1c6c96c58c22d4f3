"""What is answered: the list, a comparison, a history, a report as it is."""

from __future__ import annotations

import threading
from urllib.parse import quote

from streamgauge.analysis.compare import compare
from streamgauge.analysis.history import histories
from streamgauge.analysis.sides import Side, beside, side_of, sides_of
from streamgauge.report import comparison_page, history_page
from streamgauge.report.assets_of import page_script, policy
from streamgauge.report.html import REPORT_NAME
from streamgauge.report.pages import inline, render
from streamgauge.report.study_page import TRIALS_NAME
from streamgauge.serve.shelf import FILTERS, Entry, Shelf, Wanted
from streamgauge.store.opened import read_bytes
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.figures import DEFAULT_FIGURE, check_figure
from streamgauge.vocabulary.format import instant, plural
from streamgauge.web.access import REPORT
from streamgauge.web.server import HTML, Answer, Asked

SIDES_MAX = 8
SHOWN_MAX = 200
"""Runs of one page; filters find the others."""
REPORT_BYTES_MAX = 64 << 20
REPORTS = (REPORT_NAME, TRIALS_NAME)


class Pages:
    """The pages of a directory of runs. May be used by several threads."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._computing = threading.Lock()

    def answer(self, asked: Asked) -> Answer:
        """To a reader who may ask."""
        try:
            if asked.path == "/":
                return self._list(asked.query)
            if asked.path == "/compare":
                return self._compare(asked.every("side"))
            if asked.path == "/history":
                return self._history(asked.query)
            if asked.path.startswith("/runs/"):
                return self._report(asked.path.removeprefix("/runs/"))
        except InputError as error:
            return self.refused(400, str(error))
        return self.refused(404, "there is no such page")

    def refused(self, status: int, why: str) -> Answer:
        """A page that says why there is nothing to see."""
        return _page(status, render("refused.html", **_frame(f"{status}: not shown"), why=why))

    def _list(self, query: dict[str, str]) -> Answer:
        def one(name: str) -> str:
            return query.get(name, "").strip()

        entries = self._shelf.entries()
        wanted = Wanted({name: one(name) for name in FILTERS}, one("since"), one("until"), one("search"))
        found = [entry for entry in entries if wanted.fits(entry)]
        choices = {
            name: sorted({value for entry in entries for value in entry.values(name)}) for name in FILTERS
        }
        page = render(
            "shelf.html",
            **_frame(f"Runs in {self._shelf.directory.name or self._shelf.directory}"),
            choices=choices,
            wanted=wanted,
            rows=[_row(entry) for entry in found[:SHOWN_MAX]],
            count=plural(len(found), "run"),
            all=plural(len(entries), "run"),
            more=max(0, len(found) - SHOWN_MAX),
        )
        return _page(200, page)

    def _compare(self, asked: list[str]) -> Answer:
        if not asked:
            raise InputError("nothing is ticked: expected two runs or more, or a run of two systems or more")
        if len(asked) > SIDES_MAX:
            raise InputError(f"{len(asked)} sides: expected {SIDES_MAX} at most")
        sides = []
        for text in asked:
            name, _, system = text.partition("/")
            run = self._shelf.open(name)
            if run is None:
                raise InputError(f"no run '{name}' in {self._shelf.directory}")
            side = side_of(run, name)
            sides.append(side.only(system) if system else side)
            if not sides[-1].cells:
                raise InputError(f"{name} measured no system '{system}'")
        # One at a time: it computes, and whoever clicks twice must not take every core.
        with self._computing:
            found = sides_of(sorted(sides, key=_age))
            matched = [beside(found[0], other) for other in found[1:]]
            compared = [compare(*pair) for one in matched for pair in one.pairs]
            return _page(200, comparison_page.render(matched, compared, home="/"))

    def _history(self, query: dict[str, str]) -> Answer:
        workload = query.get("workload", "").strip()
        if not workload:
            raise InputError(
                "no workload is named: expected /history?workload=NAME, as the list of runs links to"
            )
        figure = check_figure(query.get("figure", "").strip() or DEFAULT_FIGURE)
        with self._computing:
            found = histories(self._shelf.directory, workload, figure)
            return _page(200, history_page.render(found, figure, workload, home="/"))

    def _report(self, rest: str) -> Answer:
        name, _, file = rest.partition("/")
        run = self._shelf.open(name)
        if run is None:
            return self.refused(404, f"no run '{name}' in {self._shelf.directory}")
        if not file:
            return Answer(b"", status=302, location=f"/runs/{quote(name, safe='')}/{REPORT_NAME}")
        if file not in REPORTS:
            return self.refused(404, "of a run its reports alone are served")
        if not (run.path / file).is_file():
            return self.refused(404, f"{name} has no {file} (yet): streamgauge report {name} makes it")
        return Answer(read_bytes(run.path / file, REPORT_BYTES_MAX), HTML, policy=REPORT)


def _age(side: Side) -> int:
    """The oldest is the base: what came later is compared with what was."""
    return side.cells[0].first.started_unix_ms


def _frame(title: str) -> dict[str, object]:
    """What every page of ours has."""
    script = page_script()
    return {
        "title": title,
        "policy": inline(_policy(script)),
        "script": inline(script),
        "manifest": None,
    }


def _policy(script: str) -> str:
    return policy(script, forms="'self'")


def _page(status: int, text: str) -> Answer:
    told = f"{_policy(page_script())}; frame-ancestors 'none'"
    return Answer(text.encode("utf-8"), HTML, status, told)


def _row(entry: Entry) -> dict[str, object]:
    return {
        "entry": entry,
        "started": instant(entry.started_unix_ms),
        "several": len(entry.systems) > 1,
        "trials": plural(entry.trials, "trial"),
    }
