"""What it changes to keep the CPUs awake (`idle: poll`): the same load with and without, in turn.

    .venv/bin/python benches/idle.py    [--systems gauge-log,kafka,nats,pulsar,rabbitmq]    [--pairs 5]    [--rate 5k]    [--seconds 20]

Prints medians over the pairs: p50 and p99 of publish latency (in quiet time, where some was disturbed), CPU of the generator and of the system per message,
and how much of the time was disturbed; and what poll is of halt: the median over the pairs, with the least and the most of them. Needs a machine without
other work, and half an hour for all five systems.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab_runs import LAB

COLUMNS = ("p50, ms", "p99, ms", "gauge, us/msg", "system, us/msg", "disturbed, %")


def measure(system: str, rate: str, seconds: int, idle: str) -> list[float]:
    """One trial's figures, in the order of COLUMNS."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as out:
        # A broker whose JVM compiles is another one.
        warmup = "3s" if system in ("gauge-log", "nats") else "auto:90s"
        load = ["--rate", rate, "--duration", f"{seconds}s", "--warmup", warmup]
        command = [LAB, "run", "--system", system, *load, "--idle", idle, "--out", out]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        path = next(Path(out).glob("*/trials/001/result.json"))
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    quiet, cpu = found["quiet"], found["cpu"]
    # Where hardly anything was disturbed, or only bounds stand, the figures are those that came.
    told = quiet["publish_ms"] if found["validity"]["word"] == "disturbed" else None
    latencies = [told[name]["value"] if told else found["publish_ms"][name] for name in ("p50", "p99")]
    figures = [
        *latencies,
        cpu["workers_us_per_msg"],
        cpu["system_us_per_msg"],
        100 * quiet["disturbed_share"],
    ]
    return [float("nan") if one is None else float(one) for one in figures]


def middle(column: Sequence[float]) -> str:
    """The median of what is known."""
    known = [one for one in column if not math.isnan(one)]
    return f"{statistics.median(known):.3g}" if known else "-"


def ratios(halt: list[list[float]], poll: list[list[float]]) -> list[str]:
    """Of each column: the median over the pairs, and the least and the most. None of the last, which is a difference."""
    cells = []
    for before, after in list(zip(zip(*halt, strict=True), zip(*poll, strict=True), strict=True))[:-1]:
        found = [
            two / one for one, two in zip(before, after, strict=True) if one and not math.isnan(one + two)
        ]
        cells.append(
            f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else "-"
        )
    return [*cells, ""]


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--systems", default="gauge-log,kafka,nats,pulsar,rabbitmq")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rate", default="5k")
    parser.add_argument("--seconds", type=int, default=20)
    asked = parser.parse_args()
    print(f"| system, {asked.rate} msg/s | idle | {' | '.join(COLUMNS)} |")
    print("|---|---|" + "---:|" * len(COLUMNS))
    for system in asked.systems.split(","):
        found: dict[str, list[list[float]]] = {"halt": [], "poll": []}
        for turn in range(asked.pairs):
            for idle in ("halt", "poll") if turn % 2 == 0 else ("poll", "halt"):
                found[idle].append(measure(system, asked.rate, asked.seconds, idle))
        for idle, trials in found.items():
            middles = [middle(column) for column in zip(*trials, strict=True)]
            print(f"| {system} | {idle} | {' | '.join(middles)} |", flush=True)
        print(f"| | poll over halt | {' | '.join(ratios(found['halt'], found['poll']))} |", flush=True)


if __name__ == "__main__":
    main()
