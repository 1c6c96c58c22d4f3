"""The peers: Kafka's own perf tools and librdkafka, as child processes whose CPU time the kernel keeps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

PEER_TIMEOUT_S = 300


@dataclass(frozen=True)
class Cost:
    """What a run of a client cost."""

    messages: int
    cpu_s: float
    seconds: float
    rss_bytes_max: int = 0
    service_p50_ms: float | None = None
    """From handing a message over to its acknowledgement, where the client says so."""
    wire_p50_ms: float | None = None
    """From the client's segment to the server's next one, where the wire was listened to."""

    @property
    def us_per_msg(self) -> float:
        return self.cpu_s / self.messages * 1e6

    @property
    def rate_msgs_s(self) -> float:
        return self.messages / self.seconds


def run(command: list[str]) -> tuple[str, float, int]:
    """Runs a command to its end: its output, user and system CPU seconds, largest resident set in bytes."""
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command[:6])} ... ended with status {child.returncode}:\n{text[-2000:]}")
    return text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


@dataclass(frozen=True)
class JavaTools:
    """ProducerPerformance and ConsumerPerformance of the Kafka version under test."""

    java: str
    classpath: str
    bootstrap: str

    def _start_up(self, command: list[str]) -> float:
        return run(command)[1]

    def produce(
        self, topic: str, messages: int, size: int, rate: int, linger_ms: float, batch_bytes: int
    ) -> Cost:
        """`rate` -1: as fast as it goes."""

        def command(count: int) -> list[str]:
            properties = (
                f"acks=all enable.idempotence=false linger.ms={linger_ms:g} batch.size={batch_bytes} "
                "buffer.memory=67108864 max.in.flight.requests.per.connection=5 max.request.size=16777216"
            )
            return [
                *(self.java, "-Xmx512m", "-cp", self.classpath, "org.apache.kafka.tools.ProducerPerformance"),
                *("--bootstrap-server", self.bootstrap, "--topic", topic, "--num-records", str(count)),
                *(
                    "--record-size",
                    str(size),
                    "--throughput",
                    str(rate),
                    "--command-property",
                    *properties.split(),
                ),
            ]

        text, cpu_s, rss = run(command(messages))
        # The last line: "... records sent, N records/sec (M MB/sec), ..."
        rate_seen = float(text.strip().splitlines()[-1].split(" records/sec")[0].split()[-1])
        return Cost(messages, cpu_s - self._start_up(command(1)), messages / rate_seen, rss)

    def consume(self, topic: str, messages: int) -> Cost:
        def command(count: int) -> list[str]:
            return [
                *(self.java, "-Xmx512m", "-cp", self.classpath, "org.apache.kafka.tools.ConsumerPerformance"),
                *(
                    "--bootstrap-server",
                    self.bootstrap,
                    "--topic",
                    topic,
                    "--num-records",
                    str(count),
                    "--hide-header",
                ),
            ]

        text, cpu_s, rss = run(command(messages))
        # start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, ...
        fields = [field.strip() for field in text.strip().splitlines()[-1].split(",")]
        received, rate_seen = int(fields[4]), float(fields[5])
        return Cost(received, cpu_s - self._start_up(command(1)), received / rate_seen, rss)


def _compiled(source: str, program: Path, *libraries: str) -> bool:
    """Whether a program of this directory could be made here."""
    command = ["cc", "-O2", str(Path(__file__).with_name(source)), "-o", str(program), *libraries]
    return shutil.which("cc") is not None and (
        subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@dataclass(frozen=True)
class WakingUp:
    """A client that does nothing but wait, send and receive (waking_up.c): what any client that does so costs at least on this machine."""

    program: Path

    @staticmethod
    def build(directory: Path) -> WakingUp | None:
        """Compiles it; None, with a line that says why, where it cannot be."""
        program = directory / "waking_up"
        if not _compiled("waking_up.c", program):
            print("the client that only waits, sends and receives is left out: it needs a C compiler")
            return None
        return WakingUp(program)

    def batches(self, rate: int, size: int, linger_ms: float, seconds: float) -> Cost:
        """As often as a batch leaves that lingers from its first message on, of as many bytes, and its answer."""
        period_us = round(linger_ms * 1e3 + 1e6 / rate)
        batch_bytes = round(period_us / 1e6 * rate * (size + 20))
        arguments = ["timeout", str(period_us), str(batch_bytes), f"{seconds:g}"]
        text, _, _ = run([str(self.program), *arguments])
        share, _, _ = text.partition(" %")
        return Cost(round(rate * seconds), float(share) / 100 * seconds, seconds)


@dataclass(frozen=True)
class Librdkafka:
    """librdkafka by way of librdkafka_peer.c."""

    program: Path
    bootstrap: str

    @staticmethod
    def build(directory: Path, bootstrap: str) -> Librdkafka | None:
        """Compiles the peer; None, with a line that says why, where it cannot be."""
        program = directory / "librdkafka_peer"
        if not _compiled("librdkafka_peer.c", program, "-lrdkafka"):
            print("librdkafka is left out: it needs a C compiler and the package librdkafka-dev")
            return None
        return Librdkafka(program, bootstrap)

    def _run(self, *arguments: str) -> Cost:
        text, _, rss = run([str(self.program), *arguments])
        report = json.loads(text.strip().splitlines()[-1])
        return Cost(report["messages"], report["cpu_s"], report["seconds"], rss)

    def produce(
        self, topic: str, messages: int, size: int, rate: int, linger_ms: float, batch_bytes: int
    ) -> Cost:
        return self._run(
            *("produce", self.bootstrap, topic, str(messages), str(size)),
            *(str(max(rate, 0)), f"{linger_ms:g}", str(batch_bytes)),
        )

    def consume(self, topic: str, messages: int, partitions: int) -> Cost:
        return self._run("consume", self.bootstrap, topic, str(messages), str(partitions))
