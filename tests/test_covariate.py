"""What is taken out of a comparison because one side was disturbed more than the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from streamgauge.inference.checks import Sample
from streamgauge.inference.contrast import Between, Spreads, Value, ratio
from streamgauge.inference.covariate import NONE, Met, slope_of, together
from streamgauge.inference.number import Bounded, Number
from test_inference import HIGHER, World, decided, judged


def trials(
    slope: float,
    *,
    seed: int = 1,
    cells: int = 6,
    rounds: int = 3,
    noise: float = 0.03,
    starts: float = 0.0,
    taken: float = 0.08,
) -> list[Met]:
    """Of cells on one start in each round. `starts`: by how much a start is slower for each share that is taken from it."""
    random = np.random.default_rng(seed)
    found = []
    for round_ in range(rounds):
        heavy = random.exponential(taken)
        for cell in range(cells):
            own = random.exponential(taken)
            log = cell + starts * heavy + slope * own + random.normal(0.0, noise)
            found.append(Met(f"cell-{cell}", (round_, 0), heavy + own if starts else own, log))
    return found


def test_the_slope_is_found_with_its_error() -> None:
    told = [slope_of(trials(2.0, seed=seed)) for seed in range(200)]
    values = [one.value for one in told]
    assert float(np.mean(values)) == pytest.approx(2.0, abs=0.05)
    assert float(np.std(values)) == pytest.approx(float(np.mean([one.error for one in told])), rel=0.25)


def test_a_start_that_is_slow_and_is_taken_more_from_is_no_slope() -> None:
    told = [slope_of(trials(0.0, seed=seed, starts=5.0)).value for seed in range(100)]
    assert abs(float(np.mean(told))) < 0.1


@pytest.mark.parametrize(
    "met",
    [
        [],
        trials(2.0, cells=2, rounds=3),
        trials(2.0, taken=0.0005),
        [Met(f"cell-{at}", (at, 0), 0.01 * at, 1.0) for at in range(20)],
    ],
    ids=["none", "too few", "hardly differ", "each cell on a start of its own"],
)
def test_where_too_little_tells_it_there_is_none(met: list[Met]) -> None:
    assert slope_of(met) == NONE


def values(cell: float, taken: list[float], slope: float, start: int) -> list[Value]:
    return [
        Value(cell * math.exp(slope * share), at + 1, start + at, at, taken=share)
        for at, share in enumerate(taken)
    ]


TAKEN = {
    "a": [0.10, 0.20, 0.15],
    "b": [0.01, 0.02, 0.0],
    "c": [0.05, 0.0, 0.12],
    "d": [0.0, 0.11, 0.03],
    "e": [0.07, 0.01, 0.02],
}
STUDY = {cell: values(2.0 if cell == "a" else 1.0, taken, 2.0, 10) for cell, taken in TAKEN.items()}


def test_two_cells_are_compared_as_if_nothing_had_been_taken_from_either() -> None:
    found = ratio(("a", "b"), STUDY["a"], STUDY["b"], Spreads("publish_ms.p50", STUDY))
    assert isinstance(found, Number)
    assert found.value == pytest.approx(2.0, rel=1e-6)
    assert found.came == pytest.approx(2.0 * math.exp(2.0 * (0.15 - 0.01)), rel=1e-6)
    # Each cell's own slope is not told by however many rounds.
    assert found.fixed > 0


def test_two_figures_have_each_their_slope() -> None:
    other = {cell: values(1.0, taken, 5.0, 10) for cell, taken in TAKEN.items()}
    spreads = [Spreads("publish_ms.p50", study) for study in (STUDY, other)]
    found = ratio(("a", "b"), STUDY["a"], other["b"], *spreads)
    assert isinstance(found, Number)
    assert found.value == pytest.approx(2.0, rel=1e-6)


def test_of_one_side_alone_nothing_is_taken_out() -> None:
    same = {cell: values(1.0, [0.1, 0.1, 0.1], 5.0, 10) for cell in TAKEN}
    spreads = [Spreads("publish_ms.p50", study) for study in (STUDY, same)]
    assert (spreads[0].slope == NONE, spreads[1].slope) == (False, NONE)
    found = ratio(("a", "b"), STUDY["a"], same["b"], *spreads)
    assert isinstance(found, Number)
    assert found.evened == 0
    assert found.value == pytest.approx(2.0 * math.exp(2.0 * 0.15 - 0.5), rel=1e-6)


def test_of_a_trial_that_nobody_watched_nothing_is_taken_out() -> None:
    hidden: list[Value | Between] = [*STUDY["a"][:2], Between(2.0, 2.5, 3, 12, 2)]
    study = STUDY | {"a": STUDY["a"][:2]}
    found = ratio(("a", "b"), hidden, study["b"], Spreads("publish_ms.p50", study))
    assert isinstance(found, Bounded)
    assert found.evened == 0


def test_bounds_are_evened_as_values_are() -> None:
    study = STUDY | {"a": STUDY["a"][:2]}
    hidden: list[Value | Between] = [
        *study["a"],
        Between(1.9 * math.exp(0.3), 2.2 * math.exp(0.3), 3, 12, 2, taken=0.15),
    ]
    found = ratio(("a", "b"), hidden, study["b"], Spreads("publish_ms.p50", study))
    assert isinstance(found, Bounded)
    assert found.low is not None
    assert found.high is not None
    assert found.low.value < 2.0 < found.high.value
    assert found.high.value / found.low.value == pytest.approx((2.2 / 1.9) ** (1 / 3), rel=1e-6)


def test_nothing_is_evened_where_somebody_did_not_watch() -> None:
    study = STUDY | {"e": [Value(1.0, at, 10 + at) for at in (1, 2, 3)]}
    spreads = Spreads("publish_ms.p50", study)
    assert spreads.slope == NONE
    found = ratio(("a", "b"), study["a"], study["b"], spreads)
    assert isinstance(found, Number)
    assert found.came is None
    assert found.value == pytest.approx(2.0 * math.exp(0.28), rel=1e-6)


def test_the_report_is_told_what_came() -> None:
    samples = {cell: Sample(tuple(found)) for cell, found in STUDY.items()}
    claim = HIGHER.model_copy(update={"tests": [HIGHER.tests[0].model_copy(update={"ratio": ["a", "b"]})]})
    shown = judged(samples, [claim], fixed=True)[0].tests[0].measured
    assert shown is not None
    assert shown.value == pytest.approx(2.0, rel=1e-6)
    assert shown.came == pytest.approx(2.0 * math.exp(0.28), rel=1e-6)


def test_a_study_on_a_disturbed_machine_decides_more_by_it() -> None:
    world = World(start=0.05, noise=0.05, taken=0.08)
    found = decided(world, 0.3, 3, HIGHER, seed=5)
    # Without: 0.49.
    assert found["holds"] > 0.6, found
    assert found["refuted"] < 0.02


def test_degrees_of_freedom_of_a_sum_lie_between() -> None:
    assert together((1.0, 5.0), (0.0, 1.0)) == pytest.approx(5.0)
    assert together((1.0, 5.0), (1.0, 5.0)) == pytest.approx(10.0)
    assert together((0.0, 5.0), (0.0, 3.0)) == 5.0
