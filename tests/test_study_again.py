"""Which trials of a study are made once more, and at what rate."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sample_run import KAFKA, sample_trial, workload
from streamgauge.analysis.study_again import TRIES_MAX, after
from streamgauge.model.result import Durability, TrialResult, Validity
from streamgauge.model.result_special import WarmUpResult
from streamgauge.model.study_plan import StudyPlan
from streamgauge.runner.study_run import lasting
from test_study_model import plan


@cache
def sample() -> TrialResult:
    with TemporaryDirectory() as directory:
        return sample_trial(Path(directory), KAFKA, workload()).result()


def trial(
    cell: str, *, rate: float = 24_000.0, valid: bool = False, share: float | None = 1.0, **changes: Any
) -> TrialResult:
    """A trial of a cell: invalid unless said otherwise."""
    found = sample()
    disturbed = changes.pop("disturbed", False)
    validity = Validity(valid=valid, reasons=[] if valid else ["a reason"], disturbed=disturbed)
    workload = found.workload.model_copy(update={"name": cell, "rate_msgs_s": rate})
    update = {"workload": workload, "validity": validity, "achieved_share": share, **changes}
    return found.model_copy(update=update)


def judged(
    found: TrialResult,
    *before: TrialResult,
    study: StudyPlan | None = None,
    tries: int = 1,
    same_again: int = 0,
) -> tuple[float, bool]:
    """The rate that the study goes on with, and whether the trial is made again."""
    following, again = after(study or plan(), found, before, tries=tries, same_again=same_again)
    rate = following.rate_of("log-async-1")
    assert rate is not None
    return rate, again


def test_what_is_valid_is_not_made_again() -> None:
    assert judged(trial("log-sync-1", valid=True)) == (24_000.0, False)


def test_a_rate_is_lowered_until_it_is_carried() -> None:
    found = trial("log-sync-1", share=0.5)
    assert judged(found) == (6_000.0, True)
    assert judged(found, tries=2) == (6_000.0, True)
    assert judged(found, tries=TRIES_MAX) == (6_000.0, False)


def test_a_rate_that_was_carried_before_stays_and_the_trial_is_made_again_once() -> None:
    before, found = trial("log-sync-1", valid=True), trial("log-sync-1", share=0.9)
    assert judged(found, before) == (24_000.0, True)
    assert judged(found, before, tries=2, same_again=1) == (24_000.0, False)
    # Another system's says nothing of this one, and one at a former rate nothing of this rate.
    assert judged(found, trial("log-async-1", valid=True)) == (10_000.0, True)
    lower, _ = after(plan(), trial("log-sync-1", share=0.5), (), tries=1, same_again=0)
    again = trial("log-sync-1", rate=6_000.0, share=0.5)
    assert judged(again, before, study=lower) == (1_500.0, True)


def test_what_is_invalid_for_another_reason_is_made_again_once() -> None:
    assert judged(trial("log-sync-1")) == (24_000.0, True)
    assert judged(trial("log-sync-1", disturbed=True, share=0.5)) == (24_000.0, True)
    assert judged(trial("log-sync-1"), tries=2, same_again=1) == (24_000.0, False)
    assert judged(trial("log-sync-1", status="failed")) == (24_000.0, False)


def test_a_finding_is_not_measured_away() -> None:
    lost = sample().audit.model_copy(update={"lost": 3, "clean": False})
    assert lost.shows_lost == 3
    assert judged(trial("log-sync-1", audit=lost)) == (24_000.0, False)
    durability = Durability(asked="L3", declared="L4", mismatches=["flush.messages is not 1"])
    assert judged(trial("log-sync-1", durability=durability)) == (24_000.0, False)


def test_what_heats_a_start_lowers_the_rate_and_is_not_made_again() -> None:
    heating = next(cell.cell for cell in plan().cells if cell.heats and "sync-1" in cell.cell)
    cold = WarmUpResult(limit_s=40, lasted_s=40, steady=False, explanation="it went on falling")
    assert judged(trial(heating, share=0.5, warm_up=cold)) == (6_000.0, False)
    steady = cold.model_copy(update={"steady": True, "explanation": ""})
    # One second of a load that was steady before says less than the load.
    assert judged(trial(heating, share=0.5, warm_up=steady)) == (24_000.0, False)
    # What was carried in an earlier round stays.
    assert judged(trial(heating, share=0.5, warm_up=cold), trial("log-sync-1", valid=True)) == (
        24_000.0,
        False,
    )
    assert judged(trial(heating, share=1.0, warm_up=cold)) == (24_000.0, False)
    # What is rehearsed is too short to say.
    assert judged(trial(heating, share=0.5, warm_up=None)) == (24_000.0, False)


def test_a_probe_that_says_the_machine_has_changed_is_made_again() -> None:
    def probe(crc32c_mb_s: float) -> dict[str, Any]:
        return {"cpu": {"crc32c_mb_s": crc32c_mb_s}}

    def made(*rates: float, again: int = 2) -> tuple[float, list[float]]:
        takes = iter([probe(rate) for rate in rates])
        pauses: list[float] = []
        found = lasting(lambda: next(takes), [probe(25_000.0)], again, pauses.append)
        return found["cpu"]["crc32c_mb_s"], pauses

    assert made(24_000.0) == (24_000.0, [])
    # What has passed voids nothing.
    assert made(12_000.0, 25_100.0) == (25_100.0, [5.0])
    # What lasts does.
    assert made(12_000.0, 11_900.0, 11_800.0) == (11_800.0, [5.0, 5.0])
    # A short study looks once more.
    assert made(12_000.0, 11_900.0, again=1) == (11_900.0, [5.0])
