"""The few pieces of classical statistics, held against scipy.stats."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from streamgauge.inference import distributions


def samples(ties: bool) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    found = [random.lognormal(size=count) for count in (3, 4, 10, 29, 60, 300)]
    return [np.round(one, 1) for one in found] if ties else found


@pytest.mark.parametrize("freedom", [1, 1.7, 2, 5, 40.25, 1e4])
def test_students_t(freedom: float) -> None:
    for share in (0.005, 0.05, 0.5, 0.9, 0.975, 0.999):
        assert distributions.student_quantile(share, freedom) == stats.t.ppf(share, freedom)
    for value in (-3.0, 0.0, 0.4, 2.5, 60.0):
        assert distributions.student_above(value, freedom) == stats.t.sf(value, freedom)


def test_fishers_f() -> None:
    values, above, below = np.array([0.1, 1.0, 3.5, 90.0]), np.array([1, 2, 5, 9]), np.array([20, 4, 60, 7])
    expected = np.asarray(stats.f.sf(values, above, below))
    assert np.array_equal(distributions.f_above(values, above, below), expected)


@pytest.mark.parametrize("count", [1, 5, 6, 20, 101, 1000])
def test_coins(count: int) -> None:
    for rank in (-1, 0, 1, count // 2, count):
        assert distributions.coin_below(rank, count) == pytest.approx(
            stats.binom.cdf(rank, count, 0.5), rel=1e-12
        )
    for share in (0.005, 0.025, 0.3, 0.45, 0.99):
        assert distributions.coin_quantile(share, count) == stats.binom.ppf(share, count, 0.5)


@pytest.mark.parametrize(("seen", "of"), [(0, 1), (0, 40), (1, 2), (18, 20), (20, 20)])
def test_shares(seen: int, of: int) -> None:
    expected = stats.binomtest(seen, of).proportion_ci(0.95, "exact")
    assert distributions.share_interval(seen, of) == pytest.approx((expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_series(ties: bool) -> None:
    for values in samples(ties):
        at = np.arange(len(values)) / 3.0
        assert distributions.deviation(values) == stats.median_abs_deviation(values, scale="normal")
        assert list(distributions.ranks(values)) == list(stats.rankdata(values))
        expected = stats.theilslopes(values, np.arange(len(values)), alpha=0.99)
        assert distributions.theil_sen(values, 0.99) == (expected[0], expected[2], expected[3])
        fitted = stats.linregress(at, values)
        assert distributions.line(at, values) == pytest.approx((fitted.slope, fitted.stderr), rel=1e-9)


def test_a_line_without_deviations_has_no_error() -> None:
    assert distributions.line(np.arange(5.0), np.arange(5.0) * 2) == (2.0, 0.0)
    assert distributions.line(np.arange(5.0), np.ones(5)) == (0.0, 0.0)
    assert distributions.theil_sen(np.ones(5), 0.99) == (0.0, 0.0, 0.0)


def test_the_lab_starts_without_scipys_statistics() -> None:
    """They take a second of CPU at every start."""
    code = (
        "import sys, streamgauge.runner.run, streamgauge.report.run, streamgauge.cli.carry_out; "
        "sys.exit('scipy.stats' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
