"""Builds the test programs of all crates and runs several at once: most of their tests wait, and cargo runs one program after the other.

    tools/rust_tests.py [simulated|others]

`simulated`: those alone whose time is simulated or that have none, which nothing that runs beside them can disturb; `others`: all but those.
What each program prints comes in one piece when it has ended. The exit status is 1 if a test failed or nothing could be built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES = sorted(path.name for path in (ROOT / "crates").iterdir())


def built_with(crates: Iterable[str], *settings: str) -> tuple[str, ...]:
    """Arguments of cargo: some crates have other settings than the profile has."""
    given = (f"profile.release.package.{crate}.{setting}" for crate in crates for setting in settings)
    return tuple(word for setting in given for word in ("--config", setting))


QUICKLY_BUILT = built_with(
    (*CRATES, "kafka-protocol", "proptest", "regex-syntax"), "opt-level=1", "codegen-units=1"
)
"""The profile that users run, with less optimisation of what is built for tests alone: that is a third of the CPU of all builds, and the tests take
a tenth more. What cargo has built for the gauge itself of other packages is used as it is."""
CARGO = ("cargo", "test", "--release", "--locked", "--workspace", *QUICKLY_BUILT)
USERS = ("cargo", "build", "--release", "--locked", "--package", "gauge")
"""The gauge as users have it: the tests of the crate `gauge` run that one, and it is what stays in target/release."""
AT_ONCE = len(os.sched_getaffinity(0)) + 3
"""Programs, each of which has as many threads as there are cores, and waits for most of its time."""
SIMULATED = ("swarm", "simulation", "model", "survivors", "toy_log")
"""By the names of their files."""
TIMED = ("pacing", "quiet", "trials")
"""They are about time: one by one, behind the others. `quiet` takes CPUs away at real-time priority."""
LONGEST = ("swarm", "recovery", "robustness", "security", "fuzz", "powercut", "probe", "kafka_faults")
"""They come first, so that none of them is left over when the others are done."""
CHOICES = ("all", "simulated", "others")


@dataclass(frozen=True)
class Program:
    """A test program as cargo tells of it, or the tests in documentation."""

    name: str
    command: tuple[str, ...]
    directory: Path = Path()

    @property
    def file(self) -> str:
        """What cargo calls it: the file or the crate of its tests."""
        return self.name.rpartition(" ")[2]


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
    return LONGEST.index(program.file) if program.file in LONGEST else len(LONGEST)


def chosen(found: list[Program], choice: str) -> list[Program]:
    """Those of a choice, in their order."""
    kinds = {"all": (True, False), "simulated": (True,), "others": (False,)}[choice]
    return sorted((one for one in found if (one.file in SIMULATED) in kinds), key=order)


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


def main(choice: str) -> int:
    """Builds all of them, and runs those that were chosen."""
    if choice not in CHOICES:
        print(__doc__, file=sys.stderr)
        return 2
    built = subprocess.run(
        [*CARGO, "--lib", "--bins", "--tests", "--no-run", "--message-format", "json-render-diagnostics"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode != 0 or subprocess.run(USERS, check=False).returncode != 0:
        return 1
    found = chosen(programs(built.stdout), choice)
    if choice != "simulated":
        found.append(Program("documentation", (*CARGO, "--doc")))
    timed = [program for program in found if program.file in TIMED]
    with ThreadPoolExecutor(AT_ONCE) as several:
        statuses = list(several.map(run, (program for program in found if program not in timed)))
    return int(any([*statuses, *map(run, timed)]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["all"]))
