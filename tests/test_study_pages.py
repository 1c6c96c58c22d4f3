"""The pages of a study's report: what each kind draws, and what is refused in its file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lab_support import ROOT
from rich.console import Console
from sample_run import LOG, workload, write_run
from stored_trials import result_of, unpack
from streamgauge.analysis.study_figures import MeasuredTrial, over_time
from streamgauge.model.checked_study import parse_study
from streamgauge.model.result import TrialResult
from streamgauge.report import study_page
from streamgauge.report.run import read_run
from streamgauge.report.terminal_study import print_claims
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import check_ours, read_plan, write_plan
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.figures import SERIES
from test_study_model import TEXT, plan

BACKLOG = "gauge-log-backlog-extra-reader"
PAGES = """
  - {title: Overlay, over_time: publish_ms.p99, cells: ["*-1"], overlay: true}
  - {title: CPU beside, over_time: publish_rate_mb_s, beside: cpu.system_cores, cells: ["*-1"]}
  - {title: Backlog, over_time: backlog_msgs, cells: ["*-1"], overlay: true}
  - {title: Catching up, percentiles: publish_ms, phase: catch-up, cells: ["*-1"], overlay: true}
  - {title: Rate against latency, against: {x: publish_rate_mb_s, y: publish_ms.p99}, cells: ["*-1"]}
"""
WITH_BACKLOG = TEXT.replace("rate: 200k", "rate: 200k, backlog: {size: 10MB}")


def report(directory: Path, text: str = WITH_BACKLOG + PAGES.removeprefix("\n")) -> str:
    """Of a run whose cells have a real trial with a backlog, each."""
    run = directory / "20260921-141320-study"
    planned = plan(text, repeats=1)
    write_run(run, [LOG] * len(planned.trials), asked=workload(seconds=4, warmup_s=1.0))
    write_plan(RunDirectory(run), planned)
    for trial in planned.trials:
        path = run / f"trials/{trial.number:03d}"
        unpack(BACKLOG, path)
        found = json.loads(result_of(path)) | {"trial": trial.number}
        found["workload"]["name"] = trial.cell
        kept = json.loads((path / "result.json").read_text("utf-8"))
        # What is not compared of kept trials is of the sample's.
        kept.update(
            {key: value for key, value in found.items() if key not in ("quiet", "validity", "search")}
        )
        (path / "result.json").write_text(json.dumps(kept), "utf-8")
    check_ours(read_plan(run), run)
    return study_page.write(run).read_text("utf-8")


@pytest.mark.parametrize("width", [80, 160])
def test_a_terminal_tells_what_is_compared_and_what_was_asked(tmp_path: Path, width: int) -> None:
    """A ratio of times that is refuted at 18 looks like a success to whoever does not know that less was asked."""
    report(tmp_path)
    (run,) = tmp_path.iterdir()
    console = Console(width=width, record=True)
    print_claims(study_page.outcome_of(read_run(run)), console)
    told = " ".join(console.export_text().replace("│", " ").split())
    assert "p99 publish latency: " in told
    assert ", asked: above 1" in told


def section(page: str, title: str) -> str:
    found = re.search(rf"<h2>{title}</h2>(.*?)</section>", page, re.DOTALL)
    assert found is not None, title
    return found.group(1)


def test_each_kind_of_page_draws_what_it_says(tmp_path: Path) -> None:
    page = report(tmp_path)
    overlay = section(page, "Overlay")
    assert overlay.count("<svg") == 1
    assert overlay.count('<path class="line') == 3, "two cells, and what one of them is printed with"
    beside = section(page, "CPU beside")
    assert beside.count("<svg") == 2
    assert beside.count('<path class="line right"') == 2
    assert "dashed, on the right: CPU of the system (cores)" in beside
    assert section(page, "Backlog").count('<path class="line') == 2
    caught_up = section(page, "Catching up")
    assert "phase catch-up" in caught_up
    assert caught_up.count('<path class="line') == 2
    assert '<circle class="mark"' not in caught_up, "printed percentiles are those of the measured phase"
    against = section(page, "Rate against latency")
    assert against.count("<svg") == 1
    assert against.count('<circle class="mark"') == 2
    assert "logarithmic" in against


def test_every_series_can_be_drawn_of_a_real_trial(tmp_path: Path) -> None:
    unpack(BACKLOG, tmp_path)
    result = (
        TrialResult.model_validate(json.loads((tmp_path / "result.json").read_text("utf-8")))
        if (tmp_path / "result.json").exists()
        else None
    )
    measured = MeasuredTrial(result, tmp_path)  # type: ignore[arg-type]
    for name in SERIES:
        times, values = over_time(measured, name)
        assert len(times) == len(values) > 3, name
        assert (values >= 0).all(), name


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (
            '{title: x, over_time: catch_up_max_mb_s, cells: ["*"]}',
            "over_time: 'catch_up_max_mb_s' is no series",
        ),
        ('{title: x, over_time: consume_rate, cells: ["*"]}', "is no series.*consume_rate_mb_s"),
        (
            '{title: x, over_time: publish_ms.p99, beside: cpu.cores, cells: ["*"]}',
            "beside: 'cpu.cores' is no series",
        ),
        ('{title: x, bars: publish_ms.p99, overlay: true, cells: ["*"]}', "overlay says nothing of bars"),
        (
            '{title: x, table: [publish_ms.p99], beside: backlog_msgs, cells: ["*"]}',
            "beside says nothing of table",
        ),
        (
            '{title: x, over_time: publish_ms.p99, phase: catch-up, cells: ["*"]}',
            "phase says nothing of over_time",
        ),
        (
            '{title: x, percentiles: publish_ms, phase: catch-up, cells: ["*"]}',
            "phase catch-up.*cells with a backlog",
        ),
        (
            '{title: x, bars: catch_up.chase_s, cells: ["*"]}',
            "'catch_up.chase_s': none of its cells.*backlog",
        ),
        (
            '{title: x, bars: sustained_mb_s, cells: ["*"]}',
            "'sustained_mb_s': none of its cells.*rate sustainable",
        ),
        ('{title: x, against: {x: publish_ms.p50, y: nothing}, cells: ["*"]}', "no figure 'nothing'"),
        ('{title: x, against: {x: publish_ms.p50}, cells: ["*"]}', "y"),
        ("{title: x, bars: publish_ms.p99, cells: [log-asink-*]}", "'log-asink-\\*' meets no cell"),
        ('{title: x, bars: publish_ms.p99, cells: ["*"], colour: red}', "unknown key 'colour'"),
    ],
)
def test_a_page_that_can_never_be_drawn_is_refused_with_its_line(page: str, words: str) -> None:
    with pytest.raises(InputError, match=f"small.yaml:25:.*{words}"):
        parse_study(f"{TEXT}  - {page}\n", "small.yaml", systems())


def test_a_claim_on_what_a_cell_never_has_is_refused_with_its_line() -> None:
    claim = "tests: [{figure: publish_ms.p99, ratio: [log-sync-1, log-async-1], above: 1}]"
    for test, words in (
        (
            "figure: catch_up.chase_s, ratio: [log-sync-1, log-async-1], above: 1",
            "'catch_up.chase_s' of cell 'log-sync-1' is never measured",
        ),
        (
            "figure: publish_ms.p99, of: sustained_mb_s, ratio: [log-sync-1, log-async-1], above: 1",
            "'sustained_mb_s' of cell 'log-async-1' is never",
        ),
        ("figure: publish_ms.p99, value: log-sync-7, above: 1", "no cell 'log-sync-7'"),
        ("figure: publish_ms.p99, value: log-sync-1, abov: 1", "unknown key 'abov'"),
    ):
        with pytest.raises(InputError, match=f"small.yaml:22:.*{words}"):
            parse_study(TEXT.replace(claim, f"tests: [{{{test}}}]"), "small.yaml", systems())


def test_the_study_in_the_documentation_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(study:.*?)```", (ROOT / "docs/studies.md").read_text("utf-8"), re.DOTALL)
    assert len(parse_study(text, "docs/studies.md", systems()).cells) == 4
