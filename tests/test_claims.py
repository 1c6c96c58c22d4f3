"""Claims on synthetic samples whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from streamgauge.analysis.drift import around, drifts
from streamgauge.inference.checks import Sample
from streamgauge.inference.claims import Judged, Question, judge
from streamgauge.inference.contrast import Between, Value, of_rounds, quotients
from streamgauge.model.study_file import CheckFile, ClaimFile

Ends = tuple[float, float]
"""A figure is at least the one and at most the other."""

TIGHT = {
    "a": (10.0, 10.1, 9.9, 10.0, 10.05),
    "b": (20.0, 20.2, 19.8, 20.1, 19.9),
    "c": (40.0, 39.8, 40.2, 40.0, 40.1),
}


def judged(
    samples: Mapping[str, Sequence[float | Ends]], printed: Mapping[str, float] | None = None, **check: Any
) -> Judged:
    def sample(cell: str, _figure: str) -> Sample:
        if cell not in samples:
            return Sample((), "it failed: no memory")
        return sample_of(samples[cell], system=cell)

    claim = ClaimFile(claim="so it is", tests=[CheckFile(figure="publish_ms.p99", **check)])
    question = Question([claim], list(samples), sample, lambda cell, _figure: (printed or {}).get(cell))
    return judge(question)[0]


def sample_of(figures: Sequence[float | Ends], system: str) -> Sample:
    """As `values_of`; of a pair of ends only these are known."""
    rounds = values_of([0.0 if isinstance(one, tuple) else one for one in figures], system)
    known = list(zip(figures, rounds, strict=True))
    return Sample(
        tuple(one for figure, one in known if not isinstance(figure, tuple)),
        bounds=tuple(
            Between(*figure, one.round, one.start) for figure, one in known if isinstance(figure, tuple)
        ),
    )


def values_of(figures: Sequence[float], system: str) -> tuple[Value, ...]:
    """A round each, on a start of its own."""
    return tuple(
        Value(figure, round_, start=1000 * (1 + ord(system[0])) + round_)
        for round_, figure in enumerate(figures, start=1)
    )


def test_a_ratio_beyond_its_bound_holds() -> None:
    found = judged(TIGHT, {"a": 1.0, "b": 3.0}, ratio=["b", "a"], above=1.2)
    assert found.verdict == "holds"
    (test,) = found.tests
    assert test.printed == 3.0
    assert test.measured is not None
    assert test.measured.value is not None
    assert test.measured.value == pytest.approx(2.0, rel=0.02)
    assert test.measured.interval is not None
    low, high = test.measured.interval
    assert 1.2 < low <= test.measured.value <= high < 3.3


def test_a_claim_of_cells_that_are_not_alike_is_not_judged_and_says_why() -> None:
    claim = ClaimFile(
        claim="so it is", tests=[CheckFile(figure="publish_ms.p99", ratio=["b", "a"], above=1.2)]
    )
    question = Question(
        [claim],
        list(TIGHT),
        lambda cell, _figure: Sample(values_of(TIGHT[cell], system=cell)),
        lambda _cell, _figure: None,
        bars=lambda tests: "one has 3 nodes" if set(tests[0].cells) == {"a", "b"} else "",
    )
    (found,) = judge(question)
    assert (found.verdict, found.why) == ("not shown", "one has 3 nodes")
    assert [test.measured for test in found.tests] == [None]


OPEN = math.inf


@pytest.mark.parametrize(
    ("other", "base", "verdict", "text"),
    [
        # The generator was at its end in one round, and in all.
        ((20.0, 20.2, (19.8, OPEN), 20.1, 19.9), (10.0, 10.1, 9.9, 10.0, 10.05), "holds", "at least 1."),
        (((20.0, OPEN),) * 5, (10.0, 10.1, 9.9, 10.0, 10.05), "holds", "at least 1."),
        ((10.0, 10.1, 9.9, 10.0, 10.05), ((20.0, OPEN),) * 5, "refuted", "at most 0.6"),
        # Nothing is known above: it may be any ratio.
        (((10.0, OPEN),) * 5, (10.0, 10.1, 9.9, 10.0, 10.05), "undecided", "at least 0.7"),
        # Both have bounds, between which it is decided.
        (((18.0, 22.0),) * 5, ((9.0, 11.0),) * 5, "holds", "1.29 to 3.11"),
        (((18.0, OPEN),) * 5, ((9.0, OPEN),) * 5, "undecided", "its figures only have bounds"),
    ],
)
def test_what_only_has_bounds_is_decided_where_they_decide(
    other: Sequence[float | Ends], base: Sequence[float | Ends], verdict: str, text: str
) -> None:
    found = judged({"a": base, "b": other}, ratio=["b", "a"], above=1.2)
    assert found.verdict == verdict
    told = found.tests[0].measured
    assert (told.text if told else found.why).startswith(text)


def test_bounds_that_allow_both_leave_a_round_to_wish_for() -> None:
    """One more that is not hidden would tell, and no "never" is said of it; one of which it was hidden each time asks for many."""
    hidden = (0.2, 2.6)
    for figures, more in (
        ((2.0, 2.1, hidden), 3),
        ((2.0, hidden, hidden), 5),
        ((hidden,) * 3, 15),
        ((hidden,) * 6, 24),
    ):
        a = (1.0, 1.01, 1.0) * (len(figures) // 3)
        (test,) = judged({"a": a, "b": figures}, ratio=["b", "a"], above=1.0).tests
        assert (test.verdict, test.rounds, test.after) == ("undecided", len(figures) + more, len(figures))


def test_bounds_around_the_bound_that_is_asked_are_not_priced_as_if_one_round_more_would_do() -> None:
    """Where what they are about lies near it and varies, rounds without bounds would not tell either."""
    peaks = (1.3, (1.6, 2.6), (3.9, 5.6), (1.7, 4.6), 3.5)
    calm = (0.029, 0.061, 0.026, 0.021, 0.009)
    (test,) = judged({"a": calm, "b": peaks}, ratio=["b", "a"], above=100.0).tests
    assert (test.verdict, test.rounds) == ("undecided", None)


def test_the_best_rounds_are_not_left_out_because_only_bounds_are_known_of_them() -> None:
    """A maximum beyond the generator's is known by its lower end. Without those rounds the system would be judged by its worst."""
    random = np.random.default_rng(3)
    wrong = alone = 0
    for _ in range(200):
        a, b = random.lognormal(0.0, 0.3, (2, 6))
        ends: list[float | Ends] = [min(one, 1.0) if one < 1.0 else (1.0, OPEN) for one in b]
        wrong += judged({"a": list(a), "b": ends}, ratio=["b", "a"], below=1.0).verdict == "holds"
        kept = [one if one < 1.0 else 0.0 for one in b]
        both = [(one, other) for one, other in zip(a, kept, strict=True) if other]
        if len(both) >= 3:
            left = {"a": [one for one, _ in both], "b": [other for _, other in both]}
            alone += judged(left, ratio=["b", "a"], below=1.0).verdict == "holds"
    assert wrong <= 2, "of 200, of which five may be"
    assert alone > 10


def test_a_ratio_on_the_wrong_side_is_refuted() -> None:
    assert judged(TIGHT, ratio=["b", "a"], above=3.0).verdict == "refuted"
    assert judged(TIGHT, ratio=["a", "b"], above=1.0).verdict == "refuted"


def test_a_ratio_within_the_margin_is_no_difference_that_matters() -> None:
    level = {"a": (10.0, 10.1, 9.9, 10.0, 10.05, 9.95), "b": (10.2, 10.3, 10.1, 10.2, 10.25, 10.15)}
    found = judged(level, ratio=["b", "a"], above=1.0)
    assert found.verdict == "no difference that matters"
    assert found.verdict.decided
    # A claim can say what matters to it.
    assert judged(level, ratio=["b", "a"], above=1.0, margin=1.01).verdict != "no difference that matters"
    # With a bound of its own there is nothing that a margin could decide.
    assert judged(level, ratio=["b", "a"], above=1.5).verdict == "refuted"


def test_an_interval_that_contains_the_bound_decides_nothing_and_tells_the_price() -> None:
    found = judged({"a": (10, 20, 30), "b": (19, 19, 50)}, ratio=["b", "a"], above=1.0)
    assert found.verdict == "undecided"
    assert found.why == "the interval contains the bound"
    assert found.rounds is not None
    assert 5 <= found.rounds <= 40
    near = judged({"a": (10, 20, 30), "b": (13, 22, 33)}, ratio=["b", "a"], above=1.2)
    assert near.rounds is None


def test_what_many_claims_leave_open_has_a_price_as_well() -> None:
    """Each test is decided by itself; of ten claims one may look so by chance."""
    samples: Mapping[str, Sequence[float]] = {"a": (10.0, 11.5, 8.8), "b": (20.0, 20.4, 24.0)}

    def sample(cell: str, _figure: str) -> Sample:
        return Sample(values_of(samples[cell], system=cell))

    def asked(above: float) -> ClaimFile:
        return ClaimFile(
            claim="so it is", tests=[CheckFile(figure="publish_ms.p99", ratio=["b", "a"], above=above)]
        )

    question = Question([asked(1.02), *[asked(2.0)] * 9], list(samples), sample, lambda _cell, _figure: None)
    first = judge(question)[0]
    assert [test.verdict for test in first.tests] == ["holds"]
    assert first.verdict == "undecided"
    assert "by chance" in first.why
    assert first.rounds is not None
    assert 4 <= first.rounds <= 12


def test_what_cannot_be_wrong_two_ways_has_the_whole_error() -> None:
    """Of two claims the first is asked at half of the 5 %. That a number lies in a range is wrong of one beyond an end of it, and it is beyond one of them
    only; that it lies beyond may be found at either end."""
    apart = {"a": (1.0, 1.0, 1.0), "b": (1.0, 1.25, 1.5625)}

    def first(**check: Any) -> Judged:
        claims = [
            ClaimFile(claim="so it is", tests=[CheckFile(figure="publish_ms.p99", **one)])
            for one in ({"ratio": ["b", "a"], **check}, {"ratio": ["b", "a"], "above": 1.25})
        ]
        question = Question(
            claims,
            list(apart),
            lambda cell, _figure: sample_of(apart[cell], cell),
            lambda _cell, _figure: None,
        )
        return judge(question)[0]

    [test] = first(below=100.0).tests
    assert test.measured is not None
    assert test.measured.interval is not None
    low, high = test.measured.interval
    # Just beyond the 95 % interval: p is below 2.5 %, and not below half of that.
    near, far = 0.97 * low, 1.03 * high
    assert first(between=[near, 1e9]).verdict == "holds"
    assert first(between=[far, 1e9]).verdict == "undecided"
    assert "by chance" in first(between=[far, 1e9]).why
    assert first(above=far).verdict == "refuted"


def test_a_missing_cell_is_named_with_its_reason() -> None:
    found = judged({"a": (1, 1, 1)}, ratio=["b", "a"], above=1.0)
    assert found.verdict == "not shown"
    assert found.why == "b: it failed: no memory"


def test_two_trials_are_no_interval() -> None:
    found = judged({"a": (1.0, 1.0), "b": (9.0, 9.0)}, ratio=["b", "a"], above=2.0)
    assert found.verdict == "undecided"
    assert found.why == "no interval: 2 rounds count, and 3 are needed"
    assert found.tests[0].measured is not None
    assert found.tests[0].measured.value == 9.0


def test_rising_asks_for_every_step() -> None:
    assert judged(TIGHT, rising=["a", "b", "c"]).verdict == "holds"
    assert judged(TIGHT, falling=["c", "b", "a"]).verdict == "holds"
    found = judged(TIGHT, {"a": 1, "b": 2, "c": 1}, rising=["a", "c", "b"])
    assert [test.verdict for test in found.tests] == ["holds", "refuted"]
    assert found.verdict == "refuted"
    assert [test.printed for test in found.tests] == [1.0, 2.0]


def test_spread_and_value_have_bounds_of_their_own() -> None:
    assert judged(TIGHT, spread=["a", "b"], below=4.0).verdict == "holds"
    assert judged(TIGHT, spread=["a", "b", "c"], below=1.5).verdict == "refuted"
    assert judged(TIGHT, value="a", between=[7.0, 14.0]).verdict == "holds"
    assert judged(TIGHT, value="a", between=[17.0, 20.0]).verdict == "refuted"


def test_a_ratio_to_zero_is_none() -> None:
    found = judged({"a": (0.0, 0.0, 0.0), "b": (1.0, 1.0, 1.0)}, ratio=["b", "a"], above=1.0)
    assert found.verdict == "not shown"
    assert "zero" in found.why


def test_a_machine_that_changed_is_told() -> None:
    def probe(write_mb_s: float, fsync_ms: float) -> dict[str, Any]:
        return {"disk": {"write_mb_s": write_mb_s, "fsync_ms": {"p50": fsync_ms}}}

    steady = drifts([probe(1000, 0.2), probe(1100, 0.25)])
    assert [drift.too_far for drift in steady] == [False, False]
    moved = drifts([probe(1000, 0.2), probe(450, 0.2), probe(1100, 0.2)])
    assert [(drift.title, drift.too_far) for drift in moved] == [
        ("sequential write bandwidth", True),
        ("median fsync", False),
    ]
    assert drifts([probe(1000, 0.2)]) == []


def test_probes_belong_to_the_round_that_they_stand_around() -> None:
    probes = [{"next_trial": trial, "when": "x"} for trial in (1, 3, 7, 8, 13)]
    assert [one["next_trial"] for one in around(probes, 1, 6)] == [1, 3, 7]
    assert [one["next_trial"] for one in around(probes, 7, 12)] == [7, 8, 13]
    assert [one["next_trial"] for one in around(probes, 13, 18)] == [13]
    old: list[dict[str, Any]] = [{"when": "before"}, {"when": "after"}]
    assert around(old, 1, 6) == around(old, 7, 12) == old


def test_a_period_and_its_swing_are_found_in_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.analysis import study_figures

    seconds = np.arange(300)
    noise = np.random.default_rng(1).normal(0.0, 0.1, len(seconds))
    series = 8.0 + np.where(seconds % 90 < 15, 2.0, 0.0) + noise
    monkeypatch.setattr(study_figures, "_within", lambda _measured, _figure: series)
    measured: Any = None
    period_s = study_figures.value(measured, "period_s.end_to_end_mean")
    assert period_s == pytest.approx(90, rel=0.05)
    assert study_figures.value(measured, "swing_ms.end_to_end_mean") == pytest.approx(2.0, rel=0.3)
    assert study_figures.value(measured, "range_ms.end_to_end_mean") == pytest.approx(2.2, rel=0.1)


def test_a_range_is_that_of_most_seconds_and_not_of_the_odd_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.analysis import study_figures

    series = np.linspace(5.0, 6.0, 100)
    series[[30, 70]] = 0.1, 900.0
    monkeypatch.setattr(study_figures, "_within", lambda _measured, _figure: series)
    measured: Any = None
    assert study_figures.value(measured, "range_ms.end_to_end_mean") == pytest.approx(0.9, rel=0.1)
    monkeypatch.setattr(study_figures, "_within", lambda _measured, _figure: np.array([]))
    assert study_figures.value(measured, "range_ms.end_to_end_mean") is None


def of_two_figures(figures: Mapping[str, Mapping[str, Sequence[float]]], cell: str, **check: Any) -> Judged:
    """A claim on p99.9 over p99 of the same trials. `figures`: figure -> cell -> a value per round."""

    def sample(of: str, figure: str) -> Sample:
        return sample_of(figures[figure].get(of, ()), system=of)

    test = CheckFile(figure="publish_ms.p99_9", of="publish_ms.p99", ratio=[cell, cell], **check)
    claim = ClaimFile(claim="so it is", tests=[test])
    question = Question([claim], list(figures["publish_ms.p99"]), sample, lambda _cell, _figure: None)
    return judge(question)[0]


def test_two_figures_of_one_trial_vary_together() -> None:
    """Whatever a trial met is in both of them: how much p99.9 differs between cells, or from round to round, says nothing of their quotient."""
    random = np.random.default_rng(4)
    p99 = {cell: np.exp(random.normal(1.0, 1.0, 4)) for cell in "abcdef"}
    p99_9 = {cell: values * np.exp(random.normal(1.2, 0.1, 4)) for cell, values in p99.items()}
    figures = {
        "publish_ms.p99": {cell: values.tolist() for cell, values in p99.items()},
        "publish_ms.p99_9": {cell: values.tolist() for cell, values in p99_9.items()},
    }
    found = of_two_figures(figures, "b", below=1.5)
    assert found.verdict == "refuted"
    measured = found.tests[0].measured
    assert measured is not None
    assert measured.interval is not None
    assert measured.interval[1] / measured.interval[0] < 1.6
    assert measured.interval[0] < np.exp(1.2) < measured.interval[1]
    # What is not known of a trial is no part of it, and a zero has no quotient.
    figures["publish_ms.p99"]["b"][0] = 0.0
    figures["publish_ms.p99_9"]["b"] = figures["publish_ms.p99_9"]["b"][:3]
    assert of_two_figures(figures, "b", below=1.5).verdict == "undecided"


def test_a_round_is_one_value_however_often_a_start_went_through_its_cells() -> None:
    twice = [Value(2.0, 1, 1, 1), Value(8.0, 1, 1, 2), Value(5.0, 2, 2, 3)]
    middles = [one for one in of_rounds(twice) if isinstance(one, Value)]
    assert [(round(one.value, 9), one.round) for one in middles] == [(4.0, 1), (5.0, 2)]
    assert of_rounds([Value(0.0, 1, 1), Value(3.0, 1, 1)]) == (Value(1.5, 1, 1),)
    mixed: list[Value | Between] = [
        *twice,
        Between(1.8, 3.2, 2, 2),
        Between(0.0, math.inf, 3, 3),
        Between(2.0, 4.0, 3, 3),
    ]
    between = [one for one in of_rounds(mixed) if isinstance(one, Between)]
    ends = [(round(one.at_least, 9), round(one.at_most, 9)) for one in between]
    assert ends == [(3.0, 4.0), (0.0, math.inf)]


def test_a_quotient_is_one_of_a_trial_and_not_of_turns_that_have_other_halves() -> None:
    tails = [Value(10.0, 1, 1, 1), Value(40.0, 1, 1, 2)]
    assert quotients(tails, [Value(2.0, 1, 1, 1)]) == (Value(5.0, 1, 1, 1),)


def test_bounds_of_either_figure_are_bounds_of_their_quotient() -> None:
    exact = [Value(6.0, 1, 1), Value(8.0, 2, 2)]
    ends = [Between(2.0, 4.0, 1, 1), Between(0.0, 2.0, 2, 2), Between(1.0, 2.0, 3, 3)]
    assert quotients(exact, ends) == (Between(1.5, 3.0, 1, 1),)
    assert quotients(ends, exact) == (Between(2.0 / 6.0, 4.0 / 6.0, 1, 1), Between(0.0, 0.25, 2, 2))
    assert quotients(exact, exact) == (Value(1.0, 1, 1), Value(1.0, 2, 2))
    open_end = [Between(9.0, math.inf, 1, 1)]
    assert quotients(open_end, exact) == (Between(1.5, math.inf, 1, 1),)


@pytest.mark.parametrize("rounds", [3, 5])
def test_a_quotient_at_its_bound_is_seldom_said_to_be_beyond_it(rounds: int) -> None:
    random, studies, wrong = np.random.default_rng(7), 300, 0
    for _ in range(studies):
        loudness = np.exp(random.normal(0.0, 0.7, 6))
        p99 = {cell: np.exp(random.normal(1.0, 0.5, rounds)) for cell in "abcdef"}
        quotient = {
            cell: 1.5 * np.exp(loud * random.normal(0.0, 0.2, rounds))
            for cell, loud in zip("abcdef", loudness, strict=True)
        }
        figures = {
            "publish_ms.p99": {cell: values.tolist() for cell, values in p99.items()},
            "publish_ms.p99_9": {cell: (p99[cell] * quotient[cell]).tolist() for cell in p99},
        }
        wrong += of_two_figures(figures, "b", below=1.5).verdict in ("holds", "refuted")
    chance = 2.0 * (0.05 * 0.95 * studies) ** 0.5
    assert wrong <= 1.3 * 0.05 * studies + chance, wrong
