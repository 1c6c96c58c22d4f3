"""What messages say and where docs/troubleshooting.md says more: one table, held against the code, stored trials and the page."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from docs_pages import ROOT, anchors
from sample_run import LOG, workload, write_run
from streamgauge.cli.app import run
from streamgauge.model.result import TrialResult
from streamgauge.report import further, html
from streamgauge.report.run import read_run
from streamgauge.vocabulary import troubleshooting as page
from streamgauge.vocabulary.errors import InputError, SystemFailure

TOPICS = (*page.REASONS, *page.CONCLUSIONS, *page.REMARKS, *page.ERRORS)
PACKAGE = ROOT / "python/streamgauge"
JUDGES = ("analysis/validity.py", "analysis/books.py", "analysis/notes.py", "analysis/quiet_verdict.py")
SAYS_ALL = (
    "the trial was stopped by the user",
    "the system was broken on purpose",
    "what was seen in",
    "in the phase",
)
"""Remarks that need no page."""
STORED = sorted((ROOT / "tests/data/trials").glob("*.json"))


def test_every_anchor_is_on_the_page_and_every_section_is_named() -> None:
    found = anchors(ROOT / page.PAGE)
    named = {topic.anchor for topic in TOPICS} | set(page.KINDS.values())
    named |= {page.NOT_AS_ASKED, page.TRIAL_FAILED, page.NOT_CLEAN}
    assert named <= found
    sections = set(re.findall(r"^### (.*)$", (ROOT / page.PAGE).read_text("utf-8"), re.MULTILINE))
    assert len(sections) == len(named), "a section that no message leads to"


def sentences(source: str) -> list[str]:
    """The texts of a file that are said: whole sentences, with a figure for each expression."""

    def text(node: ast.expr) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(text(part) or "7" for part in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = text(node.left), text(node.right)
            return None if left is None else left + (right or "")
        return None

    tree = ast.parse(source)
    documented = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, (ast.JoinedStr, ast.BinOp))
        for part in ast.walk(node)
        if part is not node
    }
    found = [
        text(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and id(node) not in documented | inner
    ]
    return [one for one in found if one and re.match(r"[A-Z7].* .*[.:]", one) and len(one) > 40]


@pytest.mark.parametrize("file", JUDGES)
def test_what_the_judges_say_has_a_section(file: str) -> None:
    """A reason or remark that is new gets a place on the page, or is among those that say all there is to say."""
    homeless = [
        said
        for said in sentences((PACKAGE / file).read_text("utf-8"))
        if page.of_remark(said) is None
        and page.of_conclusion(said) is None
        and not said.lower().startswith(SAYS_ALL)
        and "Figures as they came" not in said
        and "figures as they came" not in said
        and not said.startswith(("7 of the time", "7 That was not the machine"))
    ]
    assert homeless == []


def test_what_the_patterns_look_for_is_said_somewhere() -> None:
    """A sentence that was worded anew takes its pattern along."""
    text = " ".join(
        re.sub(r'"\s*f?"', "", path.read_text("utf-8"))
        for path in PACKAGE.rglob("*.py")
        if path.name != "troubleshooting.py"
    )
    text = re.sub(r"\s+", " ", text)
    for topic in TOPICS:
        literal = max(
            re.split(r"[^A-Za-z ,'-]|\\[a-zA-Z]\+?", re.sub(r"\([^)]*\)|\\.", "|", topic.says)), key=len
        )
        parts = [part for part in re.split(r"\s*:", literal) if part]
        assert any(part.strip() in text for part in parts), topic


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_reasons_of_stored_trials_lead_to_their_sections(path: Path) -> None:
    result = TrialResult.model_validate_json(path.read_text("utf-8"))
    for reason in result.validity.reasons:
        anchor = page.of_reason(reason, result.durability.mismatches)
        generic = reason.startswith("The trial failed before")
        assert (anchor == page.TRIAL_FAILED) == generic, reason
    if result.validity.reasons:
        assert page.PAGE in further.see([result])


def test_a_mismatch_of_any_wording_leads_to_the_settings() -> None:
    said = "topic orders has 1 copy instead of 3"
    assert page.of_reason(said, [said]) == page.NOT_AS_ASKED
    assert page.of_reason(said) == page.TRIAL_FAILED


def test_a_place_is_told_once() -> None:
    assert page.see(["steal", None, "disturbed", "steal"]) == "docs/troubleshooting.md#steal, #disturbed"
    assert page.see([None]) == ""


def test_report_and_terminal_name_the_sections(tmp_path: Path) -> None:
    (result,) = write_run(tmp_path, (LOG,), workload(rate=2000, seconds=12))
    result.validity.valid = False
    result.validity.reasons = ["worker lost: worker-0: the worker was killed by signal 9"]
    (tmp_path / "trials/001/result.json").write_text(result.model_dump_json())
    assert "See docs/troubleshooting.md#a-worker-was-lost." in html.render(read_run(tmp_path))
    assert further.see([result]).startswith("docs/troubleshooting.md#a-worker-was-lost")


def test_results_do_not_name_the_page() -> None:
    """It may be worded anew, and results stay what they are."""
    for path in STORED:
        assert "troubleshooting" not in json.dumps(json.loads(path.read_text("utf-8")))


def test_an_error_names_its_section(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["run", "--rate", "5x", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error: ")
    assert said[-1] == "see docs/troubleshooting.md#the-input-is-wrong"


@pytest.mark.parametrize(
    ("error", "anchor"),
    [
        (InputError("messageSize: '1kb' is ambiguous: write 1kB"), "an-ambiguous-unit"),
        (SystemFailure("Apache Kafka cannot run here: no Java found"), "a-system-cannot-run-here"),
        (SystemFailure("something else"), "a-system-failed"),
        (OSError(28, "No space left on device", "runs/x"), "a-file-cannot-be-used"),
    ],
)
def test_errors_by_what_they_say_and_else_by_their_kind(error: Exception, anchor: str) -> None:
    assert page.of_error(error) == anchor


def test_a_fault_of_the_program_leads_nowhere() -> None:
    assert page.of_error(KeyError("x")) is None
