"""Our worker, driven as a leader of the OpenMessaging Benchmark drives its own: the same calls in the same order."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hdrh.histogram import HdrHistogram
from lab_support import reference_log

DRIVER = """\
name: Kafka
driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 1
commonConfig: |
  bootstrap.servers={address}
producerConfig: |
  acks=all
  linger.ms=1
  batch.size=1048576
  receive.buffer.bytes=65536
consumerConfig: |
  auto.offset.reset=earliest
"""
PARTITIONS = 4
pytestmark = pytest.mark.server


class Worker:
    """`gauge worker --omb`."""

    def __init__(self, gauge: Path) -> None:
        self.process = subprocess.Popen(
            [gauge, "worker", "--omb", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = "http://" + self.process.stdout.readline().removeprefix("ready ").strip()

    def call(self, path: str, body: Any = None) -> Any:
        """POST, as OMB's leader: no content type; JSON but for a driver file, which is raw."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self._ask("POST", path, data)

    def get(self, path: str) -> Any:
        """GET."""
        return self._ask("GET", path)

    def _ask(self, method: str, path: str, data: bytes | None = None) -> Any:
        # Not urllib, which adds the content type of a form.
        with httpx.Client(base_url=self.url, timeout=60, trust_env=False) as client:
            answer = client.request(method, f"/{path}", content=data)
        answer.raise_for_status()
        return answer.json() if answer.content else None


def histogram(figures: dict[str, Any], name: str) -> HdrHistogram:
    """One of OMB's: microseconds, five digits."""
    assert base64.b64decode(figures[name])[:4] == bytes.fromhex("1c849314")
    found = HdrHistogram.decode(figures[name].encode())
    assert found.significant_figures == 5
    return found


@pytest.fixture
def log(gauge: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a reference log."""
    with reference_log(gauge, tmp_path / "log") as address:
        yield address


@pytest.fixture(params=[1, 2], ids=["one worker", "two workers"])
def workers(gauge: Path, request: pytest.FixtureRequest) -> Iterator[list[Worker]]:
    """With two, the first produces and the second consumes."""
    found = [Worker(gauge) for _ in range(request.param)]
    yield found
    for worker in found:
        worker.process.terminate()
        assert worker.process.wait(10) == 143


def subscribe(topics: list[str], consumers: int) -> dict[str, Any]:
    """Two subscriptions of every topic, with names that OMB draws for each topic."""
    return {
        "topicsSubscriptions": [
            {"topic": topic, "subscription": f"sub-{number:03d}-{topic[-4:]}"}
            for topic in topics
            for number in range(2)
            for _ in range(consumers)
        ]
    }


def test_a_leaders_run_from_start_to_end(workers: list[Worker], log: str) -> None:
    first, last = workers[0], workers[-1]
    for worker in workers:
        worker.call("stop-all")
        worker.call("initialize-driver", DRIVER.format(address=log).encode())
    topics = first.call("create-topics", {"numberOfTopics": 2, "numberOfPartitionsPerTopic": PARTITIONS})
    assert len(set(topics)) == 2
    last.call("create-consumers", subscribe(topics, consumers=2))
    first.call("create-producers", topics * 2)
    if first is not last:
        last.call("create-producers", [])
    first.call("probe-producers")
    deadline_s = time.monotonic() + 30
    while last.get("counters-stats")["messagesReceived"] < len(topics) * 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    payload = base64.b64encode(bytes(range(200))).decode()
    load = {"payloadData": [payload], "publishRate": 2000.0, "keyDistributorType": "NO_KEY"}
    first.call("start-load", load)
    reset_s = time.monotonic()
    for worker in workers:
        worker.get("period-stats")
        worker.call("reset-stats")
    started_s = time.monotonic()
    time.sleep(2.0)
    asked_s = time.monotonic()
    first.call("adjust-publish-rate", 4000.0)
    changed_s = time.monotonic()
    time.sleep(2.0)
    looked_s = time.monotonic()
    figures = [worker.get("period-stats") for worker in workers]
    ended_s = time.monotonic()
    # A request takes as long as the machine lets it, and what it does is done at some moment within.
    at_least = 2000 * (asked_s - started_s) + 4000 * (looked_s - changed_s)
    at_most = 2000 * (changed_s - reset_s) + 4000 * (ended_s - asked_s)
    assert 0.9 * at_least <= figures[0]["messagesSent"] <= 1.1 * at_most
    assert figures[0]["bytesSent"] == 200 * figures[0]["messagesSent"]
    assert figures[-1]["messagesReceived"] == pytest.approx(2 * figures[0]["messagesSent"], rel=0.05)
    assert figures[0]["messageSendErrors"] == 0
    asked_s = time.monotonic()
    sums = [worker.get("cumulative-latencies") for worker in workers]
    published = histogram(sums[0], "publishLatency")
    # Intervals that are not over yet are missing.
    assert published.get_total_count() == pytest.approx(figures[0]["messagesSent"], rel=0.15)
    assert published.get_value_at_percentile(50) < 1_000_000
    assert histogram(sums[0], "publishDelayLatency").get_total_count() > 0
    received = histogram(sums[-1], "endToEndLatency")
    assert received.get_total_count() == pytest.approx(figures[-1]["messagesReceived"], rel=0.15)
    assert 0 < received.get_value_at_percentile(50) < 1_000_000
    # Destructive, and never missing: of four seconds there is nothing left, only what came since, and what was of an interval that was not over.
    again = histogram(first.get("cumulative-latencies"), "publishLatency").get_total_count()
    assert again < 4000 * 1.2 * (time.monotonic() - asked_s + 1.0)

    last.call("pause-consumers")
    time.sleep(1.0)
    last.get("period-stats")
    time.sleep(1.0)
    assert last.get("period-stats")["messagesReceived"] == 0
    last.call("resume-consumers")
    time.sleep(1.5)
    sent, read = first.get("counters-stats"), last.get("counters-stats")
    assert read["messagesReceived"] == pytest.approx(2 * sent["messagesSent"], rel=0.1)
    for worker in workers:
        worker.call("stop-all")
        worker.call("stop-all")
    assert last.get("counters-stats")["messagesReceived"] == 0


def test_what_cannot_be_is_refused_and_the_worker_goes_on(gauge: Path, log: str) -> None:
    worker = Worker(gauge)

    def refusal(path: str, body: Any) -> str:
        with pytest.raises(httpx.HTTPStatusError) as found:
            worker.call(path, body)
        text: str = found.value.response.json()["error"]["message"]
        return text

    try:
        assert "initialize-driver comes first" in refusal(
            "create-topics", {"numberOfTopics": 1, "numberOfPartitionsPerTopic": 1}
        )
        assert "expected the driver of Kafka" in refusal(
            "initialize-driver", b"driverClass: org.example.Evil"
        )
        worker.call("initialize-driver", DRIVER.format(address=log).encode())
        topics = worker.call("create-topics", {"numberOfTopics": 2, "numberOfPartitionsPerTopic": 1})
        one = {"topicsSubscriptions": subscribe(topics, 1)["topicsSubscriptions"][:3]}
        assert "must be on one worker" in refusal("create-consumers", one)
        assert "could not be read" in refusal("start-load", {"publishRate": "fast"})
        worker.call("stop-all")
        worker.call("initialize-driver", DRIVER.format(address=log).encode())
        assert "there is no topic 'nowhere'" in refusal("create-consumers", subscribe(["nowhere"], 1))
    finally:
        worker.process.terminate()
        assert worker.process.wait(10) == 143
        assert worker.process.stderr is not None
        assert "not honoured of the driver file: receive.buffer.bytes\n" in worker.process.stderr.read()


def test_open_addresses_need_a_word(gauge: Path) -> None:
    command = [str(gauge), "worker", "--omb", "--listen", "0.0.0.0:0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert refused.returncode == 2
    assert "binds to loopback only" in refused.stderr
