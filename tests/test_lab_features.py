"""What a workload may ask for beyond a fixed rate of equal messages: sizes, keys, steps, slow consumers, reading what is there."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from lab_support import lab
from streamgauge.model.messages import Interval
from streamgauge.model.resolve import read_workload
from streamgauge.runner.compilers import FIRST_NICE, NAMES, Compilers
from streamgauge.runner.request import topic_names, trial_request
from streamgauge.runner.thread_stats import read_threads
from streamgauge.runner.warm_up import WINDOW, WarmUp
from streamgauge.systems.support import privileges
from streamgauge.systems.support.java import find_java
from streamgauge.vocabulary.sizes import SIZES, SizeSpread, parse_message_size
from test_lab_model import problems, write
from test_lab_real import call, measured, result_of

SYS_NICE = 23
"""Its number among the kernel's capabilities."""


def spread(value: object) -> SizeSpread:
    found = parse_message_size(value)
    assert isinstance(found, SizeSpread)
    return found


def test_shares_of_sizes_are_exact() -> None:
    found = spread({100: "50%", "1kB": "30%", "10kB": "20%"})
    counts = {size: found.sizes_bytes.count(size) for size in set(found.sizes_bytes)}
    assert counts == {100: 500, 1000: 300, 10_000: 200}
    assert found.mean_bytes == 2350
    assert found.sizes_bytes != tuple(sorted(found.sizes_bytes)), "they are mixed"
    assert spread({100: 2, 200: 1}).sizes_bytes.count(100) == pytest.approx(667, abs=1)


def test_ranges_and_lognormal_sizes_have_the_quantiles_that_were_asked_for() -> None:
    uniform = sorted(spread({"uniform": [100, "10kB"]}).sizes_bytes)
    assert (len(uniform), uniform[0] >= 100, uniform[-1] <= 10_000) == (SIZES, True, True)
    assert uniform[SIZES // 2] == pytest.approx(5050, rel=0.01)
    lognormal = sorted(spread({"lognormal": {"median": "1kB", "p99": "20kB", "max": "50kB"}}).sizes_bytes)
    assert lognormal[SIZES // 2] == pytest.approx(1000, rel=0.01)
    assert lognormal[989] == pytest.approx(20_000, rel=0.05)
    assert lognormal[-1] <= 50_000
    large = spread({"uniform": ["1MB", "2MB"]})
    assert sum(large.sizes_bytes) <= 100_000_000, "what the worker keeps is bounded"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "expected a size"),
        ({100: "60%", 200: "60%"}, "120 %"),
        ({100: "some"}, "no share"),
        ({"uniform": [200, 100]}, "smaller size first"),
        ({"uniform": 100}, r"\[100, 10kB\]"),
        ({"lognormal": {"median": "1kB"}}, "p99"),
        ({"lognormal": {"median": "2kB", "p99": "1kB"}}, "rise"),
        ({"uniform": ["40MB", "60MB"]}, "too large"),
        ({"uniform": [1, 2], 100: "50%"}, "mixes"),
    ],
)
def test_sizes_that_make_no_sense_say_what_was_expected(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_message_size(value)


def test_the_request_says_what_the_file_asked_for(tmp_path: Path) -> None:
    text = (
        "messageSize: {100: 50%, 1kB: 50%}\nkeys: zipf\nkey_count: 100\nrate: 1k\nduration: 30s\nwarmup: 10s\n"
        "surges: {rate: 5k, every: 10s, for: 1s}\nprocessing: {message: 5ms, fetch: 1ms}\n"
    )
    workload = read_workload(write(tmp_path, text))
    request = trial_request(
        workload, topic_names(workload, "r", 1), system={}, acks="all", run_id="r", trial=1, seed=1
    )
    assert request["payload"]["sizes_bytes"].count(100) == 500
    assert request["producers"][0] == {
        "id": 0, "topic": request["topics"][0]["name"], "keys": "zipf", "key_count": 100, "zipf_exponent": 1.0,
    }  # fmt: skip
    assert request["subscriptions"][0]["processing"] == {"us_per_msg": 5000, "us_per_fetch": 1000}
    changes = [(one["at_s"], one["rate_msgs_s"]) for one in request["schedule"]["changes"]]
    assert changes == [(9, 5000), (10, 1000), (19, 5000), (20, 1000), (29, 5000), (30, 1000), (39, 5000)]
    assert workload.message_size_bytes == 550
    assert workload.result().message_sizes is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("producersPerTopic: 0\n", ":1: producersPerTopic 0: expected read"),
        ("read: [a]\nrate: 5k\n", ":2: rate: nothing is produced"),
        ("start: latest\n", ":1: start: belongs to read"),
        ("zipf_exponent: 1.0\n", ":1: zipf_exponent needs keys: zipf"),
        ("rate: max\nsteps: [{at: 5s, rate: 1k}]\n", ":2: steps need a rate"),
        ("steps: [{at: 5s, rate: 1k, over: 5s}, {at: 6s, rate: 2k}]\n", "lasts until 10s"),
        ("surges: {rate: 5k, every: 1s, for: 2s}\n", "for must be above 0 and below every"),
        ("messageSize: {16: 50%, 100: 50%}\n", ":1: messageSize 16: a message below 32 bytes"),
        ("warmup: auto:5s\n", ":1: warmup auto: the limit of 5s is too short"),
        ("warmup: auto\nramp: {to: 100k, over: 5s}\n", ":1: warmup auto: the rate changes"),
    ],
)
def test_contradictions_are_refused_at_their_line(tmp_path: Path, text: str, words: str) -> None:
    assert any(words in problem for problem in problems(write(tmp_path, text))), problems(
        write(tmp_path, text)
    )


def interval(rate: int, p50_ms: float, cpu_s: float = 0.1) -> Interval:
    latency = {
        "phase": "warm-up", "metric": "publish", "subscription": None, "count": rate, "overflow": 0, "negative": 0,
        "sum_ns": 1, "min_ns": 1, "max_ns": 1, "p50_ns": int(1e6 * p50_ms), "p99_ns": int(3e6 * p50_ms), "histogram": "",
    }  # fmt: skip
    value = {"index": 0, "start_s": 0.0, "duration_s": 1.0, "acked_msgs": rate, "cpu_s": cpu_s}
    return Interval.model_validate({**value, "latencies": [latency]})


def test_a_warm_up_ends_when_the_load_is_steady() -> None:
    warm_up = WarmUp()
    for second in range(15):
        warm_up.add(interval(1000, 50 * 0.8**second))
        assert warm_up.explanation, "a latency that still falls is not steady"
    assert re.search(r"the publish p50 went from 10\.49 to 3\.436 ms within the last 10", warm_up.explanation)
    for second in range(WINDOW):
        warm_up.add(interval(1000 + second % 3, 1.8 + 0.01 * (second % 4)))
    assert not warm_up.explanation


def test_a_load_on_a_system_that_still_compiles_is_not_steady() -> None:
    """Whatever it looks like: a broker that takes all of a small machine is steady at latencies that it will not have."""
    warm_up = WarmUp()
    for second in range(2 * WINDOW):
        warm_up.add(interval(1000, 1.8))
        warm_up.compiled(float(second), 0.4 * second)
    assert warm_up.explanation == "the system's compilers take 0.40 of a core"
    # One of them ends, and its seconds are gone with it; another goes on a little.
    for second in range(2 * WINDOW, 2 * WINDOW + 3):
        warm_up.compiled(float(second), 3.0 + 0.02 * second)
        assert warm_up.explanation
    for second in range(2 * WINDOW + 3, 2 * WINDOW + 7):
        warm_up.compiled(float(second), 3.0 + 0.02 * second)
    assert not warm_up.explanation


def priorities(pid: int) -> tuple[set[int], set[int]]:
    """Nice values of a JVM's compilers, and of its other threads."""
    compilers: set[int] = set()
    others: set[int] = set()
    for thread, (name, _) in read_threads(pid).items():
        with contextlib.suppress(ProcessLookupError):
            (compilers if name in NAMES else others).add(os.getpriority(os.PRIO_PROCESS, thread))
    return compilers, others


@pytest.mark.jvm
def test_the_compilers_of_a_jvm_are_seen_at_work_and_go_first_for_as_long_as_a_warm_up_waits_for_them(
    tmp_path: Path,
) -> None:
    source = tmp_path / "Busy.java"
    source.write_text(
        "class Busy { public static void main(String[] none) { double sum = 0; for (long n = 1; n > 0; n++) sum += Math.sin(n) * none.length; } }",
        "utf-8",
    )
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with subprocess.Popen([str(find_java().executable), str(source)]) as busy:
        compilers = Compilers(lambda: [busy.pid])
        try:
            until = time.monotonic() + 60
            with compilers.first():
                while compilers.used_s() < 0.05:
                    assert busy.poll() is None
                    assert time.monotonic() < until, read_threads(busy.pid)
                    time.sleep(0.1)
                may = privileges.has(SYS_NICE) and usual > FIRST_NICE
                assert priorities(busy.pid) == ({FIRST_NICE if may else usual}, {usual})
            assert priorities(busy.pid) == ({usual}, {usual})
            assert compilers.used_s() > 0.0
            assert priorities(busy.pid) == ({usual}, {usual}), "nobody waits for them"
        finally:
            busy.kill()
    assert compilers.used_s() == 0.0, "it is gone"
    with compilers.first():
        pass
    assert Compilers(lambda: [os.getpid()]).used_s() == 0.0, "this is none"


def test_sizes_skewed_keys_surges_and_slow_consumers_are_audited(gauge: Path, tmp_path: Path) -> None:
    text = (
        "messageSize: {100: 50%, 1kB: 50%}\nkeys: zipf\nkey_count: 100\npartitionsPerTopic: 4\n"
        "rate: 2k\nsurges: {rate: 6k, every: 2s, for: 1s}\nduration: 4s\nwarmup: 1s\n"
        "subscriptionsPerTopic: 1\nprocessing: 100us\n"
    )
    result = measured(gauge, tmp_path, text)
    assert result["audit"]["clean"]
    # Second 0, 2 and 4 at 2,000/s, second 1 and 3 at 6,000/s.
    assert result["audit"]["sent"] == pytest.approx(3 * 2000 + 2 * 6000, abs=2)
    mean = result["publish_rate_mb_s"] * 1e6 / result["publish_rate_msgs_s"]
    assert mean == pytest.approx(550, rel=0.02)


def test_a_backlog_is_read_while_nothing_is_produced_after_a_warm_up_of_its_own_length(
    gauge: Path, tmp_path: Path
) -> None:
    text = (
        "messageSize: 1000\nrate: 4k\nduration: 2s\nwarmup: auto:14s\nbacklog: {size: 8MB, producing: off}\n"
    )
    result = measured(gauge, tmp_path, text)
    assert 10 <= result["warm_up"]["lasted_s"] <= 15
    found = result["catch_up"]
    assert found["caught_up"]
    assert [phase["name"] for phase in found["phases"]] == ["measure", "build backlog", "catch-up"]
    assert found["phases"][-1]["publish_rate_msgs_s"] < 1000
    assert result["audit"]["clean"]
    assert result["phases"]


def test_topics_that_exist_are_read_and_left_alone(gauge: Path, tmp_path: Path) -> None:
    import re
    import subprocess

    with subprocess.Popen(
        [gauge, "log", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
    ) as log:
        try:
            assert log.stdout is not None
            found = re.search(r"127\.0\.0\.1:\d+", log.stdout.readline())
            assert found is not None
            address = found.group()
            fill(address)
            text = "read: [filled]\nduration: 2s\n"
            for _ in range(2):
                result = measured(gauge, tmp_path, text, "--system", "gauge-log", "--connect", address)
                assert result["audit"]["sent"] == 0
                assert not result["audit"]["enabled"]
                assert sum(one["received"] for one in result["audit"]["subscriptions"]) == 5000
                assert result["consume_rate_msgs_s"] > 1000
                assert result["validity"]["valid"], result["validity"]["reasons"]
        finally:
            log.terminate()
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    process = lab(gauge, tmp_path, "run", "r.yaml")
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "--connect" in stderr
    assert call(gauge, tmp_path, "list")
    assert result_of((tmp_path / "runs" / "latest").resolve())


def fill(address: str) -> None:
    """A topic of three partitions with 5,000 messages that are none of ours."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic("filled", 3, 1)]).values():
        future.result(10)
    producer = Producer({"bootstrap.servers": address})
    for number in range(5000):
        producer.produce("filled", b"x" * 200, partition=number % 3)
        producer.poll(0)
    assert producer.flush(20) == 0
