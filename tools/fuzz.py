"""Coverage-guided fuzzing of every parser that meets the network or a file of someone else (fuzz/README.md).

    tools/fuzz.py              all targets, FUZZ_SECONDS each (default 5), FUZZ_JOBS at once (default: as many as there are cores)
    tools/fuzz.py TARGET...    these

A run begins with the same random numbers each time, so that what fails, fails again; FUZZ_SEED=0 takes others.

Works with stable Rust: the instrumentation is LLVM's own pass, and libFuzzer comes with the crate libfuzzer-sys. Parsers of the lab (lab-*) are fuzzed by
Atheris, which is libFuzzer for Python: it instruments the lab once, and each target is forked from that.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
sys.path[:0] = [str(ROOT / "python"), str(FUZZ)]

import lab  # noqa: E402
from rust_tests import CRATES, built_with  # noqa: E402

PROGRAM = ROOT / "target" / "release" / "gauge-fuzz"
SETTINGS = built_with((*CRATES, "gauge-fuzz"), "opt-level=1", "codegen-units=1", "debug-assertions=true")
"""Little optimisation: the build is most of what fuzzing for seconds takes, and three seconds are still hundreds of thousands of inputs."""
MEMORY_MB, LAB_MEMORY_MB = 1024, 2048
"""The lab's libraries alone take half a gigabyte."""
BEYOND_S = 120
"""Longer than it was told to, a target hangs."""
EDGES_LEAST = 10
"""A target that reaches nothing proves nothing."""
LOOK_S = 0.05

Begin = Callable[[list[str]], NoReturn]
"""Becomes a target, with the arguments of libFuzzer."""


@dataclass(frozen=True)
class Running:
    """A target, in a process of its own."""

    name: str
    until_s: float
    """Of the monotonic clock."""

    @property
    def log(self) -> Path:
        """What it says."""
        return FUZZ / "artifacts" / f"{self.name}.log"

    def told(self, status: int) -> str | None:
        """Tells what it has done. What is wrong with it, if anything is."""
        text = self.log.read_text("utf-8", "replace")
        if status != 0:
            print("\n".join(text.splitlines()[-25:]), file=sys.stderr)
            return (
                f"{self.name} failed with exit status {status}; its input is in fuzz/artifacts "
                "(fuzz/README.md says what to do with it)"
            )
        covered = int((re.findall(r"cov: (\d+)", text) or ["0"])[-1])
        if covered < EDGES_LEAST:
            return f"{self.name} covered {covered} edges only: the instrumentation or the target is broken; see {self.log}"
        executed = re.search(r"^Done (\d+) runs", text, re.M)
        print(f"fuzz: {self.name}: {executed[1] if executed else 0} inputs, {covered} edges", flush=True)
        return None


def number(name: str, default: int) -> int:
    """One of the variables of the environment that say how."""
    given = os.environ.get(name, str(default))
    if not given.isdecimal():
        refuse(f"{name}={given}: expected a whole number")
    return int(given)


def refuse(why: str) -> NoReturn:
    """Ends with what is wrong with the command."""
    print(f"fuzz: {why}", file=sys.stderr)
    sys.exit(2)


def of_crates() -> dict[str, Begin]:
    """Builds the program; its targets. Their seeds are made by the encoders of the crates: none of them is in git."""
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(PROGRAM.parent.parent),
        "RUSTC_WRAPPER": str(ROOT / "tools" / "instrumented"),
    }
    command = ["cargo", "build", "--release", "--locked", "--quiet", *SETTINGS]
    if subprocess.run(command, cwd=FUZZ, env=environment, check=False).returncode != 0:
        sys.exit(1)

    def asked(what: str) -> list[str]:
        environment = {**os.environ, "FUZZ_TARGET": what}
        done = subprocess.run(
            [PROGRAM], cwd=FUZZ, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            print(done.stderr, end="", file=sys.stderr)
            sys.exit(1)
        return done.stdout.split()

    def one(name: str) -> Begin:
        def begin(arguments: list[str]) -> NoReturn:
            memory = f"-rss_limit_mb={MEMORY_MB}"
            os.execve(PROGRAM, [str(PROGRAM), memory, *arguments], {**os.environ, "FUZZ_TARGET": name})

        return begin

    asked("seeds")
    return {name: one(name) for name in asked("list")}


def of_the_lab() -> dict[str, Begin]:
    """Its targets, instrumented. Their seeds are what ships with the lab."""

    def one(target: lab.Target) -> Begin:
        return lambda arguments: lab.fuzz(target, [sys.argv[0], f"-rss_limit_mb={LAB_MEMORY_MB}", *arguments])

    # Every module that is instrumented is named.
    with redirect_stderr(StringIO()):
        targets = lab.instrumented()
    for name, target in targets.items():
        directory = FUZZ / "seeds" / name
        directory.mkdir(parents=True, exist_ok=True)
        for at, seed in enumerate(target.seeds()):
            (directory / str(at)).write_bytes(seed)
    return {name: one(target) for name, target in targets.items()}


def started(name: str, begin: Begin, seconds: int, seed: int) -> tuple[int, Running]:
    """A target at work, and its process. Its seeds, what was found before, and what an earlier call has collected (corpus/, not in git) are where it begins."""
    for directory in ("artifacts", f"corpus/{name}"):
        (FUZZ / directory).mkdir(parents=True, exist_ok=True)
    begins_with = [f"{kind}/{name}" for kind in ("seeds", "regressions") if (FUZZ / kind / name).is_dir()]
    running = Running(name, time.monotonic() + seconds + BEYOND_S)
    process = os.fork()
    if process == 0:
        try:
            log = os.open(running.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(FUZZ)
            begin(
                [
                    *(f"-seed={seed}", f"-max_total_time={seconds}", "-timeout=5", "-max_len=65536"),
                    *(f"-artifact_prefix=artifacts/{name}-", f"corpus/{name}", *begins_with),
                ]
            )
        finally:
            os._exit(1)
    return process, running


def run(targets: Mapping[str, Begin], seconds: int, seed: int, jobs: int) -> list[str]:
    """Runs them, so many at once. What is wrong with them."""
    waiting, running, problems = list(targets.items()), dict[int, Running](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < max(jobs, 1):
                name, begin = waiting.pop(0)
                process, one = started(name, begin, seconds, seed)
                running[process] = one
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended:
                problem = running.pop(ended).told(os.waitstatus_to_exitcode(status))
                problems += [problem] if problem else []
                continue
            for process, one in running.items():
                if time.monotonic() > one.until_s:
                    os.kill(process, signal.SIGKILL)
            time.sleep(LOOK_S)
    finally:
        for process in running:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return problems


def main(asked: list[str]) -> int:
    """Runs what was asked for."""
    seconds, seed = number("FUZZ_SECONDS", 5), number("FUZZ_SEED", 1)
    jobs = number("FUZZ_JOBS", len(os.sched_getaffinity(0)))
    known = of_crates()
    if not asked or any(name not in known for name in asked):
        known |= of_the_lab()
    for name in asked:
        if name not in known:
            refuse(f"there is no target '{name}': expected one of {' '.join(known)}")
    # libFuzzer ends a target without any of its destructors: what targets keep on disk goes with this.
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        tempfile.tempdir = os.environ["TMPDIR"] = scratch
        problems = run({name: known[name] for name in asked or known}, seconds, seed, jobs)
    for problem in problems:
        print(f"fuzz: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
