"""Curves: how rates are asked for, and what a run of several becomes in analysis, reports, comparisons and gates."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab_doubles import DoubleSystem
from rich.console import Console
from sample_run import KAFKA, LOG, workload, write_run
from streamgauge.analysis.cells import cells
from streamgauge.analysis.curves import beside, curves
from streamgauge.analysis.match import match, traits_of
from streamgauge.cli.gates import prepare
from streamgauge.cli.outputs import Asked
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload, read_workloads
from streamgauge.model.result import TrialResult
from streamgauge.model.result_quiet import Word
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.system_request import SystemRequest
from streamgauge.report import curve
from streamgauge.report.answer import answer
from streamgauge.report.terminal import print_summary
from streamgauge.report.words import verdict
from streamgauge.runner.plan import order_trials
from streamgauge.vocabulary.errors import InputError

NAME = "1-topic-16-partitions-100b"


def test_rates_are_measured_from_the_lowest_to_the_highest_whatever_their_order() -> None:
    found = read_workloads(NAME, Overrides.of(rate="20k, 5k,1.5M"))
    assert [one.rate_msgs_s for one in found] == [5e3, 20e3, 1.5e6]
    assert {one.name for one in found} == {NAME}


@pytest.mark.parametrize("rate", ["[5k, 10k]", "5k,10k", "[5000, 10000]"])
def test_a_file_may_ask_for_several(tmp_path: Path, rate: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"rate: {rate}\nduration: 5s\n", encoding="utf-8")
    assert [one.rate_msgs_s for one in read_workloads(str(path))] == [5e3, 10e3]
    with pytest.raises(InputError, match=r"w.yaml:1: rate: several rates are measured by streamgauge run"):
        read_workload(str(path))


def test_what_follows_from_a_rate_follows_from_each(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("rate: [1k, 2k]\nmessageSize: 100\nbacklog: {traffic: 10s}\n", encoding="utf-8")
    sizes = [one.backlog.size_bytes for one in read_workloads(str(path)) if one.backlog is not None]
    assert sizes == [1_000_000, 2_000_000]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("5k,", "'5k,' has an empty place among its rates: expected messages per second, each once"),
        ("5k,5000", "has 5,000 msg/s twice: expected messages per second, each once"),
        ("5k,max", "'max' stands alone and not among rates: expected"),
        ("sweep,5k", "'sweep' stands alone and not among rates"),
        (
            "10,000",
            "has a rate of 0, which sends nothing: expected .*written without commas \\(10000, 10k\\)",
        ),
        ("5k,10kb", "unknown unit 'kb' in '10kb': expected messages per second .*, in '5k,10kb'"),
        ("10%", "several of these \\(5k,10k,20k\\), max, sustainable or sweep"),
        (",".join(str(one) for one in range(1, 60)), "59 rates: expected at most 50"),
    ],
)
def test_wrong_rates_say_what_was_expected(rate: str, expected: str) -> None:
    with pytest.raises(InputError, match=f"--rate .*{expected}"):
        read_workloads(NAME, Overrides.of(rate=rate))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"duration": "10s"}, "--duration 10s: the points of a sweep share it: expected 36s or more"),
        ({"backlog": "1GB"}, "a backlog needs a rate: .* max, sustainable or sweep"),
        ({"fault": ["kill:1@2s"]}, "--fault together with rate sweep"),
    ],
)
def test_what_a_sweep_cannot_be_together_with(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read_workloads(NAME, Overrides.of(rate="sweep", **options))


def choice(name: str) -> SystemChoice[Any]:
    return SystemChoice(name, DoubleSystem(), SystemRequest())


def test_rates_are_shuffled_with_the_systems_even_in_a_single_round() -> None:
    rates = read_workloads(NAME, Overrides.of(rate="1k,2k,3k,4k,5k,6k"))
    trials = order_trials([choice("a"), choice("b")], rates, 1, 5)
    order = [(one.choice.name, one.workload.rate_msgs_s) for one in trials]
    assert len(set(order)) == 12
    assert order != sorted(order, key=lambda one: one[1] or 0.0)
    assert len({one.seed for one in trials}) == 1


def test_gates_are_on_rates_that_are_known_beforehand(tmp_path: Path) -> None:
    swept = read_workloads(NAME, Overrides.of(rate="sweep"))
    with pytest.raises(InputError, match=r"--fail-if with --rate sweep .*: expected|expected the rates"):
        prepare(Asked(("publish_ms.p99 > 5",)), tmp_path, swept, [choice("a")])
    listed = read_workloads(NAME, Overrides.of(rate="1k,2k"))
    gating = prepare(Asked(("publish_ms.p99 > 5",)), tmp_path, listed, [choice("a")])
    assert gating is not None
    subjects = [one.subject for one in gating.judge([])]
    assert subjects == [f"a, {NAME} at 1k msg/s", f"a, {NAME} at 2k msg/s"]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[TrialResult]:
    return write_run(tmp_path_factory.mktemp("run"), (LOG, KAFKA), workload(rate=1000, seconds=10))


At = Callable[..., TrialResult]


@pytest.fixture(scope="module")
def at(samples: list[TrialResult]) -> At:
    """A trial of one of two systems at a rate, with a p99 in ms."""

    def made(
        system: int,
        rate: float | None,
        p99: float,
        *,
        repeat: int = 1,
        called: Word = Word.valid,
        share: float = 1.0,
    ) -> TrialResult:
        one = samples[system]
        asked = one.workload.model_copy(
            update={"rate_msgs_s": rate, "arrival": "uniform" if rate else "closed", "warmup_s": 2.0}
        )
        publish = one.publish_ms.model_copy(update={"p50": p99 / 2, "p99": p99, "at_least": {}})
        validity = one.validity.model_copy(
            update={
                "word": called,
                "valid": called.stands,
                "reasons": [] if called.stands else ["It was <late>."],
                "disturbed": False,
            }
        )
        return one.model_copy(
            update={
                "workload": asked,
                "publish_ms": publish,
                "quiet": None,
                "validity": validity,
                "repeat": repeat,
                "target_rate_msgs_s": rate,
                "achieved_share": share,
                "publish_rate_msgs_s": (rate or 90e3) * share,
                "consume_rate_msgs_s": (rate or 90e3) * share,
            }
        )

    return made


@pytest.fixture(scope="module")
def results(at: At) -> list[TrialResult]:
    """A log that bends at 40k and sustains 63k, and a Kafka that bends at 10k."""
    log = {4e3: 1.0, 6.3e3: 1.1, 10e3: 1.0, 16e3: 1.1, 25e3: 1.0, 40e3: 1.2, 50e3: 8.0, 63e3: 20.0}
    kafka = {1e3: 1.5, 1.6e3: 1.6, 2.5e3: 1.5, 4e3: 1.6, 6.3e3: 1.5, 10e3: 2.0, 16e3: 15.0, 25e3: 40.0}
    found = [at(0, rate, p99) for rate, p99 in log.items()] + [
        at(1, rate, p99) for rate, p99 in kafka.items()
    ]
    found += [at(0, None, 9.0), at(0, 80e3, 300.0, called=Word.invalid, share=0.9)]
    return [*found, at(1, 40e3, 500.0, called=Word.invalid, share=0.7)]


def test_rates_that_were_not_sustained_are_told_apart_from_trials_that_failed(
    results: list[TrialResult], at: At
) -> None:
    beyond = "17 of 19 trials are valid; 2 are of rates that were not sustained. "
    assert verdict(results).sentence.startswith(beyond)
    late = [*results, at(0, 90e3, 1.0, called=Word.invalid)]
    told = "17 of 20 trials are valid; 2 are of rates that were not sustained, the other says why not. "
    assert verdict(late).sentence.startswith(told)


def test_the_table_says_what_every_point_is(results: list[TrialResult]) -> None:
    grid = curve.figures(curves(results))[0].tables[1]
    assert [len(row) for row in grid.rows] == [len(grid.head)] * len(grid.rows)
    words = [row[: grid.words] for row in grid.rows]
    assert words[0] == ("1,000", "sustained")
    assert words[-1] == ("40,000", "not sustained: 70 % of it was acknowledged")


def test_cells_that_differ_in_their_rate_are_a_curve(results: list[TrialResult]) -> None:
    log, kafka = curves(results)
    assert [point.asked_msgs_s for point in log.points] == [
        4e3,
        6.3e3,
        10e3,
        16e3,
        25e3,
        40e3,
        50e3,
        63e3,
        80e3,
    ]
    assert [point.worth for point in log.points] == ["sustained"] * 8 + ["not sustained"]
    assert log.points[-1].achieved_msgs_s == pytest.approx(72e3)
    assert log.closed is not None
    assert log.most is not None
    assert log.most.asked_msgs_s == 63e3
    assert log.knee is not None
    assert kafka.knee is not None
    assert (log.knee.low_msgs_s, log.knee.high_msgs_s) == (25e3, 50e3)
    assert (kafka.knee.low_msgs_s, kafka.knee.high_msgs_s) == (6.3e3, 16e3)
    assert len(log.trials) + len(kafka.trials) == len(results)


def test_a_point_that_not_all_of_its_trials_know_has_no_figure_and_says_so(at: At) -> None:
    """The other trial alone would tell of the luckier half, and what this one is at least is not what both are at least."""
    known, unknown = at(0, 8e3, 1.0), at(0, 8e3, 1.0, repeat=2)
    open_ended = unknown.publish_ms.model_copy(update={"p99": None, "at_least": {"p99": 700.0}})
    unknown = unknown.model_copy(update={"publish_ms": open_ended})
    others = [at(0, rate, p99) for rate, p99 in {2e3: 1.0, 4e3: 1.1, 16e3: 1.2, 32e3: 20.0}.items()]
    (whole,), (line,) = curves([*others, known]), curves([*others, known, unknown])
    point = line.points[2]
    assert (point.worth, point.p99_ms, point.p50_ms) == ("sustained", None, 0.5)
    assert (point.bounds, point.drawn_ms) == (None, None)
    assert (whole.knee is None, line.knee is None) == (False, False)
    assert line.knee != whole.knee, "it is not told by this point"
    row = curve.figures([line])[0].tables[0].rows[2]
    assert row[1] == "sustained; p99 is not known in all of its trials"
    assert row[4] == "-"


def test_one_rate_is_no_curve(at: At) -> None:
    assert curves([at(0, 1000.0, 1.0), at(1, 1000.0, 1.0), at(0, 1000.0, 1.1, repeat=2)]) == []


def test_what_the_generator_spoiled_says_nothing_of_the_system(at: At) -> None:
    low = [at(0, rate, 1.0) for rate in (1e3, 2e3, 4e3)]
    [found] = curves([*low, at(0, 8e3, 50.0, called=Word.invalid, share=1.0)])
    assert found.points[-1].worth == "no figure"
    assert found.knee is not None
    assert not found.knee.reached
    assert "higher rates say nothing of the system" in curve.figures([found])[0].tables[0].title


def test_consumers_that_fall_behind_do_not_sustain_a_rate(at: At) -> None:
    behind = at(0, 8e3, 1.0).model_copy(update={"consume_rate_msgs_s": 7e3})
    [found] = curves([*(at(0, rate, 1.0) for rate in (1e3, 2e3, 4e3)), behind])
    assert found.points[-1].worth == "not sustained"


def test_the_answer_says_how_far_who_and_how_surely(results: list[TrialResult], at: At) -> None:
    text = answer(results)
    assert "Reference log's bends at about 42,600 msg/s (at least 95 % sure: 25,000 to 50,000)" in text
    assert "63,000 msg/s were sustained, 80,000 were not" in curve.figures(curves(results))[0].tables[0].title
    assert "Reference log goes further than Apache Kafka." in text
    assert "From 4,000 to 25,000 msg/s Apache Kafka's p99" in text
    alike = [at(system, rate, 1.0) for system in (0, 1) for rate in (1e3, 2e3)]
    text = answer(alike)
    assert "where it bends is not known: fewer than three rates have a figure" in text
    assert "Whether Reference log or Apache Kafka goes further is not known." in text


def test_repeats_make_a_comparison_surer(at: At) -> None:
    def decided(repeats: int) -> bool:
        found = curves(
            [
                at(system, rate, 1.0 + system, repeat=repeat)
                for system in (0, 1)
                for rate in (1e3, 2e3, 4e3)
                for repeat in range(1, repeats + 1)
            ]
        )
        both = beside(found[0], found[1])
        assert both is not None
        assert [ratio for _, ratio in both.ratios] == pytest.approx([2.0, 2.0, 2.0])
        return both.decided

    assert not decided(1)
    assert decided(5)


def test_points_of_one_rate_belong_together_and_of_two_never(at: At) -> None:
    base = [traits_of(one) for one in cells([at(0, rate, 1.0) for rate in (1e3, 2e3)])]
    other = [traits_of(one) for one in cells([at(0, rate, 1.0) for rate in (2e3, 4e3)])]
    found = match(base, other)
    assert found.pairs == ((1, 0),)
    assert found.alone == ((0,), (1,))


@pytest.mark.parametrize("systems", [1, 2])
def test_the_terminal_has_rates_as_rows_in_80_columns(results: list[TrialResult], systems: int) -> None:
    out = io.StringIO()
    shown = [one for one in results if systems == 2 or one.system == results[0].system]
    print_summary(shown, Console(file=out, width=80, no_color=True))
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "300*" in text, "what was not sustained is marked"
    assert "* the rate was not sustained" in text
    assert text.count("40,000") >= 1
    assert "bends at about" in " ".join(text.split())


def test_the_report_draws_what_was_achieved_and_leaves_hollow_what_is_invalid(
    results: list[TrialResult],
) -> None:
    [figure] = curve.figures(curves(results))
    log, kafka = figure.curves
    assert [mark.filled for mark in log.marks] == [True] * 8 + [False]
    assert log.shape != kafka.shape, "not by colour alone"
    assert log.colour != kafka.colour
    assert log.knee is not None
    assert log.knee[0] < log.knee[1]
    assert log.knee_at is not None
    assert all(
        figure.frame.left <= mark.x <= figure.frame.right for one in figure.curves for mark in one.marks
    )
    assert all(
        figure.frame.top <= mark.y <= figure.frame.bottom for one in figure.curves for mark in one.marks
    )
    assert "goes further" in figure.told
    assert [len(table.rows) for table in figure.tables] == [10, 9]


def test_six_systems_fit_and_text_from_outside_is_escaped(at: At) -> None:
    many = [
        at(0, rate, 1.0 + place, called=Word.valid if rate < 8e3 else Word.invalid, share=1.0).model_copy(
            update={"system": f"s{place}", "system_title": f"<b>{place}</b>"}
        )
        for place in range(6)
        for rate in (1e3, 2e3, 4e3, 8e3)
    ]
    [figure] = curve.figures(curves(many))
    assert len({one.shape for one in figure.curves}) == 6
    assert max(one.knee[2] for one in figure.curves if one.knee) < figure.frame.height - 16
