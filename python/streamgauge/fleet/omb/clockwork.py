"""The schedule of a trial on OMB's workers: a thread that asks them at the end of each interval, and changes their rate when it is time.

OMB's workers pace themselves and know of no intervals, phases or end. An interval is what they answer when it is over, some ms late.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from streamgauge.fleet.omb.client import OmbPeriod
from streamgauge.fleet.omb.ensemble import Ensemble
from streamgauge.fleet.omb.figures import Row, Told, Totals, interval_rows
from streamgauge.fleet.omb.work import Work
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused
from streamgauge.vocabulary.phases import MEASURE
from streamgauge.vocabulary.waiting import wait_until

EDGE_S = 1e-6
LEAD_S = 0.2
"""A phase begins at a whole interval that is at least so far away."""
STOP_WITHIN_S = 20.0
BALANCE_TIMES = 8
BALANCE_PAUSE_S = 0.05


class Clockwork:
    """From the load's start to its end. Times are seconds on the schedule's axis."""

    def __init__(
        self,
        ensemble: Ensemble,
        work: Work,
        phases: Sequence[Mapping[str, Any]],
        interval_s: float,
        base: Sequence[OmbPeriod],
    ) -> None:
        """Begins now. `base`: what the workers told right before the load."""
        self.start_ns = time.monotonic_ns()
        self.start_unix_ns = time.time_ns()
        self.totals = Totals()
        self.stopped_s: float | None = None
        """Where the schedule ended."""
        self.late_s_max = 0.0
        """How long after an interval's end the last of the workers had answered."""
        self.failure: Exception | None = None
        """Why it ended by itself."""
        self._ensemble = ensemble
        self._work = work
        self._interval_s = interval_s
        self._base = list(base)
        self._last = list(base)
        self._phases = [(str(phase["name"]), float(phase["from_s"])) for phase in phases] or [(MEASURE, 0.0)]
        self._changes = list(work.changes)
        self._stop_s = math.inf if work.stop_s is None else work.stop_s
        self._rows: list[list[Row]] = []
        self._shown: list[Row] = []
        self._begun_s = 0.0
        """Where the interval began that is not over."""
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="omb-clockwork", daemon=True)
        self._thread.start()

    @property
    def now_s(self) -> float:
        """Now."""
        return (time.monotonic_ns() - self.start_ns) / 1e9

    # What others ask

    def check(self) -> None:
        """Raises what has ended it."""
        if self.failure is not None:
            raise self.failure

    def rows(self, since: int) -> tuple[list[Row], list[Row], int]:
        """Rows of the intervals from `since` on, one for each interval to show, and which comes next."""
        with self._lock:
            rows = [row for group in self._rows[since:] for row in group]
            return rows, self._shown[since:], len(self._rows)

    def begin_phase(self, name: str, from_s: float | None) -> float:
        """Another phase; where it begins. Raises WorkerRefused where that is past, or before the others."""
        with self._lock:
            if from_s is None:
                from_s = math.ceil((self.now_s + LEAD_S) / self._interval_s) * self._interval_s
            last = self._phases[-1][1]
            if from_s <= self.now_s or from_s <= last:
                raise WorkerRefused(
                    409,
                    "conflict",
                    f"phase '{name}' cannot begin at {from_s:g} s: it is {self.now_s:.1f} s, and the last phase begins at {last:g} s",
                    "from_s",
                )
            self._phases.append((name, from_s))
            return from_s

    def stop_at(self, at_s: float | None) -> None:
        """Ends the schedule, unless it ends earlier."""
        with self._lock:
            self._stop_s = min(self._stop_s, self.now_s if at_s is None else max(at_s, self.now_s))
        self._wake.set()

    def stop_now(self) -> None:
        """Ends the schedule and returns when it has ended. Raises what has ended the thread."""
        self.stop_at(None)
        wait_until(
            lambda: "the schedule to end" if self.stopped_s is None and self._thread.is_alive() else None,
            STOP_WITHIN_S,
            0.01,
        )
        self.check()

    def end(self, within_s: float) -> None:
        """No more intervals: when this returns, or after the one that is asked for."""
        self._ended.set()
        self._wake.set()
        self._thread.join(within_s)

    def take_rest(self) -> None:
        """What came after the last interval, when the thread has ended: until rows, histograms and totals agree, which are not told at one
        instant. Twice at least: what has no end-to-end sample is known one interval later."""
        for time_of in range(BALANCE_TIMES):
            self._take(max(self.now_s - self._begun_s, EDGE_S))
            counted = (self.totals.acked_msgs, self.totals.failed_msgs, self.totals.served_msgs)
            acked, failed, _ = self.told_totals()
            if time_of > 0 and counted == (acked, failed, acked):
                return
            time.sleep(BALANCE_PAUSE_S)

    def told_totals(self) -> tuple[int, int, int]:
        """Acknowledged, failed and received messages as the workers add them up themselves."""
        pairs = list(zip(self._last, self._base, strict=True))
        return (
            sum(last.total_messages_sent - base.total_messages_sent for last, base in pairs),
            sum(last.total_message_send_errors - base.total_message_send_errors for last, base in pairs),
            sum(last.total_messages_received - base.total_messages_received for last, base in pairs),
        )

    def base_totals(self) -> tuple[int, int]:
        """Acknowledged and received messages before the load: probes."""
        sent = sum(one.total_messages_sent for one in self._base)
        return sent, sum(one.total_messages_received for one in self._base)

    # The thread

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                with self._lock:
                    tick_s = self._begun_s + self._interval_s
                    due_s = min(tick_s, self._next_change_s())
                if self._wake.wait(max(due_s - self.now_s, 0.0)):
                    # Something was changed: what is due is looked at again.
                    self._wake.clear()
                    if due_s > self.now_s:
                        continue
                if self._ended.is_set():
                    return
                self._change_rate()
                if tick_s <= self.now_s:
                    self._take(self._interval_s)
                    self.late_s_max = max(self.late_s_max, self.now_s - tick_s)
        except (WorkerLost, WorkerRefused) as error:
            self.failure = error

    def _next_change_s(self) -> float:
        if self.stopped_s is not None:
            return math.inf
        return min([self._stop_s, *(at_s for at_s, _ in self._changes[:1])])

    def _change_rate(self) -> None:
        """Whatever change is due; the last of several."""
        with self._lock:
            if self.stopped_s is not None:
                return
            now_s = self.now_s
            stops = self._stop_s <= now_s
            due = [rate for at_s, rate in self._changes if at_s <= now_s]
            self._changes = self._changes[len(due) :]
            stop_s = self._stop_s
        if stops:
            self._ensemble.set_rate(0.0)
            self.stopped_s = stop_s
        elif due:
            self._ensemble.set_rate(due[-1])

    def _take(self, duration_s: float) -> None:
        """The interval that is over."""
        periods = self._ensemble.periods()
        with self._lock:
            begun_s, index = self._begun_s, len(self._rows)
            phase = next(
                (name for name, from_s in reversed(self._phases) if from_s <= begun_s + EDGE_S),
                self._phases[0][0],
            )
            answers = [
                Told(member.name, period, self._reads(member.name), member.usage())
                for member, period in zip(self._ensemble.members, periods, strict=True)
            ]
            rows, shown = interval_rows(
                index, begun_s, duration_s, phase, self._work.subscriptions, answers, self.totals
            )
            self._last = periods
            self._rows.append(rows)
            self._shown.append(shown)
            self._begun_s = begun_s + duration_s

    def _reads(self, name: str) -> bool:
        return any(member.name == name for member in self._ensemble.consuming)
