"""The page of a run that goes on, in a real browser, during real short runs: charts that grow, reload, two viewers, a lab that is killed, the run's end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, Navigated, Page, executable
from lab_support import lab
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.waiting import wait_until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="no Chromium: install the package chromium"),
]

WITHIN_S = 60.0
"""For what takes a second or two on a machine that does nothing else."""
WIDER_THAN_PAGE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CHARTS = "document.querySelectorAll('[data-plot] .uplot').length"
RATE_DRAWN = "document.querySelector('[data-plot=rate] canvas').toDataURL()"
LOST_HEIGHT = "document.getElementById('lost').offsetHeight"
TEXT = "document.getElementById('{}').innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def until(page: Page, script: str, wanted: Callable[[object], bool]) -> object:
    found: list[object] = [None]

    def missing() -> str | None:
        try:
            found[0] = page.evaluate(script)
        except Navigated:
            # As when the live page becomes the report: what is waited for is told by the next one.
            return f"{script} on the page that follows"
        return None if wanted(found[0]) else f"{script}: {found[0]!r}"

    late = wait_until(missing, WITHIN_S, 0.1)
    assert late is None, late
    return found[0]


def link(process: subprocess.Popen[str]) -> str:
    """Where the lab says that its page is."""
    assert process.stderr is not None
    for line in process.stderr:
        found = re.fullmatch(r"live: (http://127\.0\.0\.1:\d+/)\n", line)
        if found:
            return found[1]
    raise AssertionError("the lab said no link")


def started(directory: Path, seconds: int) -> tuple[subprocess.Popen[str], str]:
    arguments = (
        "run",
        "--live",
        "--rate",
        "2k",
        "--duration",
        f"{seconds}s",
        "--warmup",
        "1s",
    )
    process = lab(find_gauge(), directory, *arguments)
    return process, link(process)


def test_two_viewers_see_charts_grow_and_then_the_report(tmp_path: Path, browser: Browser) -> None:
    process, address = started(tmp_path, 8)
    wide, narrow = browser.page(), browser.page()
    wide.open(address, 1300, 900)
    narrow.open(address, 400, 800, dark=True)
    for page in (wide, narrow):
        until(page, CHARTS, lambda found: found == 8)
        assert page.evaluate(WIDER_THAN_PAGE) <= 0
    before = wide.evaluate(RATE_DRAWN)
    until(wide, RATE_DRAWN, lambda found: found != before)
    assert wide.evaluate(TEXT.format("heading")).startswith("Reference log: 2,000 msg/s")
    assert "left for all trials" in wide.evaluate(TEXT.format("left"))
    assert "0 of 1 trials done" in wide.evaluate(TEXT.format("count"))
    assert "acknowledged, msg/s" in wide.evaluate(TEXT.format("second"))
    assert "measure" in wide.evaluate(TEXT.format("lines"))
    # Who reloads has everything that the other has.
    narrow.open(address, 400, 800, dark=True)
    until(narrow, CHARTS, lambda found: found == 8)
    assert narrow.evaluate("document.querySelectorAll('#lines li').length") >= 5
    for page in (wide, narrow):
        assert page.messages == []
        outside = [one for one in page.requests if not one.startswith((address, "data:"))]
        assert outside == []
    # The end: each viewer's page becomes the report.
    for page in (wide, narrow):
        until(page, "location.pathname + document.readyState", lambda found: found == "/report.htmlcomplete")
        assert page.evaluate("document.documentElement.dataset.ready") == "yes"
        assert page.evaluate(CHARTS) == 8
        assert "report.html; the lab that shows it to you ends now" in page.evaluate(
            "document.body.innerText"
        )
        assert page.evaluate(WIDER_THAN_PAGE) <= 0
    assert process.wait(30) in (0, 1)
    _, errors = process.communicate()
    assert "Traceback" not in errors


def test_a_lab_that_is_killed_is_told_with_the_time_of_the_last_data(
    tmp_path: Path, browser: Browser
) -> None:
    process, address = started(tmp_path, 30)
    page = browser.page()
    page.open(address, 1300, 900)
    until(page, CHARTS, lambda found: found == 8)
    assert page.evaluate(LOST_HEIGHT) == 0
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    text = str(until(page, TEXT.format("lost"), bool))
    assert re.search(
        r"connection to the lab was lost at \d\d:\d\d:\d\d. The last data came at \d\d:\d\d:\d\d, \d+ s ago.",
        text,
    ), text
    assert "streamgauge report runs/" in text
    assert page.evaluate(LOST_HEIGHT) > 0
    assert page.evaluate(CHARTS) == 8, "what was drawn stays"
