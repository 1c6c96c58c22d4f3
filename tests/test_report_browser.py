"""The report in a real browser: no error, no request, no sideways scrolling, and every control works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser, Page, executable
from sample_run import KAFKA, LOG, workload, write_run
from streamgauge.report import html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="no Chromium: install the package chromium"),
]

WIDER_THAN_PAGE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CHARTS = "document.querySelectorAll('[data-plot] .uplot').length"
PAINTED = """[...document.querySelectorAll('.uplot canvas')].every((canvas) => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels.some((value) => value !== 0);
})"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    shapes = (LOG, KAFKA, replace(KAFKA, level="L3", lost=3))
    write_run(directory, shapes, workload(rate=2000, seconds=12), repeats=2)
    return html.write(directory)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Browser() as browser:
        yield browser.page()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_no_error_no_request_no_sideways_scroll(report: Path, page: Page, width: int, dark: bool) -> None:
    page.open(report, width, 800, dark=dark)
    assert page.evaluate("document.documentElement.dataset.ready") == "yes"
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert page.messages == []
    outside = [address for address in page.requests if not address.startswith(("file:", "data:"))]
    assert outside == []
    assert page.requests.count(report.as_uri()) == 1
    assert page.evaluate(WIDER_THAN_PAGE) <= 0
    assert page.evaluate(CHARTS) == 8
    assert page.evaluate("document.querySelectorAll('#cpu .uplot').length") == 3
    assert page.evaluate(PAINTED)


def test_every_control_redraws_without_error(report: Path, page: Page) -> None:
    page.open(report, 1280, 900)
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    for script in (
        "document.querySelector('#controls .chip').click()",
        "document.querySelectorAll('#time-controls .chip')[2].click()",
        "document.querySelectorAll('#time-controls .chip')[1].click()",
        "document.getElementById('theme').click()",
        "document.getElementById('theme').click()",
        "(() => { const choice = document.querySelector('#controls select'); choice.value = 'all'; "
        "choice.dispatchEvent(new Event('change')); })()",
    ):
        page.evaluate(script)
        assert page.evaluate(CHARTS) == 8, script
    assert page.evaluate("document.querySelectorAll('#cpu .uplot').length") == 4, (
        "two systems, two trials each"
    )
    assert page.evaluate("[...document.querySelectorAll('.chart h3 em')].length") > 0, (
        "mixed levels are in the titles"
    )
    assert page.messages == []


def test_levels_are_named_where_something_waits_for_them_and_bullets_stay_in_their_cards(
    report: Path, page: Page
) -> None:
    page.open(report, 1280, 900)
    marked = page.evaluate(
        "[...document.querySelectorAll('.chart h3 em')].map((note) => note.closest('figure').querySelector('.plot').dataset.plot)"
    )
    assert "publish_percentiles" in marked
    assert "rate" in marked
    assert not {"memory", "written", "backlog"} & set(marked)
    # A bullet hangs out by less than 1.1 em; its list must leave it that room.
    room = page.evaluate(
        "Math.min(...[...document.querySelectorAll('.why')].map((list) => parseFloat(getComputedStyle(list).paddingLeft)))"
    )
    assert room >= 14


def test_nothing_chosen_is_said_instead_of_drawn(report: Path, page: Page) -> None:
    page.open(report, 1280, 900)
    page.evaluate(
        "[...document.querySelectorAll('#controls .chip[aria-pressed=true]')].map((chip) => chip.textContent)"
    )
    for _ in range(3):
        page.evaluate("document.querySelector('#controls .chip[aria-pressed=true]').click()")
    assert page.evaluate(CHARTS) == 0
    assert page.evaluate("document.querySelectorAll('.plot.empty').length") == 8
    assert page.messages == []


def test_charts_follow_the_width_of_the_window(report: Path, page: Page) -> None:
    page.open(report, 1280, 900)
    page.resize(390, 800)
    page.evaluate("new Promise((done) => setTimeout(done, 400))")
    assert page.evaluate(WIDER_THAN_PAGE) <= 0
    assert (
        page.evaluate("Math.max(...[...document.querySelectorAll('.uplot')].map((plot) => plot.clientWidth))")
        <= 390
    )


def test_the_cursor_tells_every_line_beneath_it(report: Path, page: Page) -> None:
    page.open(report, 1280, 900)
    page.evaluate(
        "document.querySelector('[data-plot=publish_percentiles]').scrollIntoView({block: 'center'})"
    )
    page.evaluate("new Promise((done) => setTimeout(done, 700))")
    box = page.evaluate(
        "(() => { const box = document.querySelector('[data-plot=publish_percentiles] "
        ".u-over').getBoundingClientRect();"
        " return [box.left + box.width * 0.4, box.top + box.height / 2]; })()"
    )
    for shift in (0, 3):
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + shift, y=box[1])
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    tip = page.evaluate("document.querySelector('[data-plot=publish_percentiles] .tip').innerText")
    assert "Reference log (L4)" in tip
    assert "ms" in tip
    assert page.messages == []


def test_tables_and_text_are_there_without_scripts(report: Path, page: Page) -> None:
    page.open(report, 390, 800, dark=True, scripts=False)
    root = page.call("DOM.getDocument", depth=0)["root"]["nodeId"]

    def count(selector: str) -> int:
        return len(page.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"])

    assert count("table.summary tbody tr") >= 3
    assert count("noscript p") == 1
    assert count(".controls:not([hidden])") == 0
    size = page.call("Page.getLayoutMetrics")["cssContentSize"]
    assert size["width"] <= 390


def test_a_picture_of_its_head_is_small(report: Path, tmp_path: Path) -> None:
    """The one in the README is made so."""
    tool = [sys.executable, str(Path(__file__).parent.parent / "tools" / "picture.py")]
    picture = tmp_path / "report.webp"
    done = subprocess.run([*tool, report, picture], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    drawn = picture.read_bytes()
    assert (drawn[:4], drawn[8:12]) == (b"RIFF", b"WEBP")
    assert 10_000 < len(drawn) <= 200_000
    refused = subprocess.run(
        [*tool, report, tmp_path / "report.gif"], capture_output=True, text=True, check=False, timeout=120
    )
    assert refused.returncode == 1
    assert "expected a name that ends in .webp or .png" in refused.stderr
