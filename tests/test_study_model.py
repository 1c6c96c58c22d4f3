"""Study files: what ships is sound, what is wrong is told with its line, and plans are as written down."""

from __future__ import annotations

from collections import Counter

import pytest
from streamgauge.cli.study_trials import _say_plan
from streamgauge.model.checked_study import parse_study, read_study, study_names
from streamgauge.model.scaling import Batching, Demand, Machine, rate_bound, round_down, scaled_rates
from streamgauge.model.study_order import with_round
from streamgauge.model.study_plan import PlannedTrial, StudyPlan, workload_of
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.study_rates import counts, lowered
from streamgauge.model.workload import Workload
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.choices import SCALES
from streamgauge.vocabulary.errors import InputError

LAPTOP = Machine(cores=2, memory_bytes=24 << 30, disk_write_mb_s=1500.0)

TEXT = """
study: small
title: A small study
source: {publisher: nobody, published: "2026"}
systems:
  log-sync: {system: gauge-log, title: "Log, sync", level: L1}
  log-async: {system: gauge-log, title: "Log, async", level: L2}
workload: {messageSize: 1KiB, rate: 200k, warmup: 1m, duration: 15m, batch: {linger: 10ms}}
cells:
  - cell: "log-{local}-{partitions}"
    each: {local: [sync, async], partitions: [1, 100]}
    system: "log-{local}"
    workload: {partitionsPerTopic: "{partitions}"}
published:
  log-sync-1: {publish_ms: {p50: 2, p99: 4}}
scales:
  laptop: {rates: machine, duration: 60s, nodes: 1}
  quick:
    {rates: machine, duration: 10s, warmup: 2s, nodes: 1, repeats: 3, restart: block, leave_out: ["*-sync-100"], because: "one is enough"}
claims:
  - claim: fsync costs
    tests: [{figure: publish_ms.p99, ratio: [log-sync-1, log-async-1], above: 1}]
pages:
  - {title: Latency, table: [publish_ms.p99], cells: ["*"]}
"""


def plan(text: str = TEXT, **wishes: object) -> StudyPlan:
    asked = {"scale": "quick", "seed": 7, **wishes}
    return plan_study(parse_study(text, "small.yaml", systems()), Wishes(**asked), LAPTOP)  # type: ignore[arg-type]


def refused(old: str, new: str) -> str:
    with pytest.raises(InputError) as error:
        parse_study(TEXT.replace(old, new), "small.yaml", systems())
    return str(error.value)


@pytest.mark.parametrize("name", study_names())
@pytest.mark.parametrize("scale", SCALES)
def test_every_study_that_ships_can_be_planned(name: str, scale: str) -> None:
    study = read_study(name, systems())
    found = plan_study(study, Wishes(scale=scale, seed=1), LAPTOP)  # type: ignore[arg-type]
    assert {cell.cell for cell in found.cells if not cell.heats} | set(found.left_out) == {
        cell.name for cell in study.cells
    }
    for cell in found.cells:
        workload_of(cell)
    # Every claim can be judged at full scale but for what is stated as left out.
    assert study.written.claims


def test_cells_are_expanded_with_the_types_of_their_values() -> None:
    study = parse_study(TEXT, "small.yaml", systems())
    assert [cell.name for cell in study.cells] == [
        "log-sync-1",
        "log-sync-100",
        "log-async-1",
        "log-async-100",
    ]
    assert study.cell("log-sync-100").workload["partitionsPerTopic"] == 100
    assert study.cell("log-sync-1").published == {"publish_ms.p50": 2, "publish_ms.p99": 4}


def test_problems_are_told_with_their_line() -> None:
    assert (
        "small.yaml:12: cell 'log-sync-1': no system 'lag-sync' under systems; did you mean 'log-sync'?"
        in refused('system: "log-{local}"', 'system: "lag-{local}"')
    )
    assert "no figure 'publish_ms.p98'; did you mean" in refused(
        "table: [publish_ms.p99]", "table: [publish_ms.p98]"
    )
    assert "no cell 'log-sync-2'; did you mean 'log-sync-1'?" in refused(
        "ratio: [log-sync-1,", "ratio: [log-sync-2,"
    )
    assert "ratio needs one bound" in refused("log-async-1], above: 1", "log-async-1]")
    assert "say why" in refused(', because: "one is enough"', "")
    assert "unknown key 'titel'; did you mean 'title'?" in refused("title: Latency", "titel: Latency")


def test_what_is_wrong_with_all_cells_workload_is_told_once_at_its_line() -> None:
    assert refused("messageSize: 1KiB", "messageSize: 1kb").startswith(
        "small.yaml:8: messageSize: '1kb' is ambiguous"
    )
    assert (
        refused("{messageSize:", "{mesageSize:")
        == "small.yaml:8: unknown key 'mesageSize'; did you mean 'messageSize'?"
    )


def test_what_is_wrong_with_the_workload_of_a_cell_is_told_there() -> None:
    old = 'workload: {partitionsPerTopic: "{partitions}"}'
    told = refused(old, old.replace("{partitions}", "{local}")).splitlines()
    assert len(told) == 4
    assert told[0].startswith("small.yaml:13: cell 'log-sync-1': partitionsPerTopic: ")
    # What a scale adds to cells is not to blame for what was wrong before.
    with pytest.raises(InputError) as error:
        parse_study(
            TEXT.replace("{messageSize:", "{mesageSize:").replace(
                "laptop: {", 'laptop: {cells: {"*": {workload: {batch: {linger: 1ms}}}}, '
            ),
            "small.yaml",
            systems(),
        )
    assert str(error.value) == "small.yaml:8: unknown key 'mesageSize'; did you mean 'messageSize'?"
    # A key that a cell has itself is its own, also where the study has one.
    told = refused(old, "workload: {messageSize: 1kb}").splitlines()
    assert {one.partition(": ")[0] for one in told} == {"small.yaml:13"}


def test_on_one_node_a_level_is_what_is_left_of_it() -> None:
    found = plan()
    assert found.cell("log-sync-1").level == "L3"
    assert found.cell("log-async-1").level == "L4"
    assert "1 node instead of 3, hence L3 instead of L1" in found.cell("log-sync-1").scaled
    assert plan(scale="full").cell("log-sync-1").level == "L1"


def test_cells_that_only_the_scale_makes_differ_in_nodes_are_not_held_against_each_other() -> None:
    cells = ["log-sync-1", "log-async-1"]
    pinned = TEXT.replace("level: L1}", "level: L1, nodes: 3}")
    assert plan().unlike(cells) == ""
    assert plan(pinned).unlike(cells) == (
        "at scale quick log-sync-1 has 3 nodes, log-async-1 has 1 node: not alike, as they are in the study"
    )
    # Where the study itself has them differ, that may be its question; and how many nodes a cluster has that runs is not the scale's doing.
    assert plan(TEXT.replace("level: L1}", "level: L1, nodes: 1}"), scale="full").unlike(cells) == ""
    assert plan(pinned, connect={"log-async": ["127.0.0.1:9092"]}).unlike(cells) == ""


def test_rates_that_were_one_stay_one() -> None:
    found = plan()
    rates = {cell.workload["rate"] for cell in found.cells if not cell.heats}
    assert rates == {24_000.0}
    assert plan(scale="full").cell("log-sync-1").workload["rate"] == "200k"


def test_a_rate_is_bounded_by_cores_and_disk_and_never_raised() -> None:
    large = Batching(linger_s=0.01, batch_bytes=1 << 20, lists=1)
    assert scaled_rates([Demand(1000.0, 1024, 1, 1, large)], LAPTOP) == [1000.0]
    assert rate_bound(Demand(1e6, 100, 1, 1, large), LAPTOP) == 50_000.0
    assert rate_bound(Demand(1e6, 100, 3, 1, large), LAPTOP) == 25_000.0
    slow = Machine(cores=2, memory_bytes=1, disk_write_mb_s=8.0)
    assert rate_bound(Demand(1e6, 1000, 1, 1, large), slow) == 1000.0
    pair = [Demand(2e5, 1024, 1, 1, large), Demand(2e5, 1024, 1, 10, large)]
    first, second = scaled_rates(pair, LAPTOP)
    assert first == second == round_down(rate_bound(pair[1], LAPTOP))


def test_a_rate_is_bounded_by_batches_where_each_message_is_one() -> None:
    """100 partitions of 4 producers and a linger of 1 ms: no batch has two messages, and 12,000 of them in a second are what two cores carry at most."""
    scattered = Batching(linger_s=0.001, batch_bytes=1 << 20, lists=400)
    assert 6_250 < rate_bound(Demand(2e5, 1024, 3, 1, scattered), LAPTOP) < 6_400
    # Messages that a long linger gathers are no more batches at a higher rate.
    gathered = Batching(linger_s=0.05, batch_bytes=1 << 20, lists=100)
    assert gathered.rate_of(6_250, 1024) == 6_250 * 1024
    small = Batching(linger_s=0.05, batch_bytes=1024, lists=100)
    assert small.rate_of(6_250, 1024) == 6_250
    assert small.rate_of(6_250, 4096) == 6_250


def test_the_order_is_random_by_the_seed_and_complete() -> None:
    found, same, other = plan(), plan(), plan(seed=8)
    assert found.trials == same.trials
    assert [trial.cell for trial in found.trials] != [trial.cell for trial in other.trials]
    counted = Counter(trial.cell for trial in found.trials if not found.cell(trial.cell).heats)
    assert counted == {"log-sync-1": 3, "log-async-1": 3, "log-async-100": 3}
    assert [trial.number for trial in found.trials] == list(range(1, len(found.trials) + 1))


def test_each_round_starts_every_kept_system_once_and_heats_it() -> None:
    found = plan()
    blocks: dict[int, list[PlannedTrial]] = {}
    for trial in found.trials:
        blocks.setdefault(trial.block, []).append(trial)
    assert found.rounds == 3
    assert len(blocks) == 3 * 2
    for trials in blocks.values():
        heats = [found.cell(trial.cell).heats for trial in trials]
        assert heats == [True, True] + [False] * (len(trials) - 2)
        assert len({found.cell(trial.cell).level for trial in trials}) == 1
        assert len({trial.round for trial in trials}) == 1
    # All cells of a round meet the same arrivals, and those of another round other ones.
    seeds = {(trial.round, trial.seed) for trial in found.trials}
    assert len(seeds) == len({seed for _, seed in seeds}) == 3


def test_systems_do_not_come_in_the_same_order_in_every_round() -> None:
    orders = set()
    for seed in range(5):
        found = plan(seed=seed)
        orders |= {
            tuple(
                trial.cell for trial in found.trials if trial.round == number and found.cell(trial.cell).heats
            )
            for number in (1, 2, 3)
        }
    assert len(orders) == 2


def test_a_round_more_of_some_cells_starts_only_their_systems() -> None:
    found = plan()
    more = with_round(found, ["log-async-1"])
    added = more.trials[len(found.trials) :]
    assert more.trials[: len(found.trials)] == found.trials
    assert [trial.cell for trial in added] == [
        "warming-up-for-log-async-100",
        "rehearsal-of-log-async-100",
        "log-async-1",
    ]
    assert {trial.round for trial in added} == {4}
    assert added[-1].repeat == 4
    assert more.estimate_s() > found.estimate_s()


def test_a_start_of_a_further_round_goes_through_its_cells_in_turns() -> None:
    found = plan()
    more = with_round(found, ["log-async-1", "log-async-100"], turns=3)
    added = more.trials[len(found.trials) :]
    counted = [trial for trial in added if not more.cell(trial.cell).heats]
    assert len(added) == len(counted) + 2, "heated once"
    assert len({trial.block for trial in added}) == 1
    turns = [counted[at : at + 2] for at in (0, 2, 4)]
    for turn in turns:
        assert {trial.cell for trial in turn} == {"log-async-1", "log-async-100"}
        assert len({trial.seed for trial in turn}) == 1, "cells of a turn meet the same arrivals"
    assert len({turn[0].seed for turn in turns}) == 3
    assert [trial.repeat for trial in counted if trial.cell == "log-async-1"] == [4, 5, 6]
    once = with_round(found, ["log-async-1", "log-async-100"])
    assert {trial.seed for trial in once.trials[-2:]} == {turns[0][0].seed}


def heats() -> list[Workload]:
    """Of the trials that heat a start."""
    return [workload_of(cell) for cell in plan(duration_s=10.0).cells if cell.heats]


def test_a_start_is_heated_until_it_is_steady_and_not_for_ever() -> None:
    warming = [one for one in heats() if one.name.startswith("warming-up")]
    assert len(warming) == 2
    for workload in warming:
        assert workload.warmup_auto
        assert workload.warmup_s == 45.0
        assert workload.rate_msgs_s == 24_000.0


def test_a_trial_is_rehearsed_before_one_counts() -> None:
    """The first trial of a start has no figure of its own to be the first in, whatever its cell."""
    rehearsals = [one for one in heats() if one.name.startswith("rehearsal")]
    assert [(one.name, one.partitions_per_topic) for one in rehearsals] == [
        ("rehearsal-of-log-sync-1", 1),
        ("rehearsal-of-log-async-100", 100),
    ]
    assert {(one.warmup_auto, one.warmup_s, one.duration_s) for one in rehearsals} == {(False, 1.0, 4.0)}


def test_the_cell_of_most_subscriptions_is_rehearsed() -> None:
    more = TEXT.replace(
        'partitionsPerTopic: "{partitions}"}', 'partitionsPerTopic: 4, subscriptionsPerTopic: "{partitions}"}'
    )
    assert [one.cell for one in plan(more).cells if one.heats] == [
        "warming-up-for-log-sync-1",
        "rehearsal-of-log-sync-1",
        "warming-up-for-log-async-1",
        "rehearsal-of-log-async-100",
    ]


def test_a_budget_is_the_scales_unless_rounds_are_asked_for() -> None:
    text = TEXT.replace("quick:\n    {", "quick:\n    {budget: 20m, ")
    assert plan(text).budget_s == 1200.0
    assert plan(text, budget_s=60.0).budget_s == 60.0
    assert plan(text, repeats=5).budget_s is None
    assert plan(text, repeats=5).rounds == 5
    assert plan(text, repeats=5, budget_s=60.0).budget_s == 60.0


def test_a_rate_that_was_too_high_is_lowered_for_all_that_ran_at_it() -> None:
    found = plan()
    assert lowered(found, "log-sync-1", 0.98) is None
    assert lowered(found, "log-sync-1", None) is None
    slower = lowered(found, "log-sync-1", 0.6)
    assert slower is not None
    assert {cell.workload["rate"] for cell in slower.cells} == {7200.0}
    assert slower.cell("log-async-1").scaled[-1] == (
        "then 7.2k msg/s: 24k msg/s was more than Log, sync takes here (14.4k msg/s)"
    )
    assert counts(slower, "log-async-1", 7200.0)
    assert not counts(slower, "log-async-1", 24_000.0)


def test_restarted_systems_are_interleaved_round_by_round() -> None:
    found = plan(scale="laptop")
    assert not any(cell.heats for cell in found.cells)
    rounds = [found.trials[at : at + 4] for at in range(0, len(found.trials), 4)]
    assert len(rounds) == 5
    for number, trials in enumerate(rounds, start=1):
        assert {trial.repeat for trial in trials} == {number}
        assert len({trial.cell for trial in trials}) == 4
        assert len({trial.seed for trial in trials}) == 1


def test_only_some_cells_can_be_asked_for() -> None:
    found = plan(only=("*-async-*",), repeats=1)
    assert {cell.cell for cell in found.cells if not cell.heats} == {"log-async-1", "log-async-100"}
    assert found.left_out["log-sync-1"] == "not asked for (--only)"
    with pytest.raises(InputError, match="--only nothing: meets no cell"):
        plan(only=("nothing",))


def test_a_plan_says_what_is_not_part_of_it_and_counts_what_was_not_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    study = parse_study(TEXT, "small.yaml", systems())
    _say_plan(study, plan(only=("log-async-*",)), {})
    told = capsys.readouterr().err
    assert "  not run: 2 cells (not asked for (--only))\n" in told
    assert "  not part of it: 1 of 1 claim (cells that were not asked for)\n" in told
    _say_plan(study, plan(), {})
    assert "  not run: log-sync-100 (left out at scale quick: one is enough)\n" in capsys.readouterr().err


def test_the_estimate_shrinks_with_what_is_left() -> None:
    found = plan()
    assert 0 < found.estimate_s([found.trials[-1].number]) < found.estimate_s()
