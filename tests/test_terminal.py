"""The terminal's summary."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from sample_run import KAFKA, LOG, workload, write_run
from streamgauge.model.result import TrialResult
from streamgauge.report.terminal import print_summary
from streamgauge.vocabulary.format import significant, trimmed


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[TrialResult]:
    asked = workload(rate=2000, seconds=12)
    shapes = (LOG, replace(KAFKA, lost=3))
    return write_run(tmp_path_factory.mktemp("run"), shapes, asked, repeats=2)


def printed(results: list[TrialResult], width: int) -> str:
    out = io.StringIO()
    print_summary(results, Console(file=out, width=width, no_color=True))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 160, 220])
def test_fits_every_width_and_says_everything_without_colour(results: list[TrialResult], width: int) -> None:
    text = printed(results, width)
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    for expected in (
        "median [smallest, largest] over 2 trials",
        "Reference log",
        "Apache Kafka",
        "p99.9",
        "clean",
        "NOT CLEAN",
        "3 lost",
    ):
        assert expected in flat
    assert "\x1b" not in text


def test_invalid_trials_say_why(results: list[TrialResult]) -> None:
    validity = results[0].validity.model_copy(
        update={"valid": False, "reasons": ["The generator [p99] was late."]}
    )
    text = printed([results[0].model_copy(update={"validity": validity})], 150)
    assert "INVALID" in text
    assert "The generator [p99] was late." in text, "text from outside is never taken for markup"
    assert "must not be believed" in text


def test_no_trial_is_said() -> None:
    assert "No trial" in printed([], 80)


def test_missing_figures_are_dashes(results: list[TrialResult]) -> None:
    blank = results[0].end_to_end_ms.model_copy(update=dict.fromkeys(("p50", "p99", "p99_9", "max")))
    text = printed([results[0].model_copy(update={"end_to_end_ms": blank, "achieved_share": None})], 160)
    assert " - " in text
    assert "None" not in text


def test_figures_have_three_significant_digits() -> None:
    shown = [
        significant(value) for value in (None, 0.0, 0.00000123, 0.0456, 0.9999, 9.996, 12.34, 99.96, 1234.5)
    ]
    assert shown == ["-", "0", "<0.0001", "0.0456", "1.00", "10.0", "12.3", "100", "1,234"]
    assert [trimmed(value) for value in (30.0, 2.5, 100.0)] == ["30", "2.5", "100"]


@pytest.mark.parametrize("width", range(128, 164, 4))
def test_no_width_cuts_a_figure_or_the_verdict(results: list[TrialResult], width: int) -> None:
    slow = [
        result.model_copy(
            update={"publish_ms": result.publish_ms.model_copy(update={"p99": 1844.9, "p99_9": 12_345.6})}
        )
        for result in results
    ]
    text = printed(slow, width)
    assert "\u2026" not in text
    assert "12,346" in text
    assert text.count("2/2 valid") == 2
    assert "100.0 %" in text


def test_systems_stand_side_by_side_where_the_wide_table_has_no_room(results: list[TrialResult]) -> None:
    """Metrics are rows then: at 80 columns systems were one below the other, and nobody could compare them."""
    lines = printed(results, 80).splitlines()
    heads = [line for line in lines if "Reference" in line and "Kafka" in line]
    assert heads
    for title in (
        "level",
        "rate msg/s",
        "publish p99 ms",
        "end-to-end max ms",
        "CPU us/msg, system",
        "verdict",
    ):
        (row,) = [line for line in lines if line.startswith(title)]
        assert len(row.removeprefix(title).split()) >= 2, "a figure for each"


def test_more_systems_than_fit_are_in_several_tables(results: list[TrialResult]) -> None:
    many = [
        one.model_copy(update={"system": f"{one.system}-{at}", "system_title": f"{one.system_title} {at}"})
        for at in range(3)
        for one in results
    ]
    lines = printed(many, 80).splitlines()
    assert sum(line.startswith("publish p99 ms") for line in lines) > 1
    assert max(len(line) for line in lines) <= 80
