"""The search for the maximum sustainable rate: the verdict on a probe, and which rates are tried."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stored_trials
from streamgauge.analysis.measured import Measured
from streamgauge.analysis.quiet import QuietInterval
from streamgauge.analysis.quiet_check import attraction
from streamgauge.analysis.quiet_measured import Quiet
from streamgauge.analysis.search import Hunt, Seen, judge, slope
from streamgauge.analysis.soak import soaked
from streamgauge.analysis.study_figures import MeasuredTrial, bounds, value
from streamgauge.analysis.usage import cpu_of
from streamgauge.model.document import parse_document
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import resolve_workload
from streamgauge.model.result import TrialResult
from streamgauge.model.result_asked import SearchAsked
from streamgauge.model.result_quiet import QuietTime
from streamgauge.model.result_special import Probe
from streamgauge.report import words
from streamgauge.runner import search as runner_search
from streamgauge.runner.observer import Observer
from streamgauge.runner.search import Bench
from streamgauge.store.directory import TrialDirectory
from streamgauge.vocabulary.histograms import empty, recorded

ASKED = SearchAsked(first_msgs_s=10_000, width_percent=5, probe_s=8)


def seen(
    rate: float,
    limit: float,
    seconds: float = 8.0,
    noise_msgs: float = 0.0,
    seed: int = 1,
    publish_ms_p99: float | None = 2.0,
    send_delay_ms_p99: float | None = 0.2,
    lane: float = 0.2,
    failed: int = 0,
) -> Seen:
    """What a system shows that takes `limit` messages per second."""
    end_s = 2.0 + np.arange(0, seconds + 0.05, 0.1)
    noise = np.random.default_rng(seed).normal(0, 1, len(end_s)) * noise_msgs
    through = min(rate, limit) * end_s
    return Seen(
        rate_msgs_s=rate,
        producers=1,
        end_s=end_s,
        acked_msgs=through,
        received_msgs=through - 50 + noise,
        publish_ms_p99=publish_ms_p99,
        send_delay_ms_p99=send_delay_ms_p99,
        backpressured_share=0.0,
        workers_share=0.1,
        busiest_lane_share=lane,
        failed_msgs=failed,
        errors={},
    )


def hunt(limit: float, generator_limit: float = 1e12, seed: int = 0, noise_s: float = 0.001) -> Hunt:
    found = Hunt(ASKED)
    while (wanted := found.next()) is not None:
        rate, seconds = wanted
        late = 50.0 if rate > generator_limit else 0.2
        probe, _ = judge(
            seen(
                rate,
                min(limit, generator_limit),
                seconds,
                rate * noise_s,
                seed + len(found.probes),
                2.0,
                late,
                lane=0.2 if rate <= generator_limit else 0.6,
            )
        )
        found.add(probe)
    return found


@pytest.mark.parametrize("limit", [11_000, 25_000, 77_777, 1_234_567, 3_000, 700])
def test_the_bracket_holds_the_limit_and_is_narrow(limit: float) -> None:
    right = 0
    for seed in range(0, 1000, 100):
        found = hunt(limit, seed=seed)
        outcome = found.outcome()
        assert outcome.bound == "system"
        assert outcome.low_msgs_s is not None
        assert outcome.high_msgs_s is not None
        assert outcome.width_percent is not None
        assert outcome.width_percent <= 5
        assert len(found.probes) < 40
        right += outcome.low_msgs_s <= limit * 1.001 and outcome.high_msgs_s >= limit
    assert right >= 9


def test_the_lower_edge_was_confirmed_for_twice_the_time() -> None:
    last = hunt(50_000).probes[-1]
    assert last.passed
    assert last.seconds == pytest.approx(16, abs=0.2)
    assert last.rate_msgs_s == hunt(50_000).outcome().low_msgs_s


def test_a_generator_at_its_end_is_never_called_the_systems_maximum() -> None:
    outcome = hunt(limit=1e9, generator_limit=90_000).outcome()
    assert outcome.bound == "generator"
    assert outcome.high_msgs_s is None
    assert outcome.low_msgs_s is not None
    assert 0.95 * 90_000 <= outcome.low_msgs_s <= 90_000
    assert "generator-bound at 9" in outcome.explanation
    # Where the system failed far above, that is told, too, but it is not what bounds.
    found = Hunt(ASKED)
    while (wanted := found.next()) is not None:
        rate, _ = wanted
        tried = probe(rate, passed=rate < 11_000, achieved=0.5)
        is_at_its_end = 11_000 <= rate < 18_000
        found.add(tried.model_copy(update={"by_generator": is_at_its_end, "busiest_lane_share": 0.6}))
    outcome = found.outcome()
    assert outcome.bound == "generator"
    assert outcome.high_msgs_s == 20_000
    assert outcome.low_msgs_s is not None
    assert 10_400 <= outcome.low_msgs_s < 11_000
    never = hunt(limit=1e9, generator_limit=0).outcome()
    assert (never.bound, never.low_msgs_s, never.high_msgs_s) == ("generator", None, None)


def test_a_system_that_sustains_nothing_is_said() -> None:
    outcome = hunt(limit=0.0).outcome()
    assert outcome.bound == "none"
    assert "no rate was sustained" in outcome.explanation


def probe(rate: float, passed: bool, achieved: float = 0.995) -> Probe:
    edges = {"growth_share": 0.0, "growth_share_low": 0.0, "growth_share_high": 0.0, "outstanding_msgs": 0}
    reasons = [] if passed else ["it may grow"]
    return Probe(
        rate_msgs_s=rate, seconds=8, passed=passed, reasons=reasons, achieved_share=achieved, **edges
    )


def test_a_failure_that_may_be_an_accident_is_tried_once_more() -> None:
    found = Hunt(ASKED)
    found.add(probe(10_000, passed=False))
    assert found.next() == (10_000, 8)
    found.add(probe(10_000, passed=True))
    assert found.next() == (20_000, 8)
    found.add(probe(20_000, passed=False, achieved=0.6))
    middle = found.next()
    assert middle is not None
    assert middle[0] == 14_140, "a gross failure is none"


def test_a_generator_that_is_late_where_it_has_coped_was_disturbed_and_gets_more_tries() -> None:
    found = Hunt(ASKED)
    found.add(probe(10_000, passed=True))
    found.add(probe(20_000, passed=False, achieved=0.7))
    late = probe(14_140, passed=False, achieved=0.9).model_copy(
        update={"by_generator": True, "busiest_lane_share": 0.6}
    )
    # It never got further than 14,000 messages per second: this may be its end.
    found.add(late)
    assert found.next() == (14_140, 8)
    found.add(probe(14_140, passed=True))
    higher = late.model_copy(update={"rate_msgs_s": 14_100})
    for _ in range(4):
        found.add(higher)
        assert found.next() == (14_100, 8)
    found.add(higher)
    assert found.next() != (14_100, 8), "there is an end to it"


def test_a_generator_that_is_late_with_little_to_do_was_kept_from_running_and_gets_more_tries() -> None:
    """A machine whose neighbours take its CPUs for a second or two at a time, and that has no account of it."""
    found = Hunt(ASKED)
    found.add(probe(10_000, passed=True))
    late, _ = judge(seen(20_000, 15_000, publish_ms_p99=90.0, send_delay_ms_p99=12.0, lane=0.1))
    assert late.by_generator
    for _ in range(4):
        found.add(late)
        assert found.next() == (20_000, 8)
    found.add(late)
    assert found.next() != (20_000, 8)
    text = found.outcome().explanation
    assert (
        "generator-bound at 20k msg/s: the system may sustain more (the generator was late (p99 of send delay 12 ms"
        in text
    )


def test_a_rate_that_is_held_is_held_although_the_machine_made_messages_leave_late() -> None:
    """Seen with JVMs that had just begun: 100 % of 40,000 msg/s acknowledged, nothing outstanding that grew, and 4 ms of send delay at p99."""
    late = seen(40_000, 1e9, publish_ms_p99=5.2, send_delay_ms_p99=3.6)
    held, _ = judge(replace(late, quiet_publish_ms_p99=2.0, quiet_send_delay_ms_p99=0.1))
    assert held.passed
    # By itself it may be as late as in a trial, and no later.
    by_itself, _ = judge(replace(late, quiet_publish_ms_p99=5.2, quiet_send_delay_ms_p99=3.6))
    assert by_itself.by_generator
    assert "allowed 1.3 ms" in by_itself.reasons[0]
    assert judge(late)[0].by_generator, "where nothing watched, all of it is its own"
    assert judge(seen(40_000, 1e9, publish_ms_p99=20.0, send_delay_ms_p99=3.6))[0].passed
    assert not judge(seen(40_000, 1e9, send_delay_ms_p99=0.2, lane=0.98))[0].passed
    missed, _ = judge(seen(40_000, 1e9, send_delay_ms_p99=3.6, failed=1))
    assert missed.by_generator


@pytest.mark.parametrize(
    ("backpressured", "ack_delay_ms", "by_generator"),
    [
        (0.84, 3.0, False),
        (0.84, 90.0, True),  # it read the answers late: it held itself back
        (0.84, None, True),  # it does not tell
        (0.6, 3.0, True),  # more is missing than the system held back
        (0.0, 3.0, True),
    ],
)
def test_who_is_held_back_leaves_late_for_that(
    backpressured: float, ack_delay_ms: float | None, by_generator: bool
) -> None:
    """Seen with Kafka and Pulsar far beyond what they take: send delays of 6 to 25 % of publish latencies of seconds, by threads that were busy for 17 %."""
    beyond = seen(964_000, 0.22 * 964_000, publish_ms_p99=1600.0, send_delay_ms_p99=116.0, lane=0.17)
    told = replace(beyond, backpressured_share=backpressured, ack_delay_ms_p99=ack_delay_ms)
    probe, _ = judge(told)
    assert not probe.passed
    assert probe.by_generator is by_generator
    little = replace(
        seen(271_600, 0.924 * 271_600, publish_ms_p99=713.0, send_delay_ms_p99=62.0),
        backpressured_share=0.35,
        ack_delay_ms_p99=3.0,
    )
    assert judge(little)[0].by_generator


def test_of_a_probe_in_which_nothing_was_answered_the_system_is_the_limit_only_if_it_held_producers_back() -> (
    None
):
    """A generator that is seconds late has sent nothing of what was due in the measured time: that is not a system that takes nothing."""
    nothing = seen(8_000_000, 0.0, publish_ms_p99=None, send_delay_ms_p99=None)
    late, _ = judge(nothing)
    assert late.by_generator
    assert "the system did not hold it back" in late.reasons[0]
    stopped, _ = judge(replace(nothing, backpressured_share=1.0))
    assert not stopped.passed
    assert not stopped.by_generator


def test_what_holds_for_a_short_time_only_is_searched_anew_with_long_probes() -> None:
    """A cache takes 100,000 messages at any rate, and the disk behind it 30,000 per second."""
    found = Hunt(ASKED, soak_s=20)
    tried: list[tuple[float, float]] = []
    while (wanted := found.next()) is not None:
        rate, seconds = wanted
        tried.append(wanted)
        sustained = max(30_000.0, min(rate, 30_000 + 100_000 / seconds))
        found.add(judge(seen(rate, sustained, seconds))[0])
    outcome = found.outcome()
    assert outcome.low_msgs_s is not None
    assert outcome.high_msgs_s is not None
    # 30,000, and what the cache adds over 20 s.
    assert outcome.low_msgs_s <= 35_000 <= 1.01 * outcome.high_msgs_s
    assert outcome.high_msgs_s <= 1.06 * outcome.low_msgs_s
    first = next(number for number, (_, seconds) in enumerate(tried) if seconds == 20)
    assert all(seconds == 20 for _, seconds in tried[first:]), (
        "once it did not hold, short probes say nothing"
    )


def test_a_search_whose_time_is_over_ends_with_the_bracket_that_it_has() -> None:
    found = Hunt(ASKED.model_copy(update={"within_s": 30.0}))
    found.add(probe(10_000, passed=True))
    assert found.next(31.0) == (20_000, 8), "there is no bracket yet"
    found.add(probe(20_000, passed=False, achieved=0.6))
    assert found.next(29.0) is not None
    assert found.next(31.0) == (10_000, 16), "what is measured afterwards has to hold"
    found.add(probe(10_000, passed=True))
    assert found.next(51.0) is None
    outcome = found.outcome()
    assert (outcome.low_msgs_s, outcome.high_msgs_s, outcome.bound) == (10_000, 20_000, "system")
    assert "when the search's time of 30s was over" in outcome.explanation


def test_a_lower_edge_is_held_for_longer_before_a_search_ends_whose_time_is_over() -> None:
    """What is measured afterwards is measured there: where it does not hold, the trial is lost."""
    asked = ASKED.model_copy(update={"within_s": 30.0, "probe_s": 2.0})
    found, elapsed_s = Hunt(asked, soak_s=6.0), 0.0
    seconds_of: dict[float, float] = {}
    while (wanted := found.next(elapsed_s)) is not None:
        rate, seconds = wanted
        # For two seconds 160k, for six 100k.
        takes = 160_000.0 if seconds < 6 else 100_000.0
        found.add(probe(rate, passed=rate <= takes, achieved=min(takes / rate, 1.0)))
        seconds_of[rate] = max(seconds, seconds_of.get(rate, 0.0))
        elapsed_s += seconds + 4
    low = found.outcome().low_msgs_s
    assert low is not None
    assert 60_000 <= low <= 100_000
    assert seconds_of[low] >= 6
    assert elapsed_s <= 60
    assert "when the search's time of 30s was over" in found.outcome().explanation


def test_a_search_that_never_holds_ends_all_the_same() -> None:
    asked = ASKED.model_copy(update={"within_s": 10.0, "probe_s": 2.0})
    found, elapsed_s = Hunt(asked, soak_s=6.0), 0.0
    while (wanted := found.next(elapsed_s)) is not None:
        rate, seconds = wanted
        found.add(probe(rate, passed=rate <= 160_000.0 and seconds < 6, achieved=0.95))
        elapsed_s += seconds + 4
        assert elapsed_s < 400
    assert found.outcome().low_msgs_s is None


def test_a_lower_edge_that_does_not_hold_is_given_up() -> None:
    found = Hunt(ASKED)
    for rate, passed in ((10_000, True), (10_400, False), (10_400, False)):
        found.add(probe(rate, passed))
    assert found.next() == (10_000, 16)
    found.add(probe(10_000, passed=False))
    found.add(probe(10_000, passed=False))
    again = found.next()
    assert again is not None
    assert again[0] < 10_000


def test_each_sign_of_a_rate_that_is_not_sustained_has_its_sentence() -> None:
    assert judge(seen(1000, 2000))[0].passed
    grown, certain = judge(seen(100_000, 99_500))
    assert certain
    assert not grown.passed
    assert not grown.by_generator
    assert "what is due and not received grows by 0.5 % of the rate" in grown.reasons[0]
    short, _ = judge(seen(100_000, 50_000))
    assert "only 50.0 % of the rate was acknowledged" in short.reasons[0]
    failed, _ = judge(seen(1000, 2000, failed=3))
    assert failed.reasons == ["3 messages failed"]
    slow, _ = judge(seen(1000, 2000, publish_ms_p99=30), publish_ms_p99_max=20)
    assert slow.reasons == ["the publish p99 is 30 ms; at most 20 ms were asked for"]
    busy, _ = judge(seen(1000, 2000, lane=0.99))
    assert busy.by_generator
    noisy, certain = judge(seen(100_000, 200_000, noise_msgs=20_000))
    assert not certain, "noise is no verdict: the probe goes on"
    assert not noisy.passed


def test_the_bounds_of_a_slope_hold_it_as_often_as_they_say() -> None:
    times = np.arange(0.0, 8.0, 0.1)
    above = below = 0
    for seed in range(1000):
        values = 5 * times + np.random.default_rng(seed).normal(0, 3, 80)
        _, low, high = slope(times, values)
        above += low > 5
        below += high < 5
    assert 30 <= above <= 70
    assert 30 <= below <= 70
    assert slope(times[:2], times[:2])[1:] == (-np.inf, np.inf)


def test_a_saw_of_batches_that_beats_with_the_intervals_is_no_backlog() -> None:
    """20 batches of 10 ms in 100 ms less a little: for 2 s what is outstanding seems to grow from nothing to a batch."""
    rate, linger_s = 17_000.0, 0.010
    end_s = 2.0 + np.arange(0, 2.05, 0.1)
    outstanding = rate * linger_s * (0.03 + 0.96 * (end_s - 2.0) / 2.0)
    base = seen(rate, rate, 2.0)
    saw = replace(base, end_s=end_s, acked_msgs=rate * end_s, received_msgs=rate * end_s - outstanding)
    without, _ = judge(saw)
    assert not without.passed
    assert "grows by 0.48 % of the rate" in without.reasons[0]
    found, conclusive = judge(replace(saw, linger_s=linger_s))
    assert found.passed
    assert conclusive
    # Over the length of a soak the same slope would be a backlog.
    assert found.growth_share_max == pytest.approx(1.5 * linger_s / 2.0)
    assert judge(replace(base, linger_s=0.001))[0].growth_share_max == pytest.approx(0.001, rel=0.3)


def test_a_generator_that_was_late_while_the_host_took_the_cpu_is_tried_again() -> None:
    def tries(steal_share: float, disturbed_share: float | None = None) -> int:
        found, count = Hunt(ASKED), 0
        while (wanted := found.next()) is not None and wanted[0] == ASKED.first_msgs_s:
            late = replace(
                seen(wanted[0], 0.98 * wanted[0], send_delay_ms_p99=3.0, lane=0.6),
                steal_share=steal_share,
                disturbed_share=disturbed_share,
            )
            found.add(judge(late)[0])
            count += 1
        return count

    assert tries(0.002) == 2
    assert tries(0.03) == 5
    # Near its limit the load itself makes windows.
    assert tries(0.0, 0.15) == 2


@pytest.mark.parametrize(
    ("achieved", "away_share", "more", "by_machine"),
    [
        (0.90, 0.12, {}, True),
        (0.90, 0.05, {}, False),
        (0.90, None, {}, False),
        # In pieces too short for windows.
        (0.90, 0.12, {"disturbed_share": 0.009}, True),
        (0.983, 0.009, {"disturbed_share": 0.009}, False),
        (0.90, 0.12, {"failed_msgs": 1}, False),
        (0.90, 0.12, {"publish_ms_p99": 80.0, "quiet_publish_ms_p99": 60.0}, False),
        (0.90, 0.12, {"publish_ms_p99": 80.0, "quiet_publish_ms_p99": 3.0}, True),
        (1.00, 0.12, {"publish_ms_p99": 80.0, "quiet_publish_ms_p99": 3.0}, True),
        (1.00, 0.12, {"publish_ms_p99": 80.0}, False),
    ],
)
def test_what_the_machine_may_have_cost_is_not_the_systems_limit(
    achieved: float, away_share: float | None, more: dict[str, float], by_machine: bool
) -> None:
    changes: dict[str, Any] = {"disturbed_share": 0.3, "away_share": away_share, **more}
    shown = replace(seen(10_000, achieved * 10_000), **changes)
    found, _ = judge(shown, publish_ms_p99_max=50.0)
    assert not found.passed
    assert found.by_machine is by_machine
    assert any("which may be why" in reason for reason in found.reasons) is by_machine
    # It is an accident at most, and a generator at its end is that whatever the machine did.
    late, _ = judge(replace(shown, workers_share=0.95), 50.0)
    assert (late.by_generator, late.by_machine) == (True, False)


@pytest.mark.parametrize("away_share", [0.02, 0.1, 0.25])
def test_an_upper_edge_that_the_machine_may_have_made_is_open(away_share: float) -> None:
    limit = 50_000.0
    found = Hunt(ASKED)
    while (wanted := found.next()) is not None:
        # A log that has its limit, and makes up for nothing of what is taken from it.
        shown = seen(wanted[0], (1 - away_share) * limit, wanted[1])
        found.add(judge(replace(shown, disturbed_share=2 * away_share, away_share=away_share))[0])
    outcome = found.outcome()
    assert outcome.bound == "machine"
    assert outcome.low_msgs_s is not None
    assert 0.9 * (1 - away_share) * limit <= outcome.low_msgs_s <= limit
    # What fell short by more than that is the system's, whatever was taken.
    assert outcome.high_msgs_s is None or outcome.high_msgs_s >= 0.99 * limit
    assert "the system may sustain more" in words.search(outcome)
    assert "which may be why" in words.search(outcome)


def test_probes_share_topics_until_one_leaves_messages_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new topic costs at first can be more than a probe measures, and what is left in an old one would be read by the next probe."""
    did: list[str] = []
    is_clean = iter([True, True, False])

    def probe(
        _bench: Bench, rate: float, seconds: float, number: int, _asked: SearchAsked
    ) -> tuple[Probe, bool]:
        did.append(f"probe {number}")
        found, _ = judge(seen(rate, 30_000, seconds), None)
        return found, next(is_clean, True)

    monkeypatch.setattr(runner_search, "_probe", probe)
    monkeypatch.setattr(runner_search, "_touch", lambda _bench, rate, _number: did.append(f"touch {rate:g}"))
    monkeypatch.setattr(runner_search, "REST_S", 0.0)
    bench = Bench(
        client=None,  # type: ignore[arg-type]
        workload=resolve_workload(parse_document("rate: 10k\n", "any"), Path("any.yaml"), Overrides()),
        cores=2,
        make_topics=lambda number: did.append(f"topics {number}"),
        request=lambda _workload, _number: {},
        delete_topics=lambda: did.append("delete"),
        failure=lambda: None,
        ready_within_s=1.0,
    )
    runner_search.search(bench, ASKED, Observer(), lambda _found: None)
    assert did[:5] == ["topics 1", "touch 5000", "probe 1", "probe 2", "probe 3"]
    assert did[5:9] == ["delete", "topics 4", "touch 5000", "probe 4"]
    assert did.count("delete") == 2
    assert did[-1] == "delete"


def test_a_soak_is_judged_by_quiet_time_as_probes_are(tmp_path: Path) -> None:
    """Messages that the machine made leave late said of a rate that it did not hold for longer, though every probe at it had passed."""
    stored_trials.unpack("gauge-log-search", tmp_path)
    context = TrialDirectory(tmp_path).read_context()
    assert context is not None
    measured = Measured.read(context.ended(), tmp_path)
    late = {**measured.latencies, "send_delay": measured.latencies["publish"]}
    measured = replace(measured, latencies=late)
    alone = soaked(measured, cpu_of(measured), None)
    assert alone is not None
    assert alone.soak is not None
    assert alone.soak.by_generator, "where nothing watched, all of it is its own"

    def of(ns: int) -> list[QuietInterval]:
        return [QuietInterval(recorded(np.array([ns]), np.array([1])), empty(), empty(), 0)]

    quiet = Quiet(
        QuietTime(watched=True), attraction([]), {"publish": of(2_000_000), "send_delay": of(100_000)}
    )
    watched = soaked(measured, cpu_of(measured), quiet)
    assert watched is not None
    assert watched.soak is not None
    assert watched.soak.passed, watched.soak.reasons


def test_a_maximum_beyond_the_generators_is_known_by_its_bounds(tmp_path: Path) -> None:
    result = TrialResult.model_validate_json(stored_trials.stored("gauge-log-search"))
    assert result.search is not None
    low = result.search.low_msgs_s
    assert low is not None

    def found(**changed: object) -> tuple[float | None, tuple[float, float] | None]:
        assert result.search is not None
        search = result.search.model_copy(update=changed)
        trial = MeasuredTrial(result.model_copy(update={"search": search}), tmp_path)
        return value(trial, "sustained_msgs_s"), bounds(trial, "sustained_msgs_s")

    assert found(bound="system") == (low, None)
    assert found(bound="generator", high_msgs_s=None) == (None, (low, math.inf))
    assert found(bound="generator", high_msgs_s=4 * low) == (None, (low, 4 * low))
    assert found(bound="generator", low_msgs_s=None) == (None, None)
    assert found(bound="machine", high_msgs_s=4 * low) == (None, (low, 4 * low))


def test_a_backlog_that_was_read_in_less_than_a_second_tells_what_its_best_second_was_at_least(
    tmp_path: Path,
) -> None:
    result = TrialResult.model_validate_json(stored_trials.stored("gauge-log-backlog-extra-reader"))
    assert result.catch_up is not None
    (drain,) = result.catch_up.drains

    def found(**changed: object) -> tuple[float | None, tuple[float, float] | None]:
        drains = [drain.model_copy(update=changed)]
        caught = result.catch_up.model_copy(update={"drains": drains}) if result.catch_up else None
        trial = MeasuredTrial(result.model_copy(update={"catch_up": caught}), tmp_path)
        return value(trial, "catch_up_max_msgs_s"), bounds(trial, "catch_up_max_msgs_s")

    assert found(chase_s=0.4, read_msgs=7_000, max_msgs_s=None) == (None, (7_000.0, math.inf))
    assert found(chase_s=None, max_msgs_s=None) == (None, None)
    assert found(max_msgs_s=9_000.0)[0] == 9_000.0
