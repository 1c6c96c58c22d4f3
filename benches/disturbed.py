"""What figures of quiet time are worth: the same load with and without a thief that takes CPUs away at real-time priority, in turn.

    PYTHONPATH=tests .venv/bin/python benches/disturbed.py    --systems gauge-log,kafka    --pairs 5    --runs 10

`pairs`: of each system, each with another thief. Prints of p50 and p99 of publish latency the undisturbed median, how far the figures of quiet time and
those as they came lie from it, and in how many disturbed runs the interval holds it. `runs`: of the reference log beside changing thieves: the largest figure
over the smallest. Needs the right to real-time priority, and a machine without other work.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from thief import thief

THIEVES = ((0.1, 0.002, 0.03), (0.04, 0.002, 0.03), (1.0, 0.01, 0.03), (0.1, 0.02, 0.03), (0.3, 0.002, 0.1))
"""Every so many seconds (half to one and a half of it), for between so many seconds."""
LAB = Path(sys.executable).with_name("streamgauge")
Trial = dict[str, Any]


def measure(system: str, rate: str, beside: tuple[float, float, float] | None) -> Trial:
    """One trial's result, beside a thief or alone."""
    disturbing = contextlib.nullcontext() if beside is None else thief(*beside)
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as out, disturbing:
        warmup = "20s" if system == "kafka" else "3s"
        command = [
            str(LAB),
            "run",
            "--system",
            system,
            "--rate",
            rate,
            "--duration",
            "10s",
            "--warmup",
            warmup,
            "--out",
            out,
        ]
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env={**os.environ}
        )
        found: Trial = json.loads(next(Path(out).glob("*/trials/001/result.json")).read_text("utf-8"))
    return found


def line(trial: Trial, name: str, truth: float) -> tuple[str, bool]:
    """A figure beside the undisturbed one, and whether its interval holds that."""
    figure = trial["quiet"]["publish_ms"][name]
    value, low, high = figure["value"], figure["at_least"], figure["at_most"]
    holds = low <= truth * 1.001 and (high is None or high >= truth * 0.999)
    told = "-" if value is None else f"{value / truth:.2f}"
    bounds = f"[{low / truth:.2f}, {'-' if high is None else f'{high / truth:.2f}'}]"
    return f"{name} quiet {told} {bounds}, as it came {trial['publish_ms'][name] / truth:.2f}", holds


def pairs(system: str, rate: str, count: int) -> None:
    """Pairs with and without a thief."""
    thieves = list(itertools.islice(itertools.cycle(THIEVES), count))
    alone, beside_thief = [], []
    for habit in thieves:
        alone.append(measure(system, rate, None))
        beside_thief.append(measure(system, rate, habit))
    truths = {
        name: statistics.median(
            trial["quiet"]["publish_ms"][name]["value"] or trial["publish_ms"][name] for trial in alone
        )
        for name in ("p50", "p99")
    }
    print(
        f"{system}, {rate} msg/s, undisturbed: p50 {truths['p50']:.3f} ms, p99 {truths['p99']:.3f} ms; alone, each over the median:"
    )
    for trial in alone:
        print("   ", "; ".join(line(trial, name, truths[name])[0] for name in truths))
    held = 0
    for habit, trial in zip(thieves, beside_thief, strict=True):
        lines = [line(trial, name, truths[name]) for name in truths]
        held += sum(holds for _, holds in lines)
        share = trial["quiet"]["disturbed_share"] or 0.0
        print(
            f"  thief {habit}, {share:.0%} disturbed, {trial['validity']['word']}: {'; '.join(text for text, _ in lines)}",
            flush=True,
        )
    print(f"  intervals that hold the undisturbed median: {held} of {2 * count}", flush=True)


def spread(rate: str, count: int) -> None:
    """The reference log beside changing thieves."""
    found = [measure("gauge-log", rate, habit) for habit in itertools.islice(itertools.cycle(THIEVES), count)]
    for name in ("p50", "p99"):
        values = [trial["quiet"]["publish_ms"][name]["value"] for trial in found]
        known = [value for value in values if value is not None]
        print(
            f"gauge-log beside {count} thieves, {name}: {len(known)} figures, largest over smallest {max(known) / min(known):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", default="gauge-log,kafka")
    parser.add_argument("--rate", default="20000")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10)
    chosen = parser.parse_args()
    for system in chosen.systems.split(","):
        if chosen.pairs:
            pairs(system, chosen.rate, chosen.pairs)
    if chosen.runs:
        spread(chosen.rate, chosen.runs)


if __name__ == "__main__":
    main()
