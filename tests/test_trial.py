"""A trial's figures, shares and verdicts from synthetic intervals with known truth."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_run import (
    KAFKA,
    LOG,
    SampleTrial,
    Shape,
    encode,
    finish_answer,
    probe,
    sample_trial,
    workload,
    write_table,
)
from stored_trials import unpack
from streamgauge.analysis.cells import cells
from streamgauge.analysis.intervals import Intervals
from streamgauge.analysis.quiet_measured import Quiet, quiet_time
from streamgauge.analysis.trial import analyse, analyse_or_fail
from streamgauge.model.result import Durability
from streamgauge.model.result_columns import INTERVAL_COLUMNS, RESOURCE_COLUMNS
from streamgauge.model.result_machine import Lane
from streamgauge.store.directory import TrialDirectory
from streamgauge.vocabulary import troubleshooting as page

SMALL = workload(rate=2000, seconds=12)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SampleTrial:
    return sample_trial(tmp_path_factory.mktemp("small") / "001", LOG, SMALL)


def fresh(directory: Path, shape: Shape = LOG, **changes: Any) -> SampleTrial:
    return sample_trial(directory / "001", shape, SMALL.model_copy(update=changes))


def rows_of(directory: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as parquet

    found: list[dict[str, Any]] = parquet.read_table(directory / "intervals.parquet").to_pylist()
    return found


def rewrite(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    rows = rows_of(directory)
    for row in rows:
        change(row)
    write_table(directory / "intervals.parquet", rows, INTERVAL_COLUMNS)


def test_a_good_trial_is_valid_clean_and_complete(small: SampleTrial) -> None:
    result = small.result()
    assert result.validity.valid, result.validity.reasons
    assert result.audit.clean
    assert result.publish_ms.count == result.end_to_end_ms.count == 24_000, "warm-up is not in the figures"
    assert result.publish_rate_msgs_s == 2000
    assert result.publish_rate_mb_s == pytest.approx(0.2)
    assert result.achieved_share == 1.0
    assert result.consume_rate_msgs_s == 2000
    assert result.audit.sent == 34_000, "the audit covers the warm-up too"
    assert result.steadiness.label in ("steady", "cyclic")
    assert result.publish_ms.p50 is not None
    assert result.publish_ms.p99 is not None
    assert 0.2 < result.publish_ms.p50 < result.publish_ms.p99 < 10
    assert result.cpu.duration_s == 12
    assert result.cpu.workers_us_per_msg == pytest.approx(1.6, rel=0.6)
    assert result.write_amplification == pytest.approx(1.02, rel=0.5)
    assert [process.name for process in result.processes] == ["gauge-log-1"]


def test_a_trial_whose_figures_cannot_be_computed_has_failed_and_keeps_what_was_measured(
    small: SampleTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours in one trial's figures is no reason to lose the run that it belongs to."""

    def broken(intervals: Intervals, *given: Any, **named: Any) -> Quiet | None:
        if intervals.rows:
            raise ZeroDivisionError("float division\nby zero")
        return quiet_time(intervals, *given, **named)

    assert analyse_or_fail(small.context, small.directory) == (small.context, small.result())
    monkeypatch.setattr("streamgauge.analysis.trial.quiet_time", broken)
    context, result = analyse_or_fail(small.context, small.directory)
    assert context.status == result.status == "failed"
    assert result.failure == context.failure
    assert re.match(
        r"its figures could not be computed \(ZeroDivisionError: float division by zero, in test_trial\.py, line \d+\); what was measured is kept",
        result.failure or "",
    )
    assert result.validity.is_invalid
    assert page.see([page.of_reason(result.validity.why)]).endswith("#its-figures-could-not-be-computed")
    assert (small.directory / "intervals.parquet").exists()


def test_latencies_are_those_of_all_workers_together(tmp_path: Path) -> None:
    """p99 of two workers is the p99 of their samples, not the mean of their p99."""
    raw = fresh(tmp_path)
    fast, slow = np.full(99, 1_000_000), np.full(99, 100_000_000)
    base = {"interval": 6, "start_s": 6.0, "duration_s": 1.0, "role": "producer", "phase": "measure"}
    rows = [
        base | {"worker": "a", "publish": encode(np.repeat(fast, 10))},
        base | {"worker": "b", "publish": encode(slow)},
    ]
    write_table(raw.directory / "intervals.parquet", rows, INTERVAL_COLUMNS)
    figures = raw.result().publish_ms
    assert figures.count == 1089
    assert figures.p90 == pytest.approx(1.0, rel=1e-3)
    assert figures.p95 == pytest.approx(100.0, rel=1e-3)


def test_a_message_belongs_to_the_phase_in_which_it_was_intended(tmp_path: Path) -> None:
    raw = fresh(tmp_path)
    late = {"worker": "w", "interval": 17, "start_s": 17.0, "duration_s": 0.2, "role": "producer"}
    rows = [
        late | {"phase": "measure", "publish": encode(np.array([900_000_000]))},
        late | {"phase": "warm-up", "publish": encode(np.array([14_000_000_000]))},
    ]
    write_table(raw.directory / "intervals.parquet", rows, INTERVAL_COLUMNS)
    figures = raw.result().publish_ms
    assert figures.count == 1
    assert figures.max == pytest.approx(900, rel=1e-3)


def test_rates_are_of_whole_intervals_within_the_window(tmp_path: Path) -> None:
    assert fresh(tmp_path).result(measure_from_s=7.0, measure_until_s=9.5).cpu.duration_s == 2.0


def test_a_backlog_is_that_of_the_slowest_subscription_over_all_workers(tmp_path: Path) -> None:
    raw = fresh(tmp_path, subscriptions_per_topic=2)

    def change(row: dict[str, Any]) -> None:
        if row["interval"] == 8 and row["role"] == "consumer" and row["phase"] is None:
            row["backlog_msgs"] = 700 if row["subscription"] == "s-1" else 30

    rewrite(raw.directory, change)
    result = raw.result()
    assert result.backlog_msgs_max == 700
    assert sorted(result.end_to_end_by_subscription_ms) == ["s-0", "s-1"]
    assert result.consume_rate_msgs_s == 4000


def test_a_late_generator_invalidates(tmp_path: Path) -> None:
    result = fresh(tmp_path, replace(LOG, send_delay_ms=2.0)).result()
    assert not result.validity.valid
    assert "generator was late" in result.validity.reasons[0]


def test_a_slow_system_allows_a_later_generator(tmp_path: Path) -> None:
    assert fresh(tmp_path, replace(KAFKA, publish_ms=150.0, send_delay_ms=1.0)).result().validity.valid


def delayed(directory: Path, metric: str, milliseconds: float) -> SampleTrial:
    raw = fresh(directory)

    def change(row: dict[str, Any]) -> None:
        if row["role"] == "producer" and row["phase"] == "measure":
            row[metric] = encode(np.full(2000, round(milliseconds * 1e6)))

    rewrite(raw.directory, change)
    return raw


@pytest.mark.parametrize("metric", ["ack_delay", "receive_delay"])
def test_who_reads_late_is_judged_as_who_sends_late(metric: str, tmp_path: Path) -> None:
    good = fresh(tmp_path / "good").result()
    p99 = good.publish_ms.p99 if metric == "ack_delay" else good.end_to_end_ms.p99
    assert p99 is not None
    words = metric.replace("_", " ")
    little = delayed(tmp_path / "little", metric, 0.05 * p99).result().validity
    assert little.valid
    assert not any(words in text for text in little.warnings)
    some = delayed(tmp_path / "some", metric, 0.15 * p99).result().validity
    assert some.valid
    assert any("15 % of the" in text and words in text for text in some.warnings), some.warnings
    much = delayed(tmp_path / "much", metric, 0.3 * p99).result().validity
    assert not much.valid
    assert f"p99 of {words} is" in much.reasons[0]


@pytest.mark.parametrize(("reader", "is_judged"), [("catch-up", False), ("s-0", True)])
def test_who_reads_a_backlog_late_is_not_late_with_those_that_tail(
    reader: str, is_judged: bool, tmp_path: Path
) -> None:
    """Whoever catches up has all of a lane's turns; end-to-end latency is that of the others, and so is the lateness by which it is judged."""
    unpack("gauge-log-backlog-extra-reader", tmp_path)

    def tell(row: dict[str, Any]) -> None:
        if row["phase"] == "measure" and row["subscription"] == reader:
            row["receive_delay"] = encode(np.full(2000, 50_000_000))

    rewrite(tmp_path, tell)
    context = TrialDirectory(tmp_path).read_context()
    assert context is not None
    found = analyse(context, tmp_path)
    assert (found.receive_delay_ms.count > 0) is is_judged
    assert any("receive delay" in reason for reason in found.validity.reasons) is is_judged


def test_a_lingering_batch_makes_up_for_nothing_where_workers_tell_their_wakeups(tmp_path: Path) -> None:
    """A send delay that is counted from when a lane had planned to be awake is in the latency; one that is counted from when a message was due is
    not as far as its batch lingers."""
    p99 = fresh(tmp_path / "good").result().publish_ms.p99
    assert p99 is not None
    assert 0.5 * p99 - 1.0 < 0.25 * p99, "what a linger of 1 ms hides decides"
    former = delayed(tmp_path / "former", "send_delay", 0.5 * p99)
    assert former.result().cpu.wakeups_per_s is None
    assert former.result().validity.valid

    def tell(row: dict[str, Any]) -> None:
        if row["role"] == "worker":
            row["wakeups"] = 2000

    rewrite(former.directory, tell)
    told = former.result()
    assert told.cpu.wakeups_per_s == pytest.approx(2000, rel=0.01)
    assert not told.validity.valid
    assert "p99 of send delay is" in told.validity.reasons[0]
    assert "lingers" not in told.validity.reasons[0]


def test_messages_without_an_acknowledgement_rank_above_all_others(tmp_path: Path) -> None:
    raw = fresh(tmp_path)
    whole = raw.result()

    def change(row: dict[str, Any]) -> None:
        # 0.5 % of 24,000.
        if row["role"] == "producer" and row["phase"] == "measure" and row["interval"] == 8:
            row["unacked_msgs"] = 120

    rewrite(raw.directory, change)
    result = raw.result()
    found = result.publish_ms
    assert found.unanswered == 120
    assert (found.p99_9, found.p99_99, found.max, found.mean) == (None, None, None, None)
    assert found.at_least == dict.fromkeys(("p99_9", "p99_99", "max"), whole.publish_ms.max)
    assert found.p50 == pytest.approx(whole.publish_ms.p50, rel=0.01)
    assert found.p99 is not None
    assert whole.publish_ms.p99 is not None
    assert found.p99 > whole.publish_ms.p99, "ranks move up"
    bounded = result.bounded("publish_ms", "p99_9")
    assert bounded is not None
    assert (bounded.value, bounded.at_least) == (None, whole.publish_ms.max)
    assert result.service_ms.p99_9 is None


def test_messages_that_were_never_received_rank_above_all_others(tmp_path: Path) -> None:
    whole = fresh(tmp_path / "whole").result().end_to_end_ms
    found = fresh(tmp_path / "lost", replace(LOG, lost=120)).result().end_to_end_ms
    assert found.unanswered == 120
    assert found.p99 is not None
    assert found.p99_9 is None
    # When they were due is not known, so the bound is the percentile of those that came.
    assert whole.p99_9 is not None
    assert found.at_least["p99_9"] == pytest.approx(whole.p99_9, rel=0.2)


def test_intervals_that_were_told_together_are_marked(tmp_path: Path) -> None:
    raw = fresh(tmp_path)

    def change(row: dict[str, Any]) -> None:
        if row["role"] == "worker" and row["interval"] in (8, 9):
            row["joined_lanes"] = 1

    rewrite(raw.directory, change)
    assert any("2 intervals is told together" in text for text in raw.result().validity.warnings)


def test_a_rate_that_was_not_reached_invalidates(small: SampleTrial) -> None:
    result = small.result(workload=SMALL.model_copy(update={"rate_msgs_s": 2050.0}))
    assert result.achieved_share == pytest.approx(0.9756, abs=1e-3)
    assert any("97.6 % of the target" in reason for reason in result.validity.reasons)


def test_chance_in_poisson_arrivals_is_no_failure(small: SampleTrial) -> None:
    asked = SMALL.model_copy(update={"rate_msgs_s": 2040.0, "arrival": "poisson"})
    assert small.result(workload=asked).validity.valid


def test_a_closed_loop_has_no_target(tmp_path: Path) -> None:
    closed = SMALL.model_copy(update={"rate_msgs_s": None, "arrival": "closed"})
    result = fresh(tmp_path).result(workload=closed)
    assert result.achieved_share is None
    assert result.validity.valid
    assert any("Closed loop" in warning for warning in result.validity.warnings)
    assert any("unexplained" in warning for warning in result.validity.warnings)


def test_a_busy_worker_invalidates(tmp_path: Path) -> None:
    raw = fresh(tmp_path)
    rewrite(raw.directory, lambda row: row.update(cpu_s=1.9) if row["role"] == "worker" else None)
    assert any("95 % of its cores" in reason for reason in raw.result().validity.reasons)


def test_a_busy_lane_is_a_warning(small: SampleTrial) -> None:
    lane = Lane(worker="w", name="producer-0", role="producer", scheduling="none", cpu_s=16.9)
    result = small.result(lanes=[lane])
    assert result.validity.valid
    assert any("Lane producer-0" in warning for warning in result.validity.warnings)


def test_a_lane_is_as_busy_as_it_was_while_the_system_was_measured(tmp_path: Path) -> None:
    raw = fresh(tmp_path)
    until = SMALL.warmup_s + SMALL.duration_s

    def change(row: dict[str, Any]) -> None:
        if row["role"] == "worker":
            row["lanes_cpu_s"] = json.dumps([0.1, 0.95 if SMALL.warmup_s <= row["start_s"] < until else 0.0])

    rewrite(raw.directory, change)
    rows = rows_of(raw.directory)
    # A drain that lasts as long as the load did would halve the share, and a warm-up without load lowers it.
    last = max(int(row["interval"]) for row in rows)
    idle = [row for row in rows if row["role"] == "worker" and row["interval"] == last]
    for index in range(last + 1, 2 * last):
        rows += [{**row, "interval": index, "start_s": float(index), "lanes_cpu_s": "[0, 0]"} for row in idle]
    write_table(raw.directory / "intervals.parquet", rows, INTERVAL_COLUMNS)
    warnings = raw.result().validity.warnings
    assert [text for text in warnings if text.startswith("Lane ")] == [
        "Lane consumer-0 of worker worker-1 was busy 95 % of the time: the generator may be the limit; try more lanes or more workers."
    ]
    found = raw.result().bottleneck
    assert found is not None
    (told,) = [one for one in found.limits if one.name == "generator"]
    assert told.share == pytest.approx(0.95)
    assert "its thread consumer-0 was busy for 95 % of the time" in told.evidence


@pytest.mark.parametrize("text", ["{}", '["a"]', "[", "7"])
def test_a_column_of_lanes_that_nobody_wrote_is_refused(tmp_path: Path, text: str) -> None:
    raw = fresh(tmp_path)
    rewrite(raw.directory, lambda row: row.update(lanes_cpu_s=text) if row["role"] == "worker" else None)
    with pytest.raises(ValueError, match="lanes_cpu_s"):
        raw.result()


def test_a_lost_worker_invalidates(small: SampleTrial) -> None:
    result = small.result(finish=None)
    assert not result.audit.enabled
    assert not result.audit.clean
    assert result.validity.reasons == ["A worker was lost before it could report: no audit was made."]


def test_fatal_notes_and_mismatches_are_passed_on(small: SampleTrial) -> None:
    durability = Durability(asked="L3", declared="L4", mismatches=["topic.flush.messages is 100, not 1."])
    result = small.result(
        fatal=["Broker 1 died."], notes=["The page cache was not dropped."], durability=durability
    )
    assert result.validity.reasons == ["Broker 1 died.", "topic.flush.messages is 100, not 1."]
    assert "The page cache was not dropped." in result.validity.warnings


def test_a_level_that_was_not_had_invalidates(small: SampleTrial) -> None:
    result = small.result(durability=Durability(asked="L3", declared="L4"))
    assert any("L3 was asked for" in reason for reason in result.validity.reasons)


def test_failed_messages_invalidate_and_retries_warn(tmp_path: Path) -> None:
    raw = fresh(tmp_path)

    def retried(row: dict[str, Any]) -> None:
        if row["role"] == "worker" and row["interval"] == 7:
            row.update(retries=4, errors='{"NOT_LEADER_OR_FOLLOWER": 4}')

    rewrite(raw.directory, retried)
    result = raw.result()
    assert result.validity.valid
    assert result.errors == {"NOT_LEADER_OR_FOLLOWER": 4}
    assert any("4 sends were retried" in warning for warning in result.validity.warnings)
    rewrite(raw.directory, lambda row: row.update(failed_msgs=1) if row["role"] == "worker" else None)
    assert not raw.result().validity.valid


def test_lost_messages_leave_the_trial_valid_but_not_clean(small: SampleTrial) -> None:
    result = small.result(finish=finish_answer(SMALL, 34_000, lost=7))
    assert result.validity.valid, "the system lost them, not the generator"
    assert result.audit.lost == 7
    assert not result.audit.clean


def test_books_are_checked_again_after_the_journey(small: SampleTrial) -> None:
    answer = finish_answer(SMALL, 34_000)
    answer["audit"]["acked"] = 33_999
    result = small.result(finish=answer)
    assert not result.audit.balanced
    assert any("do not balance" in reason for reason in result.validity.reasons)
    answer = finish_answer(SMALL, 34_000)
    answer["audit"]["subscriptions"][0]["received"] += 1
    assert "received 34,001" in (small.result(finish=answer).audit.imbalance or "")


def test_intervals_that_went_missing_invalidate(tmp_path: Path) -> None:
    raw = fresh(tmp_path)
    rows = [row for row in rows_of(raw.directory) if row["interval"] != 9]
    write_table(raw.directory / "intervals.parquet", rows, INTERVAL_COLUMNS)
    reasons = " ".join(raw.result().validity.reasons)
    assert "intervals hold 32,000 sent messages, the books 34,000" in reasons
    assert "publish histograms hold 32,000" in reasons


def test_small_messages_have_no_audit_and_say_so(tmp_path: Path) -> None:
    result = fresh(tmp_path, message_size_bytes=16).result()
    assert result.validity.valid
    assert not result.audit.clean
    assert any("audit is off" in warning for warning in result.validity.warnings)


def test_limits_are_medians_and_shares_name_the_most_used(small: SampleTrial) -> None:
    result = small.result(probes=[probe("before"), probe("after", 0.5), probe("after", 0.9)])
    assert result.limits.disk_write_mb_s == 1350
    assert result.limits.wakeup_us_p99 == 138
    assert result.share_of_limit is not None
    assert result.share_of_limit.name == "cpu"
    assert 0 < result.share_of_limit.value < 1


def test_probes_with_missing_parts_are_tolerated(small: SampleTrial) -> None:
    result = small.result(probes=[{}, {"disk": None, "wakeup_us": {"fifo": None, "normal": {"p99": 610}}}])
    assert result.limits.disk_write_mb_s is None
    assert result.limits.wakeup_us_p99 == 610
    assert [share.name for share in result.shares] == ["cpu", "system_cpu", "worker_cpu"]


def test_an_attached_cluster_is_not_charged_to_this_machine(small: SampleTrial) -> None:
    result = small.result(attached=True)
    assert result.cpu.system_s is None
    assert {share.name for share in result.shares} == {"cpu", "worker_cpu"}


def test_three_brokers_on_two_cores_are_remarked(tmp_path: Path) -> None:
    result = fresh(tmp_path, replace(LOG, nodes=3)).result()
    assert any("cores per broker" in warning for warning in result.validity.warnings)


def test_steal_is_remarked(tmp_path: Path) -> None:
    raw = fresh(tmp_path)
    rows = [
        {
            "interval": second,
            "start_s": float(second),
            "duration_s": 1.0,
            "scope": "host",
            "cpu_s": 1.0,
            "steal_s": 0.1,
        }
        for second in range(17)
    ]
    write_table(raw.directory / "resources.parquet", rows, RESOURCE_COLUMNS)
    assert any("Steal was 5.0 %" in warning for warning in raw.result().validity.warnings)


def test_other_programs_that_use_much_cpu_are_remarked(tmp_path: Path) -> None:
    raw = fresh(tmp_path)
    rows = [
        {"interval": second, "start_s": float(second), "duration_s": 1.0, "scope": "others", "cpu_s": 1.2}
        for second in range(17)
    ]
    write_table(raw.directory / "resources.parquet", rows, RESOURCE_COLUMNS)
    assert any(
        "Other programs" in warning and "60 %" in warning for warning in raw.result().validity.warnings
    )


def test_a_measured_phase_that_works_off_the_warm_up_is_remarked(small: SampleTrial) -> None:
    result = small.result(workload=SMALL.model_copy(update={"rate_msgs_s": 1750.0}))
    assert result.validity.valid
    assert any("114 % of the target rate" in warning for warning in result.validity.warnings)


def test_a_trial_that_ended_before_its_first_interval_still_has_a_result(
    small: SampleTrial, tmp_path: Path
) -> None:
    result = replace(small, directory=tmp_path).result(
        finish=None, status="failed", failure="Kafka did not start."
    )
    assert result.status == "failed"
    assert result.validity.reasons[0] == "Kafka did not start."
    assert result.publish_rate_msgs_s == 0
    assert result.steadiness.label == "too short"


def test_a_stall_shows_in_publish_latency_as_the_schedule_implies(tmp_path: Path) -> None:
    """0.8 s without acknowledgements in 12 s: a message due t seconds before its end waits t."""
    raw = fresh(tmp_path, replace(LOG, stall_at_s=9.0))
    result = raw.result()
    assert result.publish_ms.max is not None
    assert result.publish_ms.max > 750
    from streamgauge.analysis.intervals import Intervals

    histogram = Intervals.read(raw.directory).histogram("publish", "measure")
    for above_ms in (100, 400, 700):
        assert histogram.share_above(above_ms * 1e6) == pytest.approx((0.8 - above_ms / 1000) / 12, rel=0.1)


def test_repeats_form_a_cell_with_the_median_of_valid_trials(small: SampleTrial) -> None:
    good = small.result()
    results = []
    for trial, value in enumerate((1.0, 3.0, 2.0, 99.0), start=1):
        figures = good.publish_ms.model_copy(update={"p99": value})
        result = good.model_copy(update={"trial": trial, "publish_ms": figures})
        if value == 99.0:
            result = result.model_copy(update={"validity": good.validity.model_copy(update={"valid": False})})
        results.append(result)
    results.append(good.model_copy(update={"system_version": "9.9"}))
    found = cells(results)
    assert [len(cell.trials) for cell in found] == [4, 1]
    middle = found[0].middle(lambda result: result.publish_ms.p99)
    assert middle is not None
    assert (middle.median, middle.low, middle.high, middle.trials) == (2.0, 1.0, 3.0, 3)
