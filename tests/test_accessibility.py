"""Every page for every reader: nothing that axe-core finds of WCAG 2.1 AA, in light and dark; everything within 400 px; all charts have a name, a sentence
and a table, and can be read by keyboard."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import axe
import pytest
import watched_run
from browser import Browser, Page, executable
from glued import glued
from run_fuzz import write_kinds
from sample_profile import add_profile
from sample_run import KAFKA, KAFKA_SYNC, LOG, workload, write_run
from streamgauge.analysis.compare import compare
from streamgauge.analysis.history import histories
from streamgauge.analysis.sides import beside, read_sides
from streamgauge.cli.pages import Pages as LivePages
from streamgauge.cli.watching import Watching
from streamgauge.model.durability import DurabilityReport
from streamgauge.report import comparison_page, durability, history_page, html, study_page
from streamgauge.serve.pages import Pages
from streamgauge.serve.shelf import Shelf
from streamgauge.store.directory import RunDirectory
from streamgauge.web.access import Access
from streamgauge.web.server import Asked
from test_durability_study import result as durability_result
from test_pages import made, renamed
from test_study_model import plan

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="no Chromium: install the package chromium"),
]
KINDS = (
    "run",
    "curve",
    "profiled",
    "study",
    "trials",
    "durability",
    "comparison",
    "history",
    "over time",
    "list",
    "refused",
    "live",
)
WIDER_THAN_PAGE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
DRAWN = """new Promise((done, fail) => {
    const look = () => document.querySelectorAll('[data-plot] .uplot').length ? done() : setTimeout(look, 20);
    setTimeout(() => fail(new Error('no chart was drawn within 15 s')), 15000);
    look();
})"""
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"


def write_curve(directory: Path) -> Path:
    """A run at several rates."""
    trials = []
    for number, rate in enumerate((200, 400, 800), start=1):
        part = directory.parent / f"{directory.name}-{rate}"
        write_run(part, (LOG, KAFKA), workload(rate=rate, seconds=3))
        for place, path in enumerate(sorted(part.glob("trials/*"))):
            trials.append((path, 2 * (number - 1) + place + 1))
    write_run(directory, (LOG,), workload(rate=200, seconds=3))
    for path, number in trials:
        target = directory / "trials" / f"{number:03d}"
        target.mkdir(exist_ok=True)
        for file in path.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        told = (target / "result.json").read_text("utf-8")
        (target / "result.json").write_text(
            told.replace(f'"trial": {int(path.name)},', f'"trial": {number},', 1), encoding="utf-8"
        )
    return html.write(directory)


def write_profiled(directory: Path) -> Path:
    """A run of which one of two systems was profiled."""
    asked = workload(rate=200, seconds=33)
    write_run(directory, (KAFKA, LOG), asked)
    add_profile(directory, KAFKA, asked)
    return html.write(directory)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path | str]]:
    """A page of each kind: a file, or where it is served."""
    base = tmp_path_factory.mktemp("pages")
    runs = base / "runs"
    shapes = (LOG, KAFKA, KAFKA_SYNC, replace(LOG, title="Nobody's system", system="other", lost=3))
    write_run(runs / "mixed", shapes, workload(rate=500, seconds=6), repeats=2)
    found: dict[str, Path | str] = {"run": html.write(runs / "mixed"), "curve": write_curve(base / "curve")}
    found["profiled"] = write_profiled(base / "profiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        report = DurabilityReport(results=[durability_result("gauge-log-fsync", lost=3)])
        kinds = write_kinds(base / "kinds", plan(), report)
        found["study"] = study_page.write(kinds["study"])
        found["trials"] = kinds["study"] / study_page.TRIALS_NAME
        found["durability"] = durability.write(RunDirectory(kinds["durability"]))
    for day in range(7):
        made(runs, f"kafka-{day}", (replace(KAFKA, publish_ms=0.9 if day < 4 else 3.0),), cores=2 + day % 2)
        renamed(runs / f"kafka-{day}", days=day)
    sides = read_sides(["kafka-0", "kafka-1", "mixed:kafka,durability=L3", "kafka-6"], runs)
    matched = [beside(sides[0], other) for other in sides[1:]]
    compared = [compare(*pair) for one in matched for pair in one.pairs]
    served = Pages(Shelf(runs))
    told = histories(runs, "1-topic-16-partitions-100b", "publish_ms.p99")
    for kind, text in (
        ("comparison", comparison_page.render(matched, compared)),
        ("history", history_page.render(told, "publish_ms.p99", "1-topic-16-partitions-100b")),
        ("over time", served.answer(Asked.of("/history?workload=1-topic-16-partitions-100b")).body.decode()),
        ("list", served.answer(Asked("/")).body.decode()),
        ("refused", served.answer(Asked("/nothing")).body.decode()),
    ):
        file = base / f"{kind.replace(' ', '-')}.html"
        file.write_text(text, encoding="utf-8")
        found[kind] = file
    with live_page(runs / "mixed") as found["live"]:
        yield found


@contextlib.contextmanager
def live_page(run: Path) -> Iterator[str]:
    """Of a run in whose first trial nothing new comes for now; where it is served."""
    errors = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(errors):
        patch.setattr("streamgauge.cli.watching.HOLD_S", 0.5)
        with Watching(LivePages(live=Access("127.0.0.1", 0))) as watching:
            (observer,) = watching.observers
            watched_run.begin(observer, run)
            observer.phase_started("measure", 10.0)
            for index in range(4):
                watched_run.second(observer, index, "measure", [1_000_000, 2_000_000])
            observer.trial_ended(RunDirectory(run).results()[0])
            yield errors.getvalue().removeprefix("live: ").strip()


def opened(page: Page, place: Path | str, width: int, height: int, *, dark: bool = False) -> None:
    """A page as it is when everything is drawn."""
    page.open(place, width, height, dark=dark)
    if isinstance(place, str):
        page.evaluate(DRAWN)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Browser() as browser:
        yield browser.page()


@pytest.fixture(scope="module")
def script() -> str:
    return axe.source()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(
    pages: dict[str, Path | str], page: Page, script: str, kind: str, dark: bool
) -> None:
    opened(page, pages[kind], 1280, 900, dark=dark)
    page.evaluate(OPEN_ALL)
    assert axe.violations(page, script) == []
    assert page.messages == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "live"])
def test_words_are_kept_apart_by_more_than_style(pages: dict[str, Path | str], kind: str) -> None:
    place = pages[kind]
    assert isinstance(place, Path)
    assert glued(place.read_text("utf-8")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_off_screen_at_400_px(pages: dict[str, Path | str], page: Page, kind: str) -> None:
    opened(page, pages[kind], 400, 800)
    assert page.evaluate(WIDER_THAN_PAGE) <= 0
    assert page.messages == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_shows_what_matters_within_a_dozen_screens(
    pages: dict[str, Path | str], page: Page, kind: str
) -> None:
    """A run of four systems was 20,000 px long."""
    opened(page, pages[kind], 400, 800)
    assert page.evaluate("document.documentElement.scrollHeight") <= 10_000
    page.evaluate("(() => { location.hash = '#limits'; })()")
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert page.evaluate("document.querySelector('#limits > details')?.open ?? true"), "a link opens it"


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_has_a_name_that_says_what_it_shows(
    pages: dict[str, Path | str], page: Page, kind: str
) -> None:
    opened(page, pages[kind], 1280, 900)
    names = page.evaluate(
        "[...document.querySelectorAll('svg[role=img], .plot:has(canvas)')].map((one) => one.getAttribute('aria-label') || '')"
    )
    assert all(len(name.split()) > 4 for name in names), names
    drawn = page.evaluate("document.querySelectorAll('figure :is(svg[role=img], canvas)').length")
    assert bool(drawn) == (kind not in ("durability", "list", "refused", "study")), "charts are there at all"
    assert len(names) == drawn


KEY = "(key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}))"


def test_a_chart_is_read_zoomed_and_reset_by_keyboard(pages: dict[str, Path | str], page: Page) -> None:
    opened(page, pages["run"], 1280, 900)
    page.evaluate("document.querySelector('[data-plot=publish_time]').focus()")
    page.evaluate(f"['ArrowRight', 'ArrowRight'].forEach({KEY})")
    spoken = page.evaluate("document.querySelector('.unseen').textContent")
    assert spoken.startswith("1.50 s: ")
    assert "Reference log (L4)" in spoken
    assert " ms" in spoken
    tip = "document.querySelector('[data-plot=publish_time] .tip')"
    assert page.evaluate(f"{tip}.hidden") is False, "seen, too"
    resets = "document.querySelectorAll('button.reset').length"
    assert page.evaluate(resets) == 0
    page.evaluate(f"['+', '+'].forEach({KEY})")
    assert page.evaluate("document.querySelector('.unseen').textContent").startswith("shown: ")
    assert page.evaluate(resets) == 1
    page.evaluate("document.querySelector('button.reset').click()")
    assert page.evaluate(resets) == 0
    page.evaluate(f"['Home', '+', '+'].forEach({KEY})")
    assert page.evaluate(resets) == 1
    page.evaluate(f"['Escape'].forEach({KEY})")
    assert page.evaluate(resets) == 0
    assert page.messages == []


def test_a_table_stands_behind_every_chart(pages: dict[str, Path | str], page: Page) -> None:
    opened(page, pages["run"], 1280, 900)
    page.evaluate("document.querySelectorAll('.behind').forEach((one) => { one.open = true; })")
    page.evaluate("new Promise((done) => setTimeout(done, 100))")
    charts = page.evaluate("document.querySelectorAll('.plot:has(canvas)').length")
    assert charts >= 8
    rows = page.evaluate(
        "[...document.querySelectorAll('.behind table')].map((one) => one.tBodies[0].rows.length)"
    )
    assert len(rows) == charts
    assert all(0 < count <= 60 for count in rows)


def test_a_flame_graph_is_walked_zoomed_and_reset_by_keyboard(
    pages: dict[str, Path | str], page: Page
) -> None:
    opened(page, pages["profiled"], 400, 800)
    page.evaluate(OPEN_ALL)
    page.evaluate("new Promise((done) => setTimeout(done, 100))")
    names = page.evaluate(
        "[...document.querySelectorAll('.calls')].map((one) => one.getAttribute('aria-label'))"
    )
    assert len(names) == 6, (
        "of a JVM in Java and in native code, and of the generator: all of it, and the slowest seconds"
    )
    assert names[0].startswith(
        "Flame graph of node-1 (system): running Java code, measured phase: 990 samples. "
    )
    assert all("Arrow keys walk along the calls" in name for name in names)
    assert page.evaluate("document.querySelectorAll('.flames .behind table').length") == 3, (
        "a table for each process"
    )
    assert page.evaluate(f"{GRAPH}.querySelectorAll('.call[tabindex=\"0\"]').length") == 1, (
        "one stop for the tab key"
    )
    page.evaluate(f"{GRAPH}.querySelector('.call[tabindex=\"0\"]').focus()")
    page.evaluate(f"Array(4).fill('ArrowDown').forEach({KEY})")
    assert page.evaluate(LABEL).startswith("kafka.log.UnifiedLog.append: ")
    page.evaluate(f"['ArrowRight'].forEach({KEY})")
    assert page.evaluate(LABEL).startswith("kafka.server.ReplicaManager.fetchMessages: ")
    assert page.evaluate(f"{GRAPH}.querySelector('.called').textContent") == page.evaluate(LABEL), "said"
    width = "document.activeElement.getBoundingClientRect().width"
    before = page.evaluate(width)
    reset = f"{GRAPH}.querySelector('.reset')"
    assert page.evaluate(f"{reset}.checkVisibility()") is False
    page.evaluate("document.activeElement.click()")
    assert page.evaluate(width) > 1.5 * before
    assert page.evaluate(f"{reset}.checkVisibility()") is True
    page.evaluate(f"['Escape'].forEach({KEY})")
    assert page.evaluate(f"{reset}.checkVisibility()") is False
    assert page.evaluate(LABEL).startswith("data-plane-kafka-request-handler-N: 100.0 %")
    assert page.evaluate("document.querySelectorAll('.call.more').length") >= 1, "what stands out is outlined"
    assert page.evaluate(WIDER_THAN_PAGE) <= 0
    assert page.messages == []


GRAPH = "document.querySelector('.flame')"
LABEL = "document.activeElement.getAttribute('aria-label')"


def test_paper_has_everything_on_white(pages: dict[str, Path | str], page: Page) -> None:
    opened(page, pages["run"], 1280, 900, dark=True)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.evaluate("[...document.querySelectorAll('details:not(.behind)')].every((one) => one.open)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_axe_would_find_something(page: Page, script: str, tmp_path: Path) -> None:
    """The check is looked at, too: grey on white, and a drawing without a name."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!doctype html><html lang="en"><title>t</title><main><h1>t</h1><p style="color:#bbb">grey</p>'
        '<svg role="img" width="9" height="9"></svg></main></html>',
        encoding="utf-8",
    )
    page.open(bad, 800, 600)
    assert {line.partition(":")[0] for line in axe.violations(page, script)} == {
        "color-contrast",
        "svg-img-alt",
    }
