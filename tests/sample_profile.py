"""Profiles with a known truth for synthetic runs (sample_run.py): a JVM that flushes its log in some seconds, and a generator that always does the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sample_run import Shape, sample_trial
from streamgauge.analysis.measured import Measured
from streamgauge.analysis.profiles import slowest
from streamgauge.model.result import TrialResult
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.store.directory import PROFILE_NAME, TrialDirectory
from streamgauge.store.tables import write_profile

THREAD = "data-plane-kafka-request-handler-N"
BASE = ("java.lang.Thread.run", "kafka.server.KafkaRequestHandler.run", "kafka.server.KafkaApis.handle")
APPEND = (*BASE, "kafka.log.UnifiedLog.append", "java.nio.MappedByteBuffer.put")
FETCH = (*BASE, "kafka.server.ReplicaManager.fetchMessages", "kafka.log.UnifiedLog.read")
FLUSH = (
    *BASE,
    "kafka.log.UnifiedLog.append",
    "kafka.log.UnifiedLog.flush",
    "sun.nio.ch.FileDispatcherImpl.force0",
)
POLL = ("java.lang.Thread.run", "kafka.network.Processor.poll", "sun.nio.ch.EPoll.wait")
LOAD = ("gauge_worker::lane::run", "gauge_client::turns::Turns::poll", "do_epoll_wait [kernel]")
STAMP = ("gauge_worker::lane::run", "gauge_load::emitter::Emitter::fill")
PERIOD_S = 0.019
PER_SECOND = 30


def rows(
    seconds: int, flushes: Callable[[int], bool], seed: int = 7, flushed: tuple[str, ...] = FLUSH
) -> Iterator[dict[str, Any]]:
    """Samples of a broker's JVM, in Java and native code, and of a generator. `flushes`: whether the JVM flushes more in a second of the schedule."""
    random = np.random.default_rng(seed)
    for second in range(seconds):
        share = 0.5 if flushes(second) else 0.04
        for at in np.sort(random.uniform(second, second + 1, PER_SECOND)):
            flush, fetch = random.random() < share, random.random() < 0.4
            yield row(float(at), "node-1", "java", THREAD, flushed if flush else FETCH if fetch else APPEND)
            yield row(float(at), "node-1", "native", "data-plane-kafka-network-thread-N", POLL)
            stack = STAMP if random.random() < 0.3 else LOAD
            yield row(float(at), "worker-0", "cpu", "both-N", stack, role="worker")


def row(
    at_s: float, process: str, state: str, thread: str, stack: tuple[str, ...], role: str = "system"
) -> dict[str, Any]:
    """One sample."""
    return {
        "interval": int(at_s),
        "start_s": at_s,
        "duration_s": PERIOD_S,
        "process": process,
        "role": role,
        "state": state,
        "thread": thread,
        "stack": ";".join(stack),
    }


def add_profile(
    run: Path, shape: Shape, asked: WorkloadResult, number: int = 1, flushed: tuple[str, ...] = FLUSH
) -> TrialResult:
    """Gives a trial of a synthetic run (write_run) a profile in which the JVM flushes in the slowest seconds, and computes its result anew."""
    directory = run / "trials" / f"{number:03d}"
    asked = asked.model_copy(update={"extra": {**asked.extra, "profile": True}})
    sample = sample_trial(directory, shape, asked, number)
    measured = Measured.read(sample.context.ended(), directory)
    _, slow = slowest(measured.intervals, measured.lined_up, measured.window, measured.headline)
    inside = measured.lined_up.interval[measured.lined_up.within(measured.window)]
    seconds = {int(interval) for interval in inside[slow]}
    until = int(asked.warmup_s + asked.duration_s)
    write_profile(rows(until, seconds.__contains__, flushed=flushed), directory / PROFILE_NAME)
    TrialDirectory(directory).write_context(sample.context)
    result = sample.result()
    TrialDirectory(directory).write_result(result)
    return result
