"""Gates on figures whose truth is known: what passes, what fails, and what is left undecided; and which cells belong beside each other."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_doubles import install_double
from sample_run import KAFKA, LOG, Shape, sample_trial, workload, write_run
from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.gates import GateResult, Question, judge, status_of
from streamgauge.analysis.match import ambiguity, differences_text, match
from streamgauge.cli import carry_out
from streamgauge.cli.app import run as program
from streamgauge.inference.experience import TAIL_SPREAD, spread_of
from streamgauge.inference.judgement import ONE_SIDED, Bound, Outcome, decide, weigh
from streamgauge.model.gate import read_gates
from streamgauge.model.result import TrialResult
from streamgauge.report.gates import explanation, junit, markdown
from streamgauge.runner.run import RunOutcome
from streamgauge.runner.run import status_of as status_of_trials
from streamgauge.store.directory import RunDirectory
from streamgauge.systems import names, registry
from streamgauge.vocabulary.errors import InputError
from streamgauge.vocabulary.exit_status import MEANINGS, PRECEDENCE, ExitStatus, most_urgent
from streamgauge.vocabulary.figures import RESULT_FIGURES, check_figure, figure, title_of, unit_of

VALUES = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6)
ORDER = {Outcome.failed: 0, Outcome.undecided: 1, Outcome.passed: 2}


# ---------------------------------------------------------------------- the judgement


def outcome(bound: Bound, other: Sequence[float], base: Sequence[float] | None, prior: float) -> Outcome:
    found = weigh(bound, other, base, prior)
    return decide(found, found.beyond_chance)


@settings(deadline=None)
@given(other=VALUES, base=st.none() | VALUES, bounds=st.tuples(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6)))
def test_a_laxer_bound_never_makes_it_worse(
    other: list[float], base: list[float] | None, bounds: tuple[float, float]
) -> None:
    strict, lax = sorted(bounds)
    for above, (first, second) in ((True, (strict, lax)), (False, (lax, strict))):
        before = outcome(Bound(above, first), other, base, TAIL_SPREAD)
        after = outcome(Bound(above, second), other, base, TAIL_SPREAD)
        assert ORDER[before] <= ORDER[after]


@settings(deadline=None)
@given(other=VALUES, base=st.none() | VALUES, at=st.floats(1e-3, 1e6))
def test_it_fails_and_passes_exactly_where_the_interval_is_wholly_on_one_side(
    other: list[float], base: list[float] | None, at: float
) -> None:
    found = weigh(Bound(True, at), other, base, TAIL_SPREAD)
    decided = decide(found, found.beyond_chance)
    low, high = found.interval
    assert low <= found.number.value <= high
    # Where the bound is the interval's very end, rounding decides.
    if not any(math.isclose(end, at, rel_tol=1e-6) for end in (low, high)):
        expected = Outcome.failed if low > at else Outcome.passed if high < at else Outcome.undecided
        assert decided is expected


@pytest.mark.parametrize("trials", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("bound", [1.0, 1.1])
def test_runs_of_the_same_fail_in_at_most_5_of_100_comparisons(trials: int, bound: float) -> None:
    """Also when a run's trials have as much in common as they have apart: repeating within a run does not make that smaller."""
    random = np.random.default_rng(100 * trials)
    for name in ("publish_ms.p99", "publish_ms.p50"):
        prior = spread_of(name, paced=True)

        def one_run(spread: float = prior) -> list[float]:
            return np.exp(random.normal(0, spread) + random.normal(0, spread, trials)).tolist()  # type: ignore[no-any-return]

        asked = 2000
        failed = sum(
            weigh(Bound(True, bound), one_run(), one_run(), prior).beyond_chance < ONE_SIDED
            for _ in range(asked)
        )
        assert failed <= 0.05 * asked, f"{name}: {failed} of {asked}"


@pytest.mark.parametrize(("trials", "times"), [(1, 20.0), (3, 6.5), (5, 5.0)])
def test_a_great_regression_is_found(trials: int, times: float) -> None:
    random = np.random.default_rng(trials)
    asked, failed = 500, 0
    for _ in range(asked):
        base, other = np.exp(random.normal(0, TAIL_SPREAD, (2, trials)))
        failed += (
            outcome(Bound(True, 1.1), (times * other).tolist(), base.tolist(), TAIL_SPREAD) is Outcome.failed
        )
    assert failed >= 0.9 * asked, f"{failed} of {asked}"


def test_one_trial_each_decides_twenty_times_and_not_a_fifth_more() -> None:
    assert outcome(Bound(True, 1.1), [30.0], [1.5], TAIL_SPREAD) is Outcome.failed
    assert outcome(Bound(True, 1.1), [1.8], [1.5], TAIL_SPREAD) is Outcome.undecided
    assert outcome(Bound(True, 20), [1.5], None, TAIL_SPREAD) is Outcome.passed
    assert outcome(
        Bound(False, 0.9), [50_000.0], [50_010.0], spread_of("publish_rate_msgs_s", paced=True)
    ) is (Outcome.passed)


def test_the_repeats_that_are_advised_decide() -> None:
    found = weigh(Bound(True, 1.1), [9.0], [3.0], TAIL_SPREAD)
    assert found.repeats is not None
    assert found.repeats > 1
    again = weigh(Bound(True, 1.1), [9.0] * found.repeats, [3.0] * found.repeats, TAIL_SPREAD)
    assert decide(again, again.beyond_chance) is Outcome.failed
    assert weigh(Bound(True, 1.1), [3.3], [3.0], TAIL_SPREAD).repeats is None, "no number of repeats would"


def test_trials_noisier_than_experience_are_believed() -> None:
    quiet = weigh(Bound(True, 1.1), [1.0, 1.01, 0.99], [1.0, 1.0, 1.0], TAIL_SPREAD)
    noisy = weigh(Bound(True, 1.1), [0.2, 1.0, 5.0], [0.3, 1.0, 4.0], TAIL_SPREAD)
    assert quiet.number.spread < TAIL_SPREAD < 1.2 < noisy.number.spread


# ---------------------------------------------------------------------- gates on cells


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> TrialResult:
    return sample_trial(tmp_path_factory.mktemp("sample"), Shape(), workload()).result()


def with_figures(
    sample: TrialResult, *, valid: bool = True, lost: int = 0, **publish: float | None
) -> TrialResult:
    """A trial with these publish latencies."""
    return sample.model_copy(
        update={
            "publish_ms": sample.publish_ms.model_copy(update=publish),
            "validity": sample.validity.model_copy(
                update={"valid": valid, "reasons": [] if valid else ["late"]}
            ),
            "audit": sample.audit.model_copy(update={"lost": lost, "clean": not lost}),
        }
    )


def cell(*trials: TrialResult) -> Cell:
    [found] = cells(trials)
    return found


def one(gate: str, other: Cell, base: Cell | None = None) -> GateResult:
    [found] = judge([Question(read_gates([gate])[0], other, base)])
    return found


def test_invalid_trials_never_decide(sample: TrialResult) -> None:
    slow, fast = with_figures(sample, p99=900.0), with_figures(sample, p99=1.0)
    invalid = with_figures(sample, p99=900.0, valid=False)
    assert one("publish_ms.p99 > 20", cell(slow)).outcome is Outcome.failed
    found = one("publish_ms.p99 > 20", cell(invalid))
    assert found.outcome is Outcome.undecided
    assert "no trial is valid" in explanation(found)
    assert one("publish_ms.p99 > 20", cell(invalid, fast)).outcome is Outcome.passed
    assert "no trial of the baseline is valid" in explanation(
        one("publish_ms.p99 > 1.1", cell(slow), cell(invalid))
    )
    assert one("audit.lost > 0", cell(with_figures(sample, lost=3, valid=False))).outcome is Outcome.undecided


def test_what_was_counted_is_a_fact(sample: TrialResult) -> None:
    clean, lossy = with_figures(sample), with_figures(sample, lost=1)
    assert one("audit.lost > 0", cell(clean)).outcome is Outcome.passed
    assert one("audit.lost > 0", cell(clean, clean, lossy)).outcome is Outcome.failed
    assert one("audit.lost >= 0", cell(clean)).outcome is Outcome.failed
    unchanged = one("audit.lost > 1", cell(clean), cell(clean))
    assert (unchanged.outcome, "unchanged" in explanation(unchanged)) == (Outcome.passed, True)
    new = one("audit.lost > 1", cell(lossy), cell(clean))
    assert new.outcome is Outcome.undecided
    assert "no ratio to 0" in explanation(new)


def test_a_figure_that_is_not_known_or_can_be_0_or_negative(sample: TrialResult) -> None:
    unknown = cell(with_figures(sample, p99=None))
    assert one("publish_ms.p99 > 20", unknown).outcome is Outcome.undecided
    assert "not known" in explanation(one("publish_ms.p99 > 20", unknown))
    zero, some = with_figures(sample, min=0.0), with_figures(sample, min=3.0)
    assert one("publish_ms.min > 2", cell(zero)).outcome is Outcome.passed
    assert one("publish_ms.min > 2", cell(zero, some)).outcome is Outcome.undecided
    assert one("publish_ms.p99 > -5", cell(with_figures(sample))).outcome is Outcome.failed


def test_units_and_the_basis_of_a_decision_are_told(sample: TrialResult) -> None:
    text = explanation(
        one("publish_ms_p99 > 1.1", cell(with_figures(sample, p99=30.2)), cell(with_figures(sample, p99=1.5)))
    )
    for part in (
        "publish p99 was 1.50 ms and is 30.2 ms",
        "20.1 times the baseline (95 %: ",
        "1 trial each",
        "from experience",
    ):
        assert part in text
    near = one(
        "publish_ms.p99 > 1.1", cell(with_figures(sample, p99=9.0)), cell(with_figures(sample, p99=3.0))
    )
    assert near.outcome is Outcome.undecided
    assert "More --repeat: " in explanation(near)
    assert explanation(near).endswith("should the figures stay as they are")


def test_many_gates_fail_no_more_often_than_one(sample: TrialResult) -> None:
    """A figure that alone is just beyond its bound is one of many when many are asked."""
    [gate] = read_gates(["publish_ms.p99 > 1.1"])
    base = cell(with_figures(sample, p99=1.0))
    other = cell(with_figures(sample, p99=6.0))
    [alone] = judge([Question(gate, other, base)])
    assert alone.outcome is Outcome.failed
    many = judge([Question(gate, other, base), *[Question(gate, base, base)] * 19])
    assert many[0].outcome is Outcome.undecided
    assert "by chance" in explanation(many[0])


def test_the_worst_gate_sets_the_status(sample: TrialResult) -> None:
    passed, failed = one("publish_ms.p99 > 500", cell(sample)), one("publish_ms.p99 > 0.001", cell(sample))
    open_ = one("publish_ms.p99 > 1.1", cell(sample), cell(sample))
    assert [found.outcome for found in (passed, failed, open_)] == [
        Outcome.passed,
        Outcome.failed,
        Outcome.undecided,
    ]
    assert status_of([passed], undecided_passes=False) is ExitStatus.DONE
    assert status_of([passed, open_], undecided_passes=False) is ExitStatus.GATE_UNDECIDED
    assert status_of([passed, open_], undecided_passes=True) is ExitStatus.DONE
    assert status_of([open_, failed], undecided_passes=True) is ExitStatus.GATE_FAILED
    suite = ElementTree.fromstring(junit([passed, failed, open_])).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert markdown([passed, failed, open_]).count("\n") == 4


# ---------------------------------------------------------------------- statuses


def test_every_status_has_a_meaning_and_a_place() -> None:
    assert set(MEANINGS) == set(ExitStatus) - {ExitStatus.OUTPUT_CLOSED}
    assert set(PRECEDENCE) == set(MEANINGS) - {ExitStatus.DONE}
    assert most_urgent([]) is ExitStatus.DONE
    assert most_urgent([ExitStatus.GATE_FAILED, ExitStatus.LOST, ExitStatus.INVALID]) is ExitStatus.LOST


def test_losses_and_invalid_trials_have_statuses_of_their_own(sample: TrialResult) -> None:
    valid, invalid = with_figures(sample), with_figures(sample, valid=False)
    lossy = with_figures(sample, lost=2)
    assert status_of_trials([valid]) is ExitStatus.DONE
    assert status_of_trials([valid, invalid]) is ExitStatus.INVALID
    assert status_of_trials([invalid, lossy]) is ExitStatus.LOST
    cut_short = lossy.model_copy(update={"status": "interrupted"})
    assert status_of_trials([cut_short]) is ExitStatus.DONE, "what was not read is not known to be lost"


@pytest.mark.parametrize(
    ("command", "status"), [(["bench"], 0), (["run", "1-topic-1-partition-1kb", "--system", "gauge-log"], 1)]
)
def test_of_a_bench_an_invalid_trial_is_an_answer(
    command: list[str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What it says of its status is the status that it has."""

    class Ended:
        def __init__(self, *_arguments: object) -> None: ...

        def execute(self) -> RunOutcome:
            return RunOutcome(RunDirectory(tmp_path), [], ExitStatus.INVALID)

    monkeypatch.setattr(carry_out, "Run", Ended)
    monkeypatch.setattr(carry_out, "answer", lambda _results: "so it is")
    monkeypatch.setattr(carry_out, "show_outcome", lambda *_arguments, **_named: None)
    assert program([*command, "--quiet", "--out", str(tmp_path)]) == status
    said = capsys.readouterr()
    assert "so it is" in said.out
    assert ("exit status 1: a trial is invalid" in said.err) == (status == 1)


@pytest.mark.parametrize("command", [[], ["run"], ["compare"], ["bench"], ["study"], ["durability"]])
def test_the_help_lists_the_statuses(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    page = (Path(__file__).parents[1] / "docs" / "exit-status.md").read_text("utf-8")
    for status, meaning in MEANINGS.items():
        assert f"{status.value:>3}  {meaning}" in shown
        assert f"| {status.value} | {meaning}" in page
    assert " before ".join(str(status.value) for status in PRECEDENCE) in page


# ---------------------------------------------------------------------- names of figures


def test_figures_have_two_spellings_a_title_and_a_unit() -> None:
    known = RESULT_FIGURES
    assert len({name.replace(".", "_") for name in known}) == len(known)
    assert check_figure("publish_ms_p99") == check_figure("publish_ms.p99") == "publish_ms.p99"
    assert check_figure("cpu_system_us_per_msg") == "cpu.system_us_per_msg"
    told = {name: f"{title_of(name)}, {unit_of(name)}" for name in known}
    assert told["publish_ms.p99_9"] == "publish p99.9, ms"
    assert told["end_to_end_ms.mean"] == "end-to-end mean, ms"
    assert told["publish_rate_msgs_s"] == "publish rate, msg/s"
    assert told["cpu.system_us_per_msg"] == "CPU system, us/msg"
    assert told["audit.lost"] == "audit lost, "


def test_every_figure_that_is_offered_can_be_looked_up(sample: TrialResult) -> None:
    for name in RESULT_FIGURES:
        found = figure(sample, name)
        assert found is None or isinstance(found, float)
    with pytest.raises(InputError, match="no figure"):
        check_figure("subscriptions.consume_rate_msgs_s")


# ---------------------------------------------------------------------- which cells belong together


def traits(**changes: Any) -> dict[str, Any]:
    return {
        "system": "kafka",
        "workload": "w",
        "nodes": 1,
        "durability": "L4",
        "workload linger_ms": 1.0,
    } | changes


def test_cells_that_are_alike_are_paired_and_none_overwrites_another() -> None:
    base = [traits(version=version, nodes=nodes) for version in ("3.9", "4.0") for nodes in (1, 3)]
    found = match(base, base[1:])
    assert found.pairs == ((1, 0), (2, 1), (3, 2))
    assert found.alone == ((0,), ())
    unknown = match(base[:2], [traits(nodes=3), traits(nodes=1)])
    assert unknown.pairs == ((1, 0), (0, 1)), "what is not known yet differs from nothing"
    assert match(base[:2], [traits()]).pairs == ((0, 0),)


def test_a_changed_setting_does_not_unpair_and_is_told() -> None:
    base, other = traits(), traits(**{"workload linger_ms": 30.0})
    assert match([base], [other]).pairs == ((0, 0),)
    assert differences_text(base, other) == "linger_ms: 1 and 30"
    both = [traits(nodes=nodes) for nodes in (1, 3)]
    changed = [one | {"workload linger_ms": 30.0} for one in both]
    assert match(both, changed).pairs == ((0, 0), (1, 1))


def test_what_matches_nothing_is_alone_and_what_matches_twice_is_ambiguous() -> None:
    found = match([traits(workload="v"), traits()], [traits(), traits(workload="u")])
    assert (found.pairs, found.alone) == (((1, 0),), ((0,), (1,)))
    levels = [traits(durability=level) for level in ("L3", "L4")]
    found = match(levels, [traits(durability="L1")])
    assert not found.pairs
    assert ambiguity(found, levels, [traits(durability="L1")]) == (
        "the baseline has 2 cells of w on kafka, which differ in durability: L3, L4"
    )
    assert match([traits(system="kafka")], [traits(system="nats")]).pairs == ((0, 0),), (
        "a system each: on purpose"
    )
    two = [traits(system=name) for name in ("kafka", "nats")]
    assert match(two, [traits(system="pulsar")]).pairs == ()


@settings(deadline=None)
@given(st.permutations(range(4)), st.permutations(range(4)))
def test_matching_does_not_depend_on_the_order(left: list[int], right: list[int]) -> None:
    all_ = [traits(nodes=nodes, durability=level) for nodes in (1, 3) for level in ("L3", "L4")]
    found = match([all_[at] for at in left], [all_[at] | {"version": "2"} for at in right])
    assert {(left[i], right[j]) for i, j in found.pairs} == {(at, at) for at in range(4)}


# ---------------------------------------------------------------------- on the command line


def runs(out: Path, **shapes: Sequence[Shape]) -> None:
    for name, found in shapes.items():
        write_run(out / name, found, workload(rate=500, seconds=3))


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = program(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_compare_says_what_matches_nothing_and_refuses_what_is_ambiguous(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = Shape(nodes=3, publish_ms=9.0)
    runs(tmp_path, a=(Shape(), three), b=(Shape(nodes=3), LOG), c=(Shape(nodes=5),))
    status, stdout, _ = call(capsys, "compare", "a", "b", "--out", str(tmp_path))
    assert status == 0
    assert stdout.count("against") == 1
    assert "only a has kafka, " in stdout
    assert "only b has gauge-log, " in stdout
    status, _, stderr = call(capsys, "compare", "a", "c", "--out", str(tmp_path))
    assert status == 2
    for part in ("the baseline has 2 cells of", "differ in nodes: 1, 3", "RUN:kafka,nodes=3"):
        assert part in stderr
    status, stdout, _ = call(capsys, "compare", "a:kafka,nodes=3", "c", "--out", str(tmp_path))
    assert status == 0
    assert "they differ in nodes: 3 and 5" in stdout
    for wrong, word in (
        ("a:kafak", "did you mean 'kafka'"),
        ("a:kafka,node=3", "did you mean 'nodes'"),
        ("nothing", "no run"),
    ):
        status, _, stderr = call(capsys, "compare", wrong, "c", "--out", str(tmp_path))
        assert status == 2
        assert word in stderr


def test_compare_concludes_nothing_from_invalid_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, shape in (("a", Shape()), ("b", Shape(publish_ms=50.0))):
        write_run(tmp_path / name, (shape,), workload(rate=500, seconds=3), repeats=3)
    for path in (tmp_path / "b").rglob("result.json"):
        result = json.loads(path.read_text("utf-8"))
        result["validity"] = {"valid": False, "reasons": ["late"], "warnings": []}
        path.write_text(json.dumps(result), encoding="utf-8")
    status, stdout, stderr = call(
        capsys, "compare", "a", "b", "--out", str(tmp_path), "--fail-if", "publish_ms.p50 > 1.1"
    )
    assert status == 5
    assert "no valid trial" in stdout
    assert "higher" not in stdout
    assert "gate UNDECIDED" in stdout
    assert "exit status 5" in stderr


def test_compare_writes_what_programs_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs(tmp_path, a=(Shape(),), b=(Shape(publish_ms=50.0, lost=3),))
    files = ("--markdown", str(tmp_path / "x.md"), "--junit", str(tmp_path / "x.xml"))
    gate = ("--fail-if", "publish_ms.p50 > 1.1")
    status, stdout, _ = call(
        capsys, "compare", "a", "b", "--out", str(tmp_path), *gate, "--json", "-", *files
    )
    assert status == 6, "a comparison that is to judge does not pass over losses"
    document = json.loads(stdout)
    assert document["gates"][0]["outcome"] == "failed"
    assert document["comparisons"][0]["other"]["lost_msgs"] == 3
    assert "| **FAILED** | `publish_ms.p50 > 1.1` |" in (tmp_path / "x.md").read_text("utf-8")
    assert ElementTree.parse(tmp_path / "x.xml").find(".//failure") is not None
    assert call(capsys, "compare", "a", "b", "--out", str(tmp_path))[0] == 0, (
        "who asks for no gate only looks"
    )
    for wrong in (("--json", "-", "--junit", "-", *gate), ("--json", str(tmp_path)), ("--undecided", "pass")):
        assert call(capsys, "compare", "a", "b", "--out", str(tmp_path), *wrong)[0] == 2


def test_history_leaves_invalid_runs_out_of_its_judgement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(9):
        write_run(
            tmp_path / f"run-{number}",
            (Shape(publish_ms=1.0 if number < 7 else 40.0),),
            workload(rate=300, seconds=2),
        )
    for number in (7, 8):
        path = tmp_path / f"run-{number}/trials/001/result.json"
        result = json.loads(path.read_text("utf-8"))
        result["validity"]["valid"] = False
        path.write_text(json.dumps(result), encoding="utf-8")
    arguments = ("history", workload().name, "--out", str(tmp_path), "--figure", "publish_ms_p50")
    status, stdout, _ = call(capsys, *arguments, "--json", "-", "--junit", str(tmp_path / "h.xml"))
    assert status == 0
    [found] = json.loads(stdout)["histories"]
    assert [point["valid"] for point in found["runs"]].count(False) == 2
    assert found["changes"] == []
    assert found["unit"] == "ms"
    assert ElementTree.parse(tmp_path / "h.xml").find(".//failure") is None


def test_history_names_runs_of_which_not_all_trials_know_the_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("whole", "half"):
        write_run(tmp_path / name, (Shape(),), workload(rate=300, seconds=2))
    first, second = (tmp_path / f"half/trials/{number:03d}" for number in (1, 2))
    shutil.copytree(first, second)
    result = json.loads((second / "result.json").read_text("utf-8"))
    result |= {"trial": 2, "repeat": 2, "publish_ms": result["publish_ms"] | {"p50": None}}
    (second / "result.json").write_text(json.dumps(result), encoding="utf-8")
    arguments = ("history", workload().name, "--out", str(tmp_path), "--figure", "publish_ms_p50")
    status, stdout, _ = call(capsys, *arguments, "--json", "-")
    assert status == 0
    [found] = json.loads(stdout)["histories"]
    assert len(found["runs"]) == 1
    told = f"not all of their trials know the figure: {result['run_id']}."
    assert found["summary"].endswith(told)
    # Where no other run is left, that is all there is to say.
    shutil.rmtree(tmp_path / "whole")
    status, stdout, _ = call(capsys, *arguments, "--json", "-", "--html", str(tmp_path / "h.html"))
    assert status == 0
    assert json.loads(stdout)["histories"][0]["runs"] == []
    page = (tmp_path / "h.html").read_text("utf-8")
    assert told in page
    assert "<svg" not in page


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setattr(names, "declared", names.declared)
        install_double()
        yield
    registry.systems.cache_clear()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--baseline", "a"), "--baseline needs --fail-if"),
        (("--undecided", "pass"), "--undecided needs --fail-if"),
        (("--junit", "x.xml"), "--json, --markdown or --junit needs --fail-if"),
        (("--fail-if", "publish_ms.p99 > 1.1", "--baseline", "nothing"), "no run 'nothing'"),
        (("--fail-if", "publish_ms.p99 > 1.1", "--baseline", "a"), "nothing of it matches: "),
        (("--fail-if", "publish_ms.p99 > 0", "--baseline", "a"), "a ratio to the baseline, which is above 0"),
        (("--fail-if", "publish_ms.p99 > 1e999"), "a finite number"),
        (("--fail-if", "publish_ms.p99 > 9", "--events", "-", "--json", "-"), "standard output is for"),
        (("--fail-if", "publish_ms.p99 > 9", "--junit", "no/such/x.xml"), "a directory that exists"),
        (("--fail-if", "publish_ms.p99 > 1.1", "--baseline", "bad"), "is valid"),
    ],
)
def test_gates_that_cannot_be_judged_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    runs(tmp_path, a=(KAFKA, LOG), bad=(Shape(system="double"),))
    for path in (tmp_path / "bad").rglob("result.json"):
        path.write_text(path.read_text("utf-8").replace('"valid": true', '"valid": false'), encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    status, _, stderr = call(capsys, "run", "--system", "double", "--out", str(tmp_path), *arguments)
    assert (status, words in stderr) == (2, True), stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
