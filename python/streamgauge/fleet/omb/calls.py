"""What a trial needs of its worker, from OMB's workers. Topics are made, described and deleted by a worker of ours that does nothing else."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from streamgauge.fleet.base import WorkerCalls
from streamgauge.fleet.omb import driver as drivers
from streamgauge.fleet.omb import work as works
from streamgauge.fleet.omb.clockwork import Clockwork
from streamgauge.fleet.omb.ensemble import Ensemble
from streamgauge.fleet.omb.figures import behind_msgs, together, totals_row
from streamgauge.model.messages import Counters, IntervalsPage, Readiness, SubscriptionCounters, TrialStatus
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused
from streamgauge.vocabulary.format import trimmed
from streamgauge.vocabulary.waiting import wait_until

LOOK_S = 0.2
END_WITHIN_S = 20.0
"""Longer than a worker may take for an answer."""
GIVE_UP_WITHIN_S = 5.0
LATE_S_MIN = 0.1
"""An answer that comes later than this is worth a remark."""

CANNOT = (
    "phases by the time when a message was due: with OMB's workers it belongs to the phase in whose whole intervals its acknowledgement or "
    "receipt was seen",
    "end-to-end latency from the time when a message was due: OMB's begins with the time that the client writes into the message when it is "
    "sent, and is told in whole ms of the wall clocks of the workers' hosts",
    "readiness proven for each partition: with OMB's workers each producer proves one",
    "an end of the schedule: OMB's workers cannot be told to send nothing, so each that produces sends one message per second from there on until "
    "it is stopped",
)
UNTOLD = {
    "publish_ms": "OMB's workers tell send delay and the time from the send to the acknowledgement (service) apart, and their sum for no message",
    "backpressure_ms": "OMB's workers count what back-pressure holds up as send delay",
    "audit": "OMB's workers keep no books, so what was lost, came twice, out of order or damaged is not known",
    "waiting_msgs_max": "OMB's workers do not tell what waits for its acknowledgement",
    "retries": "OMB's workers do not tell them",
}
ELSEWHERE = "OMB's workers are on another machine, or not this user's, and do not tell it"


class OmbCalls(WorkerCalls):
    """OMB's workers as one. Calls may come from several threads."""

    def __init__(self, ensemble: Ensemble, topics: WorkerCalls) -> None:
        """`topics`: the worker of ours."""
        self.ensemble = ensemble
        self._topics = topics
        self._number = 0
        self._state = "none"
        self._error: str | None = None
        self._request: Mapping[str, Any] = {}
        self._work: works.Work | None = None
        self._driver: drivers.Driver | None = None
        self._preparing: threading.Thread | None = None
        self._clockwork: Clockwork | None = None
        self._answer: dict[str, Any] | None = None
        self._paused = False
        """Whether consumers were paused at any time."""

    # Topics

    def create_topics(
        self, system: Mapping[str, Any], topics: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> None:
        """As WorkerCalls."""
        self._topics.create_topics(system, topics, timeout_s)

    def delete_topics(self, system: Mapping[str, Any], topics: Sequence[str]) -> None:
        """As WorkerCalls."""
        self._topics.delete_topics(system, topics)

    def describe(self, system: Mapping[str, Any], topics: Sequence[str]) -> dict[str, Any]:
        """As WorkerCalls."""
        return self._topics.describe(system, topics)

    # The trial

    @property
    def failure(self) -> str | None:
        """Why the load ended by itself."""
        found = self._clockwork.failure if self._clockwork is not None else None
        return None if found is None else str(found)

    def create_trial(self, trial: Mapping[str, Any]) -> TrialStatus:
        """Sets the workers up in the background: driver, consumers, producers, and a probe of each producer."""
        self._number += 1
        self._request = trial
        self._driver = drivers.render(trial)
        self._work = works.plan(trial, self._driver.topic)
        self._clockwork = self._answer = self._error = None
        self._paused = False
        self._state = "preparing"
        self._preparing = threading.Thread(target=self._prepare, name="omb-prepare", daemon=True)
        self._preparing.start()
        return self.status(str(self._number))

    def _prepare(self) -> None:
        assert self._driver is not None
        assert self._work is not None
        within_s = float(self._request.get("ready_timeout_s", 60.0))
        try:
            self.ensemble.prepare(self._driver, self._work, self._is_given_up)
            self.ensemble.await_ready(self._work, within_s, self._is_given_up)
            if self._state == "preparing":
                self._state = "ready"
        except (WorkerLost, WorkerRefused) as error:
            if self._state == "preparing":
                self._error, self._state = str(error), "failed"

    def _is_given_up(self) -> bool:
        return self._state != "preparing"

    def status(self, trial: str) -> TrialStatus:  # noqa: ARG002
        """As WorkerCalls."""
        partitions = sum(int(topic["partitions"]) for topic in self._request.get("topics", []))
        is_ready = self._state not in ("none", "preparing", "failed")
        clockwork = self._clockwork
        error = self.failure or self._error
        return TrialStatus(
            id=str(self._number),
            state="failed" if self.failure is not None else self._state,
            error=error,
            readiness=Readiness(
                partitions=partitions, proven=len(self._request.get("topics", [])) if is_ready else 0
            ),
            start_ns=None if clockwork is None else clockwork.start_ns,
            start_unix_ns=None if clockwork is None else clockwork.start_unix_ns,
            elapsed_s=None if clockwork is None else clockwork.now_s,
            audit_enabled=False,
            client=self.client,
            cannot=self._cannot(),
            untold=self._untold(),
        )

    @property
    def client(self) -> str:
        """What the load comes from."""
        return "OMB's worker" + ("" if self._driver is None else f", {self._driver.title}")

    def _cannot(self) -> list[str]:
        assert self._driver is not None
        assert self._work is not None
        found = [*self._driver.cannot, *self._work.cannot, *CANNOT]
        if self._request.get("lanes"):
            found.append("lanes: OMB's workers have threads of their own")
        return found

    def _untold(self) -> dict[str, str]:
        assert self._work is not None
        found = dict(UNTOLD)
        if self._work.copies > 1:
            found["end_to_end_by_subscription_ms"] = (
                f"OMB's workers do not tell subscriptions apart: the {self._work.copies} of them are recorded as one, whose backlog is the mean"
            )
        if any(member.process is None for member in self.ensemble.members):
            found |= dict.fromkeys(("cpu.workers_s", "worker_rss_bytes_max"), ELSEWHERE)
        return found

    def start(self, trial: str, delay_ms: int) -> TrialStatus:
        """The schedule begins when the last of the workers has said that it sends."""
        if self._state != "ready":
            raise WorkerRefused(409, "conflict", f"the trial is {self._state}", None)
        assert self._work is not None
        time.sleep(delay_ms / 1000.0)
        # Probes are in no figure.
        base = self.ensemble.periods()
        for member in self.ensemble.members:
            member.usage()
        self.ensemble.start_load(self._work)
        interval_s = float(self._request.get("interval_ms", 1000)) / 1000.0
        phases = self._request.get("phases", [])
        self._clockwork = Clockwork(self.ensemble, self._work, phases, interval_s, base)
        self._state = "running"
        return self.status(trial)

    @property
    def _running(self) -> Clockwork:
        if self._clockwork is None:
            raise WorkerRefused(409, "conflict", f"the trial is {self._state}", None)
        return self._clockwork

    def stop_schedule(self, trial: str, at_s: float | None = None) -> None:  # noqa: ARG002
        """As WorkerCalls."""
        self._running.stop_at(at_s)

    def begin_phase(self, trial: str, name: str, from_s: float | None = None) -> float:  # noqa: ARG002
        """As WorkerCalls."""
        return self._running.begin_phase(name, from_s)

    def pause(self, trial: str, subscription: str) -> None:  # noqa: ARG002
        """All subscriptions: with several of them, a pause of one is refused before the trial."""
        self._paused = True
        self.ensemble.pause()

    def resume(self, trial: str, subscription: str) -> None:  # noqa: ARG002
        """As `pause`."""
        self.ensemble.resume()

    def counters(self, trial: str) -> Counters:  # noqa: ARG002
        """As of now for messages, as of the last interval for bytes."""
        clockwork, work = self._running, self._work
        assert work is not None
        clockwork.check()
        acked, received = self._seen(clockwork)
        return Counters(
            acked_msgs=acked,
            acked_bytes=clockwork.totals.acked_bytes,
            subscriptions=[
                SubscriptionCounters(
                    name=together(work.subscriptions),
                    received_msgs=received,
                    received_bytes=clockwork.totals.received_bytes,
                    backlog_msgs=behind_msgs(acked, received, work.copies),
                )
            ]
            if work.copies
            else [],
        )

    def _seen(self, clockwork: Clockwork) -> tuple[int, int]:
        """Acknowledged and received since the start."""
        sent, received = self.ensemble.counters()
        base_sent, base_received = clockwork.base_totals()
        return sent - base_sent, received - base_received

    def renew_lease(self, trial: str, timeout_s: float) -> None:  # noqa: ARG002
        """OMB's workers have no lease. They are asked once per interval, and here it is only looked whether they answered."""
        if self._clockwork is not None:
            self._clockwork.check()

    def intervals(self, trial: str, since: int) -> IntervalsPage:  # noqa: ARG002
        """As WorkerCalls."""
        clockwork = self._running
        clockwork.check()
        rows, shown, following = clockwork.rows(since)
        return IntervalsPage(next=following, intervals=rows, shown=shown)

    def finish(self, trial: str, drain_s: float, quiet_s: float) -> dict[str, Any]:  # noqa: ARG002
        """Ends the schedule, waits until the consumers have come to the end, and stops the workers. There is no audit."""
        if self._answer is not None:
            return self._answer
        clockwork, work = self._running, self._work
        assert work is not None
        self._state = "draining"
        began_s = time.monotonic()
        clockwork.stop_now()
        drained = self._drain(clockwork, work, began_s + drain_s, quiet_s)
        drained_s = time.monotonic() - began_s
        clockwork.end(END_WITHIN_S)
        clockwork.check()
        clockwork.take_rest()
        remarks = self._remarks(clockwork)
        if self._paused:
            remarks.append(
                "OMB's consumers notice within a second that they may go on: the time in which the backlog was read has that in it"
            )
        try:
            self.ensemble.stop_all()
        except (WorkerLost, WorkerRefused) as error:
            remarks.append(f"the workers could not be stopped: {error}")
        acked, failed, _ = clockwork.told_totals()
        self._state = "finished"
        self._answer = {
            "state": self._state,
            "totals": totals_row(clockwork.totals, work.subscriptions),
            "drained": drained,
            "drain_s": drained_s,
            "start_unix_ns": clockwork.start_unix_ns,
            "start_ns": clockwork.start_ns,
            "stopped_s": clockwork.stopped_s,
            "audit": {
                "enabled": False,
                "missing": UNTOLD["audit"],
                # As the workers have added them up themselves: the intervals are compared with it.
                "sent": acked + failed,
                "acked": acked,
                "failed": failed,
                "balanced": True,
                "subscriptions": [],
            },
            "lanes": [],
            "client": self.client,
            "cannot": self._cannot(),
            "remarks": remarks,
        }
        return self._answer

    def _drain(self, clockwork: Clockwork, work: works.Work, until_s: float, quiet_s: float) -> bool:
        """Waits until no subscription is behind. What is sent after the schedule's end is no more than some messages per second."""
        slack = len(self.ensemble.sending)
        before = (-1, -1)
        moved_s = time.monotonic()
        drained = False

        def missing() -> str | None:
            nonlocal before, moved_s, drained
            acked, received = self._seen(clockwork)
            settled = acked - before[0] <= slack
            behind = acked * work.copies - received
            drained = settled and before[0] >= 0 and behind <= slack * max(work.copies, 1)
            now_s = time.monotonic()
            if received - before[1] > slack * max(work.copies, 1) or not settled:
                moved_s = now_s
            before = (acked, received)
            return None if drained or now_s - moved_s > quiet_s else f"{behind} messages to be received"

        wait_until(missing, until_s - time.monotonic(), LOOK_S)
        return drained

    @staticmethod
    def _remarks(clockwork: Clockwork) -> list[str]:
        found = []
        totals = clockwork.totals
        if totals.untimed_msgs:
            share = 100.0 * totals.untimed_msgs / max(totals.received_msgs, 1)
            found.append(
                f"{totals.untimed_msgs:,} of {totals.received_msgs:,} received messages ({trimmed(share, 2)} %) have no end-to-end latency, because OMB "
                "throws away what its clock shows as 0 ms or less: percentiles count them as smaller than all others, minimum and mean leave them out"
            )
        if totals.clamped:
            found.append(
                f"{totals.clamped:,} samples of service and send delay are 60 s, where OMB's end: they may have been longer"
            )
        if clockwork.late_s_max > LATE_S_MIN:
            found.append(
                f"OMB's workers answered up to {1000 * clockwork.late_s_max:.0f} ms after an interval had ended: what came meanwhile is counted in it"
            )
        return found

    def abort(self, trial: str) -> None:  # noqa: ARG002
        """As WorkerCalls."""
        if self._state in ("none", "finished"):
            return
        self._give_up(GIVE_UP_WITHIN_S)
        self.ensemble.stop_all()

    def _give_up(self, within_s: float) -> None:
        """Nobody sets anything up any more, or asks for intervals: when this returns, or soon after."""
        self._state = "aborted"
        if self._preparing is not None:
            self._preparing.join(within_s)
        if self._clockwork is not None:
            self._clockwork.end(within_s)

    def leave(self, *, at_once: bool) -> None:
        """Stops whatever the workers still do. Never raises."""
        if self._state in ("none", "finished"):
            return
        with contextlib.suppress(Exception):
            self._give_up(0.0 if at_once else GIVE_UP_WITHIN_S)
        with contextlib.suppress(Exception):
            self.ensemble.stop_all(at_once=at_once)
