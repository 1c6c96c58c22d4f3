"""How often verdicts are wrong, and how often they are found: simulated studies whose truth is known (verdict_simulation.py).

`python tests/test_inference_errors.py` prints the table of docs/method.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from streamgauge.inference.contrast import Contrast, Shape
from streamgauge.inference.levels import FALSE_ALARMS_PER_YEAR, HISTORY_CAUTION, changes
from streamgauge.inference.power import POWER, power, price
from streamgauge.inference.sequential import ERROR, level_for, levels, over_all_looks
from streamgauge.inference.study import Judged, judge
from streamgauge.inference.verdict import Asked, Verdict, chances
from streamgauge.model.study_file import CheckFile, ClaimFile
from verdict_simulation import WORLDS, World, measured, observed

VARIANTS = (("k0", "k1", "k2"), ("p0", "p1", "p2"), ("q0", "q1", "q2"))
CELLS = tuple(cell for cells in VARIANTS for cell in cells)
LOOKS = (3, 4, 5, 6)
STUDIES = 150
"""For each world and truth; the worlds are judged together."""
ALLOWED = 1.3
NO_MARGIN = 1.00001
"""Then nothing is equivalent, and what is left is holds and refuted."""


def claim(**check: Any) -> ClaimFile:
    return ClaimFile(claim="so it is", tests=[CheckFile(figure="publish_ms.p99", **check)])


def studies(
    world: World,
    truth: Mapping[str, float],
    looks: tuple[int, ...],
    count: int,
    seed: int,
    *,
    old: bool = False,
) -> list[Callable[[ClaimFile], Judged]]:
    """Judges of so many studies."""
    random = np.random.default_rng(seed)
    rounds = looks[-1] if looks else 5

    def judge_of() -> Callable[[ClaimFile], Judged]:
        found = observed(measured(world, truth, VARIANTS, rounds, random, one_start=old), looks)
        return lambda one: judge([one], found)[0]

    return [judge_of() for _ in range(count)]


def rates(world: World, looks: tuple[int, ...], count: int, seed: int) -> dict[str, float]:
    """Kind of verdict -> how often it is given where it is wrong, at the truth at which that is likeliest: on the bound, or on the margin."""
    at_bound = dict.fromkeys(CELLS, 1.0)
    at_margin = at_bound | {"p0": 1.5, "k1": 1.5}
    across, within = (
        {"ratio": ["p0", "k0"], "above": 1.0, "margin": NO_MARGIN},
        {"ratio": ["k1", "k0"], "above": 1.0, "margin": NO_MARGIN},
    )
    wrong = {"holds": 0, "refuted": 0, "equivalent": 0}
    for verdict in studies(world, at_bound, looks, count, seed):
        for check in (across, within):
            found = verdict(claim(**check)).verdict
            wrong["holds"] += found is Verdict.holds
            wrong["refuted"] += found is Verdict.refuted
    for verdict in studies(world, at_margin, looks, count, seed + 1):
        for check in (across, within):
            found = verdict(claim(**{**check, "margin": 1.5})).verdict
            wrong["equivalent"] += found is Verdict.equivalent
    return {kind: times / (2 * count) for kind, times in wrong.items()}


@pytest.mark.lab
@pytest.mark.parametrize("looks", [(), LOOKS], ids=["once", "with optional stopping"])
def test_each_verdict_is_wrong_no_more_often_than_it_says(looks: tuple[int, ...]) -> None:
    """Each at 2.5 %, whatever the noise is like."""
    found = [rates(world, looks, STUDIES, 10 * at) for at, world in enumerate(WORLDS.values())]
    for kind in ("holds", "refuted", "equivalent"):
        mean = float(np.mean([one[kind] for one in found]))
        # With what chance allows on top: two standard errors of all verdicts, three of those of a world.
        chance = 2.0 * math.sqrt(ALLOWED * ERROR / 2 / (STUDIES * len(found)))
        assert mean <= ALLOWED * ERROR / 2 + chance, f"{kind}: {100 * mean:.1f} %"
        worst = max(one[kind] for one in found)
        chance = 3.0 * math.sqrt(ALLOWED * ERROR / 2 / STUDIES)
        assert worst <= ALLOWED * ERROR / 2 + chance, f"{kind}: {100 * worst:.1f} %"


@pytest.mark.lab
@pytest.mark.parametrize("looks", [(), LOOKS], ids=["once", "with optional stopping"])
def test_a_study_of_the_same_under_other_names_decides_nothing_wrongly(looks: tuple[int, ...]) -> None:
    """A/A: of nine claims that are all at their bound no more than 5 % of studies decide any."""
    claims = [
        claim(ratio=[one, other], above=1.0, margin=NO_MARGIN)
        for at, one in enumerate(CELLS)
        for other in CELLS[:at]
    ][:9]
    random = np.random.default_rng(5)
    asked, wrong = 0, 0
    for world in WORLDS.values():
        for _ in range(40):
            found = observed(measured(world, dict.fromkeys(CELLS, 1.0), VARIANTS, 6, random), looks)
            wrong += any(one.verdict.decided for one in judge(claims, found))
            asked += 1
    assert wrong <= ALLOWED * ERROR * asked + 2 * math.sqrt(ERROR * asked), f"{wrong} of {asked}"


def test_an_old_design_is_judged_as_if_starts_differed() -> None:
    """As much as trials do: what repeats on one start cannot tell."""
    same = dict.fromkeys(CELLS, 1.0)
    judges = studies(World(starts=0.1), same, (), 600, 3, old=True)
    wrong = [one(claim(ratio=["p0", "k0"], above=1.0, margin=NO_MARGIN)).verdict.decided for one in judges]
    assert sum(wrong) <= ALLOWED * ERROR * 600, f"{sum(wrong)} of 600"


def test_a_claim_of_several_steps_is_refuted_no_more_often_than_one() -> None:
    """All steps at their bound: without a correction one of five would refute it by chance."""
    random = np.random.default_rng(9)
    rising = claim(rising=list(CELLS), margin=NO_MARGIN)
    asked = 500
    wrong = sum(
        judge([rising], observed(measured(World(), dict.fromkeys(CELLS, 1.0), VARIANTS, 5, random)))[
            0
        ].verdict
        is not Verdict.undecided
        for _ in range(asked)
    )
    assert wrong <= ALLOWED * ERROR * asked, f"{wrong} of {asked}"


def test_levels_of_looks_err_as_often_as_they_spend() -> None:
    """Brownian motion, looked at after 3, 4, 6 and 8 rounds."""
    random = np.random.default_rng(1)
    looks = (3, 4, 6, 8)
    sums = random.standard_normal((200_000, 8)).cumsum(axis=1)
    for error in (0.05, 0.005):
        edges = [-_normal(one / 2) for one in levels(looks, error)]
        crossed = np.zeros(len(sums), dtype=bool)
        for rounds, edge in zip(looks, edges, strict=True):
            crossed |= np.abs(sums[:, rounds - 1]) > edge * math.sqrt(rounds)
        expected = error * (1.0 - (2.0 / 8) ** 1.5)
        assert float(crossed.mean()) == pytest.approx(expected, rel=0.1)


def _normal(share: float) -> float:
    from scipy import stats

    return float(stats.norm.ppf(share))


def test_p_values_over_all_looks_are_the_inverse_of_levels() -> None:
    for error in (0.2, 0.05, 0.01, 0.001):
        assert over_all_looks(level_for(error, LOOKS), LOOKS) == pytest.approx(error, rel=0.03)
    assert over_all_looks(0.03, ()) == 0.03
    assert over_all_looks(1.0, LOOKS) == 1.0


@pytest.mark.parametrize(
    ("truth", "bound"), [(math.log(1.6), 0.0), (math.log(0.8), 0.0), (0.05, 0.0), (1.0, 0.7)]
)
@pytest.mark.parametrize("rounds", [4, 8])
def test_the_power_that_a_price_rests_on_is_what_is_found(truth: float, bound: float, rounds: int) -> None:
    """Within 5 points."""
    spread, repeats = 0.35, 4000
    asked = Asked(low=bound, margin=math.log(1.5) if bound == 0 else None)
    shape = Shape("two starts", (rounds,))
    told = power(Contrast(truth, spread**2, 0.0, shape), asked, ERROR)
    random = np.random.default_rng(2)
    values = random.normal(truth, spread, (repeats, rounds))
    decided = 0
    for estimate, variance in zip(values.mean(axis=1), values.var(axis=1, ddof=1), strict=True):
        found = chances(Contrast(float(estimate), float(variance), 0.0, shape), asked)
        decided += found.verdict(ERROR).decided
    assert decided / repeats == pytest.approx(told, abs=0.05)


@pytest.mark.lab
@pytest.mark.parametrize(
    ("truth", "world"), [(1.25, World()), (1.35, World(noise=0.2)), (1.5, World(starts=0.15))]
)
def test_a_study_finds_what_it_is_said_to_find(truth: float, world: World) -> None:
    """As above, through all of a study, whose cells moderate the variance. Within 5 points, and what 400 studies allow."""
    values = dict.fromkeys(CELLS, 1.0) | {"p0": truth}
    wanted = claim(ratio=["p0", "k0"], above=1.0, margin=NO_MARGIN)
    decided = [one(wanted).verdict.decided for one in studies(world, values, (5,), 400, 3)]
    known = Contrast(
        math.log(truth), 2.0 * (world.noise**2 + world.starts**2), 5.0, Shape("two starts", (5,))
    )
    told = power(known, Asked(low=0.0), level_for(ERROR, (5,)))
    assert float(np.mean(decided)) == pytest.approx(told, abs=0.05 + 2 * math.sqrt(told * (1 - told) / 400))


def test_a_price_decides_as_often_as_it_says_and_none_is_asked_for_the_impossible() -> None:
    now = Contrast(math.log(1.6), 0.35**2, 4.0, Shape("two starts", (3,)))
    asked = Asked(low=0.0, margin=math.log(1.5))
    told = price(now, asked, (3,), ERROR)
    assert told.rounds is not None
    level = level_for(ERROR, (3, 3 + told.rounds))
    assert power(now.after(told.rounds), asked, level) >= POWER
    assert power(now.after(told.rounds - 1), asked, level) < POWER + 0.05
    at_the_bound = Contrast(math.log(1.5), 0.35**2, 4.0, Shape("two starts", (3,)))
    never = price(at_the_bound, Asked(low=math.log(1.5)), (3,), ERROR)
    assert never.rounds is None
    assert "too near" in never.why
    old = Contrast(0.3, 0.35**2, 4.0, Shape("old", (3, 3), (1, 1)))
    assert "runs or starts" in price(old, asked, (), ERROR).why


@pytest.mark.lab
@pytest.mark.parametrize("noise", ["normal", "heavy tails", "AR 0.5"])
def test_a_history_of_noise_raises_no_more_alarms_a_year_than_it_says(noise: str) -> None:
    """A run a night, looked at every night; an alarm is a change that was not there the night before."""
    random = np.random.default_rng(8)
    years, alarms = 4, 0
    for _ in range(years):
        steps = (
            random.standard_t(3, 365) / math.sqrt(3)
            if noise == "heavy tails"
            else random.standard_normal(365)
        )
        if noise == "AR 0.5":
            for at in range(1, len(steps)):
                steps[at] = 0.5 * steps[at - 1] + math.sqrt(0.75) * steps[at]
        nights = np.exp(0.1 * steps)
        known: list[int] = []
        for night in range(6, len(nights) + 1):
            found = [
                one.at for one in changes(nights[:night], smallest=2, at_least=0.02, caution=HISTORY_CAUTION)
            ]
            new = [at for at in found if all(abs(at - before) > 2 for before in known)]
            alarms += bool(new)
            known += new
    assert alarms <= FALSE_ALARMS_PER_YEAR * years, f"{alarms} alarms in {years} years"


if __name__ == "__main__":
    for at, (name, world) in enumerate(WORLDS.items()):
        for looks in ((), LOOKS):
            found = rates(world, looks, 800, 100 + 10 * at)
            cells = " | ".join(f"{100 * share:.1f} %" for share in found.values())
            print(f"| {name} | {'3, 4, 5, 6' if looks else 'once, 5 rounds'} | {cells} |", flush=True)
