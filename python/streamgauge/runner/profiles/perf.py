"""Samples of processes that are not on a JVM, by `perf`: where their CPU time goes, in the program and in the kernel.

The clock of CPU time (`cpu-clock`) needs no counters of the processor, so that it is there in virtual machines too. Stacks are unwound afterwards, from a
copy of the top of each (`--call-graph dwarf`): programs without frame pointers have whole ones then, and nothing has to be built in another way to be
profiled.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamgauge.fleet.children import last_lines, start_child, stop_child
from streamgauge.runner.profiles.stacks import Sample, folded, native_name, without_scaffold
from streamgauge.vocabulary.waiting import wait_until

STACK_BYTES = 8192
"""Copied of each stack. What lies deeper is not seen."""
FILE_BYTES_MAX = 256 << 20
FULL_SHARE = 0.95
BEGINS_WITHIN_S = 15.0
END_WITHIN_S = 15.0
POLL_S = 0.02
TRIED_WITHIN_S = 20.0
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
HOW = "grant it with `sysctl kernel.perf_event_paranoid=2`, or in a container with `--cap-add PERFMON` and a seccomp profile that allows perf_event_open"

_HEADER = re.compile(r"^(.*?)\s+(\d+)\s+(\d+\.\d+):\s*$")
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.*) \((.*)\)$")


def why_not() -> str | None:
    """Why nothing can be sampled here and what to do about it, as a sentence; None where it can."""
    program = shutil.which("perf")
    if program is None:
        return "perf is not installed (Debian: apt-get install linux-perf; Ubuntu: linux-tools-generic)"
    try:
        tried = subprocess.run(
            [*_command(program, 1000.0, Path("/dev/null")), "--", "true"],
            capture_output=True,
            text=True,
            timeout=TRIED_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"perf does not work here: {error}"
    if tried.returncode == 0:
        return None
    said = next(
        (line.strip() for line in tried.stderr.splitlines() if line.strip() and line.strip() != "Error:"),
        "",
    )
    return f"perf is not permitted to sample (kernel.perf_event_paranoid is {_paranoid()}; it says: {said[:200]}); {HOW}"


def _paranoid() -> str:
    try:
        return PARANOID.read_text().strip()
    except OSError:
        return "unknown"


def _command(program: str, period_ms: float, file: Path) -> list[str]:
    # Who may not look into the kernel still may into processes of his own.
    event = "cpu-clock" if os.geteuid() == 0 or _paranoid() in ("-1", "0", "1") else "cpu-clock:u"
    return [
        program,
        "record",
        "--quiet",
        "--no-buildid-cache",
        *("--event", event, "--count", str(round(period_ms * 1e6))),
        *("--clockid", "CLOCK_MONOTONIC"),
        *("--call-graph", f"dwarf,{STACK_BYTES}"),
        *("--max-size", f"{FILE_BYTES_MAX >> 20}M"),
        *("--output", str(file)),
    ]


class PerfRecording:
    """`perf record` of one process, from here to `stop`. Started from the main thread: it ends with the lab."""

    def __init__(self, pid: int, period_ms: float, file: Path) -> None:
        """Raises OSError where it cannot be started."""
        self._file = file
        self._log = file.with_suffix(".log")
        program = shutil.which("perf") or "perf"
        self._process = start_child([*_command(program, period_ms, file), "--pid", str(pid)], self._log)

    def await_begin(self) -> None:
        """Waits until it samples: threads that a process makes between its being looked at and that are missed. It writes first when it does."""

        def missing() -> str | None:
            has_begun = self._file.is_file() and self._file.stat().st_size > 0
            return None if has_begun or self._process.poll() is not None else "perf to begin"

        # One that is late may have begun all the same: what it says when it ends counts.
        wait_until(missing, BEGINS_WITHIN_S, POLL_S)

    def stop(self) -> str | None:
        """Ends it; why there is nothing, if so. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            stop_child(self._process, 0.0)
            return "perf did not end"
        if self._file.is_file() and self._file.stat().st_size > 0:
            return None
        return f"perf has written nothing: {last_lines(self._log, 1)[:200] or f'status {self._process.returncode}'}"

    @property
    def is_full(self) -> bool:
        """Whether it ended because it had written as much as it may."""
        return self._file.stat().st_size >= FULL_SHARE * FILE_BYTES_MAX

    def samples(self) -> Iterator[Sample]:
        """What it has seen, `at_s` on CLOCK_MONOTONIC. Raises OSError, SubprocessError."""
        program = shutil.which("perf") or "perf"
        command = [
            program,
            "script",
            "--input",
            str(self._file),
            "--no-inline",
            "--fields",
            "comm,tid,time,ip,sym,dso",
        ]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        ) as reader:
            assert reader.stdout is not None
            yield from read_script(reader.stdout)


def read_script(lines: Iterable[str]) -> Iterator[Sample]:
    """The samples in what `perf script --fields comm,tid,time,ip,sym,dso` prints: a line with the thread and the time, a line for each frame from the
    innermost on, and an empty one."""
    thread, at_s = "", 0.0
    frames: list[str] = []
    for line in lines:
        if frame := _FRAME.match(line):
            frames.append(native_name(frame.group(1), frame.group(2)))
        elif header := _HEADER.match(line):
            thread, at_s, frames = header.group(1), float(header.group(3)), []
        elif not line.strip() and frames:
            yield Sample(at_s, thread, "cpu", folded(without_scaffold(frames[::-1])))
            frames = []
    if frames:
        yield Sample(at_s, thread, "cpu", folded(without_scaffold(frames[::-1])))
