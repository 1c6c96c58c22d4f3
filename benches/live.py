#!/usr/bin/env python3
"""What --live and --metrics cost: CPU of the lab's process while it measures, without them and with both, in turn, on the reference log.

With them two viewers follow the page and a scraper fetches the metrics every second, as Prometheus would. The CPU is the lab's own account of itself
(`resources.parquet`, scope `lab`), of the seconds of the measured phase. The goal is below 3 % of a core more, and figures that do not move.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from streamgauge.analysis.intervals import read_resources

LAB = [sys.executable, "-c", "from streamgauge.cli.app import main; main()"]
GOAL_CORES = 0.03


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def view(url: str, name: str) -> None:
    """Follows the page as a browser does, until the lab is gone."""
    since = 0
    with contextlib.suppress(OSError):
        fetch(url)
        while True:
            told = json.loads(fetch(f"{url}state?since={since}&viewer={name}"))
            since = told["version"]
            if told["ended"] and told["ended"]["report"]:
                fetch(f"{url}report.html?viewer={name}")
                return


def scrape(url: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            fetch(url)
            time.sleep(1.0)


def watch(line: str) -> None:
    """Begins to look at what a line of the lab's names."""
    found = re.fullmatch(r"(live|metrics): (http://\S+)\n", line)
    if found and found[1] == "live":
        for name in ("one", "two"):
            threading.Thread(target=view, args=(found[2], name), daemon=True).start()
    elif found:
        threading.Thread(target=scrape, args=(found[2],), daemon=True).start()


def run(directory: Path, seconds: int, rate: str, *, watched: bool) -> dict[str, Any]:
    """One run; the lab's CPU in cores, and its figures."""
    asked = [
        "run",
        "--rate",
        rate,
        "--duration",
        f"{seconds}s",
        "--warmup",
        "2s",
        "--quiet-limit",
        "1",
        "--out",
        str(directory),
    ]
    more = ["--live", "--metrics", "127.0.0.1:0"] if watched else []
    process = subprocess.Popen(
        [*LAB, *asked, *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        watch(line)
    process.wait()
    trial = directory / "latest" / "trials" / "001"
    result = json.loads((trial / "result.json").read_text("utf-8"))
    rows = [
        row for row in read_resources(trial) if row["scope"] == "lab" and 2 <= row["start_s"] < 2 + seconds
    ]
    return {
        "cores": sum(row["cpu_s"] for row in rows) / sum(row["duration_s"] for row in rows),
        "p50_ms": result["publish_ms"]["p50"],
        "p99_ms": result["publish_ms"]["p99"],
        "rate": result["publish_rate_msgs_s"],
    }


def main() -> int:
    """Prints both and the difference; 1 where it is above the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rate", default="5k")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="bench-live-") as directory:
        for _ in range(asked.rounds):
            for watched in (False, True):
                found[watched].append(run(Path(directory), asked.seconds, asked.rate, watched=watched))
                print("with   " if watched else "without", found[watched][-1], flush=True)
    cores = {watched: statistics.median(one["cores"] for one in each) for watched, each in found.items()}
    more = cores[True] - cores[False]
    print(
        f"lab: {100 * cores[False]:.2f} % of a core without, {100 * cores[True]:.2f} % with: {100 * more:+.2f} % (goal: below {100 * GOAL_CORES:g} %)"
    )
    return int(more >= GOAL_CORES)


if __name__ == "__main__":
    sys.exit(main())
