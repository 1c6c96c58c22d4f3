"""The study of durability: its file, its plan, and how its statements are answered; no process involved."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from run_fuzz import mark_killed
from streamgauge.analysis.durability import judged
from streamgauge.analysis.statements import answers
from streamgauge.cli import study_durability
from streamgauge.cli.pages import NO_PAGES
from streamgauge.inference.experience import load_against
from streamgauge.inference.looks import ALPHA
from streamgauge.model.checked_study import experiment_study_names
from streamgauge.model.durability import (
    Account,
    Conditions,
    Cut,
    DoseResponse,
    DurabilityReport,
    DurabilityResult,
    Pace,
    Slope,
)
from streamgauge.model.durability_study import disputed, parse_durability_study, read_durability_study
from streamgauge.model.result import Durability
from streamgauge.model.trust import NOBODY, Trust
from streamgauge.report import durability_answers
from streamgauge.report.pages import render
from streamgauge.runner.durability.run import DurabilityPlan, DurabilityRun
from streamgauge.runner.observer import Observer
from streamgauge.runner.recover import KILLED_EXPERIMENTS
from streamgauge.store.plan_file import sealed
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError

FLUSHES, COVERS, LOSES, FASTER, SLOW, AS_SAFE, BYPASSED = 0, 4, 5, 3, 2, 6, 7
"""Places of the statements in the file."""
TEXT = """
study: small
title: Small
source: {publisher: nobody, published: "2026"}
experiments: [cuts]
cells:
  log: {system: gauge-log, title: The log, level: L3}
statements:
  - statement: the log keeps what it acknowledges
    by: nobody
    cells: [log]
    shows: {keeps: [all]}
"""


def result(name: str, disks: int = 1, lost: int = 0, **others: object) -> DurabilityResult:
    """A cell on one node whose cuts lost so much each."""
    cell = disputed(systems()).written.cells[name]
    count = cell.nodes
    cuts = [
        Cut(
            number=number,
            kind="power cut",
            scope=scope,
            parts=["node-1"],
            at_s=2.0,
            serving_s=2.5,
            acked=3000,
            acked_before=990,
            dropped_bytes=4096,
            written_bytes=300_000,
            lost=lost if scope == "all" else 0,
            balanced=True,
            window_ms=float(lost) or None,
        )
        for number, scope in enumerate(["all"] if count == 1 else ["one", "majority", "all"])
    ]
    nodes = [f"node-{number}" for number in range(1, count + 1)]
    found = DurabilityResult(
        run_id="run",
        name=name,
        system=cell.system,
        system_title=cell.system.title(),
        system_version="1.0",
        nodes=count,
        options=dict(cell.options),
        started_unix_ms=0,
        seed=1,
        experiments=["dose", "cuts"],
        status="complete",
        durability=Durability(declared=cell.level),
        conditions=Conditions(
            metadata="ordered", sync_delay_ms=5, rate_msgs_s=1000, message_size_bytes=128, partitions=1
        ),
        response=DoseResponse(
            slopes=[
                Slope(nodes=held, parts=held, slope=float(disks), waits=disks > 0)
                for held in ([[node] for node in nodes] if count > 1 else []) + [nodes]
            ],
            disks=disks,
            disks_told="waits for its disk" if disks else "waits for no disk",
            copies=2 if count == 3 else 1,
        ),
        cuts=cuts,
    )
    return judged(found.model_copy(update=others))


def pace(p50: float, p99: float = 9.0, share: float = 1.0) -> Pace:
    return Pace(
        rate_msgs_s=1000,
        sync_delay_ms=1.0,
        acked_share=share,
        publish_ms_p50=[p50, p50 * 1.1, p50 * 1.05],
        publish_ms_p99=[p99, p99, p99],
    )


def verdict(place: int, *results: DurabilityResult) -> tuple[str, str]:
    found = answers(disputed(systems()).written, results)[place]
    return found.verdict, found.why


def test_what_ships_is_sound_and_all_disputed_statements_have_a_source() -> None:
    assert experiment_study_names() == ["durability"]
    for name in experiment_study_names():
        study = read_durability_study(name, systems())
        assert study is not None
        assert {cell.system for cell in study.written.cells.values()} <= set(systems())
        assert all(statement.by and statement.link for statement in study.written.statements)
    assert read_durability_study("kesque-2019", systems()) is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("gauge-log,", "gauge-lug,", "no system 'gauge-lug'; did you mean"),
        ("cells: [log]", "cells: [lag]", "no cell 'lag'; did you mean 'log'?"),
        ("{keeps: [all]}", "{keeps: [all], loses: [all]}", "expected exactly one of"),
        ("{keeps: [all]}", "{keeps: [some]}", "expected one of 'one', 'majority', 'all'"),
        ("level: L3}", "level: L1}", "L1 cannot be had"),
        ("level: L3}", "level: L3, options: {memory: 5}}", "unknown option 'memory'"),
        ("shows: {", "showz: {", "unknown key 'showz'; did you mean 'shows'?"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(old: str, new: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        parse_durability_study(TEXT.replace(old, new), "small.yaml", systems())
    assert told in str(error.value)
    assert "small.yaml:" in str(error.value)


def test_a_statement_about_waiting_follows_the_response_of_every_cell() -> None:
    waits = [result("kafka-flush-1"), result("kafka-flush-1-3", disks=3)]
    assert verdict(FLUSHES, *waits)[0] == "refuted"
    ignores = [result("kafka-flush-1", disks=0), result("kafka-flush-1-3", disks=0)]
    assert verdict(FLUSHES, *ignores)[0] == "holds"
    word, why = verdict(FLUSHES, ignores[0])
    assert word == "not shown"
    assert "3 nodes: not measured" in why


def test_what_slow_syncs_add_is_told_of_one_node_and_of_all() -> None:
    _, why = verdict(FLUSHES, result("kafka-flush-1"), result("kafka-flush-1-3", disks=3))
    # Results of before there were rounds have no p10, and slopes of the p50.
    assert "(1.00 ms of publish p50 per ms that every sync takes longer)" in why
    assert "grows by 3.00 to 3.00 ms when it is one node's, by 3.00 ms when it is all nodes')" in why


@pytest.mark.parametrize(
    ("name", "told"),
    [("gauge-log-fsync", "there is one copy"), ("kafka-flush-1-3", "waits for 2 of 3 copies")],
)
def test_what_a_response_has_no_words_for_is_worded_by_its_numbers(name: str, told: str) -> None:
    found = result(name)
    assert found.finding is not None
    assert found.finding.sentences[0] == f"An acknowledgement waits for its disk; {told}."
    assert found.response is not None
    assert found.response.copies_told == told


def test_that_every_message_is_synced_needs_syncs_that_are_waited_for() -> None:
    def account(syncs: int) -> list[Account]:
        one = Account(
            part="node-1", seconds=5, acked_msgs=5000, acked_bytes=1, batches=1000, writes=1, bytes_written=1,
            syncs=syncs, bytes_synced=1, unsynced_bytes=0, syncs_s=200,
        )  # fmt: skip
        return [one]

    def told(syncs: int, disks: int) -> str:
        cells = ("kafka-flush-1", "kafka-flush-1-3")
        return verdict(1, *(result(cell, disks=disks, accounts=account(syncs)) for cell in cells))[0]

    assert told(1010, 1) == "holds"
    assert told(300, 1) == "refuted"
    assert told(1010, 0) == "refuted"
    assert verdict(1, result("kafka-flush-1"), result("kafka-flush-1-3"))[0] == "not shown"


def test_replication_and_power_cuts_are_answered_by_scope() -> None:
    three = result("kafka-default-3", disks=0, lost=40)
    word, why = verdict(COVERS, three)
    assert word == "refuted"
    assert "1 power cut of one node lost nothing" in why
    assert "1 of 1 power cut of all nodes lost acknowledged messages, 40 at most over 40 ms" in why
    assert verdict(LOSES, three, result("kafka-default", disks=0, lost=7))[0] == "holds"
    assert verdict(LOSES, three, result("kafka-default", disks=0))[0] == "refuted"


def test_a_cut_that_tells_nothing_answers_nothing() -> None:
    blind = result("kafka-default-3", disks=0)
    blind = judged(
        blind.model_copy(update={"cuts": [cut.model_copy(update={"acked_before": 0}) for cut in blind.cuts]})
    )
    word, why = verdict(COVERS, blind)
    assert word == "not shown"
    assert "no message was acknowledged" in why


def test_faster_is_shown_where_seconds_do_not_overlap_and_the_load_was_carried() -> None:
    def told(place: int, without: Pace, synced: Pace) -> str:
        return verdict(
            place, result("pulsar-async-journal", disks=0, pace=without), result("pulsar-sync", pace=synced)
        )[0]

    assert told(FASTER, pace(1.0), pace(3.0)) == "holds"
    assert told(SLOW, pace(1.0), pace(3.0)) == "refuted"
    assert told(FASTER, pace(3.0), pace(1.0)) == "refuted"
    assert told(FASTER, pace(1.0), pace(1.05)) == "not shown"
    assert told(FASTER, pace(1.0), pace(3.0, share=0.5)) == "not shown"
    assert verdict(FASTER, result("pulsar-async-journal", pace=pace(1.0)))[0] == "not shown"


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seconds", [3, 5])
def test_loads_of_the_same_system_are_seldom_called_different(alike: float, seconds: int) -> None:
    """Seconds resemble each other, and starts differ as much as experience says that trials do."""
    random = np.random.default_rng(seconds)

    def one() -> list[float]:
        logs = [0.07 * random.standard_normal()]
        for _ in range(seconds - 1):
            logs.append(alike * logs[-1] + 0.07 * math.sqrt(1 - alike**2) * random.standard_normal())
        start = 0.07 * random.standard_normal()
        return [math.exp(start + log) for log in logs]

    asked, decided = 2000, 0
    for _ in range(asked):
        low, high = load_against("publish_ms.p50", one(), one()).interval(ALPHA)
        decided += not low <= 1.0 <= high
    assert decided <= 0.05 * asked, f"{decided} of {asked}"


def test_levels_are_compared_where_both_were_measured() -> None:
    kafka, pulsar = result("kafka-default", disks=0, lost=9), result("pulsar-async-journal", disks=0, lost=5)
    assert verdict(AS_SAFE, kafka, pulsar)[0] == "holds"
    assert verdict(AS_SAFE, kafka, result("pulsar-async-journal"))[0] == "refuted"
    assert (
        verdict(AS_SAFE, kafka, judged(pulsar.model_copy(update={"response": None, "cuts": []})))[0]
        == "not shown"
    )


def test_every_statement_is_answered_in_print_and_the_other_runs_answer_theirs() -> None:
    found = DurabilityReport(results=[result("kafka-default", disks=0, lost=3)])
    told = durability_answers.answered(found)
    assert [answer.written.statement for answer in told] == [
        disputed(systems()).written.statements[place].statement for place in (LOSES, AS_SAFE, BYPASSED)
    ]
    text = io.StringIO()
    durability_answers.print_answers(told, Console(file=text, width=150))
    assert "(StreamNative, 2020)" in text.getvalue()
    assert "kafka-default: Kafka 1.0, 1 node; declared L4, measured L4" in text.getvalue()
    page = render("answers.html", answers=durability_answers.shown(told))
    assert "Kafka without fsync loses data on power failure" in page


def test_a_study_whose_file_names_what_there_is_no_more_is_answered() -> None:
    plan = study_durability._plan(disputed(systems()), request(Path("runs"), only="gauge-log-*"))
    results = [result("gauge-log-fsync")]
    before = durability_answers.answered(DurabilityReport(results=results, study=plan))
    text = plan.text.replace("system: gauge-log,", "system: gone, options: {lost: 1},")
    assert "lost" in text
    later = DurabilityReport(results=results, study=plan.model_copy(update={"text": text}))
    assert [one.verdict for one in durability_answers.answered(later)] == [one.verdict for one in before]


def request(out: Path, **others: object) -> study_durability.Request:
    asked = {
        "quick": True,
        "cuts": None,
        "seed": 5,
        "only": None,
        "plan_only": True,
        "data": None,
        "events": None,
        "pages": NO_PAGES,
        "is_silent": False,
    }
    return study_durability.Request(out=out, **{**asked, **others})  # type: ignore[arg-type]


def test_a_plan_says_what_is_left_out_and_why(tmp_path: Path) -> None:
    plan = study_durability._plan(disputed(systems()), request(tmp_path, only="gauge-log-*,nats-default"))
    assert set(plan.cells) | set(plan.left_out) == set(disputed(systems()).written.cells)
    assert plan.cells[:2] == ["gauge-log-fsync", "gauge-log-async"]
    assert plan.left_out["kafka-default"] == "not among --only"
    quick = study_durability._plan(disputed(systems()), request(tmp_path))
    assert quick.cuts == 2
    assert quick.left_out["nats-always"] == "no statement needs them"
    needed = {name for statement in disputed(systems()).written.statements for name in statement.cells}
    assert not needed & {name for name, why in quick.left_out.items() if "statement" in why}
    with pytest.raises(InputError, match="no such cell"):
        study_durability._plan(disputed(systems()), request(tmp_path, only="kafak"))


def test_a_study_goes_on_with_the_cells_that_have_no_end(tmp_path: Path) -> None:
    asked = study_durability._plan(disputed(systems()), request(tmp_path, only="gauge-log-*,kafka-default"))
    plan = DurabilityPlan(
        name="durability-quick",
        command=("streamgauge",),
        choices=tuple(
            disputed(systems()).choice(name, systems()) for name in ("gauge-log-fsync", "gauge-log-async")
        ),
        experiments=("cuts",),
        cuts=1,
        quick=True,
        write_back=None,
        seed=5,
        out=tmp_path,
        data=None,
        study=asked,
    )
    first = DurabilityRun(plan, Observer(), gauge=Path("/bin/true"))
    killed = {"status": "failed", "failure": KILLED_EXPERIMENTS}
    first.report.results = [result("gauge-log-fsync"), result("gauge-log-async").model_copy(update=killed)]
    first._save()
    (first.directory.path / "002-gauge-log-async" / "data").mkdir(parents=True)
    mark_killed(first.directory.path)
    found = study_durability.meant("durability", tmp_path, NOBODY, resume=True)
    assert found is not None
    assert found.directory is not None
    assert found.asked == asked
    again = DurabilityRun(plan, Observer(), gauge=Path("/bin/true"), directory=found.directory)
    assert [one.name for one in again.report.results] == ["gauge-log-fsync"]
    assert (first.directory.path / "unfinished" / "002-gauge-log-async-1").is_dir()
    assert not (first.directory.path / "unfinished" / "002-gauge-log-async-1" / "data").exists()
    assert study_durability.meant("kesque-2019", tmp_path, NOBODY, resume=True) is None
    # What a run says is carried out when this user's lab wrote it, and what of it runs code when that is trusted again.
    flag = "-XX:OnError=touch /tmp/x"
    file = first.directory.path / "durability.json"
    report = json.loads(file.read_text("utf-8"))
    hostile = (
        "study: durability\ntitle: x\nsource: {publisher: x, published: '2026'}\nexperiments: [cuts]\ncells:\n"
        f"  gauge-log-fsync: {{system: kafka, title: x, options: {{jvm_flags: ['{flag}']}}}}\n"
    )
    report["study"]["text"] = hostile
    file.write_text(json.dumps(report), "utf-8")
    with pytest.raises(InputError, match="not written by this user's lab"):
        study_durability.meant("durability", tmp_path, Trust.parse([str(file)]), resume=True)
    report["study"] = sealed(asked.model_copy(update={"text": hostile})).model_dump(mode="json")
    file.write_text(json.dumps(report), "utf-8")
    with pytest.raises(
        InputError, match=rf"durability.json:6: jvm_flags\[0\]: '{flag}' .* --trust-file {file}"
    ):
        study_durability.meant("durability", tmp_path, NOBODY, resume=True)
    trusted = study_durability.meant("durability", tmp_path, Trust.parse([str(file)]), resume=True)
    assert trusted is not None
    assert trusted.study.trusted
