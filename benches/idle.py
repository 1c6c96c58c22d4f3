"""What it changes to keep the CPUs awake (`idle: poll`): the same load with and without, in turn.

    .venv/bin/python benches/idle.py    --systems gauge-log,kafka,pulsar,rabbitmq,nats    --pairs 3    --rate 5k

Prints medians over the pairs: p50 and p99 of publish latency (in quiet time, where some was disturbed), CPU of the generator and of the system per message,
and how much of the time was disturbed. Needs a machine without other work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LAB = Path(sys.executable).with_name("streamgauge")
COLUMNS = ("p50, ms", "p99, ms", "gauge, us/msg", "system, us/msg", "disturbed, %")


def measure(system: str, rate: str, seconds: int, idle: str) -> list[float]:
    """One trial's figures, in the order of COLUMNS."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as out:
        warmup = "3s" if system in ("gauge-log", "nats") else "20s"
        load = ["--rate", rate, "--duration", f"{seconds}s", "--warmup", warmup]
        command = [str(LAB), "run", "--system", system, *load, "--idle", idle, "--out", out]
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


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--systems", default="gauge-log,kafka")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rate", default="5k")
    parser.add_argument("--seconds", type=int, default=10)
    asked = parser.parse_args()
    print(f"| system, {asked.rate} msg/s | idle | {' | '.join(COLUMNS)} |")
    print("|---|---|" + "---:|" * len(COLUMNS))
    for system in asked.systems.split(","):
        found: dict[str, list[list[float]]] = {"halt": [], "poll": []}
        for turn in range(asked.pairs):
            for idle in ("halt", "poll") if turn % 2 == 0 else ("poll", "halt"):
                found[idle].append(measure(system, asked.rate, asked.seconds, idle))
        for idle, trials in found.items():
            middles = [f"{statistics.median(column):.3g}" for column in zip(*trials, strict=True)]
            print(f"| {system} | {idle} | {' | '.join(middles)} |", flush=True)


if __name__ == "__main__":
    main()
