"""A variant is verified or not judged: on a cluster that runs already, nobody may take one thing for two."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_run import LOG, workload, write_run
from streamgauge.analysis.study_outcome import StudyOutcome, read_outcome
from streamgauge.cli.study_trials import _clusters
from streamgauge.model.checked_study import parse_study, read_study
from streamgauge.model.scaling import Machine
from streamgauge.model.study_plan import StudyPlan
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.system_request import SystemRequest
from streamgauge.model.trust import NOBODY
from streamgauge.runner.study_systems import choice_of, cluster_of, read_clusters, with_unverified
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import check_ours, read_plan, write_plan
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError
from test_study_model import TEXT

MACHINE = Machine(8, 64 << 30, 500.0)
ONE, OTHER = ("127.0.0.1:6650",), ("127.0.0.2:6650",)
PULSARS = TEXT.replace(
    'log-sync: {system: gauge-log, title: "Log, sync", level: L1}',
    'log-sync: {system: pulsar, title: "Sync", level: L1}',
).replace(
    'log-async: {system: gauge-log, title: "Log, async", level: L2}',
    'log-async: {system: pulsar, title: "Async", level: L2, options: {journal: async_journal, client: {token: secret}}}',
)


def planned(text: str, **connect: tuple[str, ...]) -> StudyPlan:
    study = parse_study(text, "small.yaml", systems())
    wishes = Wishes(
        scale="quick", seed=7, connect={name.replace("_", "-"): one for name, one in connect.items()}
    )
    return with_unverified(plan_study(study, wishes, MACHINE), {})


def outcome(
    tmp_path: Path,
    plan: StudyPlan,
    state: Callable[[str], dict[str, Any]] = lambda system: {"of": system},
    publish_ms: Callable[[str], float] = lambda cell: 0.9 if cell == "log-sync-1" else 0.3,
) -> StudyOutcome:
    """All rounds, as if they had been measured. `state`: what was read back of each study system's cluster; `publish_ms`: of a cell."""
    directory = tmp_path / "20260921-141320-study"
    shapes = [replace(LOG, publish_ms=publish_ms(one.cell)) for one in plan.trials]
    write_run(directory, shapes, asked=workload(seconds=4, warmup_s=1.0))
    for trial in plan.trials:
        path = directory / f"trials/{trial.number:03d}/result.json"
        found = json.loads(path.read_text("utf-8"))
        cell = plan.cell(trial.cell)
        found["attached"] = bool(plan.addresses(cell))
        found["workload"] |= {"name": trial.cell, "rate_msgs_s": plan.rate_of(trial.cell)}
        found["durability"] = {
            "asked": None,
            "declared": None,
            "settings": state(cell.system),
            "mismatches": [],
        }
        path.write_text(json.dumps(found), "utf-8")
    run = RunDirectory(directory)
    return read_outcome(directory, plan, run.read_manifest(), run.results())


def test_trials_of_a_start_that_was_heated_again_are_of_another_one(tmp_path: Path) -> None:
    """What two cells of a start have in common does not fall out between a start and the one that took its place in the middle of a block."""
    plan = planned(TEXT)
    found = outcome(tmp_path, plan)
    block = [one for one in plan.trials if one.block == 1]
    heats = [one.number for one in block if plan.cell(one.cell).heats]
    counted = [one.number for one in block if not plan.cell(one.cell).heats]
    assert heats
    assert len(counted) >= 2
    at_ms = found.trials[0].result.started_unix_ms

    def starts(began_ms: Mapping[int, int]) -> list[int]:
        moved = [
            replace(
                one,
                result=one.result.model_copy(
                    update={"started_unix_ms": began_ms.get(one.result.trial, at_ms)}
                ),
            )
            for one in found.trials
        ]
        judged = replace(found, trials=tuple(moved))
        samples = [judged.sample(plan.trials[number - 1].cell, "publish_ms.p50") for number in counted]
        return [next(one.start for one in each.values if one.round == 1) for each in samples]

    assert len(set(starts({}))) == 1
    again = {number: at_ms + 60_000 + number for number in heats}
    former, *later = starts(again | dict.fromkeys(counted[1:], at_ms + 90000))
    assert former not in later
    assert len(set(later)) == 1


def test_what_makes_a_variant_and_cannot_be_read_back_is_named() -> None:
    study = read_study("kesque-2019", systems())
    wishes = Wishes(scale="quick", seed=7, connect={"pulsar": ONE, "kafka": ("127.0.0.1:9092",)})
    plan = with_unverified(plan_study(study, wishes, MACHINE), {})
    unverified = {cell.system: cell.unverified for cell in plan.cells}
    assert unverified["pulsar-sync"][0] == "durability"
    assert set(unverified["pulsar-async"]) >= {"durability", "journal"}
    # Kafka's topics have their level by themselves, and it is read back of them.
    assert unverified["kafka-sync"] == unverified["kafka-async"] == []
    started = with_unverified(plan_study(study, Wishes(scale="quick", seed=7), MACHINE), {})
    assert not any(cell.unverified for cell in started.cells)


def test_each_variant_may_have_a_cluster_of_its_own() -> None:
    plan = planned(PULSARS, log_sync=ONE, pulsar=OTHER)
    assert plan.addresses(plan.cell("log-sync-1")) == ONE
    assert plan.addresses(plan.cell("log-async-1")) == OTHER
    study = parse_study(PULSARS, "small.yaml", systems())
    assert _clusters(["log-async=a:1,b:2"], study, NOBODY) == ({"log-async": ("a:1", "b:2")}, {})
    with pytest.raises(InputError, match=r"no system 'log-asynk'.*log-async"):
        _clusters(["log-asynk=a:1"], study, NOBODY)


def test_a_cluster_may_have_a_system_file_that_says_how_it_is_reached(tmp_path: Path) -> None:
    study = parse_study(PULSARS, "small.yaml", systems())
    file = tmp_path / "theirs.yaml"
    file.write_text(
        "system: pulsar\nconnect: 127.0.0.1:6650\nadmin: 127.0.0.1:9080\nclient: {namespace: a/b}\n"
        "metrics: ['http://127.0.0.1:9080/metrics/']\n",
        "utf-8",
    )
    addresses, files = _clusters([f"log-async={file}", "log-sync=127.0.0.2:6650"], study, NOBODY)
    assert addresses == {"log-async": ONE, "log-sync": OTHER}
    wishes = Wishes(scale="quick", seed=7, connect=addresses, cluster_files=files)
    made = plan_study(study, wishes, MACHINE)
    clusters = read_clusters(made, NOBODY)
    plan = with_unverified(made, clusters)
    cell = plan.cell("log-async-1")
    request = choice_of(cell, cluster_of(plan, cell, clusters)).request
    assert (request.connect, request.metrics) == (ONE, ("http://127.0.0.1:9080/metrics/",))
    # What its owner says of clients goes before what the study says, and is then no variant of the study's any more.
    assert request.options == {"admin": "127.0.0.1:9080", "client": {"namespace": "a/b"}}
    assert {"journal", "client"} <= set(cell.unverified)
    other = plan.cell("log-sync-1")
    assert choice_of(other, cluster_of(plan, other, clusters)).request.options == {}
    run = RunDirectory.create(tmp_path / "runs", "small-quick")
    write_plan(run, plan)
    again = read_plan(run.path)
    check_ours(again, run.path)
    assert read_clusters(again, NOBODY) == clusters
    file.write_text("system: pulsar\nconnect: 127.0.0.3:6650\n", "utf-8")
    with pytest.raises(InputError, match=r"127\.0\.0\.3:6650, and the study was begun on 127\.0\.0\.1:6650"):
        read_clusters(again, NOBODY)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("system: kafka\nconnect: 127.0.0.1:9092\n", "is about kafka, and the study's system is pulsar"),
        ("system: pulsar\n", r"names no cluster that runs: expected its addresses, as connect: \[HOST:PORT"),
        ("system: pulsar\nconnect: 127.0.0.1:6650\nversion: 4.0.0\n", "version"),
        ("system: pulsar\nconnect: 127.0.0.1:6650\nconect: x\n", "theirs.yaml:3: unknown key 'conect'"),
    ],
)
def test_a_system_file_of_a_cluster_that_says_anything_else_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "theirs.yaml").write_text(text, "utf-8")
    with pytest.raises(InputError, match=said):
        _clusters(
            [f"log-async={tmp_path / 'theirs.yaml'}"],
            parse_study(PULSARS, "small.yaml", systems()),
            NOBODY,
        )


def test_what_clients_set_is_kept() -> None:
    plan = planned(PULSARS, pulsar=ONE)
    request = choice_of(plan.cell("log-async-1"), SystemRequest(connect=ONE)).request
    assert request.options == {"client": {"token": "secret"}}
    assert request.level is None
    rabbit = TEXT.replace(
        'log-async: {system: gauge-log, title: "Log, async", level: L2}',
        'log-async: {system: rabbitmq, title: "Rabbit", level: L4, options: {queue: classic, persistent: false}}',
    )
    cell = planned(rabbit, rabbitmq=("127.0.0.1:5672",)).cell("log-async-1")
    assert choice_of(cell, SystemRequest(connect=("127.0.0.1:5672",))).request.options == {
        "queue": "classic",
        "persistent": False,
    }


def test_a_variant_that_is_not_verified_is_not_judged(tmp_path: Path) -> None:
    (claim,) = outcome(tmp_path, planned(PULSARS, log_sync=ONE, log_async=OTHER)).claims
    assert claim.verdict == "not shown"
    assert "could not be verified on the cluster that runs: durability" in claim.why
    assert "durability, journal" in claim.why


def test_what_the_user_vouches_for_is_judged(tmp_path: Path) -> None:
    vouched = PULSARS.replace("level: L1}", "level: L1, vouched: [durability]}").replace(
        "level: L2, options", "level: L2, vouched: [durability, journal], options"
    )
    (claim,) = outcome(tmp_path, planned(vouched, log_sync=ONE, log_async=OTHER)).claims
    assert claim.verdict != "not shown", claim.why
    assert claim.tests[0].measured is not None


def test_one_cluster_in_one_state_is_never_two_variants(tmp_path: Path) -> None:
    vouched = PULSARS.replace("level: L1}", "level: L1, vouched: [durability]}").replace(
        "level: L2, options", "level: L2, vouched: [durability, journal], options"
    )
    plan = planned(vouched, pulsar=ONE)
    (claim,) = outcome(tmp_path / "same", plan, lambda _system: {"ensemble": 3}).claims
    assert claim.verdict == "not shown"
    assert "on the same cluster in the same state as" in claim.why
    (claim,) = outcome(tmp_path / "changed", plan).claims
    assert claim.verdict != "not shown", "between the two it was set up anew"


RAID = PULSARS.replace(
    'title: "Async", level: L2, options:',
    'title: "Async", level: L1, machines: both disks as RAID 0, options:',
).replace("{journal: async_journal, client: {token: secret}}", "{}")


@pytest.mark.parametrize("connect", [{}, {"pulsar": ONE}, {"log_sync": ONE}])
def test_a_variant_of_machines_is_left_out_where_no_cluster_is_named_for_it(
    connect: dict[str, tuple[str, ...]],
) -> None:
    plan = planned(RAID, **connect)
    assert not any(cell.system == "log-async" for cell in plan.cells)
    (why,) = {why for name, why in plan.left_out.items() if name.startswith("log-async")}
    assert "it needs machines of its own (both disks as RAID 0)" in why
    assert "--connect log-async=" in why


def test_a_variant_of_machines_is_judged_where_somebody_vouches_for_them(tmp_path: Path) -> None:
    durable = RAID.replace("level: L1}", "level: L1, vouched: [durability]}")
    plan = planned(
        durable.replace("level: L1, machines", "level: L1, vouched: [durability], machines"),
        log_sync=ONE,
        log_async=OTHER,
    )
    assert plan.cell("log-async-1").unverified == ["durability", "machines"]
    (claim,) = outcome(tmp_path / "unsaid", plan).claims
    assert claim.verdict == "not shown"
    assert "could not be verified on the cluster that runs: machines" in claim.why
    vouched = planned(
        durable.replace("level: L1, machines", "level: L1, vouched: [durability, machines], machines"),
        log_sync=ONE,
        log_async=OTHER,
    )
    (claim,) = outcome(tmp_path / "said", vouched).claims
    assert claim.verdict != "not shown", claim.why


def test_machines_that_were_not_changed_are_found_out(tmp_path: Path) -> None:
    """One array of disks has another directory than two disks, which bookies tell."""
    vouched = RAID.replace("level: L1}", "level: L1, vouched: [durability]}").replace(
        "level: L1, machines", "level: L1, vouched: [durability, machines], machines"
    )
    plan = planned(vouched, log_sync=ONE, log_async=ONE)
    (claim,) = outcome(tmp_path, plan, lambda _system: {"bookie-1.journalDirectories": "/a"}).claims
    assert claim.verdict == "not shown"
    assert "on the same cluster in the same state as" in claim.why
