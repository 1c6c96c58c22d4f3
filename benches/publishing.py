#!/usr/bin/env python3
"""What `streamgauge publish` takes: wall time and CPU of a site of 20 runs, each of which is verified from its raw data.

The runs are made first, several at a time, on the reference log; what they measured plays no part. `--runs DIRECTORY` takes those that are there. The CPU
is that of the command with all of its processes, and tells more than the wall time where other work goes on. The goal is below 10 s of wall time on 2 cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab_runs import LAB

GOAL_S = 10.0


def make(out: Path, seconds: int, trials: int, rate: int) -> None:
    """One run."""
    asked = ["--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "2s", "--repeat", str(trials)]
    # A disturbed trial costs most to verify, and is not made again.
    subprocess.run(
        [LAB, "run", *asked, "--quiet-limit", "1", "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def publish(runs: list[Path], site: Path) -> tuple[float, float]:
    """Wall time and CPU, in s."""
    began_s, before = time.monotonic(), os.times()
    names = [str(run) for run in runs]
    subprocess.run([LAB, "publish", *names, "--to", str(site)], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began_s, cpu_s


def main() -> int:
    """Prints each round and the medians; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, help="a directory of runs that were made before")
    parser.add_argument("--count", type=int, default=20, help="of runs that are made")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10, help="measured in each trial")
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-publishing-") as directory:
        out = asked.runs or Path(directory) / "runs"
        if asked.runs is None:
            with ThreadPoolExecutor(asked.at_once) as pool:
                rates = range(2000, 2000 + 250 * asked.count, 250)
                list(pool.map(lambda rate: make(out, asked.seconds, asked.trials, rate), rates))
        runs = sorted(path.parent for path in out.glob("*/manifest.json") if not path.parent.is_symlink())
        found = []
        for number in range(asked.rounds):
            found.append(publish(runs, Path(directory) / f"site-{number}"))
            print(f"{found[-1][0]:.1f} s, {found[-1][1]:.1f} s of CPU", flush=True)
    wall_s, cpu_s = (statistics.median(each) for each in zip(*found, strict=True))
    print(f"{len(runs)} runs: {wall_s:.1f} s, {cpu_s:.1f} s of CPU (goal: below {GOAL_S:g} s)")
    return int(wall_s >= GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
