"""Does the search for the maximum sustainable rate find it? Against reference logs throttled to rates that are known.

    .venv/bin/python benches/search.py    --searches 10    --seed 1    --width 5

Each search gets a log with another limit (drawn from 4 to 20 MB/s) and must come back with a bracket that holds it, no wider than was asked for, and bound
by the system. Messages are large and batches full, so that what the protocol adds is less than 1 % (the limit is of whole requests): a bracket holds the limit
when it holds a rate between 99 and 100 % of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from lab_runs import LAB

MESSAGE_BYTES = 10_000
ADDED_SHARE = 0.01
WORKLOAD = """\
messageSize: 10kB
rate: sustainable
search: {{first: 200, width: {width}, probe: 4s}}
duration: 4s
warmup: 1s
batch: {{linger: 10ms}}
"""


def search(directory: Path, limit_mb_s: float, width: float) -> dict[str, Any]:
    """One search; the result of its trial."""
    (directory / "w.yaml").write_text(WORKLOAD.format(width=width), encoding="utf-8")
    (directory / "s.yaml").write_text(f"system: gauge-log\nlimit_mb_s: {limit_mb_s}\n", encoding="utf-8")
    command = [
        LAB,
        "run",
        "w.yaml",
        "--system",
        "s.yaml",
    ]
    ended = subprocess.run(
        command, cwd=directory, env=os.environ, capture_output=True, text=True, timeout=900
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(ended.stderr)
    found: dict[str, Any] = json.loads((directory / "runs/latest/trials/001/result.json").read_text("utf-8"))
    return found


def main() -> None:
    """Runs the searches and counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=float, default=5.0, help="percent")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    held = 0
    for number in range(1, arguments.searches + 1):
        limit_mb_s = round(draw.uniform(4.0, 20.0), 2)
        with tempfile.TemporaryDirectory() as directory:
            result = search(Path(directory), limit_mb_s, arguments.width)
        found = result["search"]
        low, high = (found[key] and found[key] * MESSAGE_BYTES / 1e6 for key in ("low_msgs_s", "high_msgs_s"))
        holds = (
            found["bound"] == "system" and low is not None and high is not None
            and low <= limit_mb_s and high >= (1.0 - ADDED_SHARE) * limit_mb_s
            and 100.0 * (high / low - 1.0) <= arguments.width + 0.1
        )  # fmt: skip
        held += holds
        bracket = f"{low or 0:.2f} to {high or 0:.2f} MB/s"
        print(
            f"{number:2}: limit {limit_mb_s:5.2f} MB/s, bracket {bracket}, {len(found['probes'])} probes, bound by "
            f"{found['bound']}: {'holds' if holds else 'DOES NOT HOLD'}",
            flush=True,
        )
    print(f"{held} of {arguments.searches} brackets hold the limit (wanted: 9 of 10)")
    raise SystemExit(0 if held >= 0.9 * arguments.searches else 1)


if __name__ == "__main__":
    main()
