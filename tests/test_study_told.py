"""A study is stored with all that its report tells, so that it can be reported whatever its names would mean later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_run import LOG, workload, write_run
from streamgauge.analysis.study_outcome import StudyOutcome
from streamgauge.inference.samples import Measured, Sample
from streamgauge.model.result import Validity
from streamgauge.model.study_file import ClaimFile
from streamgauge.report import study_page
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import check_ours, read_plan, write_plan
from streamgauge.vocabulary.errors import InputError
from test_study_model import TEXT, plan


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a study."""
    directory = tmp_path / "20260921-141320-study"
    write_run(directory, (LOG, LOG), asked=workload(seconds=4, warmup_s=1.0))
    planned = plan()
    write_plan(RunDirectory(directory), planned)
    for number, trial in enumerate([one for one in planned.trials if one.repeat][:2], start=1):
        path = directory / f"trials/{number:03d}/result.json"
        found = json.loads(path.read_text("utf-8"))
        found["workload"]["name"] = trial.cell
        path.write_text(json.dumps(found), "utf-8")
    return directory


def page(run: Path) -> str:
    return study_page.write(run).read_text("utf-8")


def change(run: Path, what: Callable[[dict[str, Any]], object]) -> None:
    path = run / "study.json"
    found = json.loads(path.read_text("utf-8"))
    what(found)
    path.write_text(json.dumps(found), "utf-8")


def with_lost_names(text: str) -> str:
    """A study file with an option, a system and a workload key that there are no more."""
    found = text.replace(
        'system: gauge-log, title: "Log, sync", level: L1',
        'system: gone, title: "Log, sync", level: L1, options: {lost: 1}',
    )
    found = found.replace("messageSize: 1KiB", "messageSize: 1KiB, lost: 2")
    assert found.count("lost") == 2
    return found


def test_a_study_whose_file_names_what_there_is_no_more_makes_its_report(run: Path) -> None:
    before = page(run)
    assert "fsync costs" in before
    assert "Log, sync" in before
    change(run, lambda found: found.update(text=with_lost_names(TEXT)))
    assert page(run) == before
    change(run, lambda found: found.update(text="in a format of another year"))
    assert page(run) == before


def test_a_plan_of_before_it_was_stored_makes_the_same_report(run: Path) -> None:
    before = page(run)
    change(run, lambda found: found.pop("told"))
    assert page(run) == before
    change(run, lambda found: found.update(text=with_lost_names(TEXT)))
    assert page(run) == before


def test_a_study_of_before_a_figure_had_one_name_shows_it(run: Path) -> None:
    change(run, lambda found: found.pop("told"))
    change(run, lambda found: found.update(text=TEXT.replace("table: [", "table: [system_cpu_us_per_msg, ")))
    found = page(run)
    assert "CPU of the system per message" in found
    assert "no such figure" not in found


def test_a_figure_that_there_is_no_more_is_shown_as_printed(run: Path) -> None:
    text = (run / "study.json").read_text("utf-8")
    (run / "study.json").write_text(text.replace("publish_ms.p99", "lost_ms.p99"), "utf-8")
    found = page(run)
    assert "p99 publish latency" in found
    assert "no such figure was measured" in found


def test_a_trial_of_which_bounds_alone_stand_says_why() -> None:
    held_up = "The machine was taken away for 40 % of the time."
    bounds_only = Validity(valid=False, word="bounds only", conclusion=held_up, disturbed=True)
    assert bounds_only.why == held_up
    assert Validity(valid=False, reasons=["a", "b"], conclusion="c").why == "a"


def test_a_plan_of_before_it_was_stored_keeps_its_seal(run: Path) -> None:
    write_plan(RunDirectory(run), plan().model_copy(update={"told": None}))
    change(run, lambda found: found.pop("told"))
    check_ours(read_plan(run), run)
    change(run, lambda found: found.update(seed=8))
    with pytest.raises(InputError, match="was changed since"):
        check_ours(read_plan(run), run)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"ratio": ["log-sync-1", ', '"ratio": ["none", ', "no cell 'none'"),
        ('"figure": "publish_ms.p99"', '"figure": "none"', "no figure 'none'"),
        ('"system": "log-async", "published"', '"system": "none", "published"', "no system 'none'"),
        ('"above": 1.0', '"above": null', "needs one bound"),
    ],
)
def test_what_does_not_fit_together_is_no_study(run: Path, old: str, new: str, said: str) -> None:
    text = json.dumps(json.loads((run / "study.json").read_text("utf-8")))
    assert old in text
    (run / "study.json").write_text(text.replace(old, new), "utf-8")
    with pytest.raises(InputError, match=said):
        page(run)


def with_verdicts(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Every figure is known in three rounds of every cell; the first cell of the claim has so many times as much as the others."""
    first = parse_study_claims()[0].tests[0].cells[0]

    def sample(_self: StudyOutcome, cell: str, _figure: str) -> Sample:
        times = factor if cell == first else 1.0
        values = [times * one for one in (10.0, 10.2, 9.9)]
        return Sample(tuple(Measured(value, at, f"{cell} {at}") for at, value in enumerate(values, start=1)))

    monkeypatch.setattr(StudyOutcome, "sample", sample)


def parse_study_claims() -> list[ClaimFile]:
    told = plan().told
    assert told is not None
    return told.claims


@pytest.mark.parametrize(
    ("factor", "tone", "words"),
    [
        (9.0, "good", ("1 claim: 1 holds", "Shown here: “")),
        (0.1, "bad", ("1 claim: 1 is refuted", "Refuted here: “")),
    ],
)
def test_what_was_decided_stands_first_with_its_colour_and_its_plot(
    run: Path, monkeypatch: pytest.MonkeyPatch, factor: float, tone: str, words: tuple[str, ...]
) -> None:
    with_verdicts(monkeypatch, factor)
    found = page(run)
    for one in words:
        assert one in found
    assert f'class="{tone}"><b>' in found
    assert f'class="interval {tone}"' in found
    assert 'class="bound"' in found


def test_what_is_open_is_neutral_and_never_looks_like_a_success(run: Path) -> None:
    found = page(run)
    claims = found.partition('<section id="claims">')[2].partition("</section>")[0]
    assert 'class="open"><b>' in claims
    assert "sign good" not in claims
    assert "✓" not in found.partition("<section")[2].partition("</section>")[0], "the page's own verdict"


def test_margins_are_drawn_and_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rising(found: dict[str, Any]) -> None:
        [claim] = found["told"]["claims"]
        [test] = claim["tests"]
        test |= {"rising": test["ratio"][::-1], "ratio": None, "above": None}

    change(run, rising)
    with_verdicts(monkeypatch, 1.001)
    found = page(run)
    assert "1 claim: 1 is equivalent" in found
    assert "no difference that matters: within x1.5 either way" in found
    assert 'class="margin"' in found
    assert 'class="same"><b>' in found
