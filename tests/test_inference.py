"""What verdicts are made of: margins, variances, prices of claims, and which cells to run again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from streamgauge.inference import distributions
from streamgauge.inference.margins import margin_of
from streamgauge.inference.price import Costs, wanted_cells
from streamgauge.inference.samples import Measured, Sample
from streamgauge.inference.spread import LEARN_MIN, learn
from streamgauge.inference.study import Judged, Observed, judge
from streamgauge.inference.verdict import Verdict
from streamgauge.model.study_file import CheckFile, ClaimFile


@pytest.mark.parametrize(
    ("figure", "margin"),
    [
        ("publish_ms.p50", 1.1),
        ("end_to_end_ms.mean", 1.1),
        ("publish_ms.p75", 1.1),
        ("publish_ms.p90", 1.5),
        ("publish_ms.p99_9", 1.5),
        ("end_to_end_ms.max", 1.5),
        ("publish_rate_msgs_s", 1.05),
        ("sustained_mb_s", 1.05),
        ("catch_up_publish_ms.p99", 1.5),
        ("cpu.system_us_per_msg", 1.1),
    ],
)
def test_the_smallest_effect_that_matters(figure: str, margin: float) -> None:
    assert margin_of(figure) == margin
    assert margin_of(figure, 1.3) == 1.3


def test_what_many_variances_have_in_common_is_learnt() -> None:
    random = np.random.default_rng(1)
    alike = [(float(one), 4.0) for one in 0.04 * random.chisquare(4, 40) / 4]
    apart = [
        (float(one), 4.0) for one in np.exp(2 * random.standard_normal(40)) * random.chisquare(4, 40) / 4
    ]
    found, loose = learn(alike), learn(apart)
    assert found is not None
    assert loose is not None
    assert found.variance == pytest.approx(0.04, rel=0.3)
    assert loose.freedom < 2 < found.freedom
    variance, freedom = found.moderate(0.4, 4.0)
    assert 0.04 < variance < 0.4
    assert freedom == found.freedom + 4.0
    assert learn(alike[: LEARN_MIN - 1]) is None


def test_distributions_are_those_of_scipy_stats() -> None:
    assert distributions.chi2_quantile(0.3, 4.5) == pytest.approx(stats.chi2.ppf(0.3, 4.5))
    assert distributions.normal_above(np.array([1.2]))[0] == pytest.approx(stats.norm.sf(1.2))


def claims_of(*pairs: tuple[str, str]) -> list[ClaimFile]:
    return [
        ClaimFile(
            claim=f"{one} takes longer",
            tests=[CheckFile(figure="publish_ms.p99", ratio=[one, other], above=1)],
        )
        for one, other in pairs
    ]


def judged_of(*pairs: tuple[str, str]) -> list[Judged]:
    values = {
        "a": (1.0, 1.02, 0.99),
        "b": (9.0, 9.1, 9.3),
        "c": (1.6, 1.5, 3.4),
        "d": (2.0, 1.3, 0.9),
        "e": (1.9, 1.3, 2.6),
    }

    def sample(cell: str, _figure: str) -> Sample:
        return Sample(
            tuple(Measured(one, at, f"{cell} {at}") for at, one in enumerate(values[cell], start=1))
        )

    return judge(claims_of(*pairs), Observed(sample, lambda _cell, _figure: None, tuple(values), (3,)))


def costs(**start_s: float) -> Costs:
    cells = "abcde"
    variants = {cell: f"of {cell}" for cell in cells} | {"c": "of a"}
    starts = dict.fromkeys(variants.values(), 0.0) | {f"of {one}": s for one, s in start_s.items()}
    return Costs(dict.fromkeys(cells, 10.0), starts, variants)


def test_a_budget_goes_to_what_is_undecided_and_can_be_decided() -> None:
    judged = judged_of(("b", "a"), ("c", "a"), ("d", "a"))
    assert [one.verdict for one in judged] == [Verdict.holds, Verdict.undecided, Verdict.undecided]
    cheap, dear = (one.price.rounds if one.price is not None else None for one in judged[1:])
    assert cheap is not None
    wanted = wanted_cells(judged, costs(), 10_000.0)
    assert "b" not in wanted, "what is decided is not run again"
    assert wanted["c"] == cheap
    assert wanted["a"] >= cheap
    assert dear is None or wanted["d"] == dear
    little = wanted_cells(judged, costs(), 45.0)
    assert costs().of(little) <= 45.0
    assert little == {"c": 2, "a": 2}
    assert wanted_cells(judged, costs(), 5.0) == {}
    assert wanted_cells(judged[:1], costs(), 10_000.0) == {}


def test_a_start_is_paid_for_once_a_round() -> None:
    assert costs(a=100.0).of({"a": 2, "c": 3}) == 50.0 + 300.0
    assert costs(a=100.0, d=7.0).of({"d": 2}) == 20.0 + 14.0
