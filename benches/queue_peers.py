"""The peers of the other systems: RabbitMQ's PerfTest, pulsar-perf, and a load program on the official Go client of NATS."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peers import Cost, run
from streamgauge.systems.support import maven
from streamgauge.systems.support.cache import Cache
from streamgauge.systems.support.java import find_java

PERF_TEST = maven.Artifact("com.rabbitmq", "perf-test", "2.22.1")
UNCONFIRMED_MSGS = 4000
"""About what five batches of 128 KiB hold at 100 B."""
PEER_WARM_UP_S = 4.0
"""A JVM's first seconds, in which its code is still being compiled."""
UNCONFIRMED_PULSAR_MSGS = 50_000
"""Wide enough never to be the limit at the rates that are asked for."""


@dataclass(frozen=True)
class PerfTest:
    """RabbitMQ's own load tool on queues that are there."""

    java: str
    classpath: str
    uri: str

    @staticmethod
    def obtain(address: str) -> PerfTest:
        """Fetches the tool into the cache."""
        cache, java = Cache(), find_java()
        log = cache.root / "logs" / f"{PERF_TEST.name}-{PERF_TEST.version}.log"

        def fetch(into: Path) -> Mapping[str, object]:
            return maven.copy_dependencies("RabbitMQ PerfTest", [PERF_TEST], into, java, log, print)

        found = cache.obtain(f"rabbitmq-{PERF_TEST.name}", PERF_TEST.version, fetch, print)
        return PerfTest(str(java.executable), str(found.path / "*"), f"amqp://guest:guest@{address}/%2F")

    def drive(self, topic: str, messages: int, rate: int, *, consume: bool) -> Cost:
        """One producer and at most one consumer on partition 0 of a topic. `rate` -1: as fast as it goes."""

        def command(count: int) -> list[str]:
            shape = ["--predeclared", "--skip-binding-queues", "--exchange", topic, "--type", "direct"]
            shape += ["--routing-key", "0", "--queue", f"{topic}.0", "--size", "100", "--flag", "mandatory"]
            load = ["--producers", "1", "--pmessages", str(count), "--confirm", str(UNCONFIRMED_MSGS)]
            load += ["--rate", str(rate), "--consumers", str(int(consume))]
            if consume:
                load += ["--cmessages", str(count), "--qos", "2000", "--multi-ack-every", "500"]
            jvm = [self.java, "-Xmx512m", "-cp", self.classpath, "com.rabbitmq.perf.PerfTest"]
            return [*jvm, "--uri", self.uri, *shape, *load]

        began = time.monotonic()
        _, start_up_s, _ = run(command(1))
        start_up_wall = time.monotonic() - began
        began = time.monotonic()
        text, cpu_s, rss = run(command(messages))
        seconds = time.monotonic() - began - start_up_wall
        return Cost(messages, cpu_s - start_up_s, max(seconds, 0.001), rss, self._confirm_p50_ms(text))

    @staticmethod
    def _confirm_p50_ms(text: str) -> float | None:
        """The median of the medians that it printed each second; those of its own warm-up are left out."""
        line = re.compile(r"time ([\d.]+) s, .*median/75th/95th/99th confirm latency: \d+/(\d+)/")
        medians = [int(found[2]) / 1e3 for found in line.finditer(text) if float(found[1]) > PEER_WARM_UP_S]
        return statistics.median(medians) if medians else None


@dataclass(frozen=True)
class PulsarPerf:
    """Pulsar's own load tool, from the distribution that is measured."""

    java: str
    classpath: str
    settings: str
    url: str

    @staticmethod
    def of(distribution: Path, address: str) -> PulsarPerf:
        """The tool in a distribution's directory."""
        settings = distribution / "conf" / "client.conf"
        classpath = f"{settings.parent}:{distribution / 'lib' / '*'}"
        return PulsarPerf(str(find_java().executable), classpath, str(settings), f"pulsar://{address}")

    def produce(self, topic: str, messages: int, rate: int, batch_bytes: int | None) -> Cost:
        """100 B, batches of 1 ms or, with None, single messages; `rate` 0: as fast as it goes."""

        def command(count: int) -> list[str]:
            jvm = [
                self.java,
                "-Xmx512m",
                "-XX:MaxDirectMemorySize=512m",
                "-Dpulsar.allocator.exit_on_oom=true",
            ]
            tool = [
                "-cp",
                self.classpath,
                "org.apache.pulsar.testclient.PulsarPerfTestTool",
                self.settings,
                "produce",
            ]
            load = ["-u", self.url, "-s", "100", "-m", str(count), "-r", str(rate or 100_000_000)]
            batch = ["-b", "1", "-bb", str(batch_bytes), "-bm", "100000"]
            window = ["-o", str(UNCONFIRMED_PULSAR_MSGS)]
            batching = ["--disable-batching"] if batch_bytes is None else batch
            return [*jvm, *tool, *load, *batching, *window, "--warmup-time", "0", "-i", "3600", topic]

        _, start_up_s, _ = run(command(1))
        text, cpu_s, rss = run(command(messages))
        sent = re.search(r"throughput stats --- (\d+) records sent --- ([\d.]+) msg/s", text)
        median = re.search(r"Aggregated latency stats --- .*?med: +([\d.]+)", text)
        if sent is None or median is None:
            raise SystemExit(f"pulsar-perf said nothing that is understood:\n{text[-2000:]}")
        count = int(sent[1])
        return Cost(count, cpu_s - start_up_s, count / float(sent[2]), rss, float(median[1]))


@dataclass(frozen=True)
class GoClient:
    """nats.go by way of nats_peer/main.go, which does what `nats bench` does."""

    program: Path
    url: str

    @staticmethod
    def build(directory: Path, address: str) -> GoClient | None:
        """Compiles the peer; None, with a line that says why, where it cannot be."""
        program = directory / "nats_peer"
        go = shutil.which("go")
        source = Path(__file__).with_name("nats_peer")
        built = go and subprocess.run([go, "build", "-o", str(program), "."], cwd=source, check=False)
        if not built or built.returncode != 0:
            print("the Go client of NATS is left out: it needs Go, and its module proxy")
            return None
        return GoClient(program, f"nats://{address}")

    def _run(self, *arguments: str) -> Cost:
        text, _, rss = run([str(self.program), *arguments])
        report = json.loads(text.strip().splitlines()[-1])
        median_ms = report.get("service_p50_ms")
        return Cost(report["messages"], report["cpu_s"], report["seconds"], rss, median_ms)

    def produce(self, topic: str, messages: int, rate: int) -> Cost:
        """Publishes to partition 0. `rate` 0: as fast as it goes."""
        window = str(UNCONFIRMED_MSGS)
        return self._run("publish", self.url, f"{topic}.0", str(messages), "100", str(rate), window)

    def consume(self, topic: str, messages: int) -> Cost:
        return self._run("consume", self.url, topic, str(messages))
