"""What a message costs the client: ours beside RabbitMQ's PerfTest, pulsar-perf and the Go client of NATS, on one server, in one session.

    .venv/bin/python benches/queues.py                 starts RabbitMQ, NATS and Pulsar of its own, one after the other
    --only rabbitmq,nats,pulsar    --rounds 3    --quick

100 B everywhere. RabbitMQ and NATS have one partition and a window of about 4,000 unconfirmed messages for everybody, Pulsar 16 partitions.
The first comparison of each is of latencies: a rate that nobody has to hurry at, no batching, and `service` beside what the tool says.
Rounds are interleaved (ours, theirs, ours, ...); each figure is the median over the rounds. What counts is the CPU of the client's process;
the JVM's start-up is taken off.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gauge_client import MEASURE_AFTER_S, Gauge, gauge_for
from peers import Cost
from queue_peers import GoClient, PerfTest, PulsarPerf
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.registry import systems
from wire import Tap

PARTITIONS = 1
PULSAR_PARTITIONS = 16
BATCH_BYTES = 131_072
MODEST_MSGS_S = 2_000
MODEST = f"{MODEST_MSGS_S:,} msg/s without batching"


def linger_of(rate: int | None) -> float:
    """Milliseconds: none where latencies are compared."""
    return 0.0 if rate == MODEST_MSGS_S else 1.0


def goal_of(rate: int | None, cpu: str) -> str:
    """What the comparison is about."""
    return "service p50 within 20 %" if rate == MODEST_MSGS_S else f"CPU at most {cpu}"


@contextmanager
def server(name: str) -> Iterator[RunningSystem]:
    """A system on one node, at its own default level."""
    system = systems()[name]
    system.install(None, print)
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as directory:
        running = system.start(SystemRequest(), Path(directory) / "data", print)
        try:
            yield running
        finally:
            running.stop()


def compare(title: str, goal: str, rounds: int, contestants: dict[str, Callable[[], Cost]]) -> None:
    """Runs the contestants in turn and prints medians and ratios to the first."""
    costs: dict[str, list[Cost]] = {}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            costs.setdefault(name, []).append(contestant())
    print(f"\n{title}   (goal: {goal})")
    base = statistics.median(cost.us_per_msg for cost in costs["ours"])
    for name, runs in costs.items():
        each = [cost.us_per_msg for cost in runs]
        print(
            f"  {name:12} {statistics.median(each):7.3f} us/msg  [{min(each):.3f} - {max(each):.3f}]"
            f"   {statistics.median(each) / base:6.1f} x ours"
            f"   {statistics.median(cost.rate_msgs_s for cost in runs) / 1e3:7.1f} k msg/s"
            f"   {max(cost.rss_bytes_max for cost in runs) / 2**20:5.0f} MiB{_median_service(runs)}",
            flush=True,
        )


def _median_service(runs: list[Cost]) -> str:
    told = [cost.service_p50_ms for cost in runs if cost.service_p50_ms is not None]
    wired = [cost.wire_p50_ms for cost in runs if cost.wire_p50_ms is not None]
    service = f"   service p50 {statistics.median(told):.2f} ms" if told else ""
    return service + (f", on the wire {statistics.median(wired):.2f} ms" if wired else "")


def listened(
    running: RunningSystem, rate: int | None, contestants: dict[str, Callable[[], Cost]]
) -> dict[str, Callable[[], Cost]]:
    """Where latencies are compared, the wire is listened to meanwhile: what the clients' own clocks and threads add shows."""
    if rate != MODEST_MSGS_S:
        return contestants
    port = int(running.connection["bootstrap"][0].rpartition(":")[2])

    def listening(contestant: Callable[[], Cost]) -> Callable[[], Cost]:
        def run() -> Cost:
            with Tap(port) as tap:
                cost = contestant()
            return replace(cost, wire_p50_ms=tap.p50_ms)

        return run

    return {name: listening(contestant) for name, contestant in contestants.items()}


def with_topic(gauge: Gauge, work: Callable[[str], Cost], partitions: int = PARTITIONS) -> Callable[[], Cost]:
    """Each run has a topic of its own."""

    def run() -> Cost:
        with gauge.topic(partitions) as topic:
            return work(topic)

    return run


def ours(
    gauge: Gauge,
    seconds: float,
    rate: int | None,
    *,
    consume: bool,
    partitions: int = PARTITIONS,
    linger_ms: float = 1.0,
) -> Callable[[], Cost]:
    """A trial of ours."""

    def run(topic: str) -> Cost:
        trial = gauge.run(
            topic,
            partitions,
            seconds + MEASURE_AFTER_S,
            rate=rate,
            batch_bytes=BATCH_BYTES,
            linger_ms=linger_ms,
            consume=consume,
            realtime="off" if rate is None else "auto",
        )
        (p50_ms,) = trial.latency_ms("service", (50.0,))
        return replace(trial.cost(), service_p50_ms=p50_ms)

    return with_topic(gauge, run, partitions)


def rabbitmq(rounds: int, seconds: float) -> None:
    """Classic queues, transient messages, confirms."""
    with server("rabbitmq") as running, gauge_for(running.connection) as gauge:
        peer = PerfTest.obtain(running.connection["bootstrap"][0])
        for title, rate, consume in (
            (f"RabbitMQ: produce 100 B at {MODEST}", MODEST_MSGS_S, False),
            ("RabbitMQ: produce 100 B at 10,000 msg/s", 10_000, False),
            ("RabbitMQ: produce and consume 100 B at 10,000 msg/s", 10_000, True),
            ("RabbitMQ: produce and consume 100 B at maximum rate", None, True),
        ):
            linger_ms = linger_of(rate)
            messages = int((rate or 15_000) * seconds)

            def theirs(
                topic: str, messages: int = messages, rate: int | None = rate, consume: bool = consume
            ) -> Cost:
                return peer.drive(topic, messages, rate or -1, consume=consume)

            contestants = {
                "ours": ours(gauge, seconds, rate, consume=consume, linger_ms=linger_ms),
                "PerfTest": with_topic(gauge, theirs),
            }
            compare(title, goal_of(rate, "1/3 of PerfTest"), rounds, listened(running, rate, contestants))


def nats(rounds: int, seconds: float) -> None:
    """File storage, one copy."""
    with (
        server("nats") as running,
        gauge_for(running.connection) as gauge,
        tempfile.TemporaryDirectory() as scratch,
    ):
        peer = GoClient.build(Path(scratch), running.connection["bootstrap"][0])
        for title, rate in (
            (f"NATS: produce 100 B at {MODEST}", MODEST_MSGS_S),
            ("NATS: produce 100 B at 20,000 msg/s", 20_000),
            ("NATS: produce 100 B at maximum rate", None),
        ):
            contestants = {"ours": ours(gauge, seconds, rate, consume=False, linger_ms=linger_of(rate))}
            if peer is not None:
                messages = int((rate or 100_000) * seconds)

                def theirs(
                    topic: str, peer: GoClient = peer, messages: int = messages, rate: int = rate or 0
                ) -> Cost:
                    return peer.produce(topic, messages, rate)

                contestants["nats.go"] = with_topic(gauge, theirs)
            compare(title, goal_of(rate, "1/3 of nats.go"), rounds, listened(running, rate, contestants))


def pulsar(rounds: int, seconds: float) -> None:
    """One bookie, one broker; a namespace of its own."""
    with server("pulsar") as running, gauge_for(running.connection) as gauge:
        distribution = systems()["pulsar"].installed()
        assert distribution is not None
        peer = PulsarPerf.of(Path(distribution), running.connection["bootstrap"][0])
        namespace = running.connection["options"]["namespace"]
        for title, rate in (
            (f"Pulsar: produce 100 B at {MODEST}", MODEST_MSGS_S),
            (
                "Pulsar: produce 100 B at 5,000 msg/s, batches of 1 ms (the Java client's clock for them ticks in ms)",
                5_000,
            ),
            ("Pulsar: produce 100 B at 50,000 msg/s", 50_000),
            ("Pulsar: produce 100 B at maximum rate", None),
        ):
            messages = int((rate or 300_000) * seconds)

            linger_ms = linger_of(rate)
            batch_bytes = BATCH_BYTES if linger_ms else None

            def theirs(
                topic: str,
                messages: int = messages,
                rate: int = rate or 0,
                batch_bytes: int | None = batch_bytes,
            ) -> Cost:
                return peer.produce(f"persistent://{namespace}/{topic}", messages, rate, batch_bytes)

            contestants = {
                "ours": ours(
                    gauge,
                    seconds,
                    rate,
                    consume=False,
                    partitions=PULSAR_PARTITIONS,
                    linger_ms=linger_ms,
                ),
                "pulsar-perf": with_topic(gauge, theirs, PULSAR_PARTITIONS),
            }
            compare(title, goal_of(rate, "1/5 of pulsar-perf"), rounds, listened(running, rate, contestants))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="rabbitmq,nats,pulsar")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a look")
    chosen = parser.parse_args()
    seconds = 8.0 if chosen.quick else 20.0
    for name in chosen.only.split(","):
        {"rabbitmq": rabbitmq, "nats": nats, "pulsar": pulsar}[name](chosen.rounds, seconds)


if __name__ == "__main__":
    main()
