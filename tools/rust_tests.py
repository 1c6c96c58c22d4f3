"""Builds the test programs of all crates and runs several at once: most of their tests wait, and cargo runs one program after the other.

    tools/rust_tests.py [build]     build: and does not run them

What each program prints comes in one piece when it has ended. The exit status is 1 if a test failed or nothing could be built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CARGO = ("cargo", "test", "--release", "--locked", "--workspace")
AT_ONCE = len(os.sched_getaffinity(0)) + 1
"""Programs, each of which has as many threads as there are cores."""
LONGEST = ("swarm", "trials", "recovery", "quiet", "security", "fuzz")
"""They come first, so that none of them is left over when the others are done."""


@dataclass(frozen=True)
class Program:
    """A test program as cargo tells of it, or the tests in documentation."""

    name: str
    command: tuple[str, ...]
    directory: Path = Path()


def programs(messages: str) -> list[Program]:
    """The test programs in cargo's messages, one JSON object a line."""
    found = []
    for line in messages.splitlines():
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"]:
            continue
        if message["executable"] is None:
            continue
        crate = Path(message["manifest_path"]).parent
        found.append(Program(f"{crate.name}: {message['target']['name']}", (message["executable"],), crate))
    return found


def order(program: Program) -> int:
    """Those that take longest first."""
    name = program.name.rpartition(" ")[2]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def run(program: Program) -> int:
    """Runs it, and shows what it said. Its exit status."""
    began_s = time.monotonic()
    done = subprocess.run(
        program.command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=program.directory,
        check=False,
    )
    print(f"{program.name} ({time.monotonic() - began_s:.1f} s)\n{done.stdout}", end="", flush=True)
    return done.returncode


def main(*, run_them: bool) -> int:
    """Builds all of them, and runs them."""
    built = subprocess.run(
        [*CARGO, "--no-run", "--message-format", "json-render-diagnostics"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode != 0 or not run_them:
        return int(built.returncode != 0)
    documentation = Program("documentation", (*CARGO, "--doc"))
    found = sorted(programs(built.stdout), key=order)
    with ThreadPoolExecutor(AT_ONCE) as several:
        return int(any(list(several.map(run, [*found, documentation]))))


if __name__ == "__main__":
    sys.exit(main(run_them=sys.argv[1:] != ["build"]))
