"""What reading systems' own metrics costs: the lab's CPU per second, and the broker's.

Each system is started with nothing else to do. Its processes are then read once per second as in a trial, and not read, in turn; the CPU of the
reading threads is theirs alone (CLOCK_THREAD_CPUTIME_ID), that of the broker the difference of its processes between the two.

    .venv/bin/python benches/metrics.py [SYSTEM ...] [--seconds 20] [--rounds 3]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", default=[])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(f"{'system':12} {'processes':>9} {'lab, % of a core':>17} {'broker, % of a core':>20}")
    for name in asked.systems or list(systems()):
        with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as directory:
            running = systems()[name].start(SystemRequest(), Path(directory) / name, lambda _: None)
            try:
                sources = running.metric_sources()
                for source in sources:
                    for _ in range(WARM_READS):
                        with contextlib.suppress(NotRead):
                            source.read()
                rounds: Mapping[bool, list[tuple[float, float]]] = {True: [], False: []}
                for _ in range(asked.rounds):
                    for is_read in (True, False):
                        rounds[is_read].append(measure(running, asked.seconds, is_read=is_read))
            finally:
                running.stop()
                running.wipe()
        lab = statistics.median(lab for lab, _ in rounds[True])
        broker = statistics.median(
            one[1] - other[1] for one, other in zip(rounds[True], rounds[False], strict=True)
        )
        print(f"{name:12} {len(sources):9} {100 * lab:17.2f} {100 * broker:20.2f}", flush=True)


if __name__ == "__main__":
    main()
