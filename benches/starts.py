"""What archives of classes change: starts with and without them, in turn, and the latency of what was started.

    .venv/bin/python benches/starts.py    [--systems kafka,pulsar]    [--pairs 5]    [--rate 10k]    [--seconds 15]

Prints, for each system, medians over the pairs and what "with" is of "without" (the median, least and most of the pairs): seconds
until it serves, CPU of its processes by then, p50 and p99 of publish latency after a warm-up until it is steady (in quiet time,
where some was disturbed). Needs a machine without other work; a pair of Kafka takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from lab_runs import LAB
from streamgauge.model.system_request import SystemRequest
from streamgauge.systems.kafka.system import Kafka
from streamgauge.systems.pulsar.system import Pulsar
from streamgauge.systems.support import class_archive

SYSTEMS: dict[str, type[Kafka | Pulsar]] = {"kafka": Kafka, "pulsar": Pulsar}
COLUMNS = ("start, s", "start, CPU s", "p50, ms", "p99, ms")


def say_nothing(_text: str) -> None:
    """Progress that nobody watches."""


def known(column: list[float]) -> list[float]:
    """What is a figure."""
    return [one for one in column if not math.isnan(one)]


def measure(name: str, with_archives: bool, rate: str, seconds: int) -> list[float]:
    """One start's figures, in the order of COLUMNS."""
    system = SYSTEMS[name]()
    if not with_archives:
        system._classes = lambda *_: class_archive.NONE  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as out:
        began = time.monotonic()
        running = system.start(SystemRequest(), Path(out) / "system", say_nothing)
        try:
            took = time.monotonic() - began
            times = [psutil.Process(one.pid).cpu_times() for one in running.processes()]
            cpu = sum(one.user + one.system for one in times)
            connected = ["--connect", *running.connection["bootstrap"]]
            load = ["--rate", rate, "--duration", f"{seconds}s", "--warmup", "auto:60s"]
            command = [LAB, "run", "--system", name, *connected, *load, "--out", f"{out}/runs"]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        finally:
            running.stop()
        path = next(Path(out).glob("runs/*/trials/001/result.json"))
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    told = found["quiet"]["publish_ms"] if found["validity"]["word"] == "disturbed" else None
    latencies = [told[one]["value"] if told else found["publish_ms"][one] for one in ("p50", "p99")]
    # Where the machine was too disturbed, there is a bound and no figure.
    return [took, cpu, *(math.nan if one is None else one for one in latencies)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", default="kafka,pulsar")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rate", default="10k")
    parser.add_argument("--seconds", type=int, default=15)
    asked = parser.parse_args()
    for name in asked.systems.split(","):
        SYSTEMS[name]().install(None, say_nothing)
        pairs = []
        for place in range(asked.pairs):
            order = (True, False) if place % 2 else (False, True)
            pairs.append({one: measure(name, one, asked.rate, asked.seconds) for one in order})
            print(f"{name} {pairs[-1]}", file=sys.stderr, flush=True)
        print(
            f"{name}, medians of {asked.pairs} pairs: without, with, with : without (least to most, pairs that know it)"
        )
        for column, title in enumerate(COLUMNS):
            without = [pair[False][column] for pair in pairs]
            with_them = [pair[True][column] for pair in pairs]
            ratios = known([after / before for before, after in zip(without, with_them, strict=True)])
            if ratios:
                middle = [statistics.median(one) for one in (known(without), known(with_them), ratios)]
                told = "  ".join(f"{one:8.3f}" for one in middle)
                print(
                    f"  {title:14}{told}  ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)})", flush=True
                )


if __name__ == "__main__":
    main()
