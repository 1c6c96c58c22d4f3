"""The load of a trial: from the schedule's start to the audit.

Intervals are pulled as they become complete and written at once. Between them the loop looks for everything
that may end a trial early: the user, a worker that is gone, a system that died, a disk that fills up. Each
becomes an `Ending`; what was measured until then is finished in good order where that is still possible.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from streamgauge.fleet.base import WorkerCalls
from streamgauge.fleet.heartbeat import Heartbeat
from streamgauge.model.messages import Interval, LatencyEntry, TrialStatus
from streamgauge.model.result_special import WarmUpResult
from streamgauge.model.workload import Workload
from streamgauge.runner.compilers import Compilers
from streamgauge.runner.interrupts import Interrupts
from streamgauge.runner.observer import Observer, Snapshot
from streamgauge.runner.pace import Pace
from streamgauge.runner.phases import PhaseLog
from streamgauge.runner.request import LEASE_S, quiet_stop_s, stop_s
from streamgauge.runner.warm_up import WarmUp
from streamgauge.vocabulary.bounds import DISTURBED_SHARE_MAX
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused
from streamgauge.vocabulary.phases import BUILD, DRAIN, INTERVAL_S, MEASURE, WARM_UP
from streamgauge.vocabulary.units import format_rate

START_DELAY_S = 0.3
POLL_S = 0.1
EDGE_S = 1e-6
SETTLE_S = 0.02
"""An interval is asked for this long after its end."""
OVERDUE_S = 10.0
"""An interval that comes later than this means that the worker hangs."""
QUIET_S = 5.0
SHORT_DRAIN_S = 5.0
SHORT_QUIET_S = 2.0
END_AHEAD_S = 0.3
FINISH_EXTRA_S = 70.0

EndingKind = Literal["done", "interrupted", "system", "worker", "fleet", "disk", "time"]


def worth_s(interval: Interval, *, at_its_most: bool) -> float:
    """How much of an interval counts as quiet, where more of it can be waited for. A load that goes as fast as it can disturbs its own CPUs (interrupts,
    stretches of the kernel), and would for ever: there only what the host took is worth waiting for."""
    disturbance = interval.disturbance
    if disturbance is None or disturbance.quiet_s is None:
        return 0.0
    if not at_its_most:
        return disturbance.quiet_s
    taken_s = sum(one.recovered_s - one.from_s for one in disturbance.windows if one.cause == "host")
    return max(disturbance.quiet_s, interval.duration_s - taken_s)


@dataclass(frozen=True)
class Ending:
    """Why the load ended."""

    kind: EndingKind
    reason: str = ""


@dataclass(frozen=True)
class Health:
    """What is looked at between intervals; each gives one sentence when something is wrong."""

    worker: Callable[[], str | None]
    system: Callable[[], str | None]
    disk: Callable[[], str | None]


@dataclass(frozen=True)
class QuietWait:
    """A measured phase that goes on until as much of it was quiet as was asked for."""

    learn: Callable[[Workload, float], None]
    """Receives the workload with the duration that it had, and how many seconds of it were quiet."""
    watched: bool
    """Whether it is known how quiet it is; else the phase lasts as long as asked."""


class Load:
    """Drives one trial on one worker."""

    def __init__(
        self,
        *,
        client: WorkerCalls,
        trial: str,
        workload: Workload,
        interrupts: Interrupts,
        observer: Observer,
        phases: PhaseLog,
        health: Health,
        keep: Callable[[list[dict[str, Any]]], None],
        learn_warm_up: Callable[[Workload, WarmUpResult], None],
        compilers: Compilers,
        quiet: QuietWait | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`compilers`: of the system. `quiet`: where the schedule was given more time than the workload asks for.
        `pace`: where the rate is to be found in the warm-up."""
        self.client = client
        self.trial = trial
        self.workload = workload
        """What is driven; its warm-up is known when it is over."""
        self.warmed_up: WarmUpResult | None = None
        """How a warm-up ended that had no fixed length."""
        self._warm_up_seen = WarmUp()
        self._interrupts = interrupts
        self._observer = observer
        self._phases = phases
        self._health = health
        self._keep = keep
        self._learn_warm_up, self._compilers = learn_warm_up, compilers
        self._quiet = quiet
        self._pace = pace
        self._wanted_msgs_s: float | None = None
        """A rate to go on with."""
        self._quiet_s = 0.0
        """Of the measured phase, so far."""
        self._heartbeat = Heartbeat(client, trial, LEASE_S)
        self._next = 0
        self.seen_s = 0.0
        """End of the last interval that was pulled, on the schedule's axis."""
        self.backlogs: dict[str, int] = {}
        """Subscription -> messages behind at the end of the last interval."""
        self._ends_s = stop_s(workload)

    def start(self, *, same_clock: bool) -> TrialStatus:
        """Starts the schedule. `same_clock`: the worker's CLOCK_MONOTONIC is this machine's."""
        status = self.client.start(self.trial, int(START_DELAY_S * 1000))
        if same_clock and status.start_ns is not None:
            self._phases.start_s = status.start_ns / 1e9
        else:
            self._phases.start_s = time.monotonic() + START_DELAY_S
        self._heartbeat.start()
        return status

    def close(self) -> None:
        """Ends the heartbeat."""
        self._heartbeat.stop()

    @property
    def _start_s(self) -> float:
        assert self._phases.start_s is not None, "the schedule was started"
        return self._phases.start_s

    @property
    def now_s(self) -> float:
        """Now, on the schedule's axis."""
        return time.monotonic() - self._start_s

    def run(self) -> Ending:
        """Pulls intervals until the end of the measured phase, or until something ends the load early."""
        if self._quiet is not None and not self._quiet.watched:
            # Nobody will tell how quiet it is: the phase ends when it was asked to.
            self._quiet = None
            ending = None if self.workload.warmup_auto else self._fix_end(stop_s(self.workload))
            if ending is not None:
                return ending
        if self.workload.warmup_auto:
            ending = self._warm_up()
            if ending is not None:
                return ending
        warmup_s = self.workload.warmup_s
        if warmup_s and self.warmed_up is None:
            self.begin(WARM_UP, warmup_s, 0.0)
            ending = self.advance(warmup_s)
            if ending is not None:
                return ending
        self.begin(MEASURE, self.workload.duration_s, self.workload.warmup_s)
        ending = self._wait_for_quiet() if self._quiet is not None else None
        return ending or self.advance(stop_s(self.workload)) or Ending("done")

    def _wait_for_quiet(self) -> Ending | None:
        """Fixes the end of the measured phase: the second before it, what is missing must be what that second can bring."""
        assert self._quiet is not None
        asked_s, limit_s = self.workload.duration_s, quiet_stop_s(self.workload)
        end_s = stop_s(self.workload)
        while True:
            ending = self.advance(end_s - INTERVAL_S)
            if ending is not None:
                return ending
            missing_s = (1.0 - DISTURBED_SHARE_MAX) * asked_s - self._quiet_s - INTERVAL_S
            if missing_s <= 0 or end_s + INTERVAL_S > limit_s:
                break
            end_s += INTERVAL_S
            self.say(
                f"{self._quiet_s:.1f} of {asked_s:g} s were quiet so far: the machine is disturbed, going on"
            )
        # A worker takes an end that lies ahead.
        while end_s < self.now_s + END_AHEAD_S and end_s + INTERVAL_S <= limit_s:
            end_s += INTERVAL_S
        self.workload = dataclasses.replace(self.workload, duration_s=end_s - self.workload.warmup_s)
        ending = self._fix_end(end_s) or self.advance(end_s)
        self._quiet.learn(self.workload, self._quiet_s)
        return ending

    def _fix_end(self, at_s: float) -> Ending | None:
        """Ends a schedule that was given more time."""
        try:
            self.end_at(at_s)
        except WorkerRefused as error:
            return Ending("worker", f"the worker refused to end the measured phase: {error}")
        except WorkerLost as error:
            return Ending("worker", str(error))
        return None

    def _warm_up(self) -> Ending | None:
        """Goes on until the load is steady, or for as long as a warm-up may take; the measured phase is fixed then."""
        limit_s = self.workload.warmup_s
        self.begin(WARM_UP, limit_s, 0.0)
        with self._compilers.first():
            steady, ending = self._until_steady(limit_s)
        if ending is not None:
            return ending
        try:
            from_s = self.client.begin_phase(self.trial, MEASURE)
            self.warmed_up = WarmUpResult(
                limit_s=limit_s, lasted_s=from_s, steady=steady, explanation=self._warm_up_seen.explanation
            )
            self.workload = self.workload.warmed_up(from_s)
            if self.workload.backlog is None:
                if self._quiet is None:
                    self.end_at(stop_s(self.workload))
            else:
                self.client.begin_phase(self.trial, BUILD, stop_s(self.workload))
                self._ends_s = stop_s(self.workload)
        except WorkerRefused as error:
            return Ending("worker", f"the worker refused to begin the measured phase: {error}")
        except WorkerLost as error:
            return Ending("worker", str(error))
        self._learn_warm_up(self.workload, self.warmed_up)
        return self.advance(from_s)

    def _until_steady(self, limit_s: float) -> tuple[bool, Ending | None]:
        """Whether the load has become steady within that time, and what has ended it."""
        steady = False
        # A phase begins at a whole interval that is 200 ms away at least.
        while not steady and self.seen_s + INTERVAL_S < limit_s:
            ending = self.advance(self.seen_s + INTERVAL_S)
            if ending is not None:
                return steady, ending
            self._warm_up_seen.compiled(time.monotonic(), self._compilers.used_s())
            steady = not self._warm_up_seen.explanation and (self._pace is None or self._pace.found)
            try:
                self._follow_pace()
            except (WorkerLost, WorkerRefused) as error:
                return steady, Ending("worker", str(error))
            if steady:
                self.say("steady")
            elif self._warm_up_seen.explanation:
                self.say(f"not steady yet: {self._warm_up_seen.explanation}")
        return steady, None

    def _follow_pace(self) -> None:
        """Goes on at another rate, where it is time for one: what was steady before says nothing then. Raises WorkerLost, WorkerRefused."""
        wanted, self._wanted_msgs_s = self._wanted_msgs_s, None
        if wanted is None or self._pace is None:
            return
        self._pace.set_rate(self.trial, wanted)
        self.workload = dataclasses.replace(self.workload, rate_msgs_s=wanted)
        self._warm_up_seen = WarmUp()
        self.say(f"going on with {format_rate(wanted)}: about half of the CPU is to be used")

    def begin(self, phase: str, limit_s: float, from_s: float) -> None:
        """The phase that begins at a place on the schedule's axis."""
        self._phases.begin(phase, limit_s, self._start_s + from_s)

    def say(self, text: str) -> None:
        """What is being done within the phase."""
        self._observer.progress(text)

    def end_at(self, at_s: float) -> None:
        """Ends the schedule of a load that has no end of its own."""
        self.client.stop_schedule(self.trial, at_s)
        self._ends_s = at_s

    def wait_until(self, at_s: float) -> Ending | None:
        """Sleeps until a moment on the schedule's axis, looking around."""
        return self._wait(self._start_s + at_s)

    def advance(self, until_s: float) -> Ending | None:
        """Pulls intervals up to a place on the schedule's axis."""
        last = math.ceil(until_s / INTERVAL_S - EDGE_S)
        while self._next < last:
            due_s = self._start_s + (self._next + 1) * INTERVAL_S + SETTLE_S
            ending = self._wait(due_s)
            if ending is not None:
                return ending
            ending = self._pull_due(due_s)
            if ending is not None:
                return ending
        return None

    def _wait(self, until_s: float) -> Ending | None:
        """Sleeps until a moment, looking around."""
        while True:
            ending = self._look()
            if ending is not None:
                return ending
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return None
            time.sleep(min(left_s, POLL_S))

    def _look(self) -> Ending | None:
        if self._interrupts.requested:
            return Ending("interrupted", "stopped by the user")
        lost = self._health.worker() or self._heartbeat.failure
        if lost:
            return Ending("worker", lost)
        died = self._health.system()
        if died:
            return Ending("system", died)
        full = self._health.disk()
        if full:
            return Ending("disk", full)
        return None

    def _pull_due(self, due_s: float) -> Ending | None:
        """Pulls intervals until at least one came; a worker that owes one for too long is lost."""
        try:
            while not self.pull():
                status = self.client.status(self.trial)
                if status.ended:
                    return Ending("worker", f"the worker ended the trial: {status.error or status.state}")
                if time.monotonic() - due_s > OVERDUE_S:
                    return Ending("worker", f"the worker has had no new interval for {OVERDUE_S:g} s")
                ending = self._wait(time.monotonic() + POLL_S)
                if ending is not None:
                    return ending
        except WorkerLost as error:
            return Ending("worker", self._health.worker() or str(error))
        except WorkerRefused as error:
            return Ending("worker", f"the worker refused to go on: {error}")
        return None

    def pull(self) -> int:
        """Fetches, keeps and shows the intervals that are complete; how many there were."""
        found = self.client.intervals(self.trial, self._next)
        if found.intervals:
            self._keep(found.intervals)
            for value in found.shown if found.shown is not None else found.intervals:
                interval = Interval.model_validate(value)
                self.seen_s = interval.start_s + interval.duration_s
                if interval.disturbance is not None and interval.start_s >= self.workload.warmup_s - EDGE_S:
                    self._quiet_s += worth_s(interval, at_its_most=self.workload.arrival == "closed")
                self.backlogs = {one.name: one.backlog_msgs for one in interval.subscriptions}
                self._warm_up_seen.add(interval)
                if self._pace is not None and self.warmed_up is None:
                    self._wanted_msgs_s = self._pace.after(interval) or self._wanted_msgs_s
                self._observer.interval(self._snapshot(interval))
        self._next = found.next
        return len(found.intervals)

    def finish(self, ending: Ending) -> dict[str, Any] | None:
        """Ends the schedule, drains and audits; None when there is no audit. The last intervals are kept."""
        early = ending.kind != "done"
        drain_s = SHORT_DRAIN_S if early else self.workload.drain_s
        slow = self.workload.processing_ms_per_msg or self.workload.processing_ms_per_fetch
        # A slow consumer is quiet while it works.
        quiet_s = SHORT_QUIET_S if early else (max(drain_s, QUIET_S) if slow else QUIET_S)
        at_s = None if early else self._start_s + self._ends_s
        self._phases.begin(DRAIN, drain_s, at_s)
        answer: dict[str, Any] = {}
        error: list[Exception] = []

        def call() -> None:
            try:
                answer.update(self.client.finish(self.trial, drain_s, quiet_s))
            except (WorkerLost, WorkerRefused) as problem:
                error.append(problem)

        # In a thread, so that intervals go on being seen and a second Ctrl-C is heard.
        thread = threading.Thread(target=call, name="finish", daemon=True)
        thread.start()
        deadline = time.monotonic() + drain_s + FINISH_EXTRA_S
        while thread.is_alive() and time.monotonic() < deadline and self._health.worker() is None:
            thread.join(INTERVAL_S / 2)
            self._pull_quietly()
        thread.join(1.0)
        if not answer:
            reason = self._health.worker() or (str(error[0]) if error else "it did not finish in time")
            self._observer.problem(f"the audit could not be made: {reason}")
            if self._health.worker() is not None:
                return None
            # The trial has failed, and its last intervals may be on their way: the worker answers when all of them are there.
            with contextlib.suppress(WorkerLost, WorkerRefused):
                self.client.abort(self.trial)
        while self._pull_quietly():
            pass
        return answer or None

    def _pull_quietly(self) -> int:
        """As `pull`, where a lost worker is noticed by others."""
        try:
            return self.pull()
        except (WorkerLost, WorkerRefused):
            return 0

    def _snapshot(self, interval: Interval) -> Snapshot:
        per_s = 1.0 / interval.duration_s if interval.duration_s > 0 else 0.0
        publish, end_to_end = interval.latency("publish"), interval.latency("end_to_end")
        service = interval.latency("service")

        def ms(entry: LatencyEntry | None, name: Literal["p50_ns", "p99_ns"]) -> float | None:
            # Of no message there is no percentile, such as while it drains.
            value_ns = getattr(entry, name) if entry is not None and entry.count else None
            return None if value_ns is None else value_ns / 1e6

        return Snapshot(
            elapsed_s=interval.start_s + interval.duration_s,
            total_s=max(self._ends_s, interval.start_s + interval.duration_s),
            phase=self._phases.current,
            target_msgs_s=self.workload.rate_msgs_s,
            sent_msgs_s=interval.sent_msgs * per_s,
            acked_msgs_s=interval.acked_msgs * per_s,
            acked_mb_s=interval.acked_bytes * per_s / 1e6,
            received_msgs_s=sum(one.received_msgs for one in interval.subscriptions) * per_s,
            publish_ms_p50=ms(publish, "p50_ns"),
            publish_ms_p99=ms(publish, "p99_ns"),
            end_to_end_ms_p50=ms(end_to_end, "p50_ns"),
            end_to_end_ms_p99=ms(end_to_end, "p99_ns"),
            backlog_msgs=max((one.backlog_msgs for one in interval.subscriptions), default=0),
            waiting_msgs=interval.waiting_msgs,
            failed_msgs=interval.failed_msgs,
            errors=interval.errors,
            headline=interval.headline,
            service_ms_p50=ms(service, "p50_ns"),
            service_ms_p99=ms(service, "p99_ns"),
        )
