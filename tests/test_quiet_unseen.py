"""What the host took of CPUs in pieces too short for the probes: it is in quiet time, and nobody can say that the generator was late by itself for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_run import SampleTrial, Shape, disturbed_sample, encode, sample_trial, workload
from streamgauge.analysis.quiet_away import Unseen, unseen
from streamgauge.analysis.quiet_bounds import Estimates, figures
from streamgauge.analysis.quiet_check import Attraction
from streamgauge.model.messages import WINDOWS_MAX, CpuWindow, Disturbance, ProbesStatus, Unlisted
from streamgauge.model.result import TrialResult
from streamgauge.model.result_quiet import Begin
from test_quiet import sent

PROBES = ProbesStatus(cpus=[0, 1], is_on=True, period_ms=2.0)
RATE, WARMUP_S, SECONDS = 2_000.0, 2, 6


def window(cpu: int, from_s: float, length_s: float, cause: str = "host") -> CpuWindow:
    to_s = from_s + length_s
    return CpuWindow(cpu=cpu, from_s=from_s, to_s=to_s, late_s=length_s, recovered_s=to_s + 0.01, cause=cause)


def share(*told: Disturbance, probes: ProbesStatus | None = PROBES) -> float:
    rows = [{"worker": "worker-1"}] * len(told)
    return unseen(list(zip(rows, told, strict=True)), float(len(told)), probes).share


def test_what_the_account_has_and_no_window_was_taken_unseen() -> None:
    told = Disturbance(steal_s=[0.05, 0.12], windows=[window(0, 0.2, 0.04), window(1, 0.5, 0.02)])
    assert share(told, told) == pytest.approx(0.02 / 1.92 + 0.2 / 1.96)
    # One that lost all of it in windows lost nothing unseen.
    assert share(Disturbance(steal_s=[0.04, 0.0], windows=[window(0, 0.2, 0.045)])) == 0.0
    # A tick more than windows have may be rounding.
    assert share(Disturbance(steal_s=[0.05, 0.0], windows=[window(0, 0.2, 0.045)])) == 0.0
    # A message passes both CPUs, a lane is on one of them.
    both = unseen([({"worker": "worker-1"}, Disturbance(steal_s=[0.1, 0.2]))], 1.0, PROBES)
    assert (both.share, both.of_one_cpu) == pytest.approx((0.3, 0.2))
    assert share(Disturbance(), probes=None) == 0.0


def test_where_nobody_tells_whose_an_account_is_windows_of_all_cpus_are_taken_off() -> None:
    told = Disturbance(steal_s=[0.05, 0.12], windows=[window(4, 0.2, 0.04), window(5, 0.5, 0.02)])
    assert share(told, probes=None) == pytest.approx(0.06 / 0.94)
    assert share(Disturbance(steal_s=[0.0, 0.0, 0.1]), probes=None) == pytest.approx(0.1)
    listed = Disturbance(steal_s=[0.0, 0.12], unlisted=Unlisted(windows=30, length_s=0.05))
    assert share(listed) == pytest.approx(0.07 / 0.95)


def test_where_there_is_no_account_windows_tell_alone() -> None:
    short = [window(0, 0.02 * at, 0.0026).model_copy(update={"late_s": 0.0006}) for at in range(40)]
    for probes in (None, ProbesStatus(is_on=True, period_ms=2.0), PROBES):
        assert share(Disturbance(windows=short), probes=probes) > 0.1


def test_of_several_workers_the_mean_counts() -> None:
    told = [Disturbance(steal_s=[0.0, 0.1]), Disturbance(steal_s=[0.0, 0.0])]
    seen = [({"worker": f"worker-{at}"}, one) for at, one in enumerate(told)]
    found = unseen(seen, 2.0, PROBES)
    assert (found.share, found.of_one_cpu, found.longest_ms) == pytest.approx((0.05, 0.05, 2.5))


def test_the_lower_end_of_a_figure_allows_for_what_nobody_saw() -> None:
    intervals = [sent([1.0] * 900 + [2.0] * 60 + [3.0] * 40, [], []) for _ in range(20)]
    plain, hit, held = (
        figures(
            Estimates(intervals, None, Unseen(unseen_share, unseen_share, longest_ms)),
            Attraction(Begin.independent),
            0.02,
            {"p50": 50.0, "p99": 99.0},
        )
        for unseen_share, longest_ms in ((0.0, 2.5), (0.06, 2.5), (0.06, 0.4))
    )
    assert (plain["p99"].value, plain["p99"].at_least) == pytest.approx((3.0, 3.0), rel=0.01)
    assert (hit["p99"].value, hit["p99"].at_least) == pytest.approx((3.0, 2.0), rel=0.01)
    assert hit["p50"].at_least == pytest.approx(1.0, rel=0.01)
    # No piece held a message up for longer than it lasted.
    assert (held["p99"].value, held["p99"].at_least) == pytest.approx((3.0, 2.6), rel=0.01)


@pytest.mark.parametrize("lengths_ms", [(0.8, 1.2), (1.0, 2.0), (0.6, 2.4), (2.0, 30.0), (5.0, 5.0)])
@pytest.mark.parametrize("period_ms", [1.0, 2.0])
def test_windows_tell_of_pieces_that_were_missed(lengths_ms: tuple[float, float], period_ms: float) -> None:
    """200 s of a thief on one CPU, every 10 ms or where it stays longer every 100, and probes as they are."""
    random = np.random.default_rng(round(10 * lengths_ms[1]))
    seconds, every_s = 200.0, 0.01 if lengths_ms[1] < 3 else 0.1
    begins = np.arange(0.0, seconds, every_s) + random.uniform(0, every_s / 2, round(seconds / every_s))
    ends = begins + random.uniform(*lengths_ms, len(begins)) / 1e3
    told, missed_s, at = [], 0.0, random.uniform()
    for begin, end in zip(begins, ends, strict=True):
        # The first wake-up of the probe that is due after the piece began.
        due = begin + (at - begin) % (period_ms / 1e3)
        late_s = end - due
        if late_s >= 0.0005:
            told.append(window(0, due - period_ms / 1e3, period_ms / 1e3 + late_s, "real-time"))
            told[-1] = told[-1].model_copy(update={"late_s": late_s})
            at = end
        else:
            missed_s += end - begin
    probes = ProbesStatus(cpus=[0], is_on=True, period_ms=period_ms)
    disturbance = Disturbance(windows=told[:WINDOWS_MAX], steal_s=[0.0])
    if len(told) > WINDOWS_MAX:
        disturbance = disturbance.model_copy(update={"windows": told})
    found = unseen([({"worker": "worker-1"}, disturbance)], seconds, probes)
    seen_s = sum(one.to_s - one.from_s for one in told)
    assert found.share == pytest.approx(missed_s / (seconds - seen_s), abs=0.004, rel=0.15)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleTrial:
    asked = workload(RATE, SECONDS, warmup_s=float(WARMUP_S))
    return sample_trial(tmp_path_factory.mktemp("sample"), Shape(), asked)


def trial(
    sample: SampleTrial,
    directory: Path,
    *,
    late_ms: float,
    late_share: float,
    stolen: float,
    seen: float = 0.03,
    rate: float = RATE,
) -> TrialResult:
    """The sample, of which so many messages left late in quiet time, on a machine of which the host took so much of a CPU; so much of that in windows."""
    late = round(late_share * RATE)
    delays = encode(np.array([50_000] * (round(RATE) - late) + [round(1e6 * late_ms)] * late, dtype=np.int64))

    def told(second: int) -> dict[str, Any]:
        windows = [window(1, second + 0.25 * part, seen / 4).model_dump() for part in range(4)]
        return {
            "windows": windows if seen else [],
            "steal_s": [0.0, stolen],
            "attraction": {"quiet_samples": 900, "begins": 4 if seen else 0},
        }

    disturbed = disturbed_sample(sample, directory, 1.0 - 2 * seen, told, send_delay=delays)
    context = sample.context.model_copy(update={"cpu_probes": PROBES})
    asked = context.workload.model_copy(update={"rate_msgs_s": rate})
    return replace(disturbed, context=context).result(workload=asked)


def words(sample: SampleTrial, directory: Path, **machine: float) -> tuple[str, str]:
    found = trial(sample, directory, **machine)
    return found.validity.called, " ".join([found.validity.conclusion, *found.validity.reasons])


def test_lateness_that_unseen_pieces_may_explain_is_not_called_the_generators(
    sample: SampleTrial, tmp_path: Path
) -> None:
    """As `make bench` was seen on a host that took 11 %: 0.9 ms in quiet time."""
    found, said = words(sample, tmp_path / "it", late_ms=2.2, late_share=0.04, stolen=0.11)
    assert found == "bounds only"
    assert "Whether the generator was late by itself cannot be told" in said
    assert (
        "a CPU was away in pieces too short to be seen, which may be why 4.0 % of its messages were late"
        in said
    )
    # Nor where they are all that disturbed it.
    assert (
        words(sample, tmp_path / "no", late_ms=2.2, late_share=0.04, stolen=0.11, seen=0.0)[0]
        == "bounds only"
    )


def test_what_no_unseen_piece_explains_is_the_generators_own(sample: SampleTrial, tmp_path: Path) -> None:
    alone, said = words(sample, tmp_path / "alone", late_ms=2.2, late_share=0.04, stolen=0.03)
    assert alone == "invalid"
    assert "The generator was late by itself" in said
    # More than were due in them.
    assert words(sample, tmp_path / "many", late_ms=2.2, late_share=0.15, stolen=0.11)[0] == "invalid"
    # Later than a piece that no probe saw can be.
    assert words(sample, tmp_path / "long", late_ms=5.0, late_share=0.04, stolen=0.11)[0] == "invalid"


def test_a_rate_that_unseen_pieces_may_have_cost_leaves_bounds(sample: SampleTrial, tmp_path: Path) -> None:
    """However few windows there were."""
    machine = {"late_ms": 0.06, "late_share": 0.04, "seen": 0.001}
    taken = trial(sample, tmp_path / "taken", **machine, stolen=0.11, rate=RATE / 0.93)
    assert (taken.validity.called, taken.validity.reasons) == ("bounds only", [])
    assert (
        trial(sample, tmp_path / "not", **machine, stolen=0.0, rate=RATE / 0.93).validity.called == "invalid"
    )


def test_what_was_taken_unseen_is_told(sample: SampleTrial, tmp_path: Path) -> None:
    found = trial(sample, tmp_path / "it", late_ms=0.06, late_share=0.04, stolen=0.11)
    assert found.quiet is not None
    assert found.quiet.unseen_share == pytest.approx(0.08 / 0.97)
    assert found.validity.called == "disturbed"
    assert "For another 8.2 % a CPU was away in pieces too short to be seen" in found.validity.conclusion
