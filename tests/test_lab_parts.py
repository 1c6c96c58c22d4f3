"""Parts of the lab by themselves: tables, resources, order of trials, requests to workers, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as parquet
import pytest
from gauge_double import entry
from hdrh.histogram import HdrHistogram
from lab_doubles import DoubleSystem
from pydantic import BaseModel
from streamgauge.fleet.children import start_child, stop_child
from streamgauge.model.overrides import Overrides
from streamgauge.model.resolve import read_workload
from streamgauge.model.result_columns import INTERVAL_COLUMNS, RESOURCE_COLUMNS
from streamgauge.model.system_file import SystemChoice
from streamgauge.model.system_request import SystemRequest
from streamgauge.runner.observer import Observer
from streamgauge.runner.phases import PhaseLog
from streamgauge.runner.plan import order_trials
from streamgauge.runner.request import topic_names, trial_request
from streamgauge.runner.resources import ResourceSampler, Watched
from streamgauge.store.files import LineWriter, read_lines, tail, write_atomically
from streamgauge.store.tables import write_intervals, write_resources
from streamgauge.systems.base import System
from streamgauge.vocabulary.errors import FleetFailure, InputError
from streamgauge.vocabulary.files import rescue_logs
from streamgauge.vocabulary.gauge_binary import find_gauge


def interval(index: int) -> dict[str, Any]:
    return {
        "worker": "worker-0",
        "index": index,
        "start_s": float(index),
        "duration_s": 1.0,
        "sent_msgs": 1000,
        "errors": {"TIMED_OUT": 2},
        "lanes_cpu_s": [0.25, 0.5],
        "subscriptions": [{"name": "s-0", "received_msgs": 900, "backlog_msgs": 100}],
        "latencies": [
            entry("warm-up", "publish", None, 400, 1_000_000),
            entry("measure", "publish", None, 600, 2_000_000),
            {**entry("measure", "send_delay", None, 600, 50_000), "overflow": 1},
            entry("measure", "end_to_end", "s-0", 900, 3_000_000),
        ],
        "a_field_of_a_newer_worker": 1,
    }


def test_intervals_become_rows_by_role_phase_and_subscription(tmp_path: Path) -> None:
    lines = tmp_path / "intervals.jsonl"
    writer = LineWriter(lines)
    for index in range(3):
        writer.write(interval(index))
    writer.close()
    with lines.open("a", encoding="utf-8") as sink:
        sink.write('{"torn": ')
    assert write_intervals(lines, tmp_path / "intervals.parquet") == 3 * 5
    rows = parquet.read_table(tmp_path / "intervals.parquet").to_pylist()
    assert list(rows[0]) == list(INTERVAL_COLUMNS)
    first = [row for row in rows if row["interval"] == 0]
    kinds = [(row["role"], row["phase"], row["subscription"]) for row in first]
    assert kinds == [
        ("worker", None, None),
        ("consumer", None, "s-0"),
        ("producer", "warm-up", None),
        ("producer", "measure", None),
        ("consumer", "measure", "s-0"),
    ]
    worker, counters, _, measured, received = first
    assert (worker["sent_msgs"], json.loads(worker["errors"])) == (1000, {"TIMED_OUT": 2})
    assert json.loads(worker["lanes_cpu_s"]) == [0.25, 0.5]
    assert counters["lanes_cpu_s"] is None
    assert (counters["received_msgs"], counters["backlog_msgs"]) == (900, 100)
    assert (measured["overflow"], measured["min_ns"], measured["max_ns"]) == (1, 2_000_000, 6_000_000)
    assert measured["end_to_end"] is None
    assert received["publish"] is None
    assert measured["publish"][:4] == bytes.fromhex("1c849314"), "HdrHistogram V2 deflate, raw bytes"


def test_histograms_survive_the_way_to_parquet(tmp_path: Path) -> None:
    import base64

    write_atomically(tmp_path / "i.jsonl", json.dumps(interval(0)) + "\n")
    write_intervals(tmp_path / "i.jsonl", tmp_path / "i.parquet")
    rows = parquet.read_table(tmp_path / "i.parquet").to_pylist()
    found = HdrHistogram.decode(base64.b64encode(rows[3]["publish"]))
    assert found.get_total_count() == 600


def test_a_trial_without_intervals_gives_empty_tables(tmp_path: Path) -> None:
    assert write_intervals(tmp_path / "none.jsonl", tmp_path / "i.parquet") == 0
    assert write_resources(tmp_path / "none.jsonl", tmp_path / "r.parquet") == 0
    assert parquet.read_table(tmp_path / "r.parquet").column_names == list(RESOURCE_COLUMNS)


def test_cpu_is_charged_to_whoever_used_it() -> None:
    code = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    busy = subprocess.Popen([sys.executable, "-c", code])
    rows: list[dict[str, Any]] = []
    try:
        sampler = ResourceSampler(
            time.monotonic(),
            0.5,
            [Watched("system", "busy", busy.pid), Watched("worker", "w", os.getpid())],
            rows.extend,
        )
        sampler.start()
        time.sleep(2.2)
        # On a crowded machine it takes a while to be busy for a second.
        process, deadline_s = psutil.Process(busy.pid), time.monotonic() + 15
        while process.cpu_times().user < 1.0 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        sampler.stop()
    finally:
        busy.kill()
        busy.wait()
    intervals = sorted({row["interval"] for row in rows})
    assert intervals == list(range(intervals[0], intervals[0] + len(intervals)))
    assert len(intervals) >= 3
    # Threads come too where the system was busy for long enough, as on a crowded machine.
    scopes = {row["scope"] for row in rows} - {"thread"}
    assert scopes == {"system", "worker", "lab", "others", "host"}
    assert all(set(row) <= set(RESOURCE_COLUMNS) for row in rows)
    whole = [row for row in rows if row["interval"] in intervals[:-1]]
    spent = {
        scope: sum(row["cpu_s"] for row in whole if row["scope"] == scope)
        for scope in ("system", "host", "others")
    }
    assert spent["system"] > 0.1, "a busy process is seen, on a crowded machine too"
    assert spent["host"] >= spent["others"]
    assert all(row["rss_bytes"] > 1_000_000 for row in whole if row["scope"] == "system")


def test_a_process_that_ends_is_no_longer_charged() -> None:
    short = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.7)"])
    rows: list[dict[str, Any]] = []
    sampler = ResourceSampler(time.monotonic(), 0.5, [Watched("system", "short", short.pid)], rows.extend)
    sampler.start()
    time.sleep(1.2)
    short.wait()
    time.sleep(1.2)
    sampler.stop()
    last = max(row["interval"] for row in rows)
    assert not [row for row in rows if row["interval"] == last and row["scope"] == "system"]
    assert [row for row in rows if row["interval"] == last and row["scope"] == "host"]


def choices(*names: str) -> list[SystemChoice[System]]:
    return [SystemChoice(name, DoubleSystem(), SystemRequest()) for name in names]


def test_one_round_goes_in_the_order_given_and_several_are_shuffled_by_the_seed() -> None:
    workloads = [read_workload("1-topic-1-partition-1kb"), read_workload("1-topic-1-partition-100b")]
    single = order_trials(choices("a", "b", "c"), workloads, 1, 5)
    assert [trial.choice.name for trial in single] == ["a", "b", "c", "a", "b", "c"]
    assert len({trial.seed for trial in single[:3]}) == 1, "all systems meet the same arrivals"
    assert single[0].seed != single[3].seed
    once, again = (order_trials(choices("a", "b", "c"), workloads, 4, 5) for _ in range(2))
    cells = [(trial.choice.name, trial.workload.name) for trial in once]
    assert cells == [(trial.choice.name, trial.workload.name) for trial in again]
    assert cells != [
        (trial.choice.name, trial.workload.name)
        for trial in order_trials(choices("a", "b", "c"), workloads, 4, 6)
    ]
    for round_ in range(4):
        assert len(set(cells[round_ * 6 : round_ * 6 + 6])) == 6, "every cell once per round"
    assert [trial.number for trial in once] == list(range(1, 25))


def test_what_a_worker_is_asked_follows_from_the_workload(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        "topics: 2\npartitionsPerTopic: 3\nproducersPerTopic: 2\nconsumerPerSubscription: "
        "4\nsubscriptionsPerTopic: 2\n"
        "keys: keyed\nkey_count: 7\nrate: 1k\narrival: burst\nburst: 10\nramp: {to: 2k, over: 3s}\nlanes: "
        "{producer: 2}\n",
        encoding="utf-8",
    )
    workload = read_workload(str(path), Overrides.of(duration="5s", warmup="2s"))
    names = topic_names(workload, "20260101-000000-x y", 3)
    assert len(set(names)) == 2
    assert all(name.replace("-", "").isalnum() for name in names)
    request = trial_request(
        workload, names, system={"protocol": "p"}, acks="all", run_id="r", trial=3, seed=9
    )
    assert [producer["id"] for producer in request["producers"]] == [0, 1, 2, 3]
    assert [producer["topic"] for producer in request["producers"]] == [
        names[0],
        names[0],
        names[1],
        names[1],
    ]
    assert request["producers"][0]["key_count"] == 7
    assert [(one["name"], one["consumers"]) for one in request["subscriptions"]] == [("s-0", 4), ("s-1", 4)]
    assert request["schedule"] == {
        "arrival": "burst",
        "stop_s": 7.0,
        "rate_msgs_s": 1000.0,
        "burst_msgs": 10,
        "ramp": {"to_msgs_s": 2000.0, "over_s": 3.0},
    }
    assert request["phases"] == [{"name": "warm-up", "from_s": 0.0}, {"name": "measure", "from_s": 2.0}]
    assert request["lanes"] == {"producer": 2}
    assert 0 <= request["run"] < 2**32
    json.dumps(request)


def test_topic_names_differ_between_runs_and_trials_and_are_bounded() -> None:
    workload = read_workload("1-topic-1-partition-1kb")
    long = "x" * 300
    [one], [other] = topic_names(workload, long + "a", 1), topic_names(workload, long + "b", 1)
    assert one != other
    assert len(one) < 200
    assert topic_names(workload, "r", 1) != topic_names(workload, "r", 2)
    # Pulsar refuses names with "-partition-", also where a name that was cut ends so.
    for run in ("kafka-1-topic-1-partition-1kb", "x" * 50 + "-partition"):
        assert "-partition-" not in topic_names(workload, run, 1)[0]


def test_phases_lie_on_the_axis_of_the_schedule() -> None:
    kept: list[tuple[str, Any]] = []
    log = PhaseLog(Observer(), lambda kind, facts: kept.append((kind, facts)))
    assert log.phases() == []
    log.begin("provision")
    time.sleep(0.05)
    log.begin("measure")
    log.start_s = time.monotonic()
    log.set_bounds("measure", 0.0, 5.0)
    log.end()
    provision, measure = log.phases()
    assert provision.from_s < 0
    assert provision.wall_s is not None
    assert provision.wall_s >= 0.05
    assert (measure.from_s, measure.until_s) == (0.0, 5.0)
    assert [facts["name"] for _, facts in kept] == ["provision", "measure"]


class Line(BaseModel):
    a: int


def test_lines_that_are_torn_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a":1}\n{"a":2}\n{"a":3', encoding="utf-8")
    assert [line.a for line in read_lines(path, Line)] == [1, 2]
    assert list(read_lines(tmp_path / "none", Line)) == []
    path.write_text('{"a":1}\n{"a":"x"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.jsonl:2: is no line of this version of streamgauge: a: "):
        list(read_lines(path, Line))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_atomically(path, "old")
    write_atomically(path, "new")
    assert path.read_text("utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = start_child([sys.executable, "-c", code], tmp_path / "log")
    while "up" not in (tmp_path / "log").read_text("utf-8"):
        time.sleep(0.02)
    stop_child(child, 0.3)
    assert child.returncode == -9
    stop_child(child, 0.3)


def test_a_missing_gauge_is_said_with_the_places_that_were_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GAUGE", str(tmp_path / "nowhere"))
    with pytest.raises(FleetFailure, match=r"GAUGE=.*nowhere: no such program"):
        find_gauge()


def test_logs_for_people_are_told_from_logs_of_messages(tmp_path: Path) -> None:
    source = tmp_path / "node-1"
    (source / "data" / "t-0").mkdir(parents=True)
    (source / "data" / "t-0" / "00000000000000000000.log").write_bytes(b"text enough")
    (source / "data" / "t-0" / "snapshot.log").write_bytes(b"a\0b")
    (source / "server.log").write_text("one\ntwo\nthree\n", encoding="utf-8")
    rescue_logs(tmp_path, tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["node-1-server.log"]
    assert tail(source / "server.log", 2) == ["two", "three"]
