"""Exports hold the result's figures in the names and units of the tools that read them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from sample_run import KAFKA, LOG, workload, write_run
from streamgauge.model.result import TrialResult
from streamgauge.report import export
from streamgauge.report.foreign import read_omb
from streamgauge.vocabulary.errors import InputError

OMB_SCALAR = {
    "workload",
    "driver",
    "messageSize",
    "topics",
    "partitions",
    "producersPerTopic",
    "consumersPerTopic",
}
OMB_SUFFIXES = ("Avg", "50pct", "75pct", "95pct", "99pct", "999pct", "9999pct", "Max")
OMB_LATENCIES = ("publishLatency", "publishDelayLatency", "endToEndLatency")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[TrialResult]]:
    directory = tmp_path_factory.mktemp("run")
    return directory, write_run(
        directory, (LOG, KAFKA), workload(rate=1000, seconds=23, subscriptions_per_topic=2)
    )


def test_csv_has_a_row_per_trial_and_one_per_interval(
    run: tuple[Path, list[TrialResult]], tmp_path: Path
) -> None:
    directory, results = run
    trials, lines = export.to_csv(directory, tmp_path / "out.csv")
    assert (trials.name, lines.name) == ("out.csv", "out-series.csv")
    with trials.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert float(rows[0]["publish_ms_p99"]) == results[0].publish_ms.p99
    assert rows[0]["validity_valid"] == "True"
    assert rows[0]["audit_lost"] == "0"
    assert json.loads(rows[0]["durability_settings"])["node.1.num.io.threads"] == "8"
    with lines.open(newline="") as file:
        points = list(csv.DictReader(file))
    assert len(points) == 2 * 28
    assert sum(float(point["acked_msgs"]) for point in points if point["measured"] == "True") == 2 * 23_000


def test_parquet_has_a_row_per_trial(run: tuple[Path, list[TrialResult]], tmp_path: Path) -> None:
    directory, results = run
    (path,) = export.to_parquet(directory, tmp_path / "deep" / "dir")
    table = parquet.read_table(path)
    assert table.num_rows == 2
    assert table["publish_ms_p99"].to_pylist() == [result.publish_ms.p99 for result in results]
    assert table["failure"].to_pylist() == [None, None]


def test_omb_files_have_its_keys_its_units_and_a_value_per_ten_seconds(
    run: tuple[Path, list[TrialResult]], tmp_path: Path
) -> None:
    directory, results = run
    paths = export.to_omb(directory, tmp_path)
    assert len(paths) == 2
    told: dict[str, Any] = json.loads(paths[0].read_text())
    expected = OMB_SCALAR | {"publishRate", "publishErrorRate", "consumeRate", "backlog"}
    for name in OMB_LATENCIES:
        upper = name[0].upper() + name[1:]
        expected |= {name + suffix for suffix in OMB_SUFFIXES}
        expected |= {f"aggregated{upper}{suffix}" for suffix in OMB_SUFFIXES} | {
            f"aggregated{upper}Quantiles"
        }
    assert set(told) == expected
    arrays = {key: value for key, value in told.items() if isinstance(value, list)}
    assert {len(value) for value in arrays.values()} == {3}, "10 s, 10 s and the 3 s that are left"
    assert told["publishRate"] == [1000.0, 1000.0, 1000.0]
    assert told["consumeRate"] == [2000.0, 2000.0, 2000.0]
    assert told["consumersPerTopic"] == 2
    result = results[0]
    assert told["aggregatedPublishLatency99pct"] == result.service_ms.p99, "from the actual send"
    assert result.send_delay_ms.p99 is not None
    assert told["aggregatedPublishDelayLatency99pct"] == pytest.approx(1000 * result.send_delay_ms.p99), "us"
    assert told["aggregatedEndToEndLatencyMax"] == pytest.approx(result.end_to_end_ms.max, rel=2e-3)
    quantiles = told["aggregatedPublishLatencyQuantiles"]
    assert float(list(quantiles)[-1]) == 100.0
    assert quantiles["90"] == result.service_ms.p90


def test_what_is_exported_for_omb_can_be_read_back_as_foreign(
    run: tuple[Path, list[TrialResult]], tmp_path: Path
) -> None:
    directory, results = run
    foreign = read_omb(export.to_omb(directory, tmp_path)[1])
    assert foreign.foreign
    assert foreign.driver == "Apache Kafka 4.3.1 (L4)"
    assert foreign.publish_rate_msgs_s == 1000
    assert foreign.publish_rate_mb_s == pytest.approx(0.1)
    assert foreign.service_ms.p99 == results[1].service_ms.p99
    assert foreign.send_delay_ms.p99 == pytest.approx(results[1].send_delay_ms.p99)
    assert foreign.series["service_ms_p99"]


def test_one_file_for_several_trials_is_refused(run: tuple[Path, list[TrialResult]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a directory"):
        export.to_omb(run[0], tmp_path / "one.json")


def test_a_target_that_cannot_be_written_is_named(
    run: tuple[Path, list[TrialResult]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        export.to_csv(run[0], tmp_path / "file" / "x.csv")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "is an object"),
        ('{"workload": "w"}', "driver, publishRate, consumeRate missing"),
        ('{"workload": "w", "driver": "d", "publishRate": 5, "consumeRate": []}', "publishRate is a int"),
        ('{"workload": "w", "driver": "d", "publishRate": ["x"], "consumeRate": []}', "expected a number"),
        (
            '{"workload": "w", "driver": "d", "publishRate": [], "consumeRate": [], '
            '"aggregatedPublishLatencyQuantiles": {"p": 1}}',
            "a key that is no number",
        ),
    ],
)
def test_files_that_are_no_omb_results_are_refused_with_a_reason(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_omb(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_omb(tmp_path / "missing.json")
