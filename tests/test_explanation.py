"""What binds, what coincided with the tail, and runs as tables: on synthetic trials whose truth is known."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_run import SampleTrial, Shape, sample_trial, workload, write_run, write_table
from streamgauge.analysis.bottleneck import bottleneck, fsync_limit, threads, window_limit
from streamgauge.analysis.intervals import Series, Window
from streamgauge.analysis.lateness import lateness
from streamgauge.analysis.tail import stops
from streamgauge.model.result_base import Latency
from streamgauge.model.result_columns import RESOURCE_COLUMNS
from streamgauge.model.result_machine import Limits, Share, Thread
from streamgauge.model.result_reasons import Limit
from streamgauge.report.explain import sentences
from streamgauge.runner.disk_stats import disk_name, read_disk
from streamgauge.runner.thread_stats import busiest, read_threads
from streamgauge.store.query import ask, describe
from streamgauge.vocabulary.errors import InputError


def share(name: str, value: float) -> Share:
    return Share(name=name, value=value, explanation=f"{value} of it")


def judged(at_its_most: bool = True, thread: float = 0.1, **limits: float) -> Any:
    found = [
        Limit.model_validate({"name": name, "share": value, "evidence": "x"})
        for name, value in limits.items()
    ]
    return bottleneck(
        at_its_most=at_its_most,
        shares=[share("cpu", 0.5), share("worker_cpu", 0.9), share("disk_write", 0.3)],
        busiest=[Thread(process="node-1", name="io-1 (7)", core_share=thread)],
        others=[*found, None],
        write_amplification=2.0,
    )


def test_the_nearest_limit_binds_and_the_clients_window_only_when_nothing_else_does() -> None:
    assert judged(fsync=0.92, client_window=1.0).binding == "fsync"
    assert judged(thread=0.97, fsync=0.9).binding == "thread"
    assert "io-1 (7) of node-1" in judged(thread=0.97).explanation
    assert judged(client_window=0.99).binding == "client_window"
    nothing = judged()
    assert (nothing.applies, nothing.binding) == (True, None)
    assert "unexplained" in nothing.explanation
    idle = judged(at_its_most=False, fsync=0.95)
    assert (idle.applies, idle.binding) == (False, None)
    assert "2.00 bytes written per byte published" in next(
        one.evidence for one in idle.limits if one.name == "disk_write"
    )


def test_limits_have_the_figures_as_evidence() -> None:
    rows = [
        {"scope": "host", "duration_s": 1.0, "flushes": 400, "flush_s": 0.8, "start_s": float(second)}
        for second in range(10)
    ]
    found = fsync_limit(rows, Limits(fsync_ms_p50=1.9))
    assert found is not None
    assert found.share == pytest.approx(0.8)
    assert "400 flushes of the disk's cache per second, 2.00 ms each" in found.evidence
    assert "1.90 ms" in found.evidence
    closed = workload(
        rate=None, arrival="closed", in_flight=5, batch_bytes=100_000, topics=1, producers_per_topic=1
    )
    window = window_limit(closed, Latency(mean=10.0), 50.0, 0.0)
    assert window is not None
    assert window.share == pytest.approx(1.0), "50 MB/s for 10 ms are 500 kB, which is 5 x 100 kB"


def test_threads_and_flushes_of_this_machine_are_read() -> None:
    before = read_threads(os.getpid())
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    name, spent_s = busiest(before, read_threads(os.getpid()))[0]
    assert 0.05 <= spent_s <= 2.0
    assert str(os.getpid()) in name
    assert read_threads(2**22 + 1) == {}
    disk = disk_name(Path.cwd())
    # A container may have no disk of its own.
    assert disk is None or read_disk(disk) is None or (read_disk(disk) or 0) is not None
    assert disk_name(Path("/proc")) is None


def test_the_busiest_thread_is_that_of_the_whole_window() -> None:
    rows = [
        {
            "scope": "thread",
            "process": f"node-1/{name}",
            "start_s": 5.0 * look,
            "duration_s": 5.0,
            "cpu_s": cpu_s,
        }
        for look in range(4)
        for name, cpu_s in (("io (1)", 4.5), (f"gc ({look})", 5.0))
    ]
    found = threads(rows)
    assert (found[0].process, found[0].name) == ("node-1", "io (1)")
    assert found[0].core_share == pytest.approx(0.9)
    assert found[1].core_share == pytest.approx(0.25)


def trial_with_stops(directory: Path, every_s: int, at: set[int]) -> SampleTrial:
    """A trial whose tail is heavy every so many seconds, and a JVM log with stops in some of them."""
    asked = workload(seconds=60)
    raw = sample_trial(directory, Shape(slow_every_s=every_s, tail_share=0.002), asked)
    start_ms = 1_790_000_000_000
    logs = directory / "logs" / "node-1"
    logs.mkdir(parents=True)
    lines = []
    for second in sorted(at):
        moment = datetime.fromtimestamp(start_ms / 1e3 + asked.warmup_s + second + 0.5, UTC)
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000"
        lines.append(
            f'[{stamp}][{second}.5s][info][safepoint   ] Safepoint "G1CollectForAllocation", Time since last: 1 ns, '
            f"Reaching safepoint: 1 ns, Cleanup: 1 ns, At safepoint: 1 ns, Leaving: 1 ns, Total: 45000000 ns"
        )
    (logs / "gc.log").write_text("\n".join([*lines, "[damaged", "[x][info] Safepoint"]), encoding="utf-8")
    raw.context.schedule_start_unix_ms = start_ms
    return raw


def test_stops_that_coincide_with_the_tail_are_found_and_others_are_not(tmp_path: Path) -> None:
    raw = trial_with_stops(tmp_path / "a", 7, set())
    plain = raw.result()
    assert plain.tail is not None
    lined_up = _slow_seconds(raw, plain.tail.above_ms)
    (tmp_path / "b").mkdir()
    guilty = trial_with_stops(tmp_path / "b" / "t", 7, lined_up).result()
    assert guilty.tail is not None
    [found, *_] = guilty.tail.coincidences
    assert found.event.startswith("a JVM stood still")
    assert found.lift > 1.5
    assert found.chance <= 0.05
    assert any("JVM stood still" in sentence for sentence in sentences(guilty))
    innocent = trial_with_stops(tmp_path / "c", 7, {3, 4, 22, 23, 41}).result()
    assert innocent.tail is not None
    assert not any(one.event.startswith("a JVM") for one in innocent.tail.coincidences)
    assert any(one.startswith("a JVM") for one in innocent.tail.looked_at)


def _slow_seconds(raw: SampleTrial, above_ms: float) -> set[int]:
    """The seconds of the measured phase with most messages above a latency."""
    from streamgauge.analysis.intervals import Intervals

    histograms = Intervals.read(raw.directory).histograms_by_interval("publish", "measure")
    slow = {number: one.share_above(above_ms * 1e6) * one.count for number, one in histograms.items()}
    worst = sorted(slow, key=lambda number: -slow[number])[:6]
    return {number - int(raw.context.measure_from_s) for number in worst}


def test_steal_explains_a_late_generator_only_where_both_fall_together() -> None:
    def told(send_delay_ms: list[float], steal_s: list[float]) -> str:
        count = len(steal_s)
        lined_up = Series(
            interval=np.arange(count),
            start_s=np.arange(count, dtype=float),
            duration_s=np.ones(count),
            values={"send_delay_ms_p99": np.array(send_delay_ms), "steal_s": np.array(steal_s)},
        )
        return lateness(lined_up, Window(from_s=1.0, until_s=float(count))).explanation

    assert told([0.2, 0.2, 22.0, 0.2, 0.2, 17.0], [0.0, 0.0, 0.11, 0.0, 0.08, 0.01]) == (
        "The host of this machine took CPU time away (steal) in 2 of the 2 intervals in which it was late, and in 2 of all 5."
    )
    assert told([0.2, 0.2, 22.0, 17.0, 18.0], [0.1, 0.0, 0.0, 0.0, 0.0]) == ""
    assert told([0.2, 0.2, 0.3], [0.0, 0.1, float("nan")]) == ""


def test_stops_are_read_from_the_logs_of_all_nodes(tmp_path: Path) -> None:
    raw = trial_with_stops(tmp_path / "a", 0, {2, 5})
    found = stops(raw.directory / "logs", raw.context.schedule_start_unix_ms, 1.0)
    warmup = int(raw.context.measure_from_s)
    assert found == {warmup + 2: 45.0, warmup + 5: 45.0}
    assert stops(tmp_path / "nothing", raw.context.schedule_start_unix_ms, 1.0) is None


def test_flushes_enter_the_figures(tmp_path: Path) -> None:
    raw = sample_trial(tmp_path / "t", Shape(), workload())
    rows = [
        {
            "interval": second, "start_s": float(second), "duration_s": 1.0, "scope": "host", "process": None, "cpu_s": 1.0,
            "steal_s": 0.0, "rss_bytes": 0, "flushes": 100, "flush_s": 0.9, "disk_busy_s": 0.9,
        }
        for second in range(60)
    ]  # fmt: skip
    write_table(tmp_path / "t" / "resources.parquet", rows, RESOURCE_COLUMNS)
    result = raw.result(attached=False)
    assert result.bottleneck is not None
    assert not result.bottleneck.applies
    assert "fsync" in {one.name for one in result.bottleneck.limits}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    write_run(out / "20260921-141320-sample")
    return out


def test_sql_over_all_runs(runs: Path) -> None:
    answer = ask(
        "select system, count(*) as trials, median(publish_ms_p99) from trials where validity_valid group by 1 order by 1",
        runs,
    )
    assert answer.columns[:2] == ["system", "trials"]
    assert all(row[1] >= 1 and row[2] > 0 for row in answer.rows)
    [(trials, named)] = ask(
        "select count(*), count(distinct t.run_id) from trials t join runs using (run_id)", runs
    ).rows
    [(found,)] = ask("select count(distinct trial) from intervals where role = 'worker'", runs).rows
    assert (found, named) == (trials, 1)
    [(cpu_s,)] = ask("select sum(cpu_s) from resources where scope = 'system'", runs).rows
    assert cpu_s > 0
    columns = {(row[0], row[1]) for row in describe(runs).rows}
    assert {("trials", "publish_ms_p99"), ("trials", "search_low_msgs_s"), ("runs", "started")} <= columns
    with pytest.raises(InputError, match="publish_ms_p98"):
        ask("select publish_ms_p98 from trials", runs)
    with pytest.raises(InputError, match="no runs in"):
        ask("select 1", runs / "nothing")


def test_tables_of_before_a_column_are_read_still(runs: Path, tmp_path: Path) -> None:
    from pyarrow import parquet
    from streamgauge import frames

    name = "20260921-141320-sample"
    shutil.copytree(runs / name, tmp_path / name)
    sql = "select count(*), count(lanes_cpu_s) from intervals"
    for file in (tmp_path / name).glob("trials/*/intervals.parquet"):
        parquet.write_table(parquet.read_table(file).drop_columns(["lanes_cpu_s"]), file)
    (found,) = ask(sql, tmp_path).rows
    assert found[0] > 0
    assert found[1] == 0
    assert frames.load(tmp_path / name).intervals["lanes_cpu_s"].isna().all()


def test_runs_as_frames(runs: Path) -> None:
    pytest.importorskip("pandas")
    from streamgauge import frames

    run = frames.load(runs / "20260921-141320-sample")
    assert len(run.trials) == len(run.results) >= 2
    assert float(run.trials["publish_ms_p99"].iloc[0]) == run.results[0].publish_ms.p99
    series = run.series
    assert set(series["trial"]) == set(run.trials["trial"])
    assert float(series["publish_ms_p99"].max()) > 0
    assert len(run.intervals) > len(series)
    assert "scope" in run.resources
    assert run.histogram(1).count == run.results[0].publish_ms.count
    assert np.isclose(
        run.histogram(1).percentile(99.0) or 0, (run.results[0].publish_ms.p99 or 0) * 1e6, rtol=1e-3
    )
    with pytest.raises(InputError, match="no run"):
        frames.load("nothing", runs)
    with pytest.raises(InputError, match="no metric 'x'"):
        run.histogram(1, "x")
