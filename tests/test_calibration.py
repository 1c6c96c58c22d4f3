"""Pairs of known truth: their study, what is kept of them, and the table; no process involved."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamgauge.cli.app import run as program
from streamgauge.model.calibration import FIGURES, Answer, Pair, study_text
from streamgauge.model.checked_study import parse_study
from streamgauge.model.scaling import Machine
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.report.calibration import table
from streamgauge.store.pairs import PAIRS, append_pair, read_pairs
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError


def pair(effect: float, verdict: str, ratio: float, predicted: int | None = None) -> Pair:
    answers = [
        Answer(figure=figure, verdict=verdict, ratio=ratio, rounds=6, decided_after=6, predicted=predicted)
        for figure in FIGURES
    ]
    return Pair(
        system="gauge-log", rate_msgs_s=1000, effect_percent=effect, delay_us=int(10 * effect), base_p50_ms=1.0, took_s=60,
        run="r", answers=answers,
    )  # fmt: skip


@pytest.mark.parametrize("delay_us", [0, 250])
def test_a_pair_is_a_study_in_which_each_trial_has_a_start_of_its_own(delay_us: int) -> None:
    study = parse_study(study_text("gauge-log", 1000.0, delay_us), "calibration", systems())
    plan = plan_study(study, Wishes(scale="quick", seed=1, budget_s=240.0), Machine(2, 4 << 30, None))
    assert [cell.cell for cell in plan.cells] == ["a", "b"], "nothing is heated"
    assert plan.cell("b").options == ({"commit_delay_us": delay_us} if delay_us else {})
    assert len({trial.block for trial in plan.trials}) == len(plan.trials) == 6
    assert [claim.tests[0].figure for claim in study.written.claims] == list(FIGURES)


def test_pairs_are_kept_and_counted(tmp_path: Path) -> None:
    pairs = [
        pair(0, "no difference that matters", 1.01),
        pair(0, "holds", 1.3),
        pair(20, "holds", 1.2, predicted=3),
        pair(20, "holds", 1.25, predicted=6),
        pair(20, "undecided", 1.1),
    ]
    for one in pairs:
        append_pair(tmp_path, one)
    assert read_pairs(tmp_path) == pairs
    told = "\n".join(table(pairs))
    assert (
        "1 of 2 pairs of the same were said to differ in one of 2 figures: so it is of 1 to 99 % of them (95 %)."
        in told
    )
    assert (
        "2 of 3 pairs with 20 % added were found to be higher in publish_ms.p50: so it is of 9 to 99 % of them"
        in told
    )
    assert "| none | publish\\_ms.p50 | 2 |" in told or "| none | publish_ms.p50 | 2 |" in told
    assert "| 20 % | publish_ms.p99 | 3 | 1.182 (1.005 to 1.390) | 2 | 0 | 0 | 1 | 6.00 | 1.50 of 2 |" in told
    (tmp_path / PAIRS).write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 1: expected a pair"):
        read_pairs(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--system", "kafca"], "no system 'kafca'; did you mean 'kafka'?"),
        (["--effects", "much"], "expected percents"),
        (["--system", "kafka", "--effects", "20"], "only gauge-log can be made slower"),
        (["--budget", "soon"], "--budget soon"),
    ],
)
def test_what_cannot_be_calibrated_is_said(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(["calibrate-verdicts", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert told in capsys.readouterr().err
