"""What systems tell of themselves: how it is picked, read from strangers, kept beside the intervals, and lined up with them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_answers import Answers, answering
from streamgauge.analysis.intervals import Series
from streamgauge.analysis.own_metrics import figures, read_metrics, series, together
from streamgauge.model.own_metric import OwnMetric
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.runner import own_metrics
from streamgauge.runner.own_metrics import OwnMetricSampler, Pace
from streamgauge.store.directory import TrialDirectory
from streamgauge.store.tables import seal
from streamgauge.systems.base.own_metrics import MetricSource, NotRead, TooMuch
from streamgauge.systems.gauge_log.metrics import METRICS as LOG
from streamgauge.systems.kafka.jmx import METRICS as KAFKA
from streamgauge.systems.nats.metrics import METRICS as NATS
from streamgauge.systems.nats.metrics import raft_lag
from streamgauge.systems.pulsar.metrics import METRICS as PULSAR
from streamgauge.systems.rabbitmq.metrics import METRICS as RABBITMQ
from streamgauge.systems.registry import systems
from streamgauge.systems.support import endpoint
from streamgauge.vocabulary.errors import InputError


@pytest.fixture
def served() -> Iterator[tuple[str, Answers]]:
    """A server and what it answers by path: bytes, a status, or a function that is given the connection."""
    answers: Answers = {}
    with answering(answers) as address:
        yield f"http://{address}", answers


def test_wanted_metrics_are_picked_whatever_else_is_there() -> None:
    text = b"""# HELP jvm_gc_collection_seconds Time
jvm_gc_collection_seconds_sum{gc="G1 Old Generation"} 0.5
jvm_gc_collection_seconds_sum{gc="G1 Young {Generation}, \\"x\\""} 0.25 1395066363000
jvm_gc_collection_seconds_sum_total 77
kafka_network_RequestMetrics_Mean{name="LocalTimeMs",request="Produce",} 2.5
kafka_network_RequestMetrics_Count{name="LocalTimeMs",request="Produce",} 10.0
kafka_network_RequestMetrics_Count{name="LocalTimeMs",request="Fetch",} 99
kafka_network_RequestMetrics_Mean{name="RemoteTimeMs",request="Produce",} NaN
kafka_network_RequestChannel_Value{name="RequestQueueSize",} 3
kafka_network_RequestChannel_Value{name="ResponseQueueSize",} 4
kafka_server_ReplicaManager_Value{name="UnderReplicatedPartitions"} not-a-number
"""
    assert KAFKA.select(text) == {
        "gc_ms": 750.0,
        "produce_local_ms": 25.0,
        "produce_local_ms_count": 10.0,
        "request_queue": 3.0,
    }
    assert RABBITMQ.select(
        b"rabbitmq_raft_log_commit_index 12\nrabbitmq_raft_log_last_applied_index 5\n"
    ) == {"raft_unapplied": 7.0}
    assert PULSAR.select(
        b'bookie_journal_JOURNAL_SYNC_sum{success="true"} 10.0\nbookie_journal_JOURNAL_SYNC_sum{success="false"} 2.0\n'
    ) == {"journal_sync_ms": 12.0}
    assert LOG.select(b"gauge_log_commit_seconds_total 1.5\n# EOF\n") == {"commit_time": 1500.0}
    assert LOG.select(b"\xff\x00{{{") == {}


def test_every_declared_metric_has_a_name_of_its_own_and_says_what_it_explains() -> None:
    for system in systems().values():
        assert system.own_metrics is not None, system.name
        told = system.own_metrics.told
        names = {metric.name for metric in told}
        assert len(names) == len(told), system.name
        assert sum(metric.role != "count" for metric in told) <= 15, system.name
        assert {metric.per for metric in told if metric.per is not None} <= names
        assert all(metric.unit and metric.title and metric.explains for metric in told)


def test_nats_is_read_from_its_monitoring_port(served: tuple[str, Answers]) -> None:
    url, answers = served
    varz = {
        "mem": 5e6,
        "cpu": 12,
        "slow_consumers": True,
        "disk_io_wait_stats": {"waits": 3, "wait_time": 2_000_000},
        "jetstream": {"stats": {"ha_assets": 2}},
    }
    lags = [{"lag": 7}, {"current": True, "lag": 9}, {"lag": "x"}, "odd"]
    jsz = {"account_details": [{"stream_detail": [{"cluster": {"replicas": lags}}, {"cluster": 3}]}]}
    answers["/varz"] = json.dumps(varz).encode()
    answers["/jsz?streams=true&raft=true"] = json.dumps(jsz).encode()
    source = NATS.source("node-1", url)
    expected = {
        "disk_io_waits": 3.0,
        "disk_io_wait_ms": 2.0,
        "memory_mb": 5.0,
        "cpu_percent": 12.0,
        "raft_lag_msgs": 7.0,
    }
    assert source.read() == expected
    assert source.read() == expected, "the connection is used again"
    assert raft_lag({}) is None
    for odd in (b"[1]", b"{", b"[" * 100_000):
        answers["/varz"] = odd
        with pytest.raises(NotRead):
            source.read()


def test_strangers_cost_a_gap_and_no_more(
    served: tuple[str, Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, answers = served
    monkeypatch.setattr(endpoint, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(endpoint, "ANSWER_BYTES_MAX", 1000)
    asked = endpoint.Endpoint(f"{url}/metrics")

    def drips(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(40):
            try:
                handler.wfile.write(b"x")
            except OSError:
                return
            time.sleep(0.03)

    for answer, reason in ((b"x" * 2000, "more than"), (302, "302"), (500, "500"), (drips, "in time")):
        answers["/metrics"] = answer
        began_s = time.monotonic()
        with pytest.raises(NotRead, match=reason):
            asked.get()
        assert time.monotonic() - began_s < 2.0, (
            "far above the 0.2 s, and far below the 1.2 s that it drips beside a busy machine"
        )
    answers["/metrics"] = b"fine"
    assert asked.get() == b"fine"
    with pytest.raises(NotRead):
        endpoint.Endpoint("http://127.0.0.1:1/metrics").get()


METRICS = (
    OwnMetric(name="sync_ms", title="syncs", unit="ms", kind="counter", explains="x"),
    OwnMetric(name="queue", title="queue", unit="entries", kind="gauge", explains="x", together="max"),
)


def test_values_are_kept_beside_the_intervals_and_what_is_missed_is_a_gap(tmp_path: Path) -> None:
    trial = TrialDirectory(tmp_path)
    asked: list[float] = []

    def read() -> Mapping[str, float]:
        asked.append(time.monotonic())
        if len(asked) == 3:
            raise NotRead("no answer in time")
        return {"sync_ms": 10.0 * len(asked), "queue": 1e300}

    def refused() -> Mapping[str, float]:
        raise NotRead("connection refused")

    start_s = time.monotonic() + 0.02
    sources = [MetricSource("a", "http://a", read), MetricSource("b", "http://b", refused)]
    sampler = OwnMetricSampler(start_s, 0.05, sources, trial.append_metrics)
    sampler.start()
    while len(asked) < 5:
        time.sleep(0.01)
    sampler.stop()
    sampler.stop()
    seal(trial)
    rows = read_metrics(tmp_path)
    assert {row["source"] for row in rows} == {"a"}
    assert {row["metric"] for row in rows} == {"sync_ms"}, "what no table can hold is left out"
    assert not (tmp_path / "metrics.jsonl").exists()
    first, second = sampler.gaps()
    assert first.startswith("the metrics of a have a gap at 1 of ")
    assert "b have a gap" in second


def asked_at(
    monkeypatch: pytest.MonkeyPatch, took_s: float, measured_from_s: float | None, told: float | None = None
) -> tuple[list[float], OwnMetricSampler, list[Any]]:
    """When a process is asked, in intervals of half a second of a load of 8. `told`: when the sampler is told that 4 is the first measured."""
    interval_s = 0.5
    # So long that no busy machine makes an answer of none dear.
    monkeypatch.setattr(own_metrics, "ANSWERING_SHARE_MAX", 0.1)
    asked: list[float] = []
    kept: list[Any] = []
    start_s = time.monotonic() + 0.3

    def read() -> Mapping[str, float]:
        asked.append((time.monotonic() - start_s) / interval_s)
        time.sleep(took_s)
        return {"sync_ms": float(len(asked))}

    sampler = OwnMetricSampler(
        start_s,
        interval_s,
        [MetricSource("a", "http://a", read)],
        kept.append,
        measured_from_s=measured_from_s,
    )
    sampler.start()
    if told is not None:
        time.sleep(max(0.0, start_s + told * interval_s - time.monotonic()))
        sampler.measuring_from(4 * interval_s)
    time.sleep(max(0.0, start_s + 8.5 * interval_s - time.monotonic()))
    sampler.stop()
    return asked, sampler, kept


@pytest.mark.parametrize(("measured_from_s", "told"), [(2.0, None), (None, 3.3)], ids=["fixed", "found"])
def test_who_takes_long_to_answer_is_not_asked_while_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, measured_from_s: float | None, told: float | None
) -> None:
    """Two answers of Pulsar's broker in 18 s made their p99.9 three times as high."""
    asked, sampler, kept = asked_at(monkeypatch, 0.07, measured_from_s, told)
    assert len(asked) == 4, asked
    assert asked[1] < 2.0, "twice before the load"
    # A busy machine may make it late.
    assert 3.0 <= asked[2] < 5.0, "once before what is measured"
    assert asked[3] > 8.0, "and when it is over"
    assert kept[0]["at_s"] < 0.0, "from where counters grow"
    assert [one["interval"] for one in kept] == [0, 2 if told is None else int(asked[2]), int(asked[3]) - 1]
    [said] = sampler.spared()
    assert said.startswith("a was asked at 4 of "), said


def test_who_answers_at_once_is_asked_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, sampler, _ = asked_at(monkeypatch, 0.0, 2.0)
    assert len(asked) >= 8
    assert not sampler.spared()


def test_the_first_answers_of_a_process_cost_more_and_are_not_held_against_it() -> None:
    """As a broker in Java answers: its classes are loaded by the first."""
    pace = Pace(1.0)
    for took_s, is_dear in (
        (0.483, False),
        (0.001, False),
        (0.098, False),
        (0.03, True),
        (0.03, True),
        (0.001, False),
    ):
        pace.answered(took_s)
        assert pace.is_dear == is_dear


def test_who_stands_still_is_asked_again_soon_and_who_works_for_nothing_is_not() -> None:
    pace = Pace(1.0)
    stalled = [pace.failed(0.8, will_again=False) for _ in range(9)]
    assert stalled == [0, 1, 3, 7, 15, 31, 63, 64, 64]
    pace.answered(0.01)
    assert pace.failed(0.8, will_again=False) == 0, "what has answered since begins anew"
    assert [pace.failed(0.0005, will_again=False) for _ in range(9)] == [0] * 9, "a refusal costs nothing"
    assert pace.failed(0.3, will_again=True) == 149
    whatever_it_costs = Pace(1.0, share_max=1.0)
    for _ in range(9):
        whatever_it_costs.answered(0.7)
    assert not whatever_it_costs.is_dear
    assert whatever_it_costs.failed(0.7, will_again=True) == 0


def test_answers_that_are_too_long_are_hardly_asked_for(tmp_path: Path) -> None:
    asked: list[float] = []

    def read() -> Mapping[str, float]:
        asked.append(time.monotonic())
        time.sleep(0.03)
        raise TooMuch("an answer of more than 8,000,000 bytes")

    sampler = OwnMetricSampler(
        time.monotonic(), 0.05, [MetricSource("a", "http://a", read)], TrialDirectory(tmp_path).append_metrics
    )
    sampler.start()
    time.sleep(1.2)
    sampler.stop()
    assert len(asked) == 2, "at the beginning, and at the end, when what is measured is over"
    assert sampler.gaps() == [
        "the metrics of a have a gap at 2 of 2 moments: an answer of more than 8,000,000 bytes"
    ]
    [said] = sampler.spared()
    assert said.startswith("a was asked at 2 of 2")
    took_ms = float(said.partition("an answer takes ")[2].partition(" ms")[0])
    assert took_ms >= 30, "as long as it sleeps, and what a busy machine adds"
    assert not sampler.costs()


@pytest.mark.parametrize("took_s", [0.02, 0.07], ids=["a part of it", "longer than one"])
def test_who_wants_every_second_is_told_what_it_cost(tmp_path: Path, took_s: float) -> None:
    asked: list[float] = []

    def read() -> Mapping[str, float]:
        asked.append(time.monotonic())
        time.sleep(took_s)
        return {"queue": 1.0}

    sampler = OwnMetricSampler(
        time.monotonic(),
        0.05,
        [MetricSource("a", "http://a", read)],
        TrialDirectory(tmp_path).append_metrics,
        every_interval=True,
    )
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    assert len(asked) > 3
    assert not sampler.spared()
    [said] = sampler.costs()
    assert "a worked on its metrics for " in said
    assert "because every second was asked for" in said


def test_means_are_known_between_readings_that_lie_apart() -> None:
    def row(interval: int, at_s: float, sync_ms: float, queue: float) -> list[dict[str, Any]]:
        values = {"sync_ms": sync_ms, "queue": queue}
        return [
            {"metric": name, "source": "a", "interval": interval, "at_s": at_s, "value": value}
            for name, value in values.items()
        ]

    lined_up = Series(np.arange(10), np.arange(10.0), np.ones(10), {})
    rows = [*row(0, 1.0, 100.0, 4.0), *row(1, 2.0, 120.0, 4.0), *row(8, 9.0, 260.0, 8.0)]
    sync, queue = series(rows, METRICS, lined_up)
    np.testing.assert_array_equal(sync.values, [np.nan, 20.0, *[np.nan] * 8])
    np.testing.assert_array_equal(sync.level, [np.nan, *[20.0] * 8, np.nan])
    np.testing.assert_array_equal(queue.values, [4.0, 4.0, *[np.nan] * 6, 8.0, np.nan])
    np.testing.assert_array_equal(queue.level, [4.0, 4.0, *[6.0] * 6, 8.0, np.nan])
    told = {one.name: one for one in figures([sync, queue], np.arange(10) >= 3)}
    assert (told["sync_ms"].mean, told["sync_ms"].max) == (20.0, None)
    assert told["queue"].mean == pytest.approx((5 * 6.0 + 8.0) / 6)


def test_counters_become_rates_where_two_readings_follow_each_other() -> None:
    def row(interval: int, source: str, metric: str, value: float) -> dict[str, Any]:
        return {
            "interval": interval,
            "at_s": interval + 1.0,
            "source": source,
            "metric": metric,
            "value": value,
        }

    counted = zip(range(8), [0, 10, None, 40, 50, 5, 15, 15], strict=True)
    rows = [row(at, "a", "sync_ms", value) for at, value in counted if value is not None]
    rows += [row(at, source, "queue", float(at)) for at in range(4) for source in ("a", "b")]
    rows.append(row(3, "a", "undeclared", 1.0))
    axis = np.arange(8)
    lined_up = Series(axis, axis.astype(float), np.ones(8), {})
    found = series(rows, METRICS, lined_up)
    assert [(one.metric.name, one.source) for one in found] == [
        ("sync_ms", "a"),
        ("queue", "a"),
        ("queue", "b"),
    ]
    nan = np.nan
    np.testing.assert_array_equal(found[0].values, [nan, 10, nan, nan, 10, nan, 10, 0])
    np.testing.assert_array_equal(together(found[1:]), [0, 1, 2, 3, nan, nan, nan, nan])
    told = figures(found, np.ones(8, dtype=np.bool_))
    assert [(one.name, one.sources, one.mean, one.max) for one in told] == [
        ("sync_ms", ["a"], 10.0, 10.0),
        ("queue", ["a", "b"], 1.5, 3.0),
    ]
    assert told[0].shown_unit == "ms/s"


def test_time_is_told_per_operation_where_operations_are_counted() -> None:
    time_of = METRICS[0].model_copy(update={"per": "syncs"})
    count = OwnMetric(name="syncs", title="x", unit="ops", kind="counter", explains="x", role="count")
    values = {"sync_ms": [0.0, 60.0, 60.0, 90.0], "syncs": [0.0, 3.0, 3.0, 4.0]}
    rows = [
        {"interval": at, "at_s": at + 1.0, "source": "a", "metric": name, "value": value}
        for name, told in values.items()
        for at, value in enumerate(told)
    ]
    axis = np.arange(4)
    [found] = series(rows, (time_of, count), Series(axis, axis.astype(float), np.ones(4), {}))
    np.testing.assert_array_equal(found.values, [np.nan, 20, np.nan, 30])
    assert found.metric.shown_unit == "ms"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[ftp://a/metrics]", "is no URL"),
        ("['http://user:secret@a/metrics']", "holds credentials"),
        ("[http://a:99999/]", "is no URL"),
        ("3", "expected at most 64 URLs"),
        ("['http://']", "is no URL"),
    ],
)
def test_where_metrics_are_is_checked_at_its_line(tmp_path: Path, value: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"system: nats\nconnect: 127.0.0.1:4222\nmetrics: {value}\n")
    with pytest.raises(InputError, match=message) as error:
        choose_systems(str(path), SystemOverrides(), systems())
    assert "secret" not in str(error.value)
    assert "mine.yaml" in str(error.value)


def test_metrics_of_a_cluster_that_runs_are_read_where_the_file_or_the_option_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("system: nats\nconnect: 127.0.0.1:4222\nmetrics: [http://127.0.0.1:8222]\n")
    [choice] = choose_systems(str(path), SystemOverrides(), systems())
    [source] = choice.system.attach(choice.request).metric_sources()
    assert source.name == "127.0.0.1:8222"
    given = SystemOverrides(metrics=("http://b:1/x", "http://c:2/x"))
    [choice] = choose_systems(str(path), given, systems())
    assert [one.name for one in choice.system.attach(choice.request).metric_sources()] == ["b:1", "c:2"]
    path.write_text("system: nats\nmetrics: false\n")
    [choice] = choose_systems(str(path), SystemOverrides(), systems())
    assert not choice.request.has_metrics
    with pytest.raises(InputError, match="already runs"):
        choose_systems("nats", given, systems())


def test_every_second_is_read_where_the_file_or_the_option_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"

    def asked(metrics: str, *given: str) -> tuple[bool, bool, tuple[str, ...]]:
        path.write_text(f"system: nats\nconnect: 127.0.0.1:4222\nmetrics: {metrics}\n")
        [choice] = choose_systems(str(path), SystemOverrides(metrics=given), systems())
        request = choice.request
        return request.has_metrics, request.metrics_every_second, request.metrics

    url = "http://127.0.0.1:8222"
    assert asked("true") == (True, False, ())
    assert asked(f"[every-second, '{url}']") == (True, True, (url,))
    assert asked(f"['{url}']", "every-second") == (True, True, (url,))
    with pytest.raises(InputError, match="needs the URLs at which its processes tell them"):
        asked("every-second")
    with pytest.raises(InputError, match="needs the URLs at which its processes tell them"):
        asked("true", "every-second")
    path.write_text("system: nats\nmetrics: false\n")
    [choice] = choose_systems(str(path), SystemOverrides(metrics=("every-second",)), systems())
    assert (choice.request.has_metrics, choice.request.metrics_every_second) == (True, True)
    [choice] = choose_systems("kafka", SystemOverrides(metrics=("every-second",)), systems())
    assert choice.request.metrics_every_second
    assert not choose_systems("kafka", SystemOverrides(), systems())[0].request.metrics_every_second
