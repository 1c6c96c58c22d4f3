"""The reason why streamgauge exists: a broker that stops for a second shows a second's worth of late messages.

A generator that waits for the broker before it takes the next message ("coordinated omission") would show one late message.
Here the broker is stopped with SIGSTOP in the middle of a real run, and the distributions are compared with what the schedule
implies: while the broker stands still for S, every message that is due is late by the rest of S, so that rate x (S - x)
messages lie above a latency of x.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab_support
import psutil
import pyarrow.parquet as pq
import pytest
from streamgauge.systems.support.processes import await_standing
from streamgauge.vocabulary.histograms import Histogram, decode, merge

RATE = 5_000
DURATION_S = {"gauge-log": 6, "kafka": 12}
"""The broker is stopped when a third is over: a JVM that is older catches up faster."""
STALL_S = 1.0
# Latencies at which the shares of late messages are compared with the schedule.
ABOVE_MS = (100, 500, 900)
# A broker that goes on works off what has waited at no less than this many times the rate at which more comes. That is little: it needs a
# tenth of a core for the rate itself.
CATCHES_UP = 2
pytestmark = pytest.mark.usefixtures("one_probe")


def events(path: Path, lab: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The lab's events as they come, until it ends."""
    position = 0
    while True:
        ended = lab.poll() is not None
        if path.exists():
            with path.open() as file:
                file.seek(position)
                while (line := file.readline()).endswith("\n"):
                    position = file.tell()
                    yield json.loads(line)
        if ended:
            return
        time.sleep(0.05)


def broker_of(lab: subprocess.Popen[bytes], system: str) -> int:
    """The broker's process among the lab's descendants."""
    mark = {"kafka": "kafka.Kafka", "gauge-log": "log"}[system]
    for process in psutil.Process(lab.pid).children(recursive=True):
        if mark in process.cmdline():
            return process.pid
    raise AssertionError(f"no process of the lab runs {mark}")


def run_with_a_stall(
    system: str, out: Path, workload: str = "1-topic-16-partitions-100b"
) -> tuple[Path, float]:
    """A run whose broker stands still for a second in the middle: its directory, and how long the broker stood."""
    log = out / "events.jsonl"
    load = ["--rate", str(RATE), "--quiet-limit", "1"]
    command = [*lab_support.COMMAND, "run", workload, "--system", system, *load]
    command += [
        "--duration",
        f"{DURATION_S[system]}s",
        "--warmup",
        "3s",
        "--out",
        str(out),
        "--events",
        str(log),
    ]
    lab = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stalled_s = None
    directory = None
    try:
        for event in events(log, lab):
            if event["event"] == "run_started":
                directory = Path(event["directory"])
            if event["event"] == "phase" and event["name"] == "measure":
                time.sleep(DURATION_S[system] / 3)
                broker = broker_of(lab, system)
                os.kill(broker, signal.SIGSTOP)
                await_standing("the broker", [broker])
                began_s = time.monotonic()
                time.sleep(STALL_S)
                # It stands for longer than this, never for less, however busy the machine is.
                stalled_s = time.monotonic() - began_s
                os.kill(broker, signal.SIGCONT)
    finally:
        if lab.poll() is None:
            lab.terminate()
        lab.wait(60)
    assert directory is not None
    assert stalled_s is not None
    return directory, stalled_s


def measured(trial: Path, metric: str) -> list[Histogram]:
    """Per interval, the distribution of a metric over the messages that were due in the measured phase."""
    rows = pq.read_table(trial / "intervals.parquet", columns=["interval", "phase", metric]).to_pylist()
    rows = [row for row in rows if row["phase"] == "measure" and row[metric]]
    numbers = sorted({row["interval"] for row in rows})
    return [merge(decode(row[metric]) for row in rows if row["interval"] == number) for number in numbers]


def check_late_messages(trial: Path, stalled_s: float, system: str = "gauge-log") -> None:
    """Within one run, on any machine: nothing that was due is missing, nothing that waited looks early, and no message is counted late
    that was not. A busy machine makes more messages late than the broker did, but by no more than its longest wait explains.
    """
    result = json.loads((trial / "result.json").read_text())
    scheduled = RATE * DURATION_S[system]
    for metric in ("publish", "end_to_end"):
        intervals = measured(trial, metric)
        # Every message that was due in the phase is in the distribution once, however late it came: a tool that makes up for
        # omitted messages afterwards would have more.
        assert sum(interval.count for interval in intervals) == scheduled
        assert result[f"{metric}_ms"]["count"] == scheduled
        longest_ms = result[f"{metric}_ms"]["max"]
        assert stalled_s * 1000 <= longest_ms * 1.002
        whole = merge(intervals)
        worst = max(range(len(intervals)), key=lambda at: intervals[at].max or 0.0)
        beside = merge(intervals[max(worst - 1, 0) : worst + 2])
        for above_ms in ABOVE_MS:
            implied = RATE * (stalled_s - above_ms / 1000)
            late = whole.share_above(above_ms * 1e6) * whole.count
            assert late >= implied * 0.95 - RATE * 0.02, f"{metric} above {above_ms} ms"
            # The longest wait is that of the first message that the broker did not take; each later one waits for less, the less the
            # faster the broker catches up.
            late = beside.share_above(above_ms * 1e6) * beside.count
            explained = RATE * (longest_ms - above_ms) / 1000 * CATCHES_UP / (CATCHES_UP - 1)
            assert late <= explained * 1.05, f"{metric} above {above_ms} ms"
    assert result["audit"]["clean"] is True
    assert result["audit"]["sent"] == result["audit"]["acked"] == result["audit"]["received"]


@pytest.mark.parametrize("system", ["gauge-log", pytest.param("kafka", marks=pytest.mark.jvm)])
def test_a_broker_that_stops_for_a_second_shows_a_second_of_late_messages(
    system: str, tmp_path: Path
) -> None:
    directory, stalled_s = run_with_a_stall(system, tmp_path)
    check_late_messages(directory / "trials" / "001", stalled_s, system)


def test_a_client_without_room_shows_the_stall_as_publish_latency_and_not_as_service_time(
    tmp_path: Path,
) -> None:
    """With 64 KiB of room a producer cannot hand over what is due in a second. Those messages wait in front of the client: that is
    part of what a user of the system feels (publish), not of what most tools measure (service), and not the generator's fault (send
    delay)."""
    workload = tmp_path / "little-room.yaml"
    workload.write_text(
        "name: little-room\npartitionsPerTopic: 16\nmessageSize: 100\nbatch: {bytes: 4KiB, buffer: 64KiB}\n"
    )
    directory, stalled_s = run_with_a_stall("gauge-log", tmp_path, str(workload))
    trial = directory / "trials" / "001"
    check_late_messages(trial, stalled_s)
    due = RATE * (stalled_s - 0.5)
    room = 64 * 1024 / 100
    late = {
        metric: sum(interval.share_above(500e6) * interval.count for interval in measured(trial, metric))
        for metric in ("publish", "service", "backpressure", "send_delay")
    }
    assert late["publish"] >= 0.95 * due
    assert late["service"] <= room * 1.1
    assert late["backpressure"] >= 0.95 * due - room
    assert late["send_delay"] <= 0.02 * due
