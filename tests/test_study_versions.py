"""A study at the versions of its document: what is doubled, what cannot be had, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamgauge.inference.checks import Verdict
from streamgauge.model.checked_study import parse_study, read_study, study_names
from streamgauge.model.scaling import Machine
from streamgauge.model.study_planning import Wishes, plan_study
from streamgauge.model.study_versions import both_of, pairs, parse_versions, with_versions
from streamgauge.report.changes import changes_of, told, tone_of
from streamgauge.report.verdict_words import counted, found
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError
from test_study_model import TEXT
from test_study_variants import outcome

MACHINE = Machine(8, 64 << 30, 500.0)
KAFKAS = TEXT.replace("system: gauge-log", "system: kafka").replace(
    "workload: {messageSize", "versions: {kafka: {version: 2.6.0, source: section 1}}\nworkload: {messageSize"
)
BOTH = ("published", "current")


def test_both_versions_of_everything_are_in_one_study() -> None:
    found = with_versions(parse_study(KAFKAS, "small.yaml", systems()), BOTH)
    assert not found.left_out
    study = found.study
    assert [cell.name for cell in study.cells][:2] == ["log-sync-1@2.6.0", "log-sync-1@current"]
    assert {name: one.version for name, one in study.written.systems.items()} == {
        "log-sync@2.6.0": "2.6.0",
        "log-async@2.6.0": "2.6.0",
        "log-sync@current": None,
        "log-async@current": None,
    }
    assert [claim.claim for claim in study.written.claims] == [
        "fsync costs (published versions)",
        "fsync costs (current versions)",
    ]
    assert study.written.claims[0].tests[0].ratio == ["log-sync-1@2.6.0", "log-async-1@2.6.0"]
    plan = plan_study(study, Wishes(scale="quick", seed=7), MACHINE)
    names = {cell.cell: cell.version for cell in plan.cells if not cell.heats}
    assert "log-sync-100@2.6.0" in plan.left_out, "what a scale leaves out is left out of both"
    assert names["log-async-1@2.6.0"] == "2.6.0"
    assert names["log-async-1@current"] is None
    assert plan.told is not None
    assert plan.told.cell("log-sync-1@current").published == {"publish_ms.p50": 2, "publish_ms.p99": 4}
    blocks: dict[int, set[str | None]] = {}
    for trial in plan.trials:
        blocks.setdefault(trial.block, set()).add(plan.cell(trial.cell).version)
    assert all(len(members) == 1 for members in blocks.values()), "versions share no start"


def test_what_has_changed_since_is_told_of_each_cell(tmp_path: Path) -> None:
    study = with_versions(parse_study(KAFKAS, "small.yaml", systems()), BOTH).study
    # With two systems only, what starts differ by is known from experience: three rounds are too few to show that nothing has changed.
    plan = plan_study(study, Wishes(scale="quick", seed=7, repeats=6), MACHINE)
    was = outcome(tmp_path, plan, publish_ms=lambda cell: 0.9 if cell == "log-sync-1@2.6.0" else 0.3)
    changes = {(one.cell, one.figure): one for one in changes_of(was)}
    sync = changes["log-sync-1", "publish p99"]
    assert (sync.word, sync.tone) == ("lower now", "good")
    assert sync.ratio.startswith("0.3")
    assert changes["log-async-1", "publish p99"].word == "no difference that matters"
    lower, same = told(changes_of(was))
    assert lower.startswith("Lower now: publish p99 of log-sync-1 0.3")
    assert same.startswith("No difference that matters: ")


def test_more_of_what_a_cell_is_about_is_for_the_better_or_not() -> None:
    for figure in ("publish_rate_mb_s", "sustained_mb_s", "catch_up_mean_mb_s"):
        assert (tone_of(figure, Verdict.holds), tone_of(figure, Verdict.refuted)) == ("good", "bad")
    for figure in ("publish_ms.p99", "end_to_end_ms.p99"):
        assert (tone_of(figure, Verdict.holds), tone_of(figure, Verdict.refuted)) == ("bad", "good")
    assert tone_of("publish_ms.p99", Verdict.undecided) == "plain"


def test_cells_of_both_versions_belong_together() -> None:
    names = ["a@2.6.0", "a@current", "b", "c@current"]
    assert pairs(names) == {"a": ("a@current", "a@2.6.0")}


def test_claims_that_were_not_asked_about_are_counted_and_not_listed(tmp_path: Path) -> None:
    study = parse_study(TEXT, "small.yaml", systems())
    plan = plan_study(study, Wishes(scale="quick", seed=7, only=("log-sync-1",)), MACHINE)
    was = outcome(tmp_path, plan)
    assert counted(was) == "No claim is judged: those of the study need cells that were not asked for"
    assert found(was) == []
    assert not was.changes


@pytest.mark.parametrize(
    ("many", "named"),
    [
        (1, "fsync costs 0 times 100 partitions (left out at scale quick: one is enough)"),
        (4, "4 claims: left out at scale quick: one is enough"),
    ],
)
def test_claims_that_a_scale_has_no_cells_for_are_counted_apart(
    tmp_path: Path, many: int, named: str
) -> None:
    more = "".join(
        f"  - claim: fsync costs {number} times 100 partitions\n"
        "    tests: [{figure: publish_ms.p99, ratio: [log-sync-100, log-async-100], above: 1}]\n"
        for number in range(many)
    )
    study = parse_study(TEXT.replace("claims:\n", f"claims:\n{more}"), "small.yaml", systems())
    was = outcome(tmp_path, plan_study(study, Wishes(scale="quick", seed=7), MACHINE))
    count = "1 more is" if many == 1 else f"{many} more are"
    assert counted(was) == f"1 of 1 claim decided here: 1 shown; {count} not part of scale quick"
    assert found(was) == [
        ("Shown here", ["fsync costs"]),
        ("Not part of scale quick", [named]),
    ]


def test_published_alone_keeps_the_names() -> None:
    found = with_versions(parse_study(KAFKAS, "small.yaml", systems()), ("published",))
    assert found.study.cells[0].name == "log-sync-1"
    assert {one.version for one in found.study.written.systems.values()} == {"2.6.0"}


def test_what_cannot_be_had_is_left_out_with_its_reason() -> None:
    text = KAFKAS.replace('{system: kafka, title: "Log, async"', '{system: pulsar, title: "Log, async"')
    found = with_versions(parse_study(text, "small.yaml", systems()), BOTH)
    assert set(found.left_out) == {"log-async-1@published", "log-async-100@published"}
    assert "the study file names no version of it" in found.left_out["log-async-1@published"]
    plan = plan_study(found.study, Wishes(scale="laptop", seed=7, lacking=found.left_out), MACHINE)
    assert plan.left_out == found.left_out
    assert "log-async-1@current" in {cell.cell for cell in plan.cells}
    with pytest.raises(
        InputError, match=r"none of small's can be had here: kafka: .*older than what the lab starts"
    ):
        with_versions(parse_study(KAFKAS.replace("2.6.0", "0.9.0"), "small.yaml", systems()), BOTH)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "kafka: {version: 2.6.0, source: section 1}",
            "kafka: {source: x}",
            "small.yaml:8.*expected version, or cannot",
        ),
        (
            "{kafka: {version",
            "{kafca: {version",
            "small.yaml:8: versions: no system of the study is of kafca.*kafka",
        ),
    ],
)
def test_versions_that_are_wrong_are_told_at_their_line(old: str, new: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_study(KAFKAS.replace(old, new), "small.yaml", systems())


def test_the_option_is_read() -> None:
    assert parse_versions("current, published") == BOTH
    with pytest.raises(InputError, match="did you mean 'published'"):
        parse_versions("publishd")
    assert (both_of("kafka-*"), both_of("kafka-1@2.6.0")) == ("kafka-*@*", "kafka-1@2.6.0")


@pytest.mark.parametrize("name", ["confluent-2020", "streamnative-2020", "streamnative-2022"])
def test_kafka_of_the_studies_can_be_had(name: str) -> None:
    assert name in study_names()
    found = with_versions(read_study(name, systems()), BOTH)
    plan = plan_study(found.study, Wishes(scale="quick", seed=1, lacking=found.left_out), MACHINE)
    versions = {cell.version for cell in plan.cells if cell.kind == "kafka"}
    assert versions in ({"2.6.0", None}, {"3.0.0", None})
    assert {cell.version for cell in plan.cells if cell.kind != "kafka"} == {None}
