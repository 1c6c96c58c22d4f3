"""Where the processes of a trial spend their time (`profile: true`): CPU time of all of them by `perf`, and Java code of JVMs by their Flight Recorder.

`perf` sees all of a JVM's CPU time (the kernel, its compiler and collector) and no names of Java functions; the recorder sees those, and no CPU time.

What is sampled is kept with its moment, on the schedule's axis, so that the measured phase and its slowest seconds can be told apart afterwards
(analysis/profiles.py). Nothing here fails a trial: what cannot be had is a remark.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from streamgauge.runner.profiles import attach, jfr, perf
from streamgauge.runner.profiles.attach import NotAttached
from streamgauge.runner.profiles.perf import PerfRecording
from streamgauge.runner.profiles.stacks import Sample, thread_group
from streamgauge.systems.base import SystemProcess
from streamgauge.vocabulary.phases import INTERVAL_S

PERIOD_MS_MIN = 19
"""A prime: what happens every 10, 20 or 50 ms is seen in all of its phases."""
MOMENTS_MAX = 15_000
"""Of a trial, at which threads are looked at: a long one is sampled less often, so that a profile is of the same size and worth."""
RECORDING_BYTES_MAX = 64 << 20
"""Of a JVM; the oldest goes first, and the measured phase comes last."""
STACK_DEPTH = 256
NAME = "streamgauge"
STARTED = "Started recording"
"""What a JVM says then."""
SETTINGS = """<?xml version="1.0" encoding="UTF-8"?>
<configuration version="2.0" label="streamgauge" description="where threads are, and nothing of the machine" provider="streamgauge">
  <event name="jdk.ExecutionSample"><setting name="enabled">true</setting><setting name="period">{period} ms</setting></event>
  <event name="jdk.NativeMethodSample"><setting name="enabled">true</setting><setting name="period">{period} ms</setting></event>
</configuration>
"""
"""No event is recorded that tells of environment variables, system properties or command lines."""

Role = Literal["system", "worker"]
Note = Callable[[str], None]


class Recording(Protocol):
    """Of one process."""

    def stop(self) -> str | None:
        """Ends it; why there is nothing, if so."""

    def samples(self) -> Iterator[Sample]:
        """What was seen."""


@dataclass(frozen=True)
class Recorded:
    """A process that is profiled."""

    name: str
    role: Role
    recording: Recording
    is_wall_clock: bool
    """Whether its samples are timed from the epoch on, and not by CLOCK_MONOTONIC."""


class JfrRecording:
    """The Flight Recorder of one JVM, from here to `stop`."""

    def __init__(self, pid: int, period_ms: int, file: Path, scratch: Path) -> None:
        """Raises NotAttached, OSError."""
        self._pid, self._file = pid, file
        settings = scratch / f"{file.stem}.jfc"
        settings.write_text(SETTINGS.format(period=period_ms))
        with contextlib.suppress(NotAttached):
            # Only before the first recording of a JVM; deep stacks lose their outermost frames otherwise.
            attach.command(pid, f"JFR.configure stackdepth={STACK_DEPTH}")
        said = attach.command(
            pid,
            # Nobody reads it while it goes on: writing all constants every second would cost the JVM more than the samples do.
            f'JFR.start name={NAME} settings="{settings}" maxsize={RECORDING_BYTES_MAX >> 20}m disk=true flush-interval=0s',
        )
        if STARTED not in said:
            # What goes wrong within the recorder is no failure of the command.
            raise NotAttached(f"its Flight Recorder did not start; it says: {' '.join(said.split())[:300]}")

    def stop(self) -> str | None:
        """See Recording."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            said = attach.command(self._pid, f'JFR.stop name={NAME} filename="{self._file}"')
        except (NotAttached, OSError) as error:
            return str(error)
        if self._file.is_file():
            return None
        return f"its JVM has written no recording; it says: {' '.join(said.split())[:200]}"

    def samples(self) -> Iterator[Sample]:
        """See Recording. Raises DamagedRecording, OSError."""
        return jfr.read_samples(self._file)


def period_ms(load_s: float) -> int:
    """How far apart the moments of sampling are, for a load that lasts so long. Odd, so that it keeps step with nothing."""
    return max(PERIOD_MS_MIN, math.ceil(1e3 * load_s / MOMENTS_MAX) | 1)


class Profiles:
    """The profiles of a trial."""

    def __init__(self, logs: Path, scratch: Path, load_s: float, note: Note) -> None:
        """`logs`: where recordings of JVMs are kept; `scratch`: a directory that goes with the trial's data."""
        self._logs, self._note = logs / "profiles", note
        # The JVM runs in a directory of its own.
        self._scratch = Path(tempfile.mkdtemp(prefix="profiles-", dir=scratch)).resolve()
        self._period_ms = period_ms(load_s)
        self._recorded: list[Recorded] = []

    def start(self, system: Sequence[SystemProcess], workers: Mapping[str, int]) -> None:
        """Begins with all processes that can be profiled; a remark for those that cannot."""
        native: list[tuple[str, Role, int]] = [(one.name, "system", one.pid) for one in system]
        for process in system:
            if attach.is_jvm(process.pid):
                self._start_jvm(process)
        native += [(name, "worker", pid) for name, pid in workers.items()]
        if not workers:
            self._note("the generator was not profiled: its workers run on other machines")
        reason = perf.why_not() if native else None
        if reason is not None:
            self._note(f"{_names([name for name, _, _ in native])} could not be profiled: {reason}")
            return
        begun = []
        for number, (name, role, pid) in enumerate(native):
            try:
                recording = PerfRecording(pid, self._period_ms, self._scratch / f"{number}.perf")
            except OSError as error:
                self._note(f"{name} could not be profiled: {error}")
                continue
            begun.append(recording)
            self._recorded.append(Recorded(name, role, recording, is_wall_clock=False))
        for recording in begun:
            recording.await_begin()

    def _start_jvm(self, process: SystemProcess) -> None:
        try:
            file = (self._logs / f"{process.name}.jfr").resolve()
            recording = JfrRecording(process.pid, self._period_ms, file, self._scratch)
        except (NotAttached, OSError) as error:
            self._note(f"the Java code of {process.name} could not be profiled: {error}")
            return
        self._recorded.append(Recorded(process.name, "system", recording, is_wall_clock=True))

    def stop(self) -> None:
        """Ends all of them, while their processes still run. Idempotent."""
        for one in list(self._recorded):
            reason = one.recording.stop()
            if reason is not None:
                self._note(f"the profile of {one.name} was lost: {reason}")
                self._recorded.remove(one)

    def rows(self, start_s: float, start_unix_ms: float) -> Iterator[dict[str, Any]]:
        """What was seen since the schedule's start (CLOCK_MONOTONIC, and in ms since the epoch), as rows of PROFILE_COLUMNS."""
        for one in self._recorded:
            start = start_unix_ms / 1e3 if one.is_wall_clock else start_s
            try:
                for sample in one.recording.samples():
                    at_s = round(sample.at_s - start, 4)
                    if at_s >= 0:
                        yield {
                            "interval": int(at_s // INTERVAL_S),
                            "start_s": at_s,
                            "duration_s": self._period_ms / 1e3,
                            "process": one.name,
                            "role": one.role,
                            "state": sample.state,
                            "thread": thread_group(sample.thread),
                            "stack": sample.stack,
                        }
            except (jfr.DamagedRecording, OSError, subprocess.SubprocessError) as error:
                self._note(f"the profile of {one.name} could not be read to its end: {error}")
            if isinstance(one.recording, PerfRecording) and one.recording.is_full:
                self._note(
                    f"the profile of {one.name} ends early: more than {perf.FILE_BYTES_MAX >> 20} MiB of stacks were not kept"
                )


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
