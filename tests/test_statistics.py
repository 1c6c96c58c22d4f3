"""Statistics on data whose truth is known: coverage, false alarms, what must be found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sample_run import Shape, sample_trial, workload
from streamgauge.analysis.cells import cells
from streamgauge.analysis.compare import compare
from streamgauge.analysis.patterns import FALSE_ALARMS_PER_YEAR, HISTORY_CAUTION, changes, period
from streamgauge.inference.checks import Verdict
from streamgauge.inference.comparison import Sides
from streamgauge.inference.comparison import compare as compare_sides
from streamgauge.inference.estimates import holm, median_interval
from streamgauge.inference.experience import number_of
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


@pytest.mark.parametrize("times", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("trials", [1, 3, 5, 10])
def test_the_interval_of_a_ratio_covers_it(trials: int, times: float) -> None:
    """Where trials spread as experience says, more and less (then it covers more often). One trial cannot contradict experience."""
    random = np.random.default_rng(10 + trials)
    held = 0
    for _ in range(SAMPLES):
        base, other = (
            np.exp(random.normal(middle, 0.2 * times, trials)).tolist() for middle in (0.0, np.log(1.05))
        )
        low, high = number_of(other, base, 0.2, one_run=True).interval()
        held += low <= 1.05 <= high
    if trials > 1 or times <= 1.0:
        assert held >= COVERS[0] * SAMPLES, f"{held} of {SAMPLES}"
    if times == 1.0:
        assert held <= (0.99 if trials == 1 else 0.985) * SAMPLES, f"{held} of {SAMPLES}"


def test_a_regression_of_5_percent_is_found_in_ten_trials() -> None:
    random = np.random.default_rng(20)
    found = 0
    for _ in range(1000):
        base, other = (random.normal(middle, 2, 10).tolist() for middle in (100, 105))
        found += number_of(other, base, 0.02, one_run=True).interval()[0] > 1.0
    assert found >= 990, f"a regression of 5 % was found in {found} of 1000"


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
                "publish_ms": publish, "end_to_end_ms": end_to_end, "trial": number,
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
    [slow] = cells(trials_of(sample, random, 10, slower=1.2))
    found = compare(base, slow)
    publish = {one.figure: one for one in found.figures}["publish_ms.p50"]
    assert publish.differs
    assert "higher (worse)" in publish.verdict
    assert publish.difference is not None
    assert publish.difference.effect > 1
    assert found.verdict.startswith("publish p50 is ")


@pytest.mark.parametrize("trials", [1, 3, 5, 10])
@pytest.mark.parametrize("between_runs", [0.0, 0.8])
def test_runs_of_the_same_are_called_different_in_at_most_5_of_100_comparisons(
    trials: int, between_runs: float
) -> None:
    """Two runs in eight figures, of a system whose runs are as much apart as its trials within a run, nearly."""
    random = np.random.default_rng(trials)
    asked, accused = 1000, 0
    for _ in range(asked):
        sides = []
        for _ in range(8):
            base, other = (
                np.exp(random.normal(0, between_runs * 0.1) + random.normal(0, 0.1, trials)).tolist()
                for _ in range(2)
            )
            sides.append(Sides("publish_ms.mean", base, other, 0.1, one_run=between_runs == 0.0))
        accused += any(one.verdict == "holds" for one in compare_sides(sides))
    assert accused <= 0.05 * asked, f"{accused} of {asked}"


def test_what_is_the_same_within_the_margin_is_shown_to_be_so_and_the_price_of_the_rest_is_right() -> None:
    """With so many trials as it says, a difference like the one that was found is told in 80 % of comparisons."""
    random = np.random.default_rng(3)

    def sides(trials: int, factor: float) -> list[Sides]:
        base, other = (np.exp(random.normal(0, 0.07, trials)) for _ in range(2))
        return [Sides("publish_ms.p50", base.tolist(), (factor * other).tolist(), 0.07, one_run=True)]

    same = [compare_sides(sides(20, 1.0))[0].verdict for _ in range(300)]
    assert same.count(Verdict.equivalent) >= 0.8 * len(same)
    assert same.count(Verdict.holds) <= 0.05 * len(same)
    [open_] = compare_sides([Sides("publish_ms.p50", [0.95, 1.05], [1.064, 1.176], 0.07, one_run=True)])
    assert open_.verdict is Verdict.undecided
    assert open_.trials is not None
    told = [compare_sides(sides(open_.trials, 1.12))[0].verdict for _ in range(1000)]
    assert 0.7 <= told.count(Verdict.holds) / len(told) <= 0.9


def test_a_difference_that_matters_is_called_none_in_at_most_5_of_100_comparisons() -> None:
    """Of eight figures each differs by just what matters, which is shown of most."""
    random, asked, wrong = np.random.default_rng(8), 1000, 0
    for _ in range(asked):
        sides = []
        for _ in range(8):
            base, other = (np.exp(random.normal(0, 0.02, 8)) for _ in range(2))
            sides.append(Sides("publish_ms.p50", base.tolist(), (1.1 * other).tolist(), 0.02, one_run=True))
        wrong += any(one.verdict is Verdict.equivalent for one in compare_sides(sides))
    assert wrong <= 0.05 * asked, f"{wrong} of {asked}"


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


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "AR 0.5"])
def test_a_history_of_noise_raises_no_more_alarms_a_year_than_it_says(noise: str) -> None:
    """A run a night, looked at every night; an alarm is a change that was not there the night before."""
    random = np.random.default_rng(8)
    years, alarms = 4, 0
    for _ in range(years):
        steps = (
            random.standard_t(3, 365) / np.sqrt(3) if noise == "heavy tails" else random.standard_normal(365)
        )
        if noise == "AR 0.5":
            for at in range(1, len(steps)):
                steps[at] = 0.5 * steps[at - 1] + np.sqrt(0.75) * steps[at]
        nights = np.exp(0.1 * steps)
        known: list[int] = []
        for night in range(6, len(nights) + 1):
            found = changes(nights[:night], smallest=2, at_least=0.02, caution=HISTORY_CAUTION)
            new = [one.at for one in found if all(abs(one.at - before) > 2 for before in known)]
            alarms += bool(new)
            known += new
    assert alarms <= FALSE_ALARMS_PER_YEAR * years, f"{alarms} alarms in {years} years"
