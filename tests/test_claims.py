"""Claims on synthetic samples whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from streamgauge.analysis.drift import drifts
from streamgauge.inference.samples import Bounded, Measured, Sample
from streamgauge.inference.study import Judged, Observed, judge
from streamgauge.inference.verdict import Verdict
from streamgauge.model.study_file import CheckFile, ClaimFile

TIGHT = {
    "a": (10.0, 10.1, 9.9, 10.0, 10.05),
    "b": (20.0, 20.2, 19.8, 20.1, 19.9),
    "c": (40.0, 39.8, 40.2, 40.0, 40.1),
}


def judged(
    samples: Mapping[str, Sequence[float]],
    printed: Mapping[str, float] | None = None,
    *,
    shared: bool = False,
    looks: tuple[int, ...] = (),
    void: Mapping[int, str] | None = None,
    **check: Any,
) -> Judged:
    """A claim of one test, over cells with a start for each round (or, `shared`, one for all)."""

    def sample(cell: str, _figure: str) -> Sample:
        if cell not in samples:
            return Sample(why="it failed: no memory")
        measured = (
            Measured(value, number, f"{cell} {1 if shared else number}")
            for number, value in enumerate(samples[cell], start=1)
        )
        return Sample(tuple(measured))

    claim = ClaimFile(claim="so it is", tests=[CheckFile(figure="publish_ms.p99", **check)])
    observed = Observed(
        sample, lambda cell, _figure: (printed or {}).get(cell), tuple(samples), looks, void or {}
    )
    [found] = judge([claim], observed)
    return found


def test_a_ratio_beyond_its_bound_holds() -> None:
    found = judged(TIGHT, {"a": 1.0, "b": 3.0}, ratio=["b", "a"], above=1.5)
    assert found.verdict is Verdict.holds
    (test,) = found.tests
    assert test.printed == 3.0
    assert test.measured is not None
    assert test.measured.value == pytest.approx(2.0, rel=0.02)
    assert 1.9 < test.measured.low <= test.measured.value <= test.measured.high < 2.1
    assert test.measured.rounds == 5
    assert found.price is None


def test_a_ratio_on_the_wrong_side_is_refuted() -> None:
    assert judged(TIGHT, ratio=["b", "a"], above=3.0).verdict is Verdict.refuted
    assert judged(TIGHT, ratio=["a", "b"], above=1.0).verdict is Verdict.refuted


SAME = {"a": (10.0, 12.0, 11.0), "b": (10.1, 12.0, 10.8)}


def test_a_difference_that_nobody_would_notice_is_none() -> None:
    assert judged(SAME, ratio=["b", "a"], above=1.0).verdict is Verdict.equivalent
    assert judged(SAME, rising=["a", "b"]).verdict is Verdict.equivalent
    found = judged(SAME, rising=["a", "b"], margin=1.001)
    assert found.verdict is Verdict.undecided, "who says himself what matters is asked for it"
    assert found.tests[0].margin == 1.001
    # A difference that is no accident, and does not matter: shown not to matter counts.
    tiny = {"a": (10.0, 12.0, 11.0), "b": (10.3, 12.35, 11.33)}
    assert judged(tiny, ratio=["b", "a"], above=1.0).verdict is Verdict.equivalent
    assert judged(tiny, ratio=["b", "a"], above=1.0, margin=1.01).verdict is Verdict.holds
    assert judged(SAME, ratio=["b", "a"], above=1.2).verdict is Verdict.refuted, "beyond 1 a bound is a bound"


def test_an_interval_that_contains_the_bound_decides_nothing_and_has_a_price() -> None:
    found = judged({"a": (10, 20, 30), "b": (22, 22, 40)}, ratio=["b", "a"], above=1.0)
    assert found.verdict is Verdict.undecided
    assert found.why == "the interval contains the bound"
    assert found.price is not None
    assert found.price.rounds is not None
    assert found.price.rounds > 1


def test_a_missing_cell_is_named_with_its_reason() -> None:
    found = judged({"a": (1, 1, 1)}, ratio=["b", "a"], above=1.0)
    assert found.verdict is Verdict.not_shown
    assert found.why == "b: it failed: no memory"


def test_two_rounds_decide_nothing() -> None:
    found = judged({"a": (1.0, 1.0), "b": (9.0, 9.0)}, ratio=["b", "a"], above=2.0)
    assert found.verdict is Verdict.undecided
    assert "3 rounds are needed" in found.why
    assert found.tests[0].measured is not None
    assert found.tests[0].measured.value == pytest.approx(9.0)


def test_rising_asks_for_every_step() -> None:
    assert judged(TIGHT, rising=["a", "b", "c"]).verdict is Verdict.holds
    assert judged(TIGHT, falling=["c", "b", "a"]).verdict is Verdict.holds
    found = judged(TIGHT, {"a": 1, "b": 2, "c": 1}, rising=["a", "c", "b"])
    assert [test.verdict for test in found.tests] == [Verdict.holds, Verdict.refuted]
    assert found.verdict is Verdict.refuted
    assert [test.printed for test in found.tests] == [1.0, 2.0]


def test_a_step_that_makes_no_difference_refutes_what_is_said_to_rise() -> None:
    found = judged(TIGHT | {"d": (40.1, 40.0, 40.0, 39.9, 40.2)}, rising=["a", "b", "c", "d"])
    assert [test.verdict for test in found.tests] == [Verdict.holds, Verdict.holds, Verdict.equivalent]
    assert found.verdict is Verdict.refuted


def test_spread_and_value_have_bounds_of_their_own() -> None:
    assert judged(TIGHT, spread=["a", "b"], below=2.5).verdict is Verdict.holds
    assert judged(TIGHT, spread=["a", "b", "c"], below=2.5).verdict is Verdict.refuted
    assert judged(TIGHT, value="a", between=[9.0, 11.0]).verdict is Verdict.holds
    assert judged(TIGHT, value="a", between=[11.0, 12.0]).verdict is Verdict.refuted
    assert judged({"a": (0.0, 0.0, 0.0)}, value="a", above=0.0).verdict is Verdict.refuted


def test_a_ratio_to_zero_is_none() -> None:
    found = judged({"a": (0.0, 0.0, 0.0), "b": (1.0, 1.0, 1.0)}, ratio=["b", "a"], above=1.0)
    assert found.verdict is Verdict.not_shown
    assert "zero" in found.why


def test_repeats_on_one_start_are_an_old_design_and_say_so() -> None:
    new = judged(TIGHT, ratio=["b", "a"], above=1.5)
    old = judged(TIGHT, ratio=["b", "a"], above=1.5, shared=True)
    assert new.notes == []
    assert "old design" in old.notes[0]
    assert new.tests[0].measured is not None
    assert old.tests[0].measured is not None
    assert old.tests[0].measured.low < new.tests[0].measured.low, "starts may differ by more than repeats do"


def test_rounds_that_are_void_do_not_count() -> None:
    wild = {"a": (10.0, 10.1, 9.9, 90.0), "b": (20.0, 20.2, 19.8, 20.1)}
    assert judged(wild, ratio=["b", "a"], above=1.5).verdict is Verdict.undecided
    assert judged(wild, ratio=["b", "a"], above=1.5, void={4: "slow disk"}).verdict is Verdict.holds
    found = judged(wild, ratio=["b", "a"], above=1.5, void={4: "slow disk", 1: "slow disk"})
    assert found.verdict is Verdict.undecided
    assert "void (slow disk)" in found.why


def test_a_claim_stays_as_it_was_decided() -> None:
    later = {"a": (10.0, 10.1, 9.9, 40.0, 10.0), "b": (20.0, 20.2, 19.8, 20.1, 5.0)}
    found = judged(later, ratio=["b", "a"], above=1.5, looks=(3, 4, 5))
    assert (found.verdict, found.rounds) == (Verdict.holds, 3)
    assert found.tests[0].measured is not None
    assert found.tests[0].measured.rounds == 3, "with the numbers that decided it"
    assert judged(later, ratio=["b", "a"], above=1.5).verdict is Verdict.undecided


def test_rounds_with_one_side_are_left_out_while_there_are_enough_with_both() -> None:
    def sample(cell: str, _figure: str) -> Sample:
        rounds = {"a": {1: 1.0, 2: 10.0, 3: 3.0, 4: 5.0}, "b": {2: 20.2, 3: 5.9, 4: 10.0, 5: 7.0}}[cell]
        return Sample(tuple(Measured(value, at, f"{cell} {at}") for at, value in rounds.items()))

    claim = ClaimFile(claim="", tests=[CheckFile(figure="publish_ms.p99", ratio=["b", "a"], above=1.5)])
    [found] = judge([claim], Observed(sample, lambda _cell, _figure: None, ("a", "b")))
    assert found.verdict is Verdict.holds, "paired by round: what moves both is no noise"
    assert found.tests[0].measured is not None
    assert found.tests[0].measured.rounds == 3


def test_bounds_decide_where_they_do_in_three_rounds() -> None:
    def found(lowest: float, rounds: int = 3) -> Judged:
        def sample(cell: str, _figure: str) -> Sample:
            if cell == "a":
                return Sample(tuple(Measured(1.0 + at / 50, at, f"a {at}") for at in range(1, rounds + 1)))
            told = (Bounded(at, f"b {at}", lowest * (1.0 + at / 60), None) for at in range(1, rounds + 1))
            return Sample((), tuple(told), "disturbed", rounds)

        claim = ClaimFile(claim="", tests=[CheckFile(figure="publish_ms.p99", ratio=["b", "a"], above=2)])
        [one] = judge([claim], Observed(sample, lambda _cell, _figure: None, ("a", "b")))
        return one

    assert found(3.0).verdict is Verdict.holds
    assert "bounds" in found(3.0).notes[0]
    assert found(3.0, rounds=2).verdict is Verdict.undecided
    assert found(1.9).verdict is Verdict.undecided, "what is at least so much may be more"


def test_what_is_wrong_with_a_margin_is_said() -> None:
    wrongs: list[dict[str, Any]] = [
        {"ratio": ["a", "b"], "above": 2, "margin": 1.1},
        {"rising": ["a", "b"], "margin": 0.9},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="margin"):
            CheckFile(figure="publish_ms.p99", **wrong)


def test_a_machine_that_changed_is_told() -> None:
    def probe(write_mb_s: float, fsync_ms: float) -> dict[str, Any]:
        return {"disk": {"write_mb_s": write_mb_s, "fsync_ms": {"p50": fsync_ms}}}

    steady = drifts([probe(1000, 0.2), probe(1100, 0.25)])
    assert [drift.too_far for drift in steady] == [False, False]
    moved = drifts([probe(1000, 0.2), probe(1100, 0.2), probe(450, 0.2)])
    assert [(drift.title, drift.too_far) for drift in moved] == [
        ("sequential write bandwidth", True),
        ("median fsync", False),
    ]
    assert drifts([probe(1000, 0.2)]) == []


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
