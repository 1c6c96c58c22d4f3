"""What a message costs the client: ours beside Kafka's perf tools and librdkafka, on one broker, in one session.

    .venv/bin/python benches/efficiency.py                    starts a Kafka of its own
    .venv/bin/python benches/efficiency.py --connect HOST:PORT    uses one that runs
    --only produce,paced,consume,both,sink    --rounds 3    --quick

Rounds are interleaved (ours, Java, librdkafka, ours, ...); each figure is the median over the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gauge_client import Gauge, Trial, gauge
from peers import Cost, JavaTools, Librdkafka, WakingUp
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.registry import systems

PARTITIONS = 16
BATCH_BYTES = 1_048_576


@dataclass(frozen=True)
class Setting:
    """How much each run does."""

    rounds: int
    seconds: float
    messages: int


@dataclass(frozen=True)
class Bench:
    """The contestants on one broker."""

    ours: Gauge
    java: JavaTools
    librdkafka: Librdkafka | None
    bare: WakingUp | None
    setting: Setting

    def compare(self, title: str, goal: str, contestants: dict[str, Callable[[], Cost] | None]) -> None:
        """Runs the contestants in turn and prints medians and ratios to the first."""
        costs: dict[str, list[Cost]] = {}
        for _ in range(self.setting.rounds):
            for name, contestant in contestants.items():
                if contestant is not None:
                    costs.setdefault(name, []).append(contestant())
        print(f"\n{title}   (goal: {goal})")
        base = statistics.median(cost.us_per_msg for cost in costs["ours"])
        for name, runs in costs.items():
            each = [cost.us_per_msg for cost in runs]
            print(
                f"  {name:22} {statistics.median(each):7.3f} us/msg  [{min(each):.3f} - {max(each):.3f}]"
                f"   {statistics.median(each) / base:6.1f} x ours"
                f"   {statistics.median(cost.rate_msgs_s for cost in runs) / 1e3:9.0f} k msg/s"
                f"   {max(cost.rss_bytes_max for cost in runs) / 2**20:6.0f} MiB"
            )

    def _with_topic(self, work: Callable[[str], Cost]) -> Callable[[], Cost]:
        def run() -> Cost:
            with self.ours.topic(PARTITIONS) as topic:
                return work(topic)

        return run

    def _produce(self, title: str, goal: str, rate: int | None, linger_ms: float, seconds: float) -> None:
        messages = int(rate * seconds) if rate else self.setting.messages
        peer_rate = rate or -1
        native = self.librdkafka
        self.compare(
            title,
            goal,
            {
                "ours": self._with_topic(
                    lambda topic: self.ours.run(
                        topic,
                        PARTITIONS,
                        seconds,
                        rate=rate,
                        linger_ms=linger_ms,
                        realtime="off" if rate is None else "auto",
                    ).cost()
                ),
                "ProducerPerformance": self._with_topic(
                    lambda topic: self.java.produce(topic, messages, 100, peer_rate, linger_ms, BATCH_BYTES)
                ),
                "librdkafka": None
                if native is None
                else self._with_topic(
                    lambda topic: native.produce(topic, messages, 100, peer_rate, linger_ms, BATCH_BYTES)
                ),
            },
        )

    def produce(self) -> None:
        self._produce(
            "produce 100 B at maximum rate",
            "at most 1/6 of ProducerPerformance",
            None,
            10,
            self.setting.seconds,
        )

    def paced(self) -> None:
        title = "produce 100 B at 200,000 msg/s, linger 5 ms"
        self._produce(title, "at most 1/10 of ProducerPerformance", 200_000, 5, self.setting.seconds)

    def consume(self) -> None:
        def ours(topic: str) -> Cost:
            trial = self.ours.run(topic, PARTITIONS, 8, rate=1_000_000, linger_ms=5, drain_after=True)
            return drain_cost(trial)

        native = self.librdkafka
        with self.ours.topic(PARTITIONS) as filled:
            self.java.produce(filled, self.setting.messages, 100, -1, 10, BATCH_BYTES)
            self.compare(
                "consume 100 B, a backlog",
                "at most 1/5 of ConsumerPerformance",
                {
                    "ours": self._with_topic(ours),
                    "ConsumerPerformance": lambda: self.java.consume(filled, self.setting.messages),
                    "librdkafka": None
                    if native is None
                    else lambda: native.consume(filled, self.setting.messages, PARTITIONS),
                },
            )

    def both(self) -> None:
        self._both(50_000, 1, "at most 0.7 of ProducerPerformance, which produces only, below 200 MiB")
        self._both(10_000, 1, "at most 5 us per message, where waking up alone takes less")
        self._both(10_000, 5, "at most 5 us per message with the linger of Kafka 4's own client")

    def _both(self, rate: int, linger_ms: float, goal: str) -> None:
        """Produced and consumed, beside a tool that only produces, and a client that only waits, sends and receives."""
        seconds, bare = self.setting.seconds, self.bare

        def ours(topic: str) -> Cost:
            return self.ours.run(
                topic, PARTITIONS, seconds, rate=rate, linger_ms=linger_ms, consume=True
            ).cost()

        def java(topic: str) -> Cost:
            return self.java.produce(topic, round(rate * seconds), 100, rate, linger_ms, BATCH_BYTES)

        self.compare(
            f"produce and consume 100 B at {rate:,} msg/s, linger {linger_ms:g} ms, publish and end-to-end measured",
            goal,
            {
                "ours": self._with_topic(ours),
                "ProducerPerformance": self._with_topic(java),
                "waking up alone": None
                if bare is None
                else lambda: bare.batches(rate, 100, linger_ms, seconds),
            },
        )


def drain_cost(trial: Trial) -> Cost:
    """CPU per message of the intervals in which nothing was sent any more and the backlog was read."""
    draining = [
        interval
        for interval in trial.intervals
        if interval["sent_msgs"] == 0 and interval["subscriptions"][0]["received_msgs"] > 0
    ]
    if not draining:
        raise SystemExit("the backlog was read within the interval in which producing ended: make it larger")
    return Cost(
        sum(interval["subscriptions"][0]["received_msgs"] for interval in draining),
        sum(interval["cpu_s"] for interval in draining),
        sum(interval["duration_s"] for interval in draining),
        max(interval["rss_bytes"] for interval in trial.intervals),
    )


def sink(rounds: int) -> None:
    """One core against a server that stores nothing: what the producing path itself can do."""
    root = Path(__file__).resolve().parents[1]
    subprocess.run(
        ["cargo", "build", "--release", "-q", "-p", "gauge-client", "--examples"], cwd=root, check=True
    )
    examples = root / "target" / "release" / "examples"
    cores = sorted(os.sched_getaffinity(0))
    for _ in range(rounds):
        server = subprocess.Popen(
            [str(examples / "kafka_sink"), "--port", "0", "--pin", str(cores[-1])],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            command = [
                str(examples / "kafka_bench"),
                "--bootstrap",
                address,
                "--mode",
                "produce",
                "--topic",
                "any",
            ]
            command += ["--batch-bytes", str(BATCH_BYTES), "--seconds", "4", "--pin", str(cores[0])]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            print("  " + " | ".join(line.strip() for line in out.strip().splitlines()))
        finally:
            server.kill()
            server.wait()


@contextmanager
def broker(connect: str | None) -> Iterator[tuple[str, str]]:
    """A broker's address, and the classpath of its tools."""
    kafka = systems()["kafka"]
    kafka.install(None, print)
    where = kafka.installed()
    assert where is not None
    classpath = str(next(Path(where).rglob("kafka-tools-*.jar")).parent / "*")
    if connect:
        yield connect, classpath
        return
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as directory:
        running = kafka.start(SystemRequest(), Path(directory), print)
        try:
            yield running.connection["bootstrap"][0], classpath
        finally:
            running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connect")
    parser.add_argument("--only", default="produce,paced,consume,both,sink")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a look")
    chosen = parser.parse_args()
    wanted = chosen.only.split(",")
    setting = Setting(chosen.rounds, 8, 3_000_000) if chosen.quick else Setting(chosen.rounds, 15, 8_000_000)
    if "sink" in wanted:
        print(
            "one core into a sink that stores nothing, 100 B, closed loop   (goal: at least 10 million msg/s)"
        )
        sink(chosen.rounds)
        wanted.remove("sink")
    if not wanted:
        return
    java = shutil.which("java") or "java"
    with (
        broker(chosen.connect) as (bootstrap, classpath),
        gauge(bootstrap) as ours,
        tempfile.TemporaryDirectory() as scratch,
    ):
        librdkafka, bare = Librdkafka.build(Path(scratch), bootstrap), WakingUp.build(Path(scratch))
        bench = Bench(ours, JavaTools(java, classpath, bootstrap), librdkafka, bare, setting)
        for name in wanted:
            getattr(bench, name)()


if __name__ == "__main__":
    main()
