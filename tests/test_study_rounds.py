"""What a study runs next: claims whose truth and prices are made up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from streamgauge.analysis import study_rounds
from streamgauge.analysis.study_rounds import (
    cells_in_doubt,
    next_round,
    rounds_wanted,
    share_a_start,
    turns_of,
)
from streamgauge.inference import checks
from streamgauge.inference.checks import Estimate, Verdict
from streamgauge.inference.claims import Judged
from streamgauge.model.study_file import CheckFile, ClaimFile
from streamgauge.report import verdict_words
from test_study_model import plan

CELLS = "abcdefgh"
ROUND_S = 60.0
"""Of each cell."""


def part(
    cells: str, rounds: int | None, leans: Verdict | None = Verdict.holds, after: int = 3
) -> checks.Tested:
    """An undecided ratio of two cells that so many rounds in all would decide."""
    test = CheckFile(figure="publish_ms.p99", ratio=list(cells), above=2.0)
    return checks.Tested(
        test,
        "",
        None,
        Estimate(1.0, (0.5, 2.0)),
        Verdict.undecided,
        "",
        rounds=rounds,
        leans=leans,
        after=after,
    )


def claim(*tests: checks.Tested, verdict: Verdict = Verdict.undecided) -> Judged:
    return Judged(ClaimFile(claim="so it is", tests=[one.test for one in tests]), tests, verdict)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cells of the next round, of claims and minutes that are left. `systems`: cells of one system each; all of one without. The scale cannot tell of a
    claim that is barred."""

    def cost(_outcome: object, cells: Collection[str]) -> float:
        return ROUND_S * len(cells)

    monkeypatch.setattr(study_rounds, "round_s", cost)
    monkeypatch.setattr(study_rounds, "share_a_start", lambda _outcome, _cells: False)

    def ask(minutes: float, *claims: Judged, systems: Sequence[str] = (CELLS,)) -> str:
        def started(_outcome: object, cells: Collection[str]) -> set[str]:
            return {system for system in systems if set(system) & set(cells)}

        monkeypatch.setattr(study_rounds, "starts_of", started)
        outcome: Any = SimpleNamespace(
            claims=claims,
            plan=SimpleNamespace(cells=[SimpleNamespace(cell=cell) for cell in CELLS]),
            planned=lambda cell: cell,
            of=lambda _cell: [],
            outside=lambda judged: [judged.reason] if judged.reason else [],
        )
        return "".join(next_round(outcome, 60.0 * minutes)[0])

    return ask


def test_time_goes_to_the_claims_that_it_decides(asked: Any) -> None:
    soon, later, never = claim(part("ab", 5)), claim(part("cd", 9)), claim(part("ef", None))
    # 2 more rounds of 4 cells, and then 4 of 2.
    assert asked(16, later, soon, never) == "abcd"
    assert asked(15, later, soon, never) == "ab"
    # Cells that run anyway cost nothing more.
    assert asked(15, claim(part("ab", 9)), soon) == "ab"


def test_time_goes_to_the_claims_of_which_most_are_decided_in_it(asked: Any) -> None:
    """One takes 6 minutes, two others 10 together: with the first one there is no time for these."""
    one, two, three = claim(part("ab", 6)), claim(part("cd", 8)), claim(part("cd", 7))
    assert asked(10, one, two, three) == "cd"
    assert asked(9, one, two, three) == "ab"
    assert asked(16, one, two, three) == "abcd"


def test_what_shares_no_start_is_run_by_itself(asked: Any) -> None:
    """The cheapest first; what shares a system with it, through another claim as well, comes with it."""
    claims = claim(part("ab", 9)), claim(part("ef", 5)), claim(part("bc", 6))
    assert asked(60, *claims, systems=["abc", "ef"]) == "ef"
    assert asked(60, *claims, systems=["ab", "cd", "ef"]) == "ef"
    assert asked(60, *claims, systems=["ab", "ce", "f"]) == "abcef"


def test_a_claim_that_the_scale_cannot_tell_of_gets_no_time(asked: Any) -> None:
    barred = replace(
        claim(part("ab", None), verdict=Verdict.not_shown), reason="it takes trials of 1m at least"
    )
    assert asked(60, barred) == ""
    assert asked(5, barred, claim(part("cd", 20))) == "cd"


def test_what_cannot_be_decided_any_more_gets_what_is_left(asked: Any) -> None:
    assert asked(4, claim(part("ab", 9)), claim(part("cd", 20)), claim(part("ef", None))) == "abcd"
    assert asked(6, claim(part("ef", None))) == "ef"
    assert asked(1, claim(part("ab", 9))) == ""
    assert asked(60, claim(part("ab", 5), verdict=Verdict.holds)) == ""


def test_a_claim_that_lacks_a_round_comes_first(asked: Any) -> None:
    few = checks.Tested(part("ab", None).test, "", None, Estimate(1.0, None), Verdict.undecided, "", after=2)
    assert rounds_wanted(claim(few)) == 1
    assert asked(3, claim(part("cd", 4)), claim(few)) == "ab"


def test_one_test_that_speaks_against_a_claim_is_enough() -> None:
    against = part("ab", 6, Verdict.refuted)
    judged = claim(part("cd", 20, Verdict.refuted), against, part("ef", 4, Verdict.holds))
    assert (judged.route, judged.rounds, cells_in_doubt(judged)) == ((against,), 6, {"a", "b"})
    assert rounds_wanted(judged) == 3
    # All that hold must be told, and the slowest is the price.
    for_it = claim(part("ab", 7), part("cd", 5))
    assert (for_it.rounds, cells_in_doubt(for_it)) == (7, set("abcd"))
    # One that can never be told speaks against it in vain.
    open_ = claim(part("ab", None, Verdict.refuted), part("cd", 5))
    assert open_.rounds is None


def test_many_open_claims_are_told_in_two_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soonest first; why each is open stands with it, below."""
    monkeypatch.setattr(verdict_words, "round_s", lambda _outcome, cells: ROUND_S * len(cells))

    def named(name: str, rounds: int | None) -> Judged:
        one = claim(part("ab", rounds))
        return replace(one, claim=one.claim.model_copy(update={"claim": name}))

    def told(*claims: Judged) -> list[str]:
        outcome: Any = SimpleNamespace(
            asked=claims, outside=lambda _judged: [], plan=SimpleNamespace(rounds=3, scale="quick")
        )
        ((title, sentences),) = verdict_words.found(outcome)
        assert title == "Undecided"
        return sentences

    claims = [named("late (here: at least 2)", 8), named("never", None), named("soon", 4), named("not", None)]
    assert told(*claims) == [
        "more time would tell, with --resume --budget TIME: soon (2m); late (10m)",
        "too near to what is asked, or too noisy or disturbed here, for any number of rounds that one would wait for: never; not",
    ]
    many = told(*(named(f"n{rounds}", rounds) for rounds in range(9, 3, -1)))
    assert many == [
        "more time would tell, with --resume --budget TIME: n4 (2m); n5 (4m); n6 (6m); n7 (8m); 2 more (10m to 12m)"
    ]
    few = told(replace(claims[2], reason="there are many"))
    assert few == ["soon (there are many; about 1 more round, 2m, would decide it: --resume --budget 2m)"]


@pytest.mark.parametrize(
    ("trial_s", "left_s", "turns"),
    [(10.0, 1000.0, 3), (20.0, 1000.0, 2), (40.0, 1000.0, 1), (10.0, 75.0, 2), (10.0, 40.0, 1)],
)
def test_a_further_round_goes_through_its_cells_while_trials_cost_less_than_the_start(
    monkeypatch: pytest.MonkeyPatch, trial_s: float, left_s: float, turns: int
) -> None:
    """A start and its heat take 50 s."""
    cells = [
        SimpleNamespace(cell="a", trial_s=trial_s, fresh=False),
        SimpleNamespace(cell="b", trial_s=9.0, fresh=False),
    ]
    monkeypatch.setattr(study_rounds, "round_s", lambda _outcome, _cells: 50.0 + trial_s)
    outcome: Any = SimpleNamespace(plan=SimpleNamespace(cells=cells))
    assert turns_of(outcome, ["a"], left_s) == turns


@pytest.mark.parametrize(
    ("rounds", "left_s", "turns"),
    # Heating takes 50 s and a trial 10. So many rounds as are expected to decide it, and one to spare if that is there; three at most.
    [(1, 60.0, 1), (1, 70.0, 2), (1, 1000.0, 2), (2, 70.0, 2), (2, 80.0, 3), (9, 240.0, 3), (9, 80.0, 3)],
)
def test_a_start_goes_through_its_cells_as_often_as_decides_a_claim(
    monkeypatch: pytest.MonkeyPatch, rounds: int, left_s: float, turns: int
) -> None:
    monkeypatch.setattr(study_rounds, "round_s", lambda _outcome, _cells: 60.0)
    monkeypatch.setattr(study_rounds, "share_a_start", lambda _outcome, _cells: True)
    monkeypatch.setattr(study_rounds, "starts_of", lambda _outcome, _cells: {"one"})
    cells = [SimpleNamespace(cell=cell, trial_s=5.0, fresh=False) for cell in "ab"]
    outcome: Any = SimpleNamespace(
        claims=[claim(part("ab", 3 + rounds))],
        plan=SimpleNamespace(cells=cells),
        planned=lambda cell: cell,
        of=lambda _cell: [],
        outside=lambda _judged: [],
    )
    assert next_round(outcome, left_s) == (["a", "b"], turns)


def test_turns_are_for_cells_that_share_a_start() -> None:
    """Between systems a start more is worth more than a turn."""
    outcome: Any = SimpleNamespace(plan=plan())
    assert share_a_start(outcome, {"log-async-1", "log-async-100"})
    assert not share_a_start(outcome, {"log-async-1", "log-sync-1"})
