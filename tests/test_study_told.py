"""A study is stored with all that its report tells, so that it can be reported whatever its names would mean later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_run import LOG, workload, write_run
from streamgauge.analysis.study_outcome import read_outcome
from streamgauge.inference.checks import Sample
from streamgauge.model.result import Validity
from streamgauge.model.study_plan import StudyPlan
from streamgauge.report import study_page
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import check_ours, read_plan, write_plan
from streamgauge.vocabulary.errors import InputError
from test_study_model import TEXT, plan


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a study."""
    return run_of(plan(), tmp_path)


def run_of(planned: StudyPlan, tmp_path: Path) -> Path:
    """A run of three trials of a study."""
    directory = tmp_path / "20260921-141320-study"
    # Two trials that heat, and one that counts.
    write_run(directory, (LOG, LOG, LOG), asked=workload(seconds=4, warmup_s=1.0))
    write_plan(RunDirectory(directory), planned)
    name_trials(directory, [one.cell for one in planned.trials if one.repeat][:3])
    return directory


def name_trials(run: Path, cells: list[str]) -> None:
    """The trials of a run, in their order, are of these cells."""
    for number, cell in enumerate(cells, start=1):
        path = run / f"trials/{number:03d}/result.json"
        found = json.loads(path.read_text("utf-8"))
        found["workload"]["name"] = cell
        path.write_text(json.dumps(found), "utf-8")


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


def test_a_report_says_what_its_values_rest_on_and_which_pages_it_has_not(tmp_path: Path) -> None:
    text = TEXT.replace("publish_ms: {p50: 2, p99: 4}", "source: table 17, publish_ms: {p50: 2, p99: 4}")
    text = text.replace("- claim: fsync costs\n", "- claim: fsync costs\n    source: section 23\n")
    text += '  - {title: "Figure 31: 100 partitions, sync", bars: publish_ms.p99, cells: [log-sync-100]}\n'
    found = page(run_of(plan(text), tmp_path))
    assert "figures: table 17" in found
    assert "source: section 23" in found
    assert "1 page without a cell that is part of it: Figure 31: 100 partitions, sync." in found
    assert "<h2>Figure 31" not in found


def test_a_study_of_before_there_were_rounds_is_judged_and_says_so(tmp_path: Path) -> None:
    """All three repeats of each cell are on one start of its system: how far starts differ is not known from it."""
    planned = plan(only=("log-*-1",))
    kept = [one for one in planned.trials if one.repeat and not planned.cell(one.cell).heats]
    cells = sorted({one.cell for one in kept})
    assert len(cells) == 2
    trials = [
        planned.trials[0].model_copy(
            update={"number": 2 * at + 1 + of, "cell": cell, "repeat": at + 1, "round": None, "block": of + 1}
        )
        for at in range(3)
        for of, cell in enumerate(cells)
    ]
    former = planned.model_copy(update={"trials": trials, "rounds": 0})
    run = tmp_path / "20260921-141320-study"
    write_run(run, [LOG] * len(trials), asked=workload(seconds=4, warmup_s=1.0))
    write_plan(RunDirectory(run), former)
    name_trials(run, [trial.cell for trial in trials])
    told = page(run)
    assert "1 claim" in told
    assert "All repeats of a system ran on one start of it, as studies once did" in told


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


def test_bounds_of_a_latency_that_a_disturbance_hid_are_part_of_a_claim(tmp_path: Path) -> None:
    run, cells = run_of(plan(), tmp_path), []
    for number, (word, told) in enumerate(
        [
            ("valid", {}),
            ("disturbed", {"at_least": 1.8, "at_most": 6.0}),
            ("bounds only", {"at_least": 2.5, "at_most": None}),
        ],
        start=1,
    ):
        path = run / f"trials/{number:03d}/result.json"
        found = json.loads(path.read_text("utf-8"))
        found["workload"]["name"] = "log-sync-1"
        found["validity"] |= {"word": word, "valid": word != "bounds only"}
        names = ("mean", "p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99")
        found["quiet"] = {"watched": True, "publish_ms": dict.fromkeys(names, told)}
        path.write_text(json.dumps(found), "utf-8")
        cells.append(found)

    def sample() -> Sample:
        directory = RunDirectory(run)
        outcome = read_outcome(run, read_plan(run), directory.read_manifest(), directory.results())
        return outcome.sample("log-sync-1", "publish_ms.p99")

    assert [one.value for one in sample().values] == [cells[0]["publish_ms"]["p99"]]
    assert [(one.at_least, one.at_most) for one in sample().bounds] == [(1.8, 6.0)], (
        "an open end tells nothing"
    )
    cells[2]["quiet"]["publish_ms"]["p99"]["at_most"] = 9.0
    (run / "trials/003/result.json").write_text(json.dumps(cells[2]), "utf-8")
    assert [(one.at_least, one.at_most) for one in sample().bounds] == [(1.8, 6.0), (2.5, 9.0)]
    cells[2]["quiet"]["publish_ms"]["p99"]["at_most"] = 90.0
    (run / "trials/003/result.json").write_text(json.dumps(cells[2]), "utf-8")
    assert [(one.at_least, one.at_most) for one in sample().bounds] == [(1.8, 6.0)], "nor do ends far apart"


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
