"""A rate that was not reached beside disturbance: the machine can have cost what CPUs were away for; the rest is the generator's or the system's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample_run import SampleTrial, Shape, disturbed_sample, sample_trial, workload
from streamgauge.model.result import TrialResult
from streamgauge.model.result_machine import Lane
from streamgauge.model.result_special import Search

WARMUP_S, SECONDS, RATE = 2, 6, 2_000.0


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleTrial:
    """Everything that was asked for was acknowledged."""
    asked = workload(RATE, SECONDS, warmup_s=float(WARMUP_S))
    return sample_trial(tmp_path_factory.mktemp("sample"), Shape(), asked)


def windows(second: int, away_s: float, cause: str) -> list[dict[str, Any]]:
    """So much of a second in which a CPU was not to be had, in four pieces; on the other CPU at the same time as well."""
    begins = [second + 0.25 * part for part in range(4)]
    return [
        {
            "cpu": cpu, "from_s": begin, "to_s": begin + away_s / 4, "late_s": away_s / 4, "recovered_s": begin + 0.2,
            "cause": cause,
        }
        for begin in begins for cpu in (0, 1)
    ]  # fmt: skip


def disturbed(
    sample: SampleTrial,
    directory: Path,
    *,
    achieved: float,
    away: float,
    recovering: float,
    cause: str = "host",
    stolen_s: float = 0.0,
    busy: float = 0.3,
) -> TrialResult:
    """The sample as part of a higher rate, on a machine of which a CPU was away for this share of the time, and still recovering for that one."""
    quiet_s = 1.0 - away - recovering

    def told(second: int) -> dict[str, Any]:
        return {
            "windows": windows(second, away, cause),
            "steal_s": [stolen_s, 0.0],
            "attraction": {"quiet_samples": round(1000 * quiet_s), "begins": 4},
        }

    asked = sample.context.workload.model_copy(update={"rate_msgs_s": RATE / achieved})
    lane = Lane(
        worker="worker-1",
        name="producer-0",
        role="producer",
        scheduling="fifo:10",
        cpu_s=busy * (WARMUP_S + SECONDS),
    )
    found = disturbed_sample(sample, directory, quiet_s, told)
    return found.result(workload=asked, lanes=[lane])


def word(sample: SampleTrial, directory: Path, **machine: Any) -> tuple[str, str]:
    """What the trial is worth, and all that is said about it."""
    found = disturbed(sample, directory / "it", **machine)
    return found.validity.called, " ".join([found.validity.conclusion, *found.validity.reasons])


def test_a_rate_that_was_reached_is_judged_as_ever(sample: SampleTrial, tmp_path: Path) -> None:
    assert word(sample, tmp_path, achieved=1.0, away=0.08, recovering=0.3)[0] == "disturbed"


def test_what_cpus_were_away_for_may_explain_what_is_missing(sample: SampleTrial, tmp_path: Path) -> None:
    found, said = word(sample, tmp_path, achieved=0.92, away=0.08, recovering=0.3)
    assert found == "bounds only"
    assert "who had had more CPU might have kept up" in said


def test_recovering_from_it_explains_nothing(sample: SampleTrial, tmp_path: Path) -> None:
    """As a load far beyond the generator was seen: 82 % achieved, 77.6 % disturbed, of which 8 % were windows."""
    found, said = word(sample, tmp_path, achieved=0.82, away=0.08, recovering=0.696)
    assert found == "invalid"
    assert "Achieved 82.0 % of the target rate" in said
    assert "A CPU was away for 8.0 % of the time, which does not explain it." in said


def test_interrupts_of_the_load_itself_are_no_excuse(sample: SampleTrial, tmp_path: Path) -> None:
    machine = {"achieved": 0.85, "away": 0.2, "recovering": 0.3}
    assert word(sample, tmp_path, **machine, cause="softirq")[0] == "invalid"
    assert word(sample, tmp_path / "other", **machine, cause="real-time")[0] == "bounds only"


def test_what_the_host_took_in_pieces_too_small_for_windows_counts(
    sample: SampleTrial, tmp_path: Path
) -> None:
    machine = {"achieved": 0.85, "away": 0.04, "recovering": 0.3}
    assert word(sample, tmp_path, **machine, stolen_s=0.2)[0] == "bounds only"
    assert word(sample, tmp_path / "other", **machine)[0] == "invalid"


def test_a_thread_that_would_need_more_than_a_core_is_the_generators_own(
    sample: SampleTrial, tmp_path: Path
) -> None:
    """For 70 % of the rate it was busy for 69 % of the time: whole CPUs would not have been enough for all of it."""
    machine = {"achieved": 0.7, "away": 0.3, "recovering": 0.3}
    found, said = word(sample, tmp_path, **machine, busy=0.69)
    assert found == "invalid"
    assert "All of the rate would take 99 % of a CPU for thread producer-0 of worker-1" in said
    assert word(sample, tmp_path / "other", **machine, busy=0.6)[0] == "bounds only"


def test_a_rate_that_was_searched_for_and_did_not_hold_beside_disturbance_leaves_bounds(
    sample: SampleTrial, tmp_path: Path
) -> None:
    def found(away: float) -> TrialResult:
        rate = RATE / 0.92
        asked = Search(low_msgs_s=rate, bound="system", explanation="as if it had been found")
        context = sample.context.model_copy(update={"search": asked, "rate_msgs_s": rate})
        searched = SampleTrial(context, sample.directory)
        return disturbed(searched, tmp_path / f"{away}", achieved=0.92, away=away, recovering=0.3)

    held_up, failed = found(0.08), found(0.04)
    assert held_up.search is not None
    assert held_up.search.soak is not None
    assert held_up.search.soak.by_machine
    assert (held_up.validity.called, held_up.validity.reasons) == ("bounds only", [])
    assert failed.validity.called == "invalid"
    assert any("The rate that was found did not hold" in reason for reason in failed.validity.reasons)
