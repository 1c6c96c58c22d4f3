"""OMB's workers as a fleet: facts about addresses, driver files, figures and refusals, and a worker that answers wrongly, late or never."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from ruamel.yaml import YAML
from streamgauge.cli.impossible import impossible
from streamgauge.fleet.choice import choose_fleet
from streamgauge.fleet.omb import driver
from streamgauge.fleet.omb.addresses import read_addresses
from streamgauge.fleet.omb.client import OmbClient, OmbPeriod
from streamgauge.fleet.omb.ensemble import Ensemble, Member
from streamgauge.fleet.omb.figures import Told, Totals, interval_rows
from streamgauge.fleet.omb.placed import stop_workers
from streamgauge.fleet.omb.work import deal, plan, roles
from streamgauge.model.messages import Interval
from streamgauge.model.overrides import Overrides
from streamgauge.model.percentiles import curve
from streamgauge.model.resolve import read_workload
from streamgauge.model.system_file import SystemOverrides, choose_systems
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.errors import InputError, WorkerLost, WorkerRefused
from streamgauge.vocabulary.histograms import decode, encode, recorded

URL = "http://127.0.0.1:8080"


def request(**changes: Any) -> dict[str, Any]:
    """A trial as the lab asks for it."""
    return {
        "seed": 7,
        "system": {"protocol": "kafka", "bootstrap": ["a:9092", "b:9092"], "options": {}},
        "topics": [{"name": "t-0", "partitions": 4}, {"name": "t-1", "partitions": 4}],
        "producers": [{"id": number, "topic": f"t-{number % 2}", "keys": "none"} for number in range(4)],
        "subscriptions": [{"name": "s-0", "start": "latest", "consumers": 2, "commit_interval_ms": 5000}],
        "schedule": {"arrival": "uniform", "rate_msgs_s": 1000.0, "stop_s": 5.0},
        "phases": [{"name": "warm-up", "from_s": 0.0}, {"name": "measure", "from_s": 1.0}],
        "batch": {"bytes": 131072, "linger_ms": 1.0, "in_flight": 5, "buffer_bytes": 64 << 20},
        "acks": "all",
        "idempotence": False,
        "compression": "lz4",
        "payload": {"size_bytes": 100, "random_ratio": 0.5, "pool": 3},
        **changes,
    }


# Addresses and choices


def test_workers_are_listed_by_their_urls() -> None:
    assert read_addresses("hosts.yaml") is None
    found = read_addresses("omb:http://10.0.0.5:8080,http://localhost:8081/")
    assert found is not None
    assert found.urls == ("http://10.0.0.5:8080", "http://localhost:8081")
    assert found.elsewhere == ["http://10.0.0.5:8080"]
    assert found.first(1).urls == ("http://10.0.0.5:8080",)


@pytest.mark.parametrize(
    ("fleet", "says"),
    [
        ("omb", "names no worker"),
        ("omb:", "names no worker"),
        ("omb:10.0.0.5:8080", "is no URL of a worker"),
        ("omb:http://10.0.0.5", "has no port"),
        ("omb:http://a:8080/stop-all", "something behind its port"),
        ("omb:http://a:http", "is no URL"),
        (f"omb:{URL},{URL}", "listed twice"),
    ],
)
def test_what_is_no_list_of_workers_is_refused(fleet: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        choose_fleet(fleet, None, "same", "end")


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InputError, match="password") as raised:
        read_addresses("omb:http://me:secret-7@a:8080")
    assert "secret-7" not in str(raised.value)


@pytest.mark.parametrize(
    ("workers", "topology", "on_loss", "says"),
    [
        (None, "split", "end", "--topology split"),
        (None, "same", "go-on", "--on-worker-loss go-on"),
        (3, "same", "end", "lists 1 worker"),
    ],
)
def test_what_is_ombs_own_way_cannot_be_chosen(
    workers: int | None, topology: str, on_loss: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        choose_fleet(f"omb:{URL}", workers, topology, on_loss)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("rate: max", "no closed loop"),
        ("rate: sustainable", "search"),
        ("rate: 1000\narrival: poisson", "arrival poisson"),
        ("rate: 1000\nkeys: zipf\nkey_count: 10", "keys zipf"),
        ("rate: 1000\nramp: {to: 2000, over: 5s}", "a ramp"),
        ('rate: 1000\nfaults: ["kill:1@1s"]', "faults"),
        ("rate: 1000\nsubscriptionsPerTopic: 2\nbacklog: {size: 10MB}", "a single subscription"),
    ],
)
def test_what_ombs_workers_cannot_do_is_said_before_anything_starts(
    tmp_path: Path, keys: str, says: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(f"name: w\ntopics: 1\npartitionsPerTopic: 1\nmessageSize: 100\nduration: 5s\n{keys}\n")
    workload = read_workload(str(file), Overrides.of())
    chosen = choose_systems("kafka", SystemOverrides(), systems())
    found = impossible(choose_fleet(f"omb:{URL}", None, "same", "end"), [workload], chosen)
    assert any(says in str(one) and "--fleet omb: w:" in str(one) for one in found), found


@pytest.mark.parametrize(
    ("system", "says"),
    [("nats", "Kafka and Pulsar"), ("rabbitmq", "queues of its own"), ("kafka", "loopback")],
)
def test_systems_that_ombs_workers_cannot_drive_are_refused(system: str, says: str) -> None:
    workload = read_workload("1-topic-1-partition-100b", Overrides.of(rate="1000"))
    chosen = choose_systems(system, SystemOverrides(), systems())
    found = impossible(choose_fleet("omb:http://10.9.9.9:8080", None, "same", "end"), [workload], chosen)
    assert any(says in str(one) for one in found), found
    if system == "kafka":
        here = impossible(choose_fleet(f"omb:{URL}", None, "same", "end"), [workload], chosen)
        assert not here


# What OMB is told


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_driver_file_for_kafka_says_what_was_asked() -> None:
    made = driver.render(request())
    told = YAML(typ="safe").load(made.text)
    assert told["driverClass"] == driver.KAFKA_CLASS
    assert properties(told["commonConfig"]) == {"bootstrap.servers": "a:9092,b:9092"}
    assert properties(told["producerConfig"]) == {
        "acks": "all",
        "linger.ms": "1",
        "batch.size": "131072",
        "buffer.memory": str(16 << 20),
        "max.in.flight.requests.per.connection": "5",
        "compression.type": "lz4",
        "enable.idempotence": "false",
    }
    assert properties(told["consumerConfig"]) == {
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": "5000",
    }
    assert made.cannot == []


def test_fetches_of_kafkas_consumer_reach_the_java_client() -> None:
    asked = request()
    asked["system"] = {**asked["system"], "options": {"client_id": "me", "max.partition.fetch.bytes": 131072}}
    told = YAML(typ="safe").load(driver.render(asked).text)
    assert properties(told["commonConfig"])["client.id"] == "me"
    assert properties(told["consumerConfig"])["max.partition.fetch.bytes"] == "131072"


def test_what_the_java_client_cannot_be_told_is_said() -> None:
    batch = {"bytes": 131072, "linger_ms": 0.2, "in_flight": 5, "buffer_bytes": 1 << 20}
    made = driver.render(request(batch=batch, acks="leader", payload={"size_bytes": 2_000_000}))
    told = properties(YAML(typ="safe").load(made.text)["producerConfig"])
    assert (told["linger.ms"], told["acks"], told["buffer.memory"]) == ("1", "1", str(1 << 20))
    assert int(told["max.request.size"]) > 2_000_000
    assert [text.split(":")[0] for text in made.cannot] == [
        "linger of 0.2 ms",
        "a buffer of 1048576 bytes over all producers",
    ]


def test_a_driver_file_for_pulsar_names_topics_in_their_namespace() -> None:
    system = {
        "protocol": "pulsar",
        "bootstrap": ["a:6650"],
        "options": {"namespace": "streamgauge/trial", "admin": ["a:8088"]},
    }
    made = driver.render(request(system=system))
    told = YAML(typ="safe").load(made.text)
    assert told["client"]["serviceUrl"] == "pulsar://a:6650"
    assert told["client"]["httpUrl"] == "http://a:8088"
    assert told["client"]["namespacePrefix"] == "streamgauge/omb"
    assert plan(request(system=system), made.topic).producers[0] == "persistent://streamgauge/trial/t-0"
    assert any("compression lz4" in text for text in made.cannot)


def test_the_load_is_dealt_out_as_ombs_leader_does() -> None:
    assert roles([1]) == ([1], [1])
    assert roles([1, 2, 3]) == ([1], [2, 3])
    assert deal(list("abcde"), 2) == [list("ace"), list("bd")]
    found = plan(request())
    assert found.producers == ["t-0", "t-1", "t-0", "t-1"]
    assert found.consumers == [("t-0", "t-0-s-0")] * 2 + [("t-1", "t-1-s-0")] * 2
    assert (found.keys, found.rate_msgs_s, found.stop_s) == ("NO_KEY", 1000.0, 5.0)
    payloads = [base64.b64decode(text) for text in found.payloads_base64]
    assert [len(one) for one in payloads] == [100, 100, 100]
    assert len(set(payloads)) == 3
    assert all(one[50:] == bytes(50) for one in payloads)
    assert plan(request()).payloads_base64 == found.payloads_base64, "the seed decides"


def test_other_numbers_of_keys_are_said() -> None:
    producers = [{"id": 0, "topic": "t-0", "keys": "keyed", "key_count": 100}]
    found = plan(request(producers=producers))
    assert found.keys == "KEY_ROUND_ROBIN"
    assert "100 keys: OMB's workers have 10000, in turn" in found.cannot


# What OMB tells


@pytest.mark.parametrize("values", [[0], [1, 1023, 1024, 2047, 2048, 2049], [10**9, 3_600_000_000_000, 0, 5]])
def test_what_is_encoded_is_what_the_hdrhistogram_package_decodes(values: list[int]) -> None:
    found = recorded(np.array(values, dtype=np.int64), np.full(len(values), 3, dtype=np.int64))
    payload = encode(found)
    again, theirs = decode(payload), HdrHistogram.decode(base64.b64encode(payload))
    assert again.layout == found.layout
    assert again.indices.tolist() == found.indices.tolist()
    assert again.counts.tolist() == found.counts.tolist()
    assert theirs.get_total_count() == found.count == 3 * len(values)
    assert theirs.get_max_value() == found.max


def histogram(*values_us: int) -> str:
    """As OMB writes its own."""
    made = HdrHistogram(1, 43_200_000_000, 5)
    for value in values_us:
        made.record_value(value)
    payload: bytes = made.encode()
    return payload.decode()


def period(**changes: Any) -> dict[str, Any]:
    return {
        "messagesSent": 4,
        "messageSendErrors": 1,
        "bytesSent": 400,
        "messagesReceived": 4,
        "bytesReceived": 400,
        "totalMessagesSent": 5,
        "totalMessageSendErrors": 1,
        "totalMessagesReceived": 5,
        "publishLatency": histogram(1_000, 2_000, 2_000, 60_000_000),
        "publishDelayLatency": histogram(5, 6, 7, 8),
        "endToEndLatency": histogram(2_000, 3_000, 3_000),
        **changes,
    }


def rows(totals: Totals, subscriptions: list[str], *told: dict[str, Any]) -> tuple[list[Any], Any]:
    answers = [
        Told(f"w-{at}", OmbPeriod.model_validate(one), consumes=at == len(told) - 1)
        for at, one in enumerate(told)
    ]
    return interval_rows(3, 3.0, 1.0, "measure", subscriptions, answers, totals)


def test_a_period_becomes_an_interval() -> None:
    totals = Totals()
    (row,), shown = rows(totals, ["s-0"], period())
    found = Interval.model_validate(row)
    assert (found.sent_msgs, found.acked_msgs, found.failed_msgs, found.errors) == (
        5,
        4,
        1,
        {"SEND_ERROR": 1},
    )
    assert (found.waiting_msgs, found.retries, found.cpu_s) == (None, None, None), "not told, and not 0"
    assert found.latency("publish") is None
    assert found.headline == "service"
    service = found.latency("service")
    assert service is not None
    assert decode(base64.b64decode(service.histogram)).percentile(50.0) == pytest.approx(2e6, rel=2e-3)
    assert totals.clamped == 1
    assert Interval.model_validate(shown).acked_msgs == 4


def test_samples_that_omb_throws_away_are_counted_as_the_smallest() -> None:
    totals = Totals()
    # One of four has no sample; it could still come with the next histogram, which is read after its counter.
    (row,), _ = rows(totals, ["s-0"], period())
    assert totals.untimed_msgs == 0
    nothing = period(messagesReceived=0, endToEndLatency=histogram())
    (row,), _ = rows(totals, ["s-0"], nothing)
    found = Interval.model_validate(row).latency("end_to_end")
    assert found is not None
    assert (found.count, found.negative, found.min_ns) == (0, 1, None)
    rows(totals, ["s-0"], nothing)
    assert totals.untimed_msgs == 1, "it is missed once"


def test_a_sample_that_comes_late_is_not_missed() -> None:
    totals = Totals()
    rows(totals, ["s-0"], period())
    rows(totals, ["s-0"], period(messagesReceived=0, endToEndLatency=histogram(4_000)))
    assert totals.untimed_msgs == 0


def test_curves_begin_behind_what_was_thrown_away() -> None:
    found = recorded(np.array([2_000_000], dtype=np.int64), np.array([100], dtype=np.int64))
    points = curve(found, below=100)
    assert np.isnan(points[0]), "the median is among them"
    assert points[-1] == pytest.approx(2.0, rel=2e-3)
    assert curve(found)[0] == pytest.approx(2.0, rel=2e-3)


def test_subscriptions_that_omb_does_not_tell_apart_are_one() -> None:
    totals = Totals()
    producer = period(messagesReceived=0, bytesReceived=0, endToEndLatency=histogram())
    consumer = period(messagesSent=0, messageSendErrors=0, bytesSent=0, messagesReceived=6)
    found, shown = rows(totals, ["s-0", "s-1"], producer, consumer)
    assert found[0]["subscriptions"] == []
    assert found[1]["subscriptions"][0]["name"] == "s-0+s-1"
    # Four for each of two, six were received: each is one behind.
    assert found[1]["subscriptions"][0]["backlog_msgs"] == 1
    assert (shown["sent_msgs"], shown["subscriptions"][0]["received_msgs"]) == (5, 6)


def test_a_damaged_histogram_ends_the_trial() -> None:
    with pytest.raises(WorkerLost, match=r"w-0 answered with a histogram that cannot be read"):
        rows(Totals(), ["s-0"], period(publishLatency="HISTF"))


# Workers that answer wrongly, late or never


Answer = Callable[[BaseHTTPRequestHandler], tuple[int, bytes] | None]


@contextlib.contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The URL of something that answers every request so; None hangs up."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            found = answer(self)
            if found is None:
                self.connection.close()
                return
            self.send_response(found[0])
            self.send_header("content-length", str(len(found[1])))
            self.end_headers()
            self.wfile.write(found[1])

        do_GET = do_POST = _serve

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((200, b"<html>"), "is it one"),
        ((200, b'{"messagesSent": 1}'), "messagesReceived"),
        (None, "is gone"),
    ],
)
def test_what_is_no_omb_worker_is_told_by_its_url(answer: tuple[int, bytes] | None, says: str) -> None:
    with answering(lambda _: answer) as url:
        client = OmbClient(url)
        with pytest.raises(WorkerLost, match=says) as raised:
            client.counters()
        assert url in str(raised.value)
        client.close()


def test_an_error_of_a_worker_points_to_its_log() -> None:
    with answering(lambda _: (500, b"Internal server error")) as url:
        client = OmbClient(url)
        with pytest.raises(
            WorkerRefused, match=r"POST /initialize-driver with status 500 .* its log says why"
        ):
            client.initialize_driver("x")
        client.close()
        assert "start it anew" in str(stop_workers(read_addresses(f"omb:{url}"))[url])  # type: ignore[arg-type]


def test_a_worker_that_hangs_is_lost_in_time() -> None:
    def late(_: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        time.sleep(1.0)
        return 200, b""

    with answering(late) as url:
        client = OmbClient(url)
        with pytest.raises(WorkerLost, match=r"did not answer POST /stop-all within 0\.2 s"):
            client.stop_all(0.2)
        client.close()


def test_readiness_that_does_not_come_says_what_is_missing() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        told = {"messagesSent": 4, "messagesReceived": 3}
        return 200, json.dumps(told).encode() if handler.command == "GET" else b""

    with answering(answer) as url:
        ensemble = Ensemble([Member(OmbClient(url))])
        with pytest.raises(WorkerLost, match=r"of 4 probes 4 were acknowledged and 3 of 4 received"):
            ensemble.await_ready(plan(request()), 0.5, lambda: False)
        ensemble.close()
