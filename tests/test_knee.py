"""The knee of a curve: where it is, how often its interval holds it, and which rates a sweep chooses to find it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from streamgauge.analysis.sweep import POINTS_MAX, Sweep, Tried, place_of, preferred
from streamgauge.inference.experience import TAIL_SPREAD
from streamgauge.inference.knee import BEND, LOW_SHARE, Knee, Point, find_knee, isotonic

Latency = Callable[[float], float]
RATES = (10e3, 16e3, 25e3, 40e3, 63e3, 80e3, 90e3, 95e3, 100e3, 112e3)
LIMIT = 99e3
"""From here on a rate is not sustained."""


def wall(_rate: float) -> float:
    return 1.0


def step(rate: float) -> float:
    return 1.0 if rate < 70e3 else 30.0


def queue(rate: float) -> float:
    return 1.0 / (1.0 - rate / 105e3)


def hinge(rate: float) -> float:
    return math.exp(max(0.0, rate - 60e3) / 10e3)


def slope(rate: float) -> float:
    return math.sqrt(rate / 10e3)


def points(
    latency: Latency, rates: Sequence[float], limit: float, noise: Callable[[], float] = lambda: 0.0
) -> list[Point]:
    return [
        Point(rate, (latency(rate) * math.exp(noise()) if rate < limit else 400.0,), rate < limit)
        for rate in rates
    ]


def true_knee(latency: Latency, rates: Sequence[float], limit: float) -> float:
    """By the definition: the level is that of the true latency at the lowest rates."""
    sustained = [rate for rate in rates if rate < limit]
    low = [rate for rate in sustained if rate <= LOW_SHARE * sustained[-1]] or sustained[:1]
    bound = math.log(BEND) + np.mean([math.log(latency(rate)) for rate in low])
    fine = np.geomspace(rates[0], limit, 5000)
    return next((float(rate) for rate in fine if math.log(latency(rate)) > bound), limit)


@pytest.mark.parametrize("latency", [wall, step, queue, hinge, slope])
def test_without_noise_the_knee_is_where_it_is(latency: Latency) -> None:
    rates = np.geomspace(5e3, 118e3, 60).tolist()
    found = find_knee(points(latency, rates, LIMIT), TAIL_SPREAD)
    assert found is not None
    assert found.rate_msgs_s == pytest.approx(true_knee(latency, rates, LIMIT), rel=0.06)
    assert found.bound == pytest.approx(BEND * found.level)


@pytest.mark.parametrize("latency", [wall, step, queue, hinge, slope])
@pytest.mark.parametrize("rates", [RATES, tuple(np.geomspace(5e3, 118e3, 25).tolist())])
@pytest.mark.parametrize("spread", [0.15, TAIL_SPREAD])
def test_the_interval_holds_the_knee_in_at_least_95_of_100_sweeps(
    latency: Latency, rates: Sequence[float], spread: float
) -> None:
    """It claims at least 95 %; the simulation itself is uncertain by 1.5 %."""
    random, sweeps, held = np.random.default_rng(5), 150, 0
    knee = true_knee(latency, rates, LIMIT)
    for _ in range(sweeps):
        found = find_knee(points(latency, rates, LIMIT, lambda: float(random.normal(0, spread))), TAIL_SPREAD)
        assert found is not None
        held += found.low_msgs_s <= knee <= (found.high_msgs_s or math.inf)
    assert held / sweeps >= 0.935


def test_a_narrow_interval_where_a_curve_is_steep() -> None:
    found = find_knee(points(wall, RATES, LIMIT), TAIL_SPREAD)
    assert found is not None
    assert (found.low_msgs_s, found.high_msgs_s) == (95e3, 100e3)


def test_what_was_not_reached_has_no_upper_end() -> None:
    found = find_knee(points(wall, RATES, 1e9), TAIL_SPREAD)
    assert found is not None
    assert (found.rate_msgs_s, found.high_msgs_s, found.reached) == (None, None, False)
    assert found.low_msgs_s >= 63e3


def test_a_rate_that_was_not_sustained_ends_the_curve_whatever_it_showed() -> None:
    low = [Point(rate, (1.0,), True) for rate in (1e3, 2e3, 4e3, 8e3)]
    found = find_knee([*low, Point(16e3, (0.5,), False), Point(32e3, (1.0,), True)], TAIL_SPREAD)
    assert found is not None
    assert found.high_msgs_s == 16e3


@pytest.mark.parametrize(
    "found",
    [
        [],
        points(wall, RATES[:2], LIMIT),
        [Point(1e3, (), False), Point(2e3, (5.0,), False), Point(4e3, (9.0,), False)],
    ],
)
def test_without_a_low_load_there_is_no_knee(found: list[Point]) -> None:
    assert find_knee(found, TAIL_SPREAD) is None


def test_trials_of_one_rate_that_differ_make_it_less_sure() -> None:
    def width(values: tuple[float, ...]) -> float:
        steep = [Point(rate, (1.0,) if rate < 50e3 else (9.0,), True) for rate in RATES if rate != 63e3]
        found = find_knee([*steep, Point(63e3, values, True)], TAIL_SPREAD)
        assert found is not None
        return math.log((found.high_msgs_s or math.inf) / found.low_msgs_s)

    assert width((9.0, 9.1)) < width((30.0, 2.7))


def test_the_isotonic_fit_is_the_nearest_that_never_falls() -> None:
    fit = isotonic(np.array([1.0, 3.0, 2.0, 2.0, 5.0]), np.array([1.0, 1.0, 1.0, 2.0, 1.0]))
    assert fit == pytest.approx([1.0, 2.25, 2.25, 2.25, 5.0])


def swept(
    latency: Latency, limit: float, closed: float, *, generator: float = math.inf, many: int = 40
) -> tuple[list[float], Knee | None]:
    """The rates of a sweep over a system that is known, in their order, and what it found."""
    sweep, seen, knee = Sweep(closed, 3), dict[float, int](), None
    order: list[float] = []
    for _ in range(many):
        told = {
            rate: "no figure" if rate >= generator else "sustained" if rate < limit else "not sustained"
            for rate in sorted(seen)
        }
        knee = find_knee(points(latency, [one for one in told if one < generator], limit), TAIL_SPREAD)
        wanted = sweep.next([Tried(rate, worth, seen[rate]) for rate, worth in told.items()], knee)  # type: ignore[arg-type]
        if wanted is None:
            break
        order.append(wanted)
        seen[wanted] = seen.get(wanted, 0) + 1
    return order, knee


@pytest.mark.parametrize("latency", [wall, step, queue, hinge])
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_a_sweep_goes_from_a_tenth_to_beyond_the_maximum_and_to_the_knee(
    latency: Latency, scale: float
) -> None:
    def scaled(rate: float) -> float:
        return latency(rate / scale)

    order, knee = swept(scaled, scale * LIMIT, 1.3 * scale * LIMIT)
    assert min(order) <= 0.13 * scale * LIMIT
    assert max(order) > scale * LIMIT
    true = true_knee(scaled, sorted(set(order)), scale * LIMIT)
    near = [rate for rate in set(order) if abs(math.log(rate / true)) < math.log(1.3)]
    assert len(near) >= 4, "its time is spent where the latency bends"
    assert knee is not None
    assert knee.rate_msgs_s == pytest.approx(true, rel=0.08)
    assert len(order) <= POINTS_MAX
    assert all(rate == preferred(place_of(rate)) for rate in order), "sweeps have rates in common"
    assert order[:6] != sorted(order[:6]), "what changes with time does not look like the rate"


def test_a_maximum_that_was_found_too_low_is_left_behind() -> None:
    order, knee = swept(wall, LIMIT, LIMIT / 6)
    assert max(order) > LIMIT
    assert knee is not None
    assert knee.reached


def test_a_maximum_that_was_found_too_high_leads_down() -> None:
    order, knee = swept(wall, 200.0, 90e3)
    assert min(order) < 200.0
    assert knee is not None


def test_a_generator_at_its_end_is_not_driven_further_for_ever() -> None:
    order, knee = swept(wall, 1e9, 60e3, generator=50e3)
    assert len(order) <= POINTS_MAX
    assert knee is not None
    assert not knee.reached
