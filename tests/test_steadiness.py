"""Steadiness on series whose truth is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from streamgauge.analysis.steadiness import cycle, examine, judge, slope_per_interval

Values = npt.NDArray[np.float64]


def noisy(level: float, noise: float, length: int = 60, seed: int = 1) -> Values:
    random = np.random.default_rng(seed)
    return level * (1 + noise * random.standard_normal(length))


def heavy(level: float, length: int = 60, seed: int = 1) -> Values:
    """Like the p99 of real systems: log-normal with a spike now and then."""
    random = np.random.default_rng(seed)
    values = level * np.exp(0.3 * random.standard_normal(length))
    values[random.integers(0, length, max(1, length // 20))] *= 5
    return values


def test_a_flat_noisy_trial_is_steady() -> None:
    found = judge(
        {
            "publish_rate": noisy(50_000, 0.002),
            "publish_p50": noisy(1.0, 0.05),
            "publish_p99": heavy(4.0),
            "cpu": noisy(0.7, 0.05),
        },
        50_000,
    )
    assert found.label == "steady", found.explanation
    assert set(found.slopes_percent_per_interval) == {"publish_rate", "publish_p50", "publish_p99", "cpu"}


@pytest.mark.parametrize("length", [12, 30, 120])
def test_noise_alone_is_rarely_called_anything_else(length: int) -> None:
    labels = [
        judge(
            {
                "publish_rate": noisy(50_000, 0.003, length, seed),
                "publish_p50": noisy(1.0, 0.05, length, seed + 1000),
                "publish_p99": heavy(4.0, length, seed + 2000),
                "cpu": noisy(0.7, 0.05, length, seed + 3000),
            },
            50_000,
        ).label
        for seed in range(100)
    ]
    assert labels.count("steady") >= 93, labels


@pytest.mark.parametrize("name", ["publish_rate", "publish_p50", "publish_p99", "cpu"])
def test_a_clear_trend_in_any_series_is_drifting(name: str) -> None:
    trend = noisy(100.0, 0.02) * (1 + 0.01 * np.arange(60))
    found = judge({name: trend})
    assert found.label == "drifting"
    assert "rises" in found.explanation
    assert found.slopes_percent_per_interval[name] == pytest.approx(0.77, abs=0.15)


@pytest.mark.parametrize("resemblance", [0.5, 0.8])
@pytest.mark.parametrize("length", [20, 60, 300])
def test_neighbours_that_resemble_each_other_are_no_trend(resemblance: float, length: int) -> None:
    random = np.random.default_rng(length)
    drifting = 0
    for _ in range(200):
        steps = random.standard_normal(length)
        for at in range(1, length):
            steps[at] = resemblance * steps[at - 1] + (1 - resemblance**2) ** 0.5 * steps[at]
        drifting += examine("publish_p50", np.exp(0.1 * steps)).label == "drifting"
    assert drifting <= 8, f"{drifting} of 200"


def test_a_trend_below_a_tenth_of_a_percent_is_flat() -> None:
    assert judge({"publish_p50": noisy(1.0, 0.001) * (1 + 0.0005 * np.arange(60))}).label == "steady"


def test_one_spike_does_not_move_the_slope() -> None:
    values = noisy(1.0, 0.01)
    values[50] = 1000.0
    assert abs(slope_per_interval(values)[0]) < 0.001


def test_the_slope_of_a_long_series_is_per_interval_all_the_same() -> None:
    assert slope_per_interval(np.arange(9000, dtype=np.float64) * 2.0)[0] == pytest.approx(2.0)


def test_a_cycle_is_found_with_its_period() -> None:
    values = noisy(4.0, 0.05) + 2.0 * np.sin(2 * np.pi * np.arange(60) / 10)
    assert cycle(values, 0.5) == pytest.approx(10.0)
    found = judge({"publish_p99": values})
    assert found.label == "cyclic"
    assert "10 intervals" in found.explanation


def test_spikes_that_come_back_are_a_cycle_and_a_few_random_ones_are_not() -> None:
    values = noisy(2.5, 0.03, 30)
    values[3::7] *= 3
    found = judge({"publish_p99": values})
    assert found.label == "cyclic", found
    assert "period of about 7 intervals" in found.explanation
    values = noisy(2.5, 0.03, 30)
    values[[4, 9, 20]] *= 3
    assert judge({"publish_p99": values}).label == "steady"


def test_a_small_cycle_does_not_matter() -> None:
    values = noisy(4.0, 0.001) + 0.05 * np.sin(2 * np.pi * np.arange(60) / 10)
    assert judge({"publish_p99": values}).label == "steady"


def test_a_collapse_of_the_rate_is_unsteady() -> None:
    rate = noisy(50_000, 0.002)
    rate[30] = 9_000
    found = judge({"publish_rate": rate}, 50_000)
    assert found.label == "unsteady"
    assert "1 of 60" in found.explanation


def test_wild_jumps_are_unsteady() -> None:
    random = np.random.default_rng(4)
    assert judge({"publish_p50": np.exp(1.5 * random.standard_normal(60))}).label == "unsteady"


def test_counting_noise_of_few_messages_is_forgiven() -> None:
    random = np.random.default_rng(6)
    assert judge({"publish_rate": random.poisson(100, 60).astype(float)}, 100).label == "steady"


def test_few_intervals_are_too_short_to_judge() -> None:
    found = judge({"publish_rate": noisy(50_000, 0.01, 9)})
    assert found.label == "too short"
    assert "at least 10" in found.explanation
    assert judge({}).label == "too short"


def test_constant_and_unknown_series_are_no_trouble() -> None:
    found = judge(
        {"publish_rate": np.full(30, 50_000.0), "cpu": np.full(30, np.nan), "publish_p50": np.zeros(30)}
    )
    assert found.label == "steady"
