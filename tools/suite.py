"""Runs the tests in lanes, one lane after the other, and ends with a table of what took how long (docs/testing.md).

    tools/suite.py all|python|rust|fast|long [ARGUMENTS OF PYTEST]
    tools/suite.py table FILE       the table of what STREAMGAUGE_TOOK has gathered in a file, and the sum of its tests

The last line is a plain `N passed, N failed, N skipped`, of Rust's and Python's tests together. The exit status is 1 if anything failed.
With STREAMGAUGE_TOOK the last line is left to whoever gathers; the lanes add to that file.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

CORES = len(os.sched_getaffinity(0))
WORKERS = 3 * CORES
"""More than cores, because most tests wait: for a broker to come up, for a trial to last as long as it should. One that takes long begins when the cores
have room for it (tests/room.py)."""
NEEDS_MUCH = "jvm or server or browser or lab"
NOT_HERE = "quiet or long or kubernetes"
PYTEST = (sys.executable, "-m", "pytest")
NO_TESTS = 5
"""The status of pytest when nothing fits its arguments."""
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|ignored)\b")
CLOSING = re.compile(r"(=+ )?\d+ .* in [\d.]+s( \([\d:]+\))?( =+)?")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Lane:
    """Tests that one command runs."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    """After which it hangs for certain: about three times what it takes on two cores beside a busy loop."""
    preparation: tuple[str, ...] = ()
    """What it begins with. Behind another lane it runs beside the first one, with what that one's tests leave of the cores while they wait."""


RUST = Lane(
    "Rust tests",
    (sys.executable, "tools/rust_tests.py"),
    900,
    preparation=(sys.executable, "tools/rust_tests.py", "build"),
)
FAST = Lane("Python, fast", (*PYTEST, "-n", str(CORES + 1), "-m", f"not ({NEEDS_MUCH} or {NOT_HERE})"), 300)
PARALLEL = Lane(
    f"Python, {WORKERS} side by side", (*PYTEST, "-n", str(WORKERS), "-m", f"not ({NOT_HERE})"), 2400
)
QUIET = Lane("Python, one by one", (*PYTEST, "-m", "quiet and not long"), 900)
LONG = Lane("Python, long", (*PYTEST, "-m", "long"), 6 * 3600)
LANES = {
    "all": (PARALLEL, RUST, QUIET),
    "python": (PARALLEL, QUIET),
    "rust": (RUST,),
    "fast": (FAST,),
    "long": (LONG,),
}


@dataclass
class Took:
    """What something took, and the tests in it."""

    name: str
    wall_s: float
    cpu_s: float
    counts: tuple[int, int, int] | None = None
    """Passed, failed, skipped."""

    def line(self) -> str:
        """As a line of the file that STREAMGAUGE_TOOK names."""
        counts = self.counts if self.counts is not None else ("", "", "")
        return "\t".join(str(value) for value in (self.name, self.wall_s, self.cpu_s, *counts)) + "\n"

    @classmethod
    def parse(cls, line: str) -> Took:
        """From such a line."""
        name, wall_s, cpu_s, passed, failed, skipped = line.rstrip("\n").split("\t")
        counts = (int(passed), int(failed), int(skipped)) if passed else None
        return cls(name, float(wall_s), float(cpu_s), counts)


def counted(line: str) -> tuple[int, int, int] | None:
    """Passed, failed and skipped of a closing line of pytest or of one of Rust's test programs; None for any other line."""
    plain = COLOUR.sub("", line).strip()
    if not (plain.startswith("test result: ") or CLOSING.fullmatch(plain)):
        return None
    found = {word: int(number) for number, word in COUNTS.findall(plain)}
    failed = sum(found.get(word, 0) for word in ("failed", "error", "errors"))
    return found.get("passed", 0), failed, found.get("skipped", 0) + found.get("ignored", 0)


@contextmanager
def prepared(lanes: Sequence[Lane]) -> Iterator[None]:
    """Beside what is run here, at idle priority: what later lanes begin with. It says nothing: a lane finds it done, goes on with it, or fails at it."""

    def idle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        # By that the kernel's account tells it from the tests.
        os.nice(19)

    running = [
        subprocess.Popen(
            lane.preparation,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=idle,
        )
        for lane in lanes
        if lane.preparation
    ]
    try:
        yield
    finally:
        for process in running:
            # On a machine that is never idle it would not end.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def run(lane: Lane, arguments: list[str]) -> tuple[int, Took]:
    """Runs a lane, shows what it says, and counts its tests. A lane that hangs is ended and has failed."""
    print(f"{lane.name}: {' '.join(lane.command[lane.command[0] == sys.executable :])}", flush=True)
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        [*lane.command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    hung = threading.Event()

    def end() -> None:
        hung.set()
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(20)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    watch = threading.Timer(lane.limit_s, end)
    watch.daemon = True
    watch.start()
    counts = [0, 0, 0]
    assert process.stdout is not None
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            found = counted(line)
            if found is not None:
                counts = [sum(both) for both in zip(counts, found, strict=True)]
        status = process.wait()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        raise
    finally:
        watch.cancel()
    if hung.is_set():
        print(f"{lane.name}: took longer than {lane.limit_s:.0f} s and was ended", flush=True)
        status = status or 1
    if status not in (0, NO_TESTS):
        # A build that fails, or a run that is ended, has counted nothing.
        counts[1] = max(counts[1], 1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return status, Took(lane.name, time.monotonic() - began_s, cpu_s, (counts[0], counts[1], counts[2]))


def table(rows: list[Took]) -> str:
    """What took how long, and what its tests said."""
    lines = [f"{'':<32}{'wall s':>9}{'CPU s':>9}{'passed':>9}{'failed':>9}{'skipped':>9}"]
    for row in rows:
        counts = "" if row.counts is None else "".join(f"{count:>9}" for count in row.counts)
        lines.append(f"{row.name:<32}{row.wall_s:>9.0f}{row.cpu_s:>9.0f}{counts}".rstrip())
    return "\n".join(lines)


def closing(rows: list[Took]) -> str:
    """The last line: all tests."""
    counts = [row.counts for row in rows if row.counts is not None]
    passed, failed, skipped = (sum(one[at] for one in counts) for at in range(3))
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def main(asked: str, arguments: list[str]) -> int:
    """Runs what was asked for."""
    if asked == "table":
        rows = [Took.parse(line) for line in Path(arguments[0]).read_text("utf-8").splitlines()]
        print(f"{table(rows)}\n\n{closing(rows)}")
        return 0
    if asked not in LANES:
        print(__doc__, file=sys.stderr)
        return 2
    lanes = LANES[asked]
    if any(argument.startswith("-m") for argument in arguments):
        lanes = (Lane("Python", PYTEST, PARALLEL.limit_s),)
    given: dict[Lane, list[str]] = {RUST: []}
    first, *others = lanes
    with prepared(others):
        done = [run(first, given.get(first, arguments))]
    done += [run(lane, given.get(lane, arguments)) for lane in others]
    rows = [took for _, took in done]
    print(f"\n{table(rows)}\n")
    gathered = os.environ.get("STREAMGAUGE_TOOK")
    if gathered:
        with Path(gathered).open("a", encoding="utf-8") as sink:
            sink.writelines(took.line() for took in rows)
    else:
        print(closing(rows))
    statuses = [status for status, _ in done]
    # A lane without tests is no failure when arguments chose some of another's.
    nothing_ran = all(status == NO_TESTS for status in statuses)
    return int(nothing_ran or any(status not in (0, NO_TESTS) for status in statuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))
