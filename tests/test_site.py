"""A published site: all of it is there, works from a disk, tells no names, and shows the comparison that is picked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import passed_on
import pytest
from browser import Browser, Page, executable
from glued import glued
from streamgauge.analysis.machine_class import UNKNOWN, machine_class
from streamgauge.cli import publish
from streamgauge.cli.app import run as program

WIDER_THAN_PAGE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SHOWN = (
    "[...document.querySelectorAll('#results tbody tr')].filter((row) => row.offsetParent !== null).length"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("published")
    forged = passed_on.unpacked(passed_on.FIXED_RATE, place / "forged")
    text = (forged.path / "manifest.json").read_text("utf-8")
    for path in [forged.path / "manifest.json", *forged.path.glob("trials/*/*.json")]:
        text = path.read_text("utf-8").replace(forged.run_id, "20261124-210000-again")
        path.write_text(text.replace('"system_version": "0.1.0"', '"system_version": "0.2.0"'), "utf-8")
    renamed = forged.path.rename(place / "20261124-210000-again")
    results = [str(passed_on.ARRIVALS), str(passed_on.FIXED_RATE), str(renamed)]
    assert program(["publish", *results, "--to", str(place / "site")]) == 0
    return place / "site"


def test_every_link_leads_to_a_file(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    names = {path.relative_to(site).as_posix() for path in pages}
    assert {"index.html", "compare.html", "workloads/arrivals.html"} < names
    assert len([name for name in names if name.endswith("/report.html")]) == 3
    for page in pages:
        for address in re.findall(r'(?:href|src)="([^"#]+)', page.read_text("utf-8")):
            if not address.startswith(("https:", "http:", "data:")):
                assert (page.parent / unquote(address)).is_file(), (page, address)


def test_words_are_kept_apart_by_more_than_style(site: Path) -> None:
    for name in ("index.html", "compare.html", "workloads/arrivals.html"):
        assert glued((site / name).read_text("utf-8")) == [], name


def test_the_index_says_each_grade_and_what_contradicts(site: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    assert text.count('data-grade="verified"') == 2
    assert text.count('data-grade="contradicted"') == 1
    assert "and the system itself said 0.1.0" in text
    assert "short of the rules for publishing" in text


def test_a_run_that_gives_no_figure_is_published_too(tmp_path: Path) -> None:
    """On a machine that was never quiet there may be no p99 at all: of a site of such runs nothing is missing but a chart."""
    run = passed_on.unpacked(passed_on.FIXED_RATE, tmp_path / "run")
    for path in run.path.glob("trials/*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        result["publish_ms"]["p99"] = None
        if result["quiet"] and result["quiet"]["publish_ms"]:
            result["quiet"]["publish_ms"]["p99"]["value"] = None
        path.write_text(json.dumps(result), "utf-8")
    assert program(["publish", str(run.path), "--to", str(tmp_path / "site")]) == 0
    (page,) = (tmp_path / "site" / "workloads").glob("*.html")
    assert "No run knows <code>publish_ms.p99</code>" in page.read_text("utf-8")


def test_a_file_of_the_site_is_verified(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (packed,) = site.glob("runs/*-arrivals/*.zip")
    assert program(["verify", str(packed)]) == 0
    assert packed.read_bytes() == passed_on.ARRIVALS.read_bytes()
    assert ": verified: " in capsys.readouterr().out


def test_several_processes_write_the_same_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [str(passed_on.ARRIVALS), str(passed_on.FIXED_RATE)]
    assert program(["publish", *results, "--to", str(tmp_path / "one")]) == 0
    monkeypatch.setattr(publish, "RESULTS_PER_PROCESS", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert program(["publish", *results, "--to", str(tmp_path / "two")]) == 0

    def files(place: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()
        }

    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert {"index.html", "compare.html"} < set(one)
    assert two == one
    # What is wrong with one of them is told as ever.
    (tmp_path / "bad.streamgauge.zip").write_bytes(b"PK")
    assert (
        program(["publish", *results, str(tmp_path / "bad.streamgauge.zip"), "--to", str(tmp_path / "three")])
        == 2
    )


def test_a_site_is_written_anew_and_nothing_else_is_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "site"
    assert program(["publish", str(passed_on.ARRIVALS), "--to", str(place)]) == 0
    assert program(["publish", str(passed_on.FIXED_RATE), "--to", str(place)]) == 0
    assert len(list(place.glob("runs/*"))) == 1
    assert program(["publish", str(passed_on.ARRIVALS), str(passed_on.ARRIVALS), "--to", str(place)]) == 2
    assert "expected each once" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("precious", "utf-8")
    assert program(["publish", str(passed_on.ARRIVALS), "--to", str(tmp_path / "mine")]) == 2
    assert "expected a new or an empty directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("host", "flush_ms", "expected"),
    [
        ({}, None, UNKNOWN),
        (
            {"cores": 2, "cpu_model": "Intel(R) Xeon(R) Processor @ 2.90GHz", "memory_bytes": 25_276_502_016, "kernel": "Linux 6.1-fc-v1"},
            0.7,
            "2 cores, Intel Xeon, 24 GiB, flushes below 5 ms, virtual",
        ),
        (
            {"cores": 64, "cpu_model": "AMD EPYC 9354P 32-Core Processor", "memory_bytes": 269_000_000_000, "kernel": "Linux 6.12.0"},
            0.02,
            "64 cores, AMD EPYC 9354P, 256 GiB, flushes below 0.1 ms",
        ),
        ({"cores": 1}, 9.0, "1 core, flushes of 5 ms and more"),
    ],
)  # fmt: skip
def test_machines_have_classes(host: dict[str, object], flush_ms: float | None, expected: str) -> None:
    probes = [] if flush_ms is None else [{"disk": {"fsync_ms": {"p50": flush_ms}}}]
    assert machine_class(host, probes) == expected


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Browser() as browser:
        yield browser.page()


@pytest.mark.browser
@pytest.mark.skipif(executable() is None, reason="no Chromium: install the package chromium")
@pytest.mark.parametrize("width", [400, 1300])
def test_a_comparison_is_picked_by_clicking(site: Path, page: Page, width: int) -> None:
    page.open(site / "index.html", width, 900)
    assert page.evaluate(SHOWN) == 3
    page.evaluate(
        "(() => { const choice = document.querySelector('[data-filter=workload]'); choice.value = '1-topic-16-partitions-1kb'; "
        "choice.dispatchEvent(new Event('change')); })()"
    )
    assert page.evaluate(SHOWN) == 2
    assert page.evaluate("document.getElementById('count').textContent") == "2 of 3 results"
    assert page.evaluate(WIDER_THAN_PAGE) <= 0
    page.evaluate(
        "[...document.querySelectorAll('#results tbody input')].filter((box) => box.offsetParent).forEach((box) => box.click())"
    )
    where = page.evaluate("document.getElementById('compare').getAttribute('href')")
    assert re.fullmatch(r"compare\.html#\d+,\d+", where)
    page.follow("document.getElementById('compare').click()")
    assert page.evaluate("document.title").startswith("Results beside each other")
    assert page.evaluate("document.querySelectorAll('[data-place=ratios] .forest circle').length") >= 3
    assert "system_version" not in page.evaluate("document.body.innerText")
    assert "0.2.0" in page.evaluate("document.querySelector('[data-place=settings] table').innerText")
    assert "Machines of one class" in page.evaluate(
        "document.querySelector('[data-place=machines]').innerText"
    )
    assert page.evaluate(WIDER_THAN_PAGE) <= 0
    # One more, and all of them off again.
    page.evaluate("document.querySelectorAll('#sides input:not(:checked)').forEach((box) => box.click())")
    assert "have no workload in common" in page.evaluate(
        "document.querySelector('[data-place=ratios]').innerText"
    )
    page.evaluate("document.querySelectorAll('#sides input:checked').forEach((box) => box.click())")
    assert page.evaluate("document.querySelector('[data-place=ratios]').innerText") == "Pick two or more."
    assert page.messages == []
    assert [one for one in page.requests if not one.startswith(("file:", "data:"))] == []
