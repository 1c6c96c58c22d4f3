"""Quiet time in results: which figures stand, and what words, gates and comparisons make of bounds."""

from __future__ import annotations

import re

import pytest
from sample_run import Shape, sample_trial, workload
from streamgauge.analysis.cells import Cell, cells
from streamgauge.analysis.compare import compare
from streamgauge.analysis.gates import Question, judge
from streamgauge.inference.judgement import Outcome
from streamgauge.model.gate import read_gates
from streamgauge.model.result import TrialResult
from streamgauge.model.result_base import Latency
from streamgauge.model.result_quiet import Bounded, QuietLatency, QuietTime, Word
from streamgauge.report import words
from streamgauge.report.answer import answer
from streamgauge.report.comparison import bounds, markdown
from streamgauge.report.quiet_words import latency_text, quiet_sentence
from streamgauge.vocabulary.figures import figure


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> TrialResult:
    return sample_trial(tmp_path_factory.mktemp("sample"), Shape(), workload()).result()


NAMES = ("p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99")


def quiet_latency(p99: Bounded) -> QuietLatency:
    others = dict.fromkeys(NAMES, p99)
    return QuietLatency(mean=Bounded(), **others)


def told(
    sample: TrialResult, word: str, p99: Bounded, *, system: str = "kafka", came_ms: float = 40.0
) -> TrialResult:
    """A trial of that word, whose p99 came as 40 ms."""
    came = Latency(p50=1.0, p99=came_ms, max=90.0, count=1000)
    latency = quiet_latency(p99)
    quiet = QuietTime(
        watched=True,
        seconds=30,
        quiet_s=20,
        disturbed_share=1 / 3,
        windows=7,
        publish_ms=latency,
        end_to_end_ms=latency,
    )
    validity = sample.validity.model_copy(
        update={
            "word": Word(word),
            "valid": word in ("valid", "disturbed"),
            "conclusion": "Told.",
            "reasons": [],
        }
    )
    return sample.model_copy(
        update={
            "publish_ms": came,
            "end_to_end_ms": came,
            "quiet": quiet,
            "validity": validity,
            "system": system,
            "system_title": system.capitalize(),
        }
    )


FIGURE = Bounded(value=2.0, at_least=1.8, at_most=2.3)
BOUNDS = Bounded(at_least=6.0, at_most=30.0, why="Too little quiet time.")


@pytest.mark.parametrize(
    ("word", "p99", "expected"),
    [
        ("valid", FIGURE, 2.0),
        ("valid", BOUNDS, 40.0),
        ("disturbed", FIGURE, 2.0),
        ("disturbed", BOUNDS, None),
        ("bounds only", BOUNDS, None),
        ("invalid", FIGURE, 40.0),
    ],
)
def test_what_stands_of_a_latency(
    sample: TrialResult, word: str, p99: Bounded, expected: float | None
) -> None:
    trial = told(sample, word, p99)
    assert figure(trial, "publish_ms.p99") == expected
    assert trial.headline_ms.p99 == expected
    assert trial.publish_ms.p99 == 40.0, "as it came"
    # The largest came in disturbed time for all that is known.
    assert (figure(trial, "publish_ms.max") is None) == (word in ("disturbed", "bounds only"))


def test_results_of_before_keep_their_figures(sample: TrialResult) -> None:
    assert sample.quiet is None
    assert figure(sample, "publish_ms.p99") == sample.publish_ms.p99
    assert sample.validity.called == "valid"
    assert sample.validity.model_copy(update={"valid": False}).called == "invalid"


def test_what_it_costs_to_see_a_disturbance_is_said_where_it_is_much(sample: TrialResult) -> None:
    trial = told(sample, "valid", FIGURE)
    assert trial.quiet is not None
    for share, disturbed, expected in (
        (None, 0.3, "7 times a CPU was not to be had."),
        (0.012, 0.3, "7 times a CPU was not to be had."),
        (
            0.024,
            0.3,
            "7 times a CPU was not to be had. Watching for disturbance took 2.4 % of each CPU: waking up is expensive on this machine.",
        ),
        (
            0.024,
            0.0,
            "Watching for disturbance took 2.4 % of each CPU: waking up is expensive on this machine.",
        ),
    ):
        quiet = trial.quiet.model_copy(update={"probes_cpu_share": share, "disturbed_share": disturbed})
        assert quiet_sentence(trial.model_copy(update={"quiet": quiet})) == expected


def outcome(gate: str, trial: TrialResult, base: TrialResult | None = None) -> Outcome:
    (found,) = read_gates([gate])
    (cell,) = cells([trial])
    (result,) = judge([Question(found, cell, None if base is None else cells([base])[0])])
    return result.outcome


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("publish_ms.p99 > 5", Outcome.failed),
        ("publish_ms.p99 > 31", Outcome.passed),
        ("publish_ms.p99 > 10", Outcome.undecided),
        ("publish_ms.p99 < 31", Outcome.failed),
        ("publish_ms.p99 < 5", Outcome.passed),
        ("publish_ms.p99 < 10", Outcome.undecided),
    ],
)
def test_bounds_decide_a_gate_where_they_can(sample: TrialResult, gate: str, expected: Outcome) -> None:
    assert outcome(gate, told(sample, "bounds only", BOUNDS)) is expected


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("publish_ms.p99 > 2", Outcome.failed),
        ("publish_ms.p99 > 20", Outcome.passed),
        ("publish_ms.p99 > 4", Outcome.undecided),
    ],
)
def test_bounds_decide_a_ratio_where_they_can(sample: TrialResult, gate: str, expected: Outcome) -> None:
    base = told(sample, "disturbed", FIGURE)
    assert outcome(gate, told(sample, "bounds only", BOUNDS), base) is expected


def test_what_is_not_known_well_within_a_trial_fails_no_gate(sample: TrialResult) -> None:
    """Two trials of one system, one second of whose three is slow."""
    narrow, wide = (
        Bounded(value=0.3, at_least=0.29, at_most=0.31),
        Bounded(value=0.8, at_least=0.25, at_most=0.9),
    )
    steady = Bounded(value=0.8, at_least=0.78, at_most=0.82)
    base = told(sample, "valid", narrow)
    assert outcome("publish_ms.p50 > 1.1", told(sample, "valid", steady), base) is Outcome.failed
    assert outcome("publish_ms.p50 > 1.1", told(sample, "valid", wide), base) is Outcome.undecided


def test_comparisons_say_what_bounds_allow(sample: TrialResult) -> None:
    base, other = cells(
        [told(sample, "disturbed", FIGURE), told(sample, "bounds only", BOUNDS, system="pulsar")]
    )
    found = compare(base, other, ("publish_ms.p99",))
    assert found.verdict == "publish_ms.p99 at least 2.61 times as high"
    near = cells([told(sample, "bounds only", Bounded(at_least=1.0, at_most=9.0), system="nats")])[0]
    assert compare(base, near, ("publish_ms.p99",)).verdict == "the bounds allow either side to be higher"


def test_a_bound_beside_a_figure_that_nobody_watched_is_not_passed_over(sample: TrialResult) -> None:
    """Of trials that other workers drove there is no quiet time, and so no interval."""
    seen = sample.model_copy(update={"quiet": None})
    base, other = cells([seen, told(sample, "disturbed", Bounded(at_least=6.0), system="pulsar")])
    found = compare(base, other, ("publish_ms.p99",))
    assert found.figures == ()
    said = "publish_ms.p99: no difference shown: the bounds allow either side to be higher"
    assert any(line.startswith(said) for line in bounds(found))
    assert said.partition(": ")[2] in markdown(found)


def test_the_first_line_says_what_is_known(sample: TrialResult) -> None:
    fast = told(sample, "disturbed", FIGURE, system="nats")
    slow = told(sample, "disturbed", Bounded(value=12.0, at_least=11.0, at_most=14.0))
    bounded = told(sample, "bounds only", BOUNDS)
    assert "2.00 ms for Nats and 12.0 ms for Kafka" in answer([fast, slow])
    assert "Kafka's is 6 times as high (at least 5.09 times in these trials)." in answer([fast, slow])
    assert answer([fast, slow]).endswith(
        "33.3 % of the time the machine was disturbed, and is not in these figures."
    )
    assert fast.quiet is not None
    rarely = fast.model_copy(update={"quiet": fast.quiet.model_copy(update={"disturbed_share": 0.0002})})
    assert answer([rarely]).endswith(
        "Less than 0.1 % of the time the machine was disturbed, and is not in these figures."
    )
    in_pieces = fast.model_copy(update={"quiet": fast.quiet.model_copy(update={"unseen_share": 0.08})})
    assert answer([in_pieces]).endswith(
        "33.3 % of the time the machine was disturbed, and is not in these figures; another 8.0 %, in pieces too short to be seen, is."
    )
    assert "between 6.00 and 30.0 ms for Kafka" in answer([fast, bounded])
    assert "Kafka's is at least 2.61 times as high, whatever the machine did." in answer([fast, bounded])
    near = told(sample, "disturbed", Bounded(value=3.0, at_least=2.9, at_most=3.2))
    differs = "Kafka's was 1.5 times as high in these trials, and runs of the same differ by as much"
    assert f"{differs}: about 12 repeats would tell (run --repeat 12)." in answer([fast, near])
    assert answer([]) == "Nothing was measured: no trial has a result."
    late = told(sample, "invalid", FIGURE)
    late = late.model_copy(
        update={"validity": late.validity.model_copy(update={"reasons": ["The generator was late."]})}
    )
    assert "Kafka gives no figure: The generator was late." in answer([fast, late])
    failed = late.model_copy(update={"repeat": 3, "status": "failed", "failure": "The disk was full."})
    several = (
        "Kafka gives no figure: 2 of 3 trials: The generator was late. 1 of 3 trials: The disk was full."
    )
    assert several in answer([fast, failed, late, late.model_copy(update={"repeat": 2})])


def test_the_first_line_names_an_overload_and_not_all_that_follows_from_it(sample: TrialResult) -> None:
    def overloaded(*more: str) -> TrialResult:
        found = told(sample, "invalid", FIGURE)
        reasons = [
            "9 messages fell due and never left.",
            "Achieved 48.0 % of the target rate; at least 99 % is needed.",
            *more,
        ]
        validity = found.validity.model_copy(update={"reasons": reasons})
        return found.model_copy(update={"validity": validity, "achieved_share": 0.48})

    said = "Kafka gives no figure: it did not keep up. Of 50,000 msg/s 48.0 % were acknowledged"
    assert answer([overloaded()]).startswith(said)
    assert "never left" not in answer([overloaded()])
    ours = "All of the rate would take 130 % of a CPU for thread producer-0: the generator's limit, whatever the machine did."
    assert ours in answer([overloaded(ours)])
    assert "did not keep up" not in answer([overloaded(ours)])


def test_the_first_line_asks_for_as_many_repeats_as_would_tell(sample: TrialResult) -> None:
    def side(system: str, values: list[float]) -> list[TrialResult]:
        known = [Bounded(value=value, at_least=0.98 * value, at_most=1.02 * value) for value in values]
        made = [told(sample, "disturbed", one, system=system) for one in known]
        return [one.model_copy(update={"repeat": at}) for at, one in enumerate(made, start=1)]

    base = side("nats", [2.0, 1.5, 2.5, 1.0, 4.0])
    near = answer(base + side("kafka", [3.0, 2.0, 4.0, 1.5, 6.0]))
    differs = (
        "Kafka's was 1.48 times as high on average in these trials, and runs of the same differ by as much"
    )
    assert f"{differs}: about 31 repeats would tell (run --repeat 31)." in near
    wild = answer(base + side("kafka", [2.5, 0.1, 30.0, 1.0, 40.0]))
    assert "not even 100 repeats would tell them apart." in wild
    far = answer(base + side("kafka", [20.0, 15.0, 22.0, 11.0, 40.0]))
    assert re.search(
        r"Kafka's is 9\.\d+ times as high on average \(95 %: 4\.\d+ to .* times; 5 trials each\)\.", far
    )
    turned = answer(base + side("kafka", [2.1, 0.5, 2.6, 0.4, 2.2]))
    assert "Which of Nats and Kafka is faster, these trials do not tell: about" in turned


def test_words_of_runs(sample: TrialResult) -> None:
    disturbed, bounded = told(sample, "disturbed", FIGURE), told(sample, "bounds only", BOUNDS)
    assert words.verdict([disturbed]).sentence.startswith("The trial is valid. Its figures are of quiet time")
    assert words.verdict([bounded]).word == "bounds only"
    assert words.validity(bounded).word == "bounds only"
    assert words.headline(cells([bounded])[0]).endswith(
        "between 6.00 and 30.0 ms, more cannot be told on a machine that was disturbed so much."
    )


@pytest.fixture(scope="module")
def luckier(sample: TrialResult) -> Cell:
    """Two valid trials, one of which knows no maximum, no mean and no p99."""
    known = told(sample, "valid", FIGURE)
    unknown = told(sample, "disturbed", BOUNDS).model_copy(update={"repeat": 2, "trial": 2})
    (cell,) = cells([known, unknown])
    assert len(cell.valid) == 2
    return cell


def test_the_middle_of_a_figure_is_not_that_of_the_trials_that_happen_to_have_one(luckier: Cell) -> None:
    for name in ("publish_ms.max", "publish_ms.p99", "end_to_end_ms.p99"):
        assert figure(luckier.trials[0], name) is not None
        assert luckier.middle(lambda trial, name=name: figure(trial, name)) is None  # type: ignore[misc]
    assert luckier.middle(lambda trial: trial.publish_rate_msgs_s) is not None


def test_where_not_all_trials_know_a_figure_its_bounds_are_told(luckier: Cell) -> None:
    assert "p99 of publish latency is between 1.80 and 30.0 ms for Kafka" in answer(luckier.trials)
    assert "its publish p99 is between 1.80 and 30.0 ms" in words.headline(luckier)
    assert "p99 not known in all of them, end-to-end p99 not known in all of them" in words.spread(luckier)
    assert latency_text(luckier, "publish_ms", "p99") == "1.80\u201330.0"
    assert latency_text(luckier, "publish_ms", "max") == "-"


def test_gates_and_comparisons_take_no_figure_that_not_all_trials_know(
    sample: TrialResult, luckier: Cell
) -> None:
    gates = read_gates(["publish_ms.max > 100", "publish_ms.p99 > 31", "publish_ms.p99 > 5"])
    found = judge([Question(gate, luckier) for gate in gates])
    assert [one.outcome for one in found] == [Outcome.undecided, Outcome.passed, Outcome.undecided]
    assert found[0].why == "not known in all of the trials"
    (base,) = cells([told(sample, "valid", FIGURE, system="nats")])
    compared = compare(base, luckier)
    assert "publish_ms.p99" not in [one.figure for one in compared.figures]
    assert "publish_ms.p99" in [name for name, _ in compared.bounded]
