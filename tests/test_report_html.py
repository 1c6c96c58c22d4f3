"""The HTML report: complete, self-contained, harmless whatever is in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError
from sample_run import KAFKA, LOG, sample_trial, workload, write_run
from streamgauge.report import charts, html, pages
from streamgauge.report.charts import island
from streamgauge.report.glossary import TERMS
from streamgauge.report.run import read_run
from streamgauge.vocabulary.errors import InputError

ASKED = workload(rate=2000, seconds=12)
NASTY = '<script>alert("x")</script> & \u2028 </script>'
VOID = {"meta", "link", "br", "img", "input", "hr", "rect", "path"}


class Outline(HTMLParser):
    """Checks that elements nest, and collects ids, links and text."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a" and found.get("href"):
            self.targets.append(str(found["href"]))
        self.loads += [str(found[key]) for key in ("src", "srcset", "data", "poster") if key in found]
        if tag == "link":
            self.loads.append(str(found.get("href")))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.stack or self.stack.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if not self.stack or self.stack[-1] not in ("script", "style"):
            self.text.append(data)


def outline(path: Path) -> Outline:
    parser = Outline()
    parser.feed(path.read_text(encoding="utf-8"))
    parser.close()
    return parser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    write_run(directory, (LOG, replace(KAFKA, level="L3")), ASKED, repeats=2)
    return directory


def test_one_file_with_every_section_and_figure(run: Path) -> None:
    path = html.write(run)
    assert path == run / "report.html"
    assert [entry.name for entry in run.glob(".report-*")] == [], "nothing temporary is left behind"
    page = outline(path)
    assert page.wrong == []
    assert page.stack == []
    assert len(page.ids) == len(set(page.ids))
    text = " ".join(page.text)
    for expected in (
        "Reference log 0.1.0",
        "publish p99",
        "All 4 trials are valid",
        "Every message is accounted for",
        "Durability levels differ (L3 and L4)",
        "topic.min.insync.replicas",
        "num.io.threads=8",
        "Synthetic CPU",
        "fifo:10",
        "1,470",
        "lower is better",
    ):
        assert expected in text.replace("\u00a0", " "), expected


def test_links_lead_to_definitions_and_nothing_is_loaded(run: Path) -> None:
    page = outline(html.write(run))
    for target in page.targets:
        assert target.startswith("#"), f"{target} leads outside"
        assert target[1:] in page.ids, f"{target} leads nowhere"
    assert set(page.loads) <= {"data:,"}
    assert {f"term-{slug}" for slug in TERMS} <= set(page.ids)
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text, "the page forbids requests to itself"
    assert "The MIT License" in text, "uPlot's licence travels with it"
    assert "@import" not in text
    assert re.search(r"url\((?!data:)", text) is None


def test_a_normal_run_stays_below_a_megabyte(run: Path) -> None:
    assert html.write(run).stat().st_size < 1_000_000


def test_sixty_long_trials_stay_below_five_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, (LOG,), workload(rate=40, seconds=595))
    run = read_run(tmp_path)
    results = tuple(run.results[0].model_copy(update={"trial": number}) for number in range(1, 61))
    many = replace(run, results=results, directories=run.directories * 60)
    # The same trial sixty times over: its points are computed once, at the stride that sixty trials get.
    drawn: list[dict[str, Any]] = []
    compute = charts._trial

    def once(*given: Any, **options: Any) -> dict[str, Any]:
        if not drawn:
            drawn.append(compute(*given, **options))
        return drawn[0]

    monkeypatch.setattr(charts, "_trial", once)
    page = html.render(many)
    assert len(drawn[0]["time"]) >= 200, "fewer points, and still a line"
    assert 1_000_000 < len(page) < 5_000_000


def test_text_from_outside_is_never_taken_for_markup(tmp_path: Path) -> None:
    shape = replace(LOG, title=NASTY, version=NASTY, settings={NASTY: NASTY})
    results = write_run(tmp_path, (shape,), ASKED.model_copy(update={"name": NASTY, "extra": {NASTY: NASTY}}))
    result = results[0]
    result.validity.valid = False
    result.validity.reasons = [NASTY]
    result.validity.warnings = [NASTY]
    result.errors = {NASTY: 1}
    result.cannot = [NASTY]
    (tmp_path / "trials/001/result.json").write_text(result.model_dump_json())
    path = html.write(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("</script>") == 3, "the island and the two scripts of the page"
    page = outline(path)
    assert page.wrong == []


def test_templates_alone_make_markup_and_escape_what_is_put_into_it() -> None:
    """No text is escaped, or said to be safe, by hand: but for what is ours, in one place."""
    code = {path.name: path.read_text("utf-8") for path in Path(html.__file__).parent.glob("*.py")}
    assert [
        name
        for name, text in code.items()
        if re.search(r"(html|markupsafe) import .*escape|html\.escape", text)
    ] == []
    assert [name for name, text in code.items() if "Markup(" in text] == ["pages.py"]
    assert [name for name, text in code.items() if re.search(r"""["']<[a-z]""", text)] == []
    templates = sorted((Path(html.__file__).parent / "templates").iterdir())
    assert templates
    for template in templates:
        assert not re.search(r"\bsafe\b|autoescape", template.read_text("utf-8")), template


def test_what_a_template_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'policy' is undefined"):
        pages.render("study.html")


def test_a_name_in_the_heading_does_not_break_though_another_begins_like_it(tmp_path: Path) -> None:
    write_run(tmp_path, (LOG, replace(LOG, tls="on")), ASKED)
    heading = html.masthead(read_run(tmp_path))["heading"]
    assert heading.startswith(
        "Reference\u00a0log\u00a00.1.0 and Reference\u00a0log\u00a00.1.0\u00a0with\u00a0TLS at"
    )


def test_the_island_is_json_without_tags() -> None:
    text = island({"label": NASTY, "value": [1, None, 2.5]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["label"] == NASTY


def test_invalid_and_unclean_trials_are_loud(tmp_path: Path) -> None:
    write_run(tmp_path, (replace(LOG, send_delay_ms=3.0), replace(KAFKA, lost=12)), ASKED)
    text = " ".join(outline(html.write(tmp_path)).text)
    assert "INVALID" in text
    assert "The generator was late" in text
    assert "NOT CLEAN: 12 lost" in text
    assert "Messages were lost, corrupted or unaccounted for" in text
    assert "sequences 100-111 lost (middle)" in text


def test_an_interrupted_run_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, (LOG,), ASKED, status="interrupted")
    assert "This run is interrupted" in "".join(outline(html.write(tmp_path)).text)


def test_a_run_without_a_finished_trial_has_a_page_too(tmp_path: Path) -> None:
    write_run(tmp_path, (LOG,), ASKED, status="failed")
    (tmp_path / "trials/001/result.json").unlink()
    text = " ".join(outline(html.write(tmp_path)).text)
    assert "No trial was completed" in text


def test_a_trial_that_ended_before_its_first_interval_has_its_place(tmp_path: Path) -> None:
    write_run(tmp_path, (LOG, KAFKA), ASKED)
    for name in ("intervals.parquet", "resources.parquet"):
        (tmp_path / "trials/002" / name).unlink()
    raw = replace(sample_trial(tmp_path / "elsewhere", KAFKA, ASKED, 2), directory=tmp_path / "trials/002")
    result = raw.result(finish=None, status="failed", failure="Kafka did not start.")
    (tmp_path / "trials/002/result.json").write_text(result.model_dump_json())
    page = outline(html.write(tmp_path))
    text = " ".join(page.text)
    assert "Kafka did not start." in text
    assert "1 of 2 trials is valid" in text
    assert "None" not in text.replace("none", "")


def test_foreign_results_stand_beside_ours_and_are_marked(tmp_path: Path, run: Path) -> None:
    from streamgauge.report.export import to_omb

    write_run(tmp_path, (LOG,), ASKED)
    to_omb(run, tmp_path / "foreign")
    text = " ".join(outline(html.write(tmp_path)).text)
    assert "OpenMessaging Benchmark" in text
    assert "no audit, no validity" in text
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "trials/001/result.json").unlink()
    assert "Foreign results" in " ".join(outline(html.write(tmp_path)).text)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("manifest.json", "{", "is no JSON"),
        ("manifest.json", '{"format": 1}', "run_id: Field required"),
        ("trials/001/result.json", '{"format": 1, "surprise": 2}', "is no trial's result"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(InputError, match=complaint) as caught:
        html.write(tmp_path)
    assert str(path) in str(caught.value)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        html.write(tmp_path / "missing")
    with pytest.raises(InputError, match="neither"):
        html.write(tmp_path)


def test_the_data_holds_curves_and_series_of_every_trial(run: Path) -> None:
    text = html.write(run).read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    assert [subject["label"] for subject in data["subjects"]] == ["Reference log (L4)", "Apache Kafka (L3)"]
    assert [subject["trials"] for subject in data["subjects"]] == [[0, 1], [2, 3]]
    trial = data["trials"][0]
    assert len(trial["time"]) == 17
    assert trial["measure"] == [5.0, 17.0]
    for name in ("rate", "backlog", "publish_p99", "end_to_end_max", "cpu_system", "memory", "written"):
        assert len(trial["series"][name]) == 17, name
    assert trial["publish"] == sorted(trial["publish"])
