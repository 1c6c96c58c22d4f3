"""`--live` and `--metrics`: what the lab serves while it works, from the first moment until its report is there."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from streamgauge.cli.pages import Pages
from streamgauge.cli.watch_feed import Feed
from streamgauge.cli.watch_metrics import MetricsObserver
from streamgauge.cli.watch_page import PageObserver
from streamgauge.report import live, openmetrics
from streamgauge.report.html import REPORT_NAME
from streamgauge.report.study_page import TRIALS_NAME
from streamgauge.runner import machine
from streamgauge.runner.observer import Observer
from streamgauge.vocabulary.waiting import wait_until
from streamgauge.web.access import OWN_PAGE, REPORT, Access
from streamgauge.web.server import HTML, JSON, NOT_FOUND, Answer, Asked, PageServer

HOLD_S = 10.0
"""So long a viewer's question waits for something new."""
CROWDED_HOLD_S = 1.0
"""The same where many look: who holds a connection keeps it from others."""
VIEWER_GONE_S = HOLD_S + 5.0
"""A viewer who has not asked for so long is not waited for."""
LAST_LOOK_S = 10.0
"""At the end viewers get so long to fetch the report."""
LAST_SCRAPE_S = 16.0
"""At the end a scraper gets as long as it took between its last two scrapes, and no longer than this, to fetch the last figures."""
SCRAPE_SLACK_S = 1.0
VIEWERS_MAX = 256
POLL_S = 0.05
NO_REPORT = Answer(b"there is no report yet\n", status=404)

Route = Callable[[Asked], Answer]


class Watching:
    """Serves until it is left; a context manager. What it is told goes to `observers`."""

    def __init__(self, pages: Pages) -> None:
        """Begins to listen and says where. Raises InputError where that cannot be."""
        self._page = PageObserver(machine.cores()) if pages.live is not None else None
        self._metrics = MetricsObserver() if pages.metrics is not None else None
        self._viewers = _Viewers()
        self._scrapes = _Scrapes()
        self._report: Path | None = None
        self._servers: list[PageServer] = []
        self._over = False
        try:
            self._open(pages)
        except BaseException:
            self._stop()
            raise
        told = [one for one in (self._page, self._metrics) if one is not None]
        self.observers: list[Observer] = [Feed(told)] if told else []

    def __enter__(self) -> Watching:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets those who look see the end, and ends."""
        try:
            if kind is None and self._over:
                with contextlib.suppress(KeyboardInterrupt):
                    self._let_them_see()
        finally:
            self._stop()

    def reported(self, directory: Path) -> None:
        """The run is over, and its report written."""
        self._over = True
        report = directory / REPORT_NAME
        if report.is_file():
            self._report = report
            if self._page is not None:
                self._page.reported(report)

    def _open(self, pages: Pages) -> None:
        """One server for each address."""
        of_page: dict[str, Route] = {
            "/": self._answer_page,
            "/live.js": lambda _: Answer(live.scripts().encode(), "text/javascript; charset=utf-8"),
            "/live.css": lambda _: Answer(live.styles().encode(), "text/css; charset=utf-8"),
            "/state": self._answer_state,
            f"/{REPORT_NAME}": self._answer_report,
            f"/{TRIALS_NAME}": self._answer_report,
        }
        of_metrics: dict[str, Route] = {"/metrics": self._answer_metrics}
        if pages.live is not None and pages.live == pages.metrics and pages.live.port:
            server = self._serve("--live", pages.live, {**of_page, **of_metrics})
            print(f"live: {server.url}\nmetrics: {server.url}metrics", file=sys.stderr)
            return
        if pages.live is not None:
            print(f"live: {self._serve('--live', pages.live, of_page).url}", file=sys.stderr)
        if pages.metrics is not None:
            server = self._serve("--metrics", pages.metrics, of_metrics)
            print(f"metrics: {server.url}metrics", file=sys.stderr)

    def _serve(self, option: str, access: Access, routes: dict[str, Route]) -> PageServer:
        def answer(asked: Asked) -> Answer:
            route = routes.get(asked.path)
            return NOT_FOUND if route is None else route(asked)

        server = PageServer(option, access, answer)
        self._servers.append(server)
        server.start()
        return server

    def _stop(self) -> None:
        for server in self._servers:
            server.stop()

    # Answers

    def _answer_page(self, _asked: Asked) -> Answer:
        return Answer(live.page().encode(), HTML, policy=OWN_PAGE)

    def _answer_state(self, asked: Asked) -> Answer:
        assert self._page is not None
        since = asked.query.get("since", "")
        self._viewers.asks(asked.query.get("viewer", ""))
        hold_s = CROWDED_HOLD_S if asked.is_crowded else HOLD_S
        found = self._page.state(int(since) if since.isascii() and since.isdigit() else 0, hold_s)
        return Answer(found, JSON)

    def _answer_report(self, asked: Asked) -> Answer:
        if self._report is None:
            return NO_REPORT
        file = self._report.with_name(asked.path.removeprefix("/"))
        try:
            page = file.read_bytes()
        except OSError:
            return NO_REPORT
        self._viewers.has_seen(asked.query.get("viewer", ""))
        return Answer(live.served(page, _shown(file)), HTML, policy=REPORT)

    def _answer_metrics(self, _asked: Asked) -> Answer:
        assert self._metrics is not None
        self._scrapes.came()
        return Answer(self._metrics.text().encode(), openmetrics.KIND)

    # The end

    def _let_them_see(self) -> None:
        """Waits for those who look, and for nobody else."""
        if self._report is not None:
            wait_until(
                lambda: "viewers to fetch the report" if self._viewers.wait() else None, LAST_LOOK_S, POLL_S
            )
        wait_s = self._scrapes.next_within_s()
        if wait_s is not None:
            print(f"metrics: waiting up to {wait_s:.0f} s for the last scrape (Ctrl-C ends)", file=sys.stderr)
            self._scrapes.wait_for_one(wait_s)


class _Viewers:
    """Who looks at the page: each tab has a name that it made up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen_s: dict[str, float] = {}

    def asks(self, viewer: str) -> None:
        with self._lock:
            if viewer and (viewer in self._seen_s or len(self._seen_s) < VIEWERS_MAX):
                self._seen_s[viewer] = time.monotonic()

    def has_seen(self, viewer: str) -> None:
        with self._lock:
            self._seen_s.pop(viewer, None)

    def wait(self) -> bool:
        """Whether somebody has not seen the report who still looks."""
        with self._lock:
            return any(time.monotonic() - seen_s < VIEWER_GONE_S for seen_s in self._seen_s.values())


class _Scrapes:
    """When metrics were fetched."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._times_s: list[float] = []

    def came(self) -> None:
        with self._changed:
            self._times_s = [*self._times_s[-1:], time.monotonic()]
            self._changed.notify_all()

    def next_within_s(self) -> float | None:
        """How long the next one is worth waiting for; None where none is to be expected."""
        with self._changed:
            if len(self._times_s) < 2:
                return None
            before_s, last_s = self._times_s
            left_s = last_s + (last_s - before_s) + SCRAPE_SLACK_S - time.monotonic()
            return None if left_s < 0 else min(left_s, LAST_SCRAPE_S)

    def wait_for_one(self, within_s: float) -> None:
        with self._changed:
            last_s = self._times_s[-1]
            self._changed.wait_for(lambda: self._times_s[-1] > last_s, within_s)


def _shown(path: Path) -> str:
    """As the user would type it."""
    with contextlib.suppress(ValueError):
        return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path.resolve())
    return str(path)
