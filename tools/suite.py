"""Runs the tests in lanes, one lane after the other, and ends with a table of what took how long (docs/testing.md).

    tools/suite.py all|python|rust|fast|long [ARGUMENTS OF PYTEST]
    tools/suite.py table FILE       the table of what STREAMGAUGE_TOOK has gathered in a file, and the sum of its tests

The last line is a plain `N passed, N failed, N skipped`, of Rust's and Python's tests together. The exit status is 1 if anything failed.
With STREAMGAUGE_TOOK the last line is left to whoever gathers; the lanes add to that file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CORES = len(os.sched_getaffinity(0))
WORKERS = 4 * CORES
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
    is_beside: bool = False
    """Behind another lane it runs beside the first one, at idle priority: with what that one's tests leave of the cores while they wait."""

    def arguments(self, given: Sequence[str]) -> Sequence[str]:
        """What of a caller's arguments is its: they are pytest's."""
        return given if self.command[: len(PYTEST)] == PYTEST else ()


RUST = Lane("Rust tests", (sys.executable, "tools/rust_tests.py", "others"), 900)
SIMULATED = Lane(
    "Rust, built and simulated",
    (sys.executable, "tools/rust_tests.py", "simulated"),
    3300,
    is_beside=True,
)
FAST = Lane("Python, fast", (*PYTEST, "-n", str(CORES + 1), "-m", f"not ({NEEDS_MUCH} or {NOT_HERE})"), 300)
PARALLEL = Lane(
    f"Python, {WORKERS} side by side", (*PYTEST, "-n", str(WORKERS), "-m", f"not ({NOT_HERE})"), 2400
)
QUIET = Lane("Python, one by one", (*PYTEST, "-m", "quiet and not long"), 900)
LONG = Lane("Python, long", (*PYTEST, "-m", "long"), 6 * 3600)
LANES = {
    "all": (PARALLEL, SIMULATED, RUST, QUIET),
    "python": (PARALLEL, QUIET),
    "rust": (SIMULATED, RUST),
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


class Running:
    """A lane that was started, in a session of its own. One that hangs is ended and has failed."""

    def __init__(
        self, lane: Lane, arguments: Sequence[str], told: IO[str] | int, *, idle: bool = False
    ) -> None:
        self.lane, self._began_s = lane, time.monotonic()
        self._process = subprocess.Popen(
            [*lane.command, *arguments],
            stdout=told,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=at_idle_priority if idle else None,
        )
        self._hung = threading.Event()
        self._watch = threading.Timer(lane.limit_s, self._end_hung)
        self._watch.daemon = True
        self._watch.start()
        self._ended: tuple[int, float, float] | None = None

    def title(self) -> str:
        """Its name, and its command as somebody would type it."""
        command = self.lane.command[self.lane.command[0] == sys.executable :]
        return f"{self.lane.name}: {' '.join(command)}"

    def lines(self) -> Iterator[str]:
        """What it says, as it says it."""
        assert self._process.stdout is not None
        yield from self._process.stdout

    def wait(self) -> tuple[int, float, float]:
        """Until it ends: its exit status, wall-clock and CPU seconds."""
        if self._ended is None:
            _, status, used = os.wait4(self._process.pid, 0)
            took_s = time.monotonic() - self._began_s
            self._watch.cancel()
            self._process.returncode = os.waitstatus_to_exitcode(status)
            if self._hung.is_set():
                print(
                    f"{self.lane.name}: took longer than {self.lane.limit_s:.0f} s and was ended", flush=True
                )
            failed = self._process.returncode or int(self._hung.is_set())
            self._ended = failed, took_s, used.ru_utime + used.ru_stime
        return self._ended

    def signal(self, number: int) -> None:
        """To all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _end_hung(self) -> None:
        self._hung.set()
        self.signal(signal.SIGTERM)
        time.sleep(20)
        if self._ended is None:
            self.signal(signal.SIGKILL)


def at_idle_priority() -> None:
    """For a process and all that it starts."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # By that the kernel's account tells it from the tests.
    os.nice(19)


def followed(running: Running, lines: Iterable[str]) -> tuple[int, Took]:
    """Shows what a lane says, counts its tests, and waits for its end."""
    print(running.title(), flush=True)
    counts = [0, 0, 0]
    for line in lines:
        print(line, end="", flush=True)
        found = counted(line)
        if found is not None:
            counts = [sum(both) for both in zip(counts, found, strict=True)]
    status, wall_s, cpu_s = running.wait()
    if status not in (0, NO_TESTS):
        # A build that fails, or a run that is ended, has counted nothing.
        counts[1] = max(counts[1], 1)
    return status, Took(running.lane.name, wall_s, cpu_s, (counts[0], counts[1], counts[2]))


def run(lane: Lane, arguments: Sequence[str]) -> tuple[int, Took]:
    """Runs a lane, and shows what it says as it says it."""
    running = Running(lane, arguments, subprocess.PIPE)
    try:
        return followed(running, running.lines())
    except KeyboardInterrupt:
        running.signal(signal.SIGINT)
        running.wait()
        raise


@contextmanager
def beside(lane: Lane) -> Iterator[Callable[[], tuple[int, Took]]]:
    """Runs a lane beside what is done here. What it said is shown when its end is waited for."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told:
        running = Running(lane, [], told, idle=True)

        def ended() -> tuple[int, Took]:
            running.wait()
            told.seek(0)
            return followed(running, told)

        try:
            yield ended
        except BaseException:
            running.signal(signal.SIGTERM)
            running.wait()
            raise


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
    first, *others = lanes
    with ExitStack() as running:
        waited_for = [running.enter_context(beside(lane)) for lane in others if lane.is_beside]
        done = [run(first, first.arguments(arguments))]
        done += [wait() for wait in waited_for]
    done += [run(lane, lane.arguments(arguments)) for lane in others if not lane.is_beside]
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
