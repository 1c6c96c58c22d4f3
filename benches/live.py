#!/usr/bin/env python3
"""What --live, --metrics and --agents cost together: CPU of the lab and of the agent while it measures, without them and with all three, in turn, on a
reference log that runs already.

With them two viewers follow the page, a scraper fetches the metrics every second, as Prometheus would, and the lab asks the agent of the machine that the
log is on, which is this one. The lab tells its own CPU (`resources.parquet`, scope `lab`), of the seconds of the measured phase; the agent's is all that it
used over the run. The goal is below 3 % of a core more, and figures of the generator within 3 %.
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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import httpx
import psutil
from lab_runs import LAB
from streamgauge.analysis.intervals import read_resources
from streamgauge.vocabulary.gauge_binary import find_gauge, ready_address

GOAL_CORES = 0.03
FIGURES = ("publish_ms.p50", "publish_ms.p99", "publish_rate_msgs_s", "cpu.workers_us_per_msg")


def reader() -> httpx.Client:
    """Keeps its connection, as browsers and Prometheus do."""
    return httpx.Client(timeout=30, trust_env=False)


def view(url: str, name: str) -> None:
    """Follows the page as a browser does, until the lab is gone."""
    since = 0
    with contextlib.suppress(httpx.TransportError), reader() as browser:
        browser.get(url)
        while True:
            told = browser.get(f"{url}state?since={since}&viewer={name}").json()
            since = told["version"]
            if told["ended"] and told["ended"]["report"]:
                browser.get(f"{url}report.html?viewer={name}")
                return


def scrape(url: str) -> None:
    with contextlib.suppress(httpx.TransportError), reader() as prometheus:
        while True:
            prometheus.get(url)
            time.sleep(1.0)


def watch(line: str) -> None:
    """Begins to look at what a line of the lab's names."""
    found = re.fullmatch(r"(live|metrics): (http://\S+)\n", line)
    if found and found[1] == "live":
        for name in ("one", "two"):
            threading.Thread(target=view, args=(found[2], name), daemon=True).start()
    elif found:
        threading.Thread(target=scrape, args=(found[2],), daemon=True).start()


@contextlib.contextmanager
def program(directory: Path, *arguments: str) -> Iterator[tuple[str, psutil.Process]]:
    """One of gauge's that says where it listens."""
    log = directory / f"{arguments[0]}.log"
    with log.open("wb") as sink:
        process = psutil.Popen([str(find_gauge()), *arguments], stdout=sink, stderr=subprocess.DEVNULL)
    try:
        while (address := ready_address(log)) is None:
            time.sleep(0.05)
        yield address, process
    finally:
        process.kill()
        process.wait()


def used_s(process: psutil.Process) -> float:
    """CPU so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True)
class Asked:
    """What every run is asked for."""

    directory: Path
    seconds: int
    rate: str
    log: str


def run(asked: Asked, agent: tuple[str, psutil.Process], *, watched: bool) -> dict[str, Any]:
    """One run; the lab's and the agent's CPU in cores, and the generator's figures."""
    address, process = agent
    out = ["--quiet-limit", "1", "--out", str(asked.directory)]
    load = ["--rate", asked.rate, "--duration", f"{asked.seconds}s", "--warmup", "2s"]
    more = ["--live", "--metrics", "127.0.0.1:0", "--agents", address] if watched else []
    before_s, began_s = used_s(process), time.monotonic()
    lab = subprocess.Popen(
        [LAB, "run", "--system", "gauge-log", "--connect", asked.log, *load, *out, *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert lab.stderr is not None
    for line in lab.stderr:
        watch(line)
    lab.wait()
    agent_cores = (used_s(process) - before_s) / (time.monotonic() - began_s)
    trial = asked.directory / "latest" / "trials" / "001"
    result = json.loads((trial / "result.json").read_text("utf-8"))
    rows = [
        row
        for row in read_resources(trial)
        if row["scope"] == "lab" and 2 <= row["start_s"] < 2 + asked.seconds
    ]
    return {
        "lab": sum(row["cpu_s"] for row in rows) / sum(row["duration_s"] for row in rows),
        "agent": agent_cores,
        **{figure: reduce(lambda found, key: found[key], figure.split("."), result) for figure in FIGURES},
    }


def main() -> int:
    """Prints both and the difference; 1 where it is above the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rate", default="5k")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    with (
        tempfile.TemporaryDirectory(prefix="bench-live-") as name,
        program(Path(name), "log", "--listen", "127.0.0.1:0", "--data", f"{name}/data") as (log, _),
        program(Path(name), "agent") as agent,
    ):
        asked = Asked(Path(name) / "runs", given.seconds, given.rate, log)
        for _ in range(given.rounds):
            for watched in (False, True):
                found[watched].append(run(asked, agent, watched=watched))
                print("with   " if watched else "without", found[watched][-1], flush=True)

    def median(watched: bool, key: str) -> float:
        return float(statistics.median(one[key] for one in found[watched]))

    more = sum(median(True, key) - median(False, key) for key in ("lab", "agent"))
    for key in ("lab", "agent"):
        print(
            f"{key}: {100 * median(False, key):.2f} % of a core without, {100 * median(True, key):.2f} % with"
        )
    for key in FIGURES:
        print(f"{key}: {median(False, key):.4g} without, {median(True, key):.4g} with")
    print(f"together {100 * more:+.2f} % of a core (goal: below {100 * GOAL_CORES:g} %)")
    return int(more >= GOAL_CORES)


if __name__ == "__main__":
    sys.exit(main())
