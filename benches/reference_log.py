"""The reference log beside Kafka: the ratios that docs/reference-log.md asks for.

    cargo build --release -p gauge-log --example drive
    .venv/bin/python benches/reference_log.py [latency] [prompt-latency] [sync-latency] [partitions] [throughput] [catch-up] [sync-rate] [crowd] [frames]

Without names it does all of them. Both systems run one after the other, in turn, --rounds times; a figure is the median of its rounds. `GAUGE=PROGRAM` measures
another build. Kafka is left out where it cannot run, and then there are no ratios to it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gauge_client import Gauge, gauge
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem, System
from streamgauge.systems.registry import systems
from streamgauge.vocabulary.gauge_binary import find_gauge
from streamgauge.vocabulary.levels import Level

ROOT = Path(__file__).resolve().parent.parent
DRIVE = ROOT / "target" / "release" / "examples" / "drive"
SETTLE_S = 4.0
"""After a start: Kafka's start-up work, and the time in which the log writes its next segment's blocks."""
FIGURE = re.compile(r"([\d.]+) MB/s")


@dataclass(frozen=True)
class Setting:
    """What was asked for."""

    systems: tuple[System, ...]
    rounds: int
    seconds: float
    backlog_mb: float
    records: int
    is_cold: bool
    data: str | None

    @contextlib.contextmanager
    def start(self, system: System, level: Level = "L4") -> Iterator[RunningSystem]:
        """The system for the time of the block, on an empty directory."""
        with tempfile.TemporaryDirectory(dir=self.data) as directory:
            running = system.start(SystemRequest(level=level), Path(directory) / "system", lambda _: None)
            try:
                time.sleep(SETTLE_S)
                yield running
            finally:
                running.stop()
                running.wipe()


def bootstrap(running: RunningSystem) -> str:
    return str(running.connection["bootstrap"][0])


def drive(address: str, topic: str, seconds: float, *arguments: object) -> str:
    """Runs the driver to its end: what it printed."""
    command = [str(DRIVE), address, topic, str(seconds), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def rate_mb_s(text: str) -> float:
    found = FIGURE.search(text.split("s:")[-1])
    if found is None:
        raise SystemExit(f"the driver printed no rate: {text}")
    return float(found[1])


def publish_p99_ms(
    ours: Gauge, topic: str, partitions: int, seconds: float, rate: float, linger_ms: float = 1.0
) -> float:
    trial = ours.run(topic, partitions, seconds, rate=rate, linger_ms=linger_ms, consume=True)
    return trial.latency_ms("publish", (99.0,))[0]


class Figures:
    """Figures by system, and the table of their medians."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.seen: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self.seen.setdefault(name, []).append(value)
        print(f"  {self.title}: {name} {value:.3f}", flush=True)

    def median(self, name: str) -> float:
        return statistics.median(self.seen[name])

    def ratio(self, first: str, second: str, goal: str) -> None:
        """Prints the medians of two figures and how often the second goes into the first."""
        if second not in self.seen or first not in self.seen:
            print(
                f"{self.title}: {', '.join(f'{name} {self.median(name):.3f}' for name in self.seen)}; no ratio"
            )
            return
        a, b = self.median(first), self.median(second)
        print(f"{self.title}: {first} {a:.3f}, {second} {b:.3f}, ratio {a / b:.2f} (goal {goal})", flush=True)


def latency(setting: Setting, level: Level = "L4", linger_ms: float = 1.0) -> None:
    """Publish p99 at 50,000 messages of 100 bytes per second on 16 partitions; a batch leaves when it is 1 ms old, so no broker is below 0.99 ms."""
    figures = Figures(f"publish p99 ms, {level}, linger {linger_ms:g} ms")
    for _ in range(setting.rounds):
        for system in setting.systems:
            with setting.start(system, level) as running, gauge(bootstrap(running)) as ours:
                configs = running.topic_plan().configs
                with ours.topic(16, configs) as topic:
                    # Once without looking, because a JVM is slow at first.
                    publish_p99_ms(ours, topic, 16, 8, 50_000, linger_ms)
                    p99_ms = publish_p99_ms(ours, topic, 16, setting.seconds, 50_000, linger_ms)
                    figures.add(system.name, p99_ms)
    figures.ratio("gauge-log", "kafka", "0.33 at most")


def prompt_latency(setting: Setting) -> None:
    """The same without linger: what is due leaves at once, and all of the latency is the system's."""
    latency(setting, linger_ms=0.0)


def sync_latency(setting: Setting) -> None:
    """The same, every acknowledgement after an fsync."""
    latency(setting, "L3")


def partitions(setting: Setting) -> None:
    """Publish p99 at 20,000 messages per second on 10,000 partitions against 1."""
    figures = Figures("publish p99 ms by partitions")
    for _ in range(setting.rounds):
        with setting.start(systems()["gauge-log"]) as running, gauge(bootstrap(running)) as ours:
            for count in (1, 10_000):
                with ours.topic(count) as topic:
                    figures.add(str(count), publish_p99_ms(ours, topic, count, setting.seconds, 20_000))
    figures.ratio("10000", "1", "2 at most")


def throughput(setting: Setting) -> None:
    """The most that one connection brings in, records of 1 KiB in batches of 128 KiB and of 1 MB."""
    for batch_bytes in (131_072, 1_000_000):
        figures = Figures(f"MB/s at 1 KiB, batches of {batch_bytes} bytes")
        for _ in range(setting.rounds):
            for system in setting.systems:
                with setting.start(system) as running:
                    address = bootstrap(running)
                    drive(address, "t", 1, "create", 16)
                    time.sleep(2)
                    drive(address, "t", 4, "max", 1024, 16, batch_bytes, 5)
                    done = drive(address, "t", setting.seconds, "max", 1024, 16, batch_bytes, 5)
                    figures.add(system.name, rate_mb_s(done))
        figures.ratio("gauge-log", "kafka", "3 at least")


def catch_up(setting: Setting) -> None:
    """Draining a backlog of records of 1 KiB (--records of them in a batch) while 20,000 messages per second are published."""
    rates = Figures("backlog drained, MB/s")
    tails: dict[str, Figures] = {}
    for _ in range(setting.rounds):
        for system in setting.systems:
            tail = tails.setdefault(system.name, Figures(f"publish p99 ms of {system.name}"))
            with setting.start(system) as running, gauge(bootstrap(running)) as ours:
                _drain(setting, bootstrap(running), ours, rates, tail, system.name)
    rates.ratio("gauge-log", "kafka", "0.9 at least")
    for tail in tails.values():
        tail.ratio("during", "before", "1.5 at most")


def forget_files() -> None:
    """What was written is on the device and no longer in the page cache."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def _drain(setting: Setting, address: str, ours: Gauge, rates: Figures, tail: Figures, name: str) -> None:
    drive(address, "past", 1, "create", 16)
    time.sleep(2)
    drive(address, "past", 1, "fill", 1024, 16, setting.records, setting.backlog_mb)
    if setting.is_cold:
        forget_files()
    drained: list[float] = []

    def drain(over: threading.Event) -> None:
        time.sleep(2)
        while not over.is_set():
            drained.append(rate_mb_s(drive(address, "past", 1, "read", 16)))

    publish_beside(setting, ours, tail, drain)
    rates.add(name, drained[0])


def publish_beside(
    setting: Setting, ours: Gauge, tail: Figures, work: Callable[[threading.Event], None]
) -> None:
    """Publish p99 at 20,000 messages per second before and during some work, which goes on in a thread until its event is set."""
    over = threading.Event()
    with ours.topic(16) as topic:
        publish_p99_ms(ours, topic, 16, 6, 20_000)
        tail.add("before", publish_p99_ms(ours, topic, 16, setting.seconds, 20_000))
        worker = threading.Thread(target=work, args=(over,))
        worker.start()
        try:
            tail.add("during", publish_p99_ms(ours, topic, 16, setting.seconds, 20_000))
        finally:
            over.set()
            worker.join()


def sync_rate(setting: Setting) -> None:
    """Batches of 1 MiB in `fsync` mode against what the probe says that the disk can do in sequence."""
    figures = Figures("MB/s in fsync mode")
    for _ in range(setting.rounds):
        with tempfile.TemporaryDirectory(dir=setting.data) as directory:
            command = [str(find_gauge()), "probe", "--json", "--dir", directory]
            probed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            figures.add("disk", probed["disk"]["write_mb_s"])
        with setting.start(systems()["gauge-log"], "L3") as running:
            address = bootstrap(running)
            drive(address, "t", 1, "create", 16)
            figures.add("log", rate_mb_s(drive(address, "t", setting.seconds, "max", 1024, 16, 1_048_576, 8)))
    figures.ratio("log", "disk", "0.7 at least")


def memory_mb(running: RunningSystem) -> float:
    """The largest resident set so far, MB."""
    status = Path(f"/proc/{running.processes()[0].pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024 / 1e6


def cpu_s(running: RunningSystem) -> float:
    """CPU seconds of the process so far."""
    fields = Path(f"/proc/{running.processes()[0].pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def crowd(setting: Setting) -> None:
    """Publish p99 of others beside 10,000 idle connections, and beside 200 clients that ask for data and do not read it."""
    figures = Figures("publish p99 ms beside a crowd")
    for _ in range(setting.rounds):
        with setting.start(systems()["gauge-log"]) as running, gauge(bootstrap(running)) as ours:
            address = bootstrap(running)
            with ours.topic(16) as topic:

                def measure(name: str, of: str = topic) -> None:
                    figures.add(name, publish_p99_ms(ours, of, 16, setting.seconds, 20_000))

                measure("alone")
                _beside_idle(address, running, measure)
                _beside_stalled(address, running, measure)
    figures.ratio("10,000 idle", "alone", "near 1")
    figures.ratio("200 stalled", "alone", "near 1")


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def _beside_idle(address: str, running: RunningSystem, measure: Callable[[str], None]) -> None:
    with contextlib.ExitStack() as idle:
        before = memory_mb(running)
        for _ in range(10_000):
            idle.enter_context(connect(address))
        started, spent = time.monotonic(), cpu_s(running)
        time.sleep(5)
        share = (cpu_s(running) - spent) / (time.monotonic() - started)
        print(f"  10,000 idle connections: {memory_mb(running) - before:.1f} MB more, {share:.1%} of a core")
        measure("10,000 idle")


def _beside_stalled(address: str, running: RunningSystem, measure: Callable[[str], None]) -> None:
    drive(address, "stalled", 1, "create", 16)
    drive(address, "stalled", 1, "fill", 1024, 16, 1, 500)
    fetch = struct.pack(">hhih5s", 1, 4, 0, 5, b"bench") + struct.pack(">iiiib", -1, 100, 1, 8 << 20, 0)
    fetch += struct.pack(">ih7si", 1, 7, b"stalled", 16)
    fetch += b"".join(struct.pack(">iqi", partition, 0, 1 << 20) for partition in range(16))
    frame = struct.pack(">i", len(fetch)) + fetch
    with contextlib.ExitStack() as stalled:
        for _ in range(200):
            client = stalled.enter_context(connect(address))
            client.setblocking(False)
            for _ in range(60):
                client.send(frame)
        measure("200 stalled")
        print(f"  200 clients that do not read: {memory_mb(running):.0f} MB at most")


def large_frame(api: tuple[int, int], before: bytes, element: bytes, behind: bytes, most: int) -> bytes:
    """A request of a version without flexible fields: one element again and again, as often as the largest frame holds it or `most` times."""
    head = struct.pack(">hhih", *api, 1, -1) + before
    count = min(((16 << 20) - len(head) - len(behind) - 4) // len(element), most)
    body = head + struct.pack(">i", count) + element * count + behind
    return struct.pack(">i", len(body)) + body


def large_frames() -> dict[str, bytes]:
    """Requests that ask for as much as a frame can."""
    topic, unnamed, all_of_it = b"\0\1t", b"\4\0\0\xff\xff\xff\xff", 1 << 31
    return {
        "produce: empty topics": large_frame((0, 7), b"\xff\xff\0\1\0\0\0\x09", bytes(6), b"", all_of_it),
        "settings of the broker": large_frame((32, 1), b"", unnamed, b"\0", all_of_it),
        "the same, 400,000 times": large_frame((32, 1), b"", unnamed, b"\0", 400_000),
        "metadata of one topic": large_frame((3, 5), b"", topic, b"\0", all_of_it),
        "the same, 400,000 topics": large_frame((3, 5), b"", topic, b"\0", 400_000),
        "settings of the broker, 10,000 times": large_frame((32, 1), b"", unnamed, b"\0", 10_000),
        "metadata, 10,000 topics": large_frame((3, 5), b"", topic, b"\0", 10_000),
        "one group": large_frame((15, 2), b"", topic, b"", all_of_it),
        "offsets of one topic": large_frame((9, 5), topic, b"\0\1t\0\0\0\0", b"", all_of_it),
    }


def answered_ms(address: str, request: bytes) -> float:
    """Time from a request's last byte to its answer, or to the end of the connection; 0 where that came before."""
    with connect(address) as client:
        try:
            client.sendall(request)
            sent_s = time.monotonic()
            client.recv(1)
        except ConnectionError:
            return 0.0
        return 1000 * (time.monotonic() - sent_s)


def frames(setting: Setting) -> None:
    """Frames that ask for as much as they can, one a second: how soon each is answered or refused, and publish p99 of others beside them."""
    tail = Figures("publish p99 ms")
    asked = large_frames()
    took: dict[str, list[float]] = {}
    for _ in range(setting.rounds):
        with setting.start(systems()["gauge-log"]) as running, gauge(bootstrap(running)) as ours:
            address = bootstrap(running)
            drive(address, "t", 1, "create", 500)

            def ask(over: threading.Event, address: str = address) -> None:
                for name in itertools.cycle(asked):
                    took.setdefault(name, []).append(answered_ms(address, asked[name]))
                    if over.wait(1):
                        return

            publish_beside(setting, ours, tail, ask)
            print(f"  {memory_mb(running):.0f} MB at most")
    for name, times in took.items():
        print(
            f"  {name}: answered or refused within {statistics.median(times):.1f} ms, {max(times):.1f} at most"
        )
    tail.ratio("during", "before", "1.1 at most")


BENCHES: dict[str, Callable[[Setting], None]] = {
    "latency": latency,
    "prompt-latency": prompt_latency,
    "sync-latency": sync_latency,
    "partitions": partitions,
    "throughput": throughput,
    "catch-up": catch_up,
    "sync-rate": sync_rate,
    "crowd": crowd,
    "frames": frames,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "benches", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; all of them if none"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=13, help="of each trial, 3 of which are not counted")
    parser.add_argument("--backlog-mb", type=float, default=4295, help="what is drained (default: 4 GiB)")
    parser.add_argument("--records", type=int, default=1, help="in a batch of what is drained")
    parser.add_argument(
        "--cold", action="store_true", help="drain from the device, not from the page cache (as root)"
    )
    parser.add_argument("--data", help="where the systems keep their data (default: the temporary directory)")
    parser.add_argument("--without-kafka", action="store_true", help="only the reference log, no ratios")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.benches if name not in BENCHES]
    if unknown:
        parser.error(f"no bench is called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    if not DRIVE.exists():
        raise SystemExit(f"{DRIVE} is missing: cargo build --release -p gauge-log --example drive")
    known = systems()
    able = [known["gauge-log"]]
    if not chosen.without_kafka:
        missing = known["kafka"].missing()
        if missing:
            print(f"without Kafka: {missing}")
        else:
            known["kafka"].install(None, print)
            able.append(known["kafka"])
    setting = Setting(
        tuple(able),
        chosen.rounds,
        chosen.seconds,
        chosen.backlog_mb,
        chosen.records,
        chosen.cold,
        chosen.data,
    )
    for name in chosen.benches or BENCHES:
        print(f"{name}: {BENCHES[name].__doc__}", flush=True)
        BENCHES[name](setting)


if __name__ == "__main__":
    main()
