"""Quiet time on its way from the worker's lines to Parquet, and runs that were stored before there was any."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hdrh.histogram import HdrHistogram
from pyarrow import parquet
from pydantic import ValidationError
from streamgauge.analysis.intervals import Intervals, Window
from streamgauge.analysis.quiet_measured import Quiet, quiet_time
from streamgauge.model.messages import WINDOWS_MAX, Disturbance, ProbesStatus
from streamgauge.model.result_columns import INTERVAL_COLUMNS
from streamgauge.model.result_quiet import Begin
from streamgauge.store.files import write_atomically
from streamgauge.store.parquet import read_rows
from streamgauge.store.tables import write_intervals
from streamgauge.vocabulary.histograms import HistogramError

WINDOW = {
    "cpu": 1, "from_s": 0.1, "to_s": 0.11, "late_s": 0.009, "recovered_s": 0.12, "cause": "host",
    "steal_s": 0.01, "waited_s": 0.0, "softirq_s": 0.0,
}  # fmt: skip
ATTRACTION = {
    "quiet_samples": 9, "quiet_older": [1, 0, 0, 0], "begins": 1, "begins_older": [0, 0, 0, 0], "begins_older_s": [0.0, 0.0, 0.0, 0.0],
}  # fmt: skip


def encoded(*values_ns: int) -> str:
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values_ns:
        histogram.record_value(value)
    return str(histogram.encode().decode())


def part(*values_ns: int) -> dict[str, Any]:
    return {"count": len(values_ns), "histogram": encoded(*values_ns) if values_ns else ""}


def interval(**told: Any) -> dict[str, Any]:
    publish = {
        "phase": "measure",
        "metric": "publish",
        "count": 4,
        "min_ns": 5,
        "max_ns": 9,
        "histogram": encoded(5, 6, 7, 9),
    }
    return {
        "index": 0,
        "start_s": 0.0,
        "duration_s": 1.0,
        "subscriptions": [{"name": "s-0"}, {"name": "s-1"}],
        "latencies": [{**publish, "quiet": part(5, 6), "censored": part(3), "left_out": 1}],
        **told,
    }


def stored(directory: Path, line: dict[str, Any]) -> list[dict[str, Any]]:
    write_atomically(directory / "i.jsonl", json.dumps(line) + "\n")
    write_intervals(directory / "i.jsonl", directory / "intervals.parquet")
    return read_rows(directory / "intervals.parquet", INTERVAL_COLUMNS)


def count(histogram: bytes) -> int:
    return int(HdrHistogram.decode(base64.b64encode(histogram)).get_total_count())


def test_parts_and_windows_are_stored(tmp_path: Path) -> None:
    disturbance = {
        "quiet_s": 0.98,
        "disturbed_s": 0.02,
        "quiet_sent_msgs": 3,
        "quiet_acked_msgs": 3,
        "quiet_received_msgs": [2, 1],
        "undecided_msgs": 0,
        "windows": [WINDOW],
        "unlisted": {"windows": 0, "length_s": 0.0},
        "attraction": ATTRACTION,
        "steal_s": [0.0, 0.01],
    }
    worker, first, second, publish = stored(tmp_path, interval(disturbance=disturbance))
    assert (worker["quiet_s"], worker["disturbed_s"], worker["quiet_acked_msgs"]) == (0.98, 0.02, 3)
    told = json.loads(worker["disturbance"])
    assert (told["windows"], told["attraction"], told["steal_s"]) == ([WINDOW], ATTRACTION, [0.0, 0.01])
    assert (first["quiet_received_msgs"], second["quiet_received_msgs"]) == (2, 1)
    assert (count(publish["publish_quiet"]), count(publish["publish_censored"])) == (2, 1)
    assert publish["publish_left_out"] == 1
    assert (publish["quiet_overflow"], publish["censored_overflow"]) == (0, 0)
    assert publish["end_to_end_quiet"] is None


def test_what_was_decided_later_stands_in_a_row_of_its_own_without_extremes(tmp_path: Path) -> None:
    late = {
        "phase": "measure",
        "metric": "publish",
        "count": 0,
        "min_ns": 0,
        "max_ns": 0,
        "histogram": encoded(),
        "quiet": part(5),
        "censored": part(),
        "left_out": 0,
    }
    publish = stored(tmp_path, interval(latencies=[late]))[-1]
    assert (publish["min_ns"], publish["max_ns"]) == (None, None)
    assert count(publish["publish_quiet"]) == 1
    assert publish["publish_censored"] is None


def test_a_worker_without_probes_tells_of_steal_alone(tmp_path: Path) -> None:
    plain = interval(disturbance={"steal_s": [0.02]})
    for entry in plain["latencies"]:
        for name in ("quiet", "censored", "left_out"):
            del entry[name]
    worker, first, _, publish = stored(tmp_path, plain)
    assert (worker["quiet_s"], json.loads(worker["disturbance"])["steal_s"]) == (None, [0.02])
    assert first["quiet_received_msgs"] is None
    assert publish["publish_quiet"] is None
    assert publish["publish_left_out"] is None


def test_a_run_from_before_there_was_quiet_time_still_opens(tmp_path: Path) -> None:
    rows = stored(tmp_path, interval())
    assert rows[0]["disturbance"] is None
    path = tmp_path / "intervals.parquet"
    table = parquet.read_table(path)
    news = [name for name in INTERVAL_COLUMNS if "quiet" in name or "censored" in name or "left_out" in name]
    assert len(news) > 10
    parquet.write_table(pyarrow.table(table.drop_columns([*news, "disturbance", "disturbed_s"])), path)
    old = read_rows(path, INTERVAL_COLUMNS)
    assert [row["sent_msgs"] for row in old] == [row["sent_msgs"] for row in rows]
    assert all(row["quiet_s"] is None and row["publish_quiet"] is None for row in old)


def test_windows_of_an_interval_are_bounded() -> None:
    with pytest.raises(ValidationError):
        Disturbance(windows=[WINDOW] * (WINDOWS_MAX + 1))


def test_parts_of_another_layout_are_refused_as_whole_distributions_are() -> None:
    histogram = HdrHistogram(1, 1000, 2)
    histogram.record_value(5)
    row = {**dict.fromkeys(INTERVAL_COLUMNS), "publish_quiet": base64.b64decode(histogram.encode())}
    with pytest.raises(HistogramError, match="another layout"):
        Intervals([row]).merged([0], "publish_quiet")


def trial(directory: Path, *, told: bool) -> Quiet:
    """12 s of which 1.2 s were disturbed, by 120 spans; two of them, in the third and in the eighth second, began while something was older than 2 ms, which
    was so for 0.2 % of quiet time. `told`: how long those two were."""
    lines = []
    for index in range(12):
        old = int(index in (2, 7))
        attraction = {
            "quiet_samples": 900, "quiet_older": [0, 0, 2, 0], "begins": 10, "begins_older": [0, 0, old, 0],
            "begins_older_s": [0.0, 0.0, 0.010 * old, 0.0] if told else None,
        }  # fmt: skip
        disturbance = {"quiet_s": 0.9, "disturbed_s": 0.1, "attraction": attraction}
        publish = {
            "phase": "measure", "metric": "publish", "count": 1000, "min_ns": 1, "max_ns": 9, "histogram": encoded(*[1_000_000] * 1000),
            "quiet": part(*range(1_000_000, 1_890_000, 1000)), "censored": part(*[300_000] * 10), "left_out": 100,
        }  # fmt: skip
        lines.append(
            interval(index=index, start_s=float(index), latencies=[publish], disturbance=disturbance)
        )
    write_atomically(directory / "i.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    write_intervals(directory / "i.jsonl", directory / "intervals.parquet")
    found = quiet_time(Intervals.read(directory), Window(0.0, 12.0), ProbesStatus(), at_its_most=True)
    assert found is not None
    assert found.attracted.kind is Begin.cannot_tell
    return found


def test_a_few_spans_of_which_it_cannot_be_told_leave_figures_that_they_cannot_move(tmp_path: Path) -> None:
    found = trial(tmp_path, told=True)
    doubt = found.attracted.doubt
    assert doubt is not None
    assert doubt.share == pytest.approx(0.02 / 1.2)
    assert doubt.began == {2, 7}
    publish, rate = found.found.publish_ms, found.found.publish_rate_msgs_s
    assert publish is not None
    assert publish.p50.value == pytest.approx(1.445, rel=0.01)
    # 20 messages were due in the two spans, and 40 were cut in their seconds and the next; 10,720 others are quiet or were cut elsewhere.
    # Trials differ by as much again.
    assert publish.p50.at_least == pytest.approx(publish.p50.value, rel=0.05)
    assert publish.p50.at_most == pytest.approx(publish.p50.value, rel=0.05)
    assert publish.p99.value == pytest.approx(1.88, rel=0.01)
    assert (publish.p99_9.value, publish.mean.value) == (None, None)
    assert "may hide as many messages as last that long" in publish.p99_9.why
    assert rate is not None
    assert found.found.why == ""


def test_of_workers_that_do_not_tell_how_long_they_were_only_the_bounds_stand(tmp_path: Path) -> None:
    found = trial(tmp_path, told=False)
    assert found.attracted.doubt is None
    assert found.found.publish_ms is not None
    assert found.found.publish_ms.p50.value is None
    assert "cannot be told" in found.found.why
