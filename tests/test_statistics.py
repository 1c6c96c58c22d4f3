"""Statistics on data whose truth is known: coverage, false alarms, what must be found."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from sample_run import Shape, sample_trial, workload
from streamgauge.analysis.cells import cells
from streamgauge.analysis.compare import compare
from streamgauge.analysis.patterns import period
from streamgauge.inference.comparison import Difference, Sides
from streamgauge.inference.comparison import compare as compare_sides
from streamgauge.inference.estimates import holm, median_interval
from streamgauge.inference.levels import changes
from streamgauge.inference.samples import Measured
from streamgauge.inference.verdict import Verdict
from streamgauge.model.result import TrialResult

Draw = Callable[[np.random.Generator, int], np.ndarray]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> TrialResult:
    """A result of plausible shape."""
    return sample_trial(tmp_path_factory.mktemp("sample"), Shape(), workload()).result()


TRUTHS: dict[str, tuple[Draw, float]] = {
    "normal, 2 %": (lambda random, n: random.normal(100, 2, n), 100.0),
    "lognormal": (lambda random, n: np.exp(random.normal(0, 0.5, n)), 1.0),
    "exponential": (lambda random, n: random.exponential(1, n), float(np.log(2))),
    "heavy tails": (lambda random, n: 100 + 2 * random.standard_t(3, n), 100.0),
}


SAMPLES = 8000
"""So many that 95 % comes out between 94.5 % and 95.5 %, twice the standard error, and a truth of 92.5 % cannot pass."""
COVERS = (0.935, 0.965)


def covers(held: int) -> bool:
    """Whether intervals that call themselves 95 % held the truth as often as that."""
    return COVERS[0] <= held / SAMPLES <= COVERS[1]


@pytest.mark.parametrize("trials", [3, 5, 10, 11, 20, 40])
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_interval_covers_the_median_as_often_as_it_says(truth: str, trials: int) -> None:
    draw, median = TRUTHS[truth]
    random = np.random.default_rng(trials)
    held = 0
    for _ in range(SAMPLES):
        found = median_interval(draw(random, trials).tolist())
        assert found is not None
        held += found[0] <= median <= found[1]
    assert covers(held), f"{held} of {SAMPLES}"


def test_too_few_values_have_no_interval_and_zeroes_are_no_obstacle() -> None:
    assert median_interval([1.0, 2.0]) is None
    found = median_interval([0.0, 0.0, 3.0])
    assert found is not None
    assert found[0] < 0 < found[1], "no logarithm of nothing is taken"
    assert median_interval([5.0, 5.0, 5.0]) == pytest.approx((5.0, 5.0))


def ratio(base: np.ndarray, other: np.ndarray, *, paired: bool = False) -> Difference:
    """Of two runs; or of one, paired."""

    def side(values: np.ndarray, run: str) -> tuple[Measured, ...]:
        return tuple(
            Measured(float(value), at, f"{run} {at}" if paired else run) for at, value in enumerate(values)
        )

    [found] = compare_sides([Sides("publish_ms.p50", side(base, "base"), side(other, "other"))])
    assert found is not None
    return found


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("trials", [3, 5, 10])
def test_the_interval_of_a_ratio_covers_it(trials: int, paired: bool) -> None:
    """Of two runs that differ as much as their trials do; of one run whose trials move together."""
    random = np.random.default_rng(10 + trials)
    held = 0
    # Beside a spread of 20 % the resolution of histograms, by which every interval is wider, is nothing.
    for _ in range(SAMPLES):
        common = random.normal(0, 0.2, trials) if paired else random.normal(0, 0.2, (2, 1))
        base, other = np.exp(random.normal(0, 0.2, (2, trials)) + common)
        one = ratio(base, 1.05 * other, paired=paired)
        assert one.low is not None
        assert one.high is not None
        held += one.low <= 1.05 <= one.high
    assert covers(held), f"{held} of {SAMPLES}"


@pytest.mark.parametrize("trials", [3, 5, 10])
def test_runs_of_the_same_differ_in_no_more_than_5_of_100_comparisons(trials: int) -> None:
    """Also when runs differ as much as trials do, which no repeat within them can tell."""
    random = np.random.default_rng(trials)
    asked = 2000
    wrong = 0
    for _ in range(asked):
        base, other = np.exp(random.normal(0, 0.2, (2, trials)) + random.normal(0, 0.2, (2, 1)))
        wrong += ratio(base, other).verdict is Verdict.holds
    assert wrong <= 0.065 * asked, f"{wrong} of {asked}"


def test_a_difference_that_does_not_matter_is_shown_to_be_none() -> None:
    random = np.random.default_rng(3)
    found = [ratio(*np.exp(random.normal(0, 0.02, (2, 10))), paired=True).verdict for _ in range(200)]
    assert found.count(Verdict.equivalent) >= 195
    apart = [
        ratio(*np.exp(random.normal([[0.0], [math.log(1.1)]], 0.02, (2, 10))), paired=True).verdict
        for _ in range(2000)
    ]
    assert apart.count(Verdict.equivalent) <= 0.025 * 1.3 * 2000, "on the margin itself it matters"


def test_a_regression_of_5_percent_is_found_in_ten_trials_of_one_run() -> None:
    random = np.random.default_rng(20)
    found = 0
    for _ in range(1000):
        low = ratio(random.normal(100, 2, 10), random.normal(105, 2, 10), paired=True).low
        assert low is not None
        found += low > 1.0
    assert found >= 980, f"a regression of 5 % was found in {found} of 1000"


def trials_of(
    sample: TrialResult, random: np.random.Generator, count: int, slower: float = 1.0
) -> list[TrialResult]:
    """Results with 2 % noise, independent in each figure."""

    def one(number: int) -> TrialResult:
        def noisy(value: float | None, factor: float = 1.0) -> float | None:
            return None if value is None else value * factor * float(random.normal(1.0, 0.02))

        publish = sample.publish_ms.model_copy(
            update={name: noisy(getattr(sample.publish_ms, name), slower) for name in ("p50", "p99", "p99_9")}
        )
        end_to_end = sample.end_to_end_ms.model_copy(
            update={name: noisy(getattr(sample.end_to_end_ms, name)) for name in ("p50", "p99")}
        )
        validity = sample.validity.model_copy(update={"valid": True, "reasons": []})
        return sample.model_copy(
            update={
                "publish_ms": publish, "end_to_end_ms": end_to_end, "trial": number, "repeat": number,
                "validity": validity, "publish_rate_msgs_s": noisy(sample.publish_rate_msgs_s),
            }
        )  # fmt: skip

    return [one(number) for number in range(1, count + 1)]


@pytest.mark.parametrize(("trials", "comparisons"), [(3, 400), (5, 400), (10, 150)])
def test_a_system_compared_with_itself_shows_no_difference(
    sample: TrialResult, trials: int, comparisons: int
) -> None:
    random = np.random.default_rng(trials)
    accused = 0
    for _ in range(comparisons):
        [base], [other] = cells(trials_of(sample, random, trials)), cells(trials_of(sample, random, trials))
        accused += any(one.differs for one in compare(base, other).figures)
    assert accused <= 0.05 * comparisons, (
        f"{accused} of {comparisons} comparisons of a system with itself showed a difference"
    )


def test_a_regression_is_shown_with_its_size(sample: TrialResult) -> None:
    random = np.random.default_rng(5)
    [base] = cells(trials_of(sample, random, 10))
    [slow] = cells(trials_of(sample, random, 10, slower=1.8))
    found = compare(base, slow)
    publish = {one.figure: one for one in found.figures}["publish_ms.p99"]
    assert publish.differs
    assert "higher (worse)" in publish.verdict
    assert publish.difference is not None
    assert publish.difference.margin == 1.5
    assert "publish_ms.p99" in found.verdict


def test_holms_correction() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def spikes(random: np.random.Generator, length: int, every: float, shape: str) -> np.ndarray:
    place = np.arange(length) + random.uniform(0, every)
    noise = np.exp(0.3 * random.standard_normal(length))
    if shape == "spike":
        return np.asarray(noise * np.where(place % every < 6, 5.0, 1.0))
    return np.asarray(noise * np.exp(0.3 * np.sin(2 * np.pi * place / every)))


@pytest.mark.parametrize("shape", ["spike", "wave"])
def test_a_period_of_90_s_in_a_noisy_series_is_found_within_5_percent(shape: str) -> None:
    length = 600
    random = np.random.default_rng(length)
    found = [period(spikes(random, length, 90.0, shape)) for _ in range(20)]
    near = [one is not None and abs(one.intervals / 90.0 - 1.0) < 0.05 for one in found]
    assert sum(near) >= 18, [one and round(one.intervals, 1) for one in found]


def test_noise_has_neither_periods_nor_changes() -> None:
    random = np.random.default_rng(4)
    alarms = 0
    for length in (60, 300):
        for _ in range(40):
            noise = np.exp(0.3 * random.standard_normal(length))
            alarms += period(noise) is not None
            alarms += bool(changes(noise))
    # Neighbours that resemble each other, as latencies do.
    for _ in range(20):
        walk = np.zeros(300)
        for at in range(1, 300):
            walk[at] = 0.7 * walk[at - 1] + 0.2 * random.standard_normal()
        alarms += bool(changes(np.exp(walk)))
    assert alarms <= 4, f"{alarms} alarms in 180 series of noise"


def test_a_change_of_level_is_found_where_it_is() -> None:
    random = np.random.default_rng(6)
    values = 10 * np.exp(0.2 * random.standard_normal(300))
    values[120:] *= 1.5
    values[40] = 500.0
    [found] = changes(values, at_least=0.1)
    assert abs(found.at - 120) <= 3
    assert found.after / found.before == pytest.approx(1.5, rel=0.1)
    runs = 10 * np.exp(0.02 * random.standard_normal(20))
    runs[14:] *= 1.1
    [regression] = changes(runs, smallest=2)
    assert abs(regression.at - 14) <= 1
