"""What reading systems' own metrics costs: the lab's CPU per second, and the broker's; with --rate, what it does to latency.

Each system is started with nothing else to do. Its processes are then read once per second as in a trial, and not read, in turn; the CPU of the
reading threads is theirs alone (CLOCK_THREAD_CPUTIME_ID), that of the broker the difference of its processes between the two.

    .venv/bin/python benches/metrics.py [SYSTEM ...] [--seconds 20] [--rounds 3]

With --rate the system is started once and warmed up, and then trials follow each other in rounds of seeded order: its metrics read every second, as by
default, and not at all. Ratios are of the same round.

    .venv/bin/python benches/metrics.py pulsar kafka --rate 5k --seconds 10 --rounds 8
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml
from causes import connection_of
from lab_runs import LAB
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.base import RunningSystem
from streamgauge.systems.base.own_metrics import MetricSource, NotRead
from streamgauge.systems.registry import systems

WARM_READS = 30
"""A JVM answers its first questions with code that is not compiled yet."""


def read(source: MetricSource, seconds: int, spent: list[float]) -> None:
    """Once per second; adds the thread's CPU."""
    for _ in range(seconds):
        began_s = time.monotonic()
        try:
            source.read()
        except NotRead as error:
            print(f"{source.name}: {error}")
        time.sleep(max(0.0, began_s + 1.0 - time.monotonic()))
    spent.append(time.thread_time())


def broker_s(running: RunningSystem) -> float:
    """CPU of the system's processes so far."""
    times = [psutil.Process(process.pid).cpu_times() for process in running.processes()]
    return sum(one.user + one.system for one in times)


def measure(running: RunningSystem, seconds: int, *, is_read: bool) -> tuple[float, float]:
    """CPU per second of the readers and of the broker, in cores."""
    before_s, spent = broker_s(running), [0.0]
    if is_read:
        readers = [
            threading.Thread(target=read, args=(source, seconds, spent))
            for source in running.metric_sources()
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    else:
        time.sleep(seconds)
    return sum(spent) / seconds, (broker_s(running) - before_s) / seconds


@contextlib.contextmanager
def started(name: str) -> Iterator[tuple[RunningSystem, Path]]:
    """The system, and a directory that is removed with it."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as text:
        running = systems()[name].start(SystemRequest(), Path(text) / name, lambda _: None)
        try:
            yield running, Path(text)
        finally:
            running.stop()
            running.wipe()


HOW = {"every second": ["every-second"], "by default": [], "not at all": None}


def latencies(
    name: str, running: RunningSystem, directory: Path, rate: str, seconds: int, rounds: int, seed: int
) -> None:
    """Trials in turn, and a line for each way of asking."""
    draw, found = random.Random(seed), {how: list[dict[str, float]]() for how in HOW}

    def trial(how: str, seconds: int) -> dict[str, float]:
        urls = HOW[how]
        said: dict[str, Any] = {"system": name, **connection_of(running)}
        if urls is not None:
            said["metrics"] = [*urls, *(source.url for source in running.metric_sources())]
        (directory / "system.yaml").write_text(yaml.safe_dump(said), "utf-8")
        load = ["--rate", rate, "--warmup", "2s", "--duration", f"{seconds}s"]
        command = [LAB, "run", "1-topic-16-partitions-1kb", "--system", "system.yaml", *load]
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            raise SystemExit(ended.stderr)
        told = json.loads((directory / "runs/latest/trials/001/result.json").read_text("utf-8"))
        return {one: told["publish_ms"][one] for one in ("p50", "p99", "p99_9")}

    trial("not at all", 3 * seconds)
    for number in range(1, rounds + 1):
        for how in draw.sample(list(HOW), len(HOW)):
            found[how].append(trial(how, seconds))
            figures = " ".join(f"{one} {value:.3g}" for one, value in found[how][-1].items())
            print(f"  round {number}, asked {how}: {figures} ms", flush=True)
    for how, values in found.items():
        told = []
        for figure in ("p50", "p99", "p99_9"):
            ratios = [
                one[figure] / other[figure] for one, other in zip(values, found["not at all"], strict=True)
            ]
            higher = sum(ratio > 1 for ratio in ratios)
            told.append(f"{figure} x{statistics.median(ratios):.2f} (higher in {higher} of {rounds})")
        print(f"{name}, asked {how}: {', '.join(told)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", default=[])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", help="measure latency at this rate, such as 5k")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.rate:
        for name in asked.systems or list(systems()):
            with started(name) as (running, directory):
                latencies(name, running, directory, asked.rate, asked.seconds, asked.rounds, asked.seed)
        return
    print(f"{'system':12} {'processes':>9} {'lab, % of a core':>17} {'broker, % of a core':>20}")
    for name in asked.systems or list(systems()):
        with started(name) as (running, _):
            sources = running.metric_sources()
            for source in sources:
                for _ in range(WARM_READS):
                    with contextlib.suppress(NotRead):
                        source.read()
            rounds: Mapping[bool, list[tuple[float, float]]] = {True: [], False: []}
            for _ in range(asked.rounds):
                for is_read in (True, False):
                    rounds[is_read].append(measure(running, asked.seconds, is_read=is_read))
        lab = statistics.median(lab for lab, _ in rounds[True])
        broker = statistics.median(
            one[1] - other[1] for one, other in zip(rounds[True], rounds[False], strict=True)
        )
        print(f"{name:12} {len(sources):9} {100 * lab:17.2f} {100 * broker:20.2f}", flush=True)


if __name__ == "__main__":
    main()
