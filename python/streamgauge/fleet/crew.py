"""Several workers that act as one.

A `Crew` answers the calls of `WorkerCalls`: it deals a trial out (fleet.split), starts all parts at one instant,
gives out their intervals together, and has their books judged together, so that nothing else in the lab knows
how many workers there are. A worker that is lost ends the trial, or the others take over its rate; the trial is
marked either way.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from streamgauge.fleet.base import Fleet
from streamgauge.fleet.client import WorkerClient
from streamgauge.fleet.clocks import ClockWatch, Station
from streamgauge.fleet.crew_rows import Lineup, merge_counters, merge_finish, merge_status
from streamgauge.fleet.heartbeat import Heartbeat
from streamgauge.fleet.split import Capacity, Part, assign_roles, split
from streamgauge.model.messages import Counters, IntervalsPage, ProbesStatus, TrialStatus
from streamgauge.vocabulary.choices import OnLoss, Topology
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused
from streamgauge.vocabulary.waiting import wait_until

BEAT_S = 0.6
"""Three missed heartbeats mean a lost worker: noticed within 2.4 s."""
START_EXTRA_NS_PER_WORKER = 20_000_000
CALLS_MAX = 32
PROBING_MAX = 2
"""Workers on one machine that watch its CPUs: each costs about 2 % of every one."""
WAITING_POLL_S = 0.05
ANSWER_POLL_S = 0.1
CLOCKS_WITHIN_S = 8.0

Answer = TypeVar("Answer")


@dataclass
class Member:
    """One worker of a crew."""

    capacity: Capacity
    client: WorkerClient
    ahead_ns: int = 0
    """How far its CLOCK_MONOTONIC is ahead of the lab's."""
    trial: str = ""
    """Its name of the trial; empty while it takes no part."""
    part: Part | None = None
    beat: Heartbeat | None = None
    lost: str | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.capacity.name


@dataclass
class _Rate:
    """The schedule's rate and how it was dealt out."""

    total_msgs_s: float | None = None
    producers: int = 0


class Crew:
    """Workers as one. Calls may come from several threads."""

    def __init__(
        self,
        members: Sequence[Member],
        topology: Topology,
        on_loss: OnLoss,
        *,
        one_clock: bool = True,
    ) -> None:
        """`one_clock`: all workers read the same clock, as on one machine; else clocks are compared."""
        roles = assign_roles([member.capacity for member in members], topology)
        for member, capacity in zip(members, roles, strict=True):
            member.capacity = capacity
        self.members = list(members)
        self.notes: list[str] = []
        self._on_loss = on_loss
        self._swarm = topology == "swarm"
        # In a swarm nobody measures what came from another clock.
        self._one_clock = one_clock or self._swarm
        self._watch: ClockWatch | None = None
        self._unwatched: str | None = None
        """Why nobody watches the CPUs, if so."""
        self._lineup = Lineup()
        self._rate = _Rate()
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(min(len(members), CALLS_MAX), "crew")

    def close(self) -> None:
        """Ends the heartbeats and closes all connections."""
        self._stop_beats()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for member in self.members:
            member.client.close()

    # Losses

    def lose(self, member: Member, reason: str) -> None:
        """A worker is gone. Raises WorkerLost when the trial cannot or should not go on."""
        with self._lock:
            if member.lost is None:
                member.lost = f"{member.name}: {reason}"
                self._lineup.drop(member.name)
                if self._watch is not None:
                    self._watch.drop(member.name)
                left = [one for one in self._active if one.part is not None and one.part.producers]
                if self._on_loss == "go-on" and left:
                    self._share_rate(left)
            if self._on_loss == "end" or not self._active:
                raise WorkerLost(member.lost)

    def check(self) -> None:
        """Looks at the heartbeats. Raises WorkerLost as `lose`, and again when a loss has ended the trial."""
        if self.losses and not self.goes_on:
            raise WorkerLost(self.losses[0])
        for member in self._active:
            if member.beat is not None and member.beat.failure:
                self.lose(member, member.beat.failure)

    @property
    def losses(self) -> list[str]:
        """A sentence for each worker that was lost."""
        return [member.lost for member in self.members if member.lost is not None]

    @property
    def answers(self) -> bool:
        """Whether any worker is left."""
        return any(member.lost is None for member in self.members)

    @property
    def goes_on(self) -> bool:
        """Whether the others go on when a worker is lost."""
        return self._on_loss == "go-on"

    def _share_rate(self, left: list[Member]) -> None:
        """Those that are left send what the whole was to send."""
        producers = sum(one.part.producers for one in left if one.part is not None)
        for one in left:
            if self._rate.total_msgs_s is None or one.part is None or one.part.producers == 0:
                continue
            rate = self._rate.total_msgs_s * one.part.producers / producers
            with contextlib.suppress(WorkerRefused, WorkerLost):
                one.client.set_rate(one.trial, rate)

    # Calls to all

    @property
    def _active(self) -> list[Member]:
        return [member for member in self.members if member.trial and member.lost is None]

    def _each(
        self, members: Sequence[Member], call: Callable[[Member], Answer]
    ) -> list[tuple[Member, Answer]]:
        """Calls all at once; the answers of those that are still there, in order."""
        futures = [(member, self._pool.submit(call, member)) for member in members]
        answers = []
        for member, future in futures:
            try:
                answers.append((member, _await(member, future)))
            except WorkerLost as error:
                self.lose(member, str(error))
            except WorkerRefused as error:
                named = f"{member.name}: {error}"
                raise WorkerRefused(error.status, error.code, named, error.field) from None
        return answers

    @property
    def _first(self) -> WorkerClient:
        alive = [member for member in self.members if member.lost is None]
        if not alive:
            raise WorkerLost("all workers are lost")
        return alive[0].client

    def create_topics(
        self, system: Mapping[str, Any], topics: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> None:
        """As WorkerCalls."""
        self._first.create_topics(system, topics, timeout_s)

    def delete_topics(self, system: Mapping[str, Any], topics: Sequence[str]) -> None:
        """As WorkerCalls."""
        self._first.delete_topics(system, topics)

    def describe(self, system: Mapping[str, Any], topics: Sequence[str]) -> dict[str, Any]:
        """As WorkerCalls."""
        return self._first.describe(system, topics)

    def create_trial(self, trial: Mapping[str, Any]) -> TrialStatus:
        """Deals the trial out. Consumers are positioned before anything is sent: the schedule starts later."""
        self._stop_beats()
        parts = split(trial, [member.capacity for member in self.members], swarm=self._swarm)
        idle = []
        for member, part in zip(self.members, parts, strict=True):
            member.trial, member.part = "", part
            if part.request is None:
                idle.append(member.name)
        if idle:
            self._remark(
                f"{', '.join(idle)} took no part: there are fewer producers and consumers than workers to "
                "share them"
            )
        if self._swarm:
            self._remark(
                f"a swarm: each of {len(self.members) - len(idle)} workers reads everything that all of them send, so there are so many "
                "times the workload's subscriptions; latencies are those of a worker's own messages"
            )
        schedule = trial.get("schedule") or {}
        self._rate = _Rate(schedule.get("rate_msgs_s"), len(trial["producers"]))
        if "ramp" in schedule or "changes" in schedule:
            # There is no one rate that the others could take over.
            self._rate.total_msgs_s = None
        self._lineup = Lineup()

        def create(member: Member) -> TrialStatus:
            assert member.part is not None
            assert member.part.request is not None
            return member.client.create_trial(member.part.request)

        takers = [one for one in self.members if one.part is not None and one.part.request is not None]
        if self._one_clock and len(takers) > PROBING_MAX:
            # Each would watch all CPUs, and that many at once would take them away.
            self._unwatched = (
                f"{len(takers)} workers share one machine; {PROBING_MAX} at most can watch its CPUs"
            )
            for member in takers:
                assert member.part is not None
                assert member.part.request is not None
                member.part.request["quiet"] = {"probes": False}
        statuses = self._each([one for one in takers if one.lost is None], create)
        for member, status in statuses:
            member.trial = status.id
            self._lineup.join(member.name)
        if not self._one_clock and len(statuses) > 1:
            self._watch = ClockWatch([_station(member) for member, _ in statuses])
            self._watch.begin()
        return self._merged(statuses)

    def _merged(self, statuses: Sequence[tuple[Member, TrialStatus]]) -> TrialStatus:
        merged = merge_status([(member.name, status) for member, status in statuses])
        if self._unwatched is None:
            return merged
        return merged.model_copy(update={"probes": ProbesStatus(why_not=self._unwatched)})

    def _remark(self, note: str) -> None:
        if note not in self.notes:
            self.notes = [*self.notes, note]

    def status(self, trial: str) -> TrialStatus:
        """The least advanced of all."""
        answers = self._each(self._active, lambda member: member.client.status(member.trial))
        return self._merged(answers)

    def start(self, trial: str, delay_ms: int) -> TrialStatus:
        """Starts all at one instant, which is told each in its own clock. `start_ns` is in the lab's."""
        active = self._active
        if self._watch is not None:
            self._watch.settle(CLOCKS_WITHIN_S)
            self._line_up_clocks(active, self._watch)
        ahead_ns = delay_ms * 1_000_000 + START_EXTRA_NS_PER_WORKER * len(active)
        at_ns = time.monotonic_ns() + ahead_ns
        answers = self._each(
            active, lambda member: member.client.start_at(member.trial, at_ns + member.ahead_ns)
        )
        for member, _ in answers:
            member.beat = Heartbeat(member.client, member.trial, 0.0, period_s=BEAT_S)
            member.beat.start()
        merged = merge_status([(member.name, status) for member, status in answers])
        return merged.model_copy(update={"start_ns": at_ns})

    @staticmethod
    def _line_up_clocks(active: Sequence[Member], watch: ClockWatch) -> None:
        """Workers are compared with each other more exactly than each with the lab."""
        first = active[0]
        now_ns = time.monotonic_ns() + first.ahead_ns
        for member in active[1:]:
            ahead_ns = watch.ahead_ns(first.name, member.name, now_ns)
            if ahead_ns is not None:
                member.ahead_ns = first.ahead_ns + round(ahead_ns)

    def stop_schedule(self, trial: str, at_s: float | None = None) -> None:
        """As WorkerCalls."""
        self._each(self._active, lambda member: member.client.stop_schedule(member.trial, at_s))

    def begin_phase(self, trial: str, name: str, from_s: float | None = None) -> float:
        """The first says when, the others follow."""
        first, *others = self._active
        begins_s = first.client.begin_phase(first.trial, name, from_s)
        self._each(others, lambda member: member.client.begin_phase(member.trial, name, begins_s))
        return begins_s

    def pause(self, trial: str, subscription: str) -> None:
        """As WorkerCalls."""
        self._each(
            self._readers(subscription), lambda member: member.client.pause(member.trial, subscription)
        )

    def resume(self, trial: str, subscription: str) -> None:
        """As WorkerCalls."""
        self._each(
            self._readers(subscription), lambda member: member.client.resume(member.trial, subscription)
        )

    def _readers(self, subscription: str) -> list[Member]:
        def reads(member: Member) -> bool:
            request = member.part.request if member.part is not None else None
            return request is not None and any(
                one["name"] == subscription for one in request["subscriptions"]
            )

        return [member for member in self._active if reads(member)]

    def counters(self, trial: str) -> Counters:
        """Added up."""
        answers = self._each(self._active, lambda member: member.client.counters(member.trial))
        return merge_counters([counters for _, counters in answers])

    def renew_lease(self, trial: str, timeout_s: float) -> None:
        """Every worker has a heartbeat of its own; here it is only looked at."""
        self.check()

    def intervals(self, trial: str, since: int) -> IntervalsPage:
        """Intervals that all workers have completed, each worker's with its name."""
        self.check()

        def pull(member: Member) -> IntervalsPage:
            return member.client.intervals(member.trial, self._lineup.next_of(member.name))

        for member, found in self._each(self._active, pull):
            self._lineup.add(member.name, found)
        return self._lineup.take(since)

    def finish(self, trial: str, drain_s: float, quiet_s: float) -> dict[str, Any]:
        """First everything that was sent gets its end everywhere, then all drain; then the books are judged
        together."""
        began_s = time.monotonic()
        self.stop_schedule(trial)
        self._await_ends(began_s + drain_s, quiet_s)
        left_s = max(drain_s - (time.monotonic() - began_s), 1.0)
        answers = self._each(self._active, lambda member: member.client.finish(member.trial, left_s, quiet_s))
        watch = self._watch
        self._stop_beats()
        clocks = watch.facts() if watch is not None else None
        self._lineup.end()
        audit = self._first.judge([answer["books"] for _, answer in answers])
        if self.losses:
            audit["balanced"] = False
            audit["imbalance"] = f"the books of a lost worker are missing ({'; '.join(self.losses)})"
        merged = merge_finish([(member.name, answer) for member, answer in answers], audit)
        merged["drain_s"] = time.monotonic() - began_s
        merged["clocks"] = clocks
        return merged

    def _await_ends(self, until_s: float, quiet_s: float) -> None:
        """Waits until no worker has a message without an end: as long as one sends, no consumer is done."""
        before, moved_s = -1, time.monotonic()

        def missing() -> str | None:
            nonlocal before, moved_s
            waiting = self.counters("").waiting_msgs
            if waiting != before:
                before, moved_s = waiting, time.monotonic()
            ended = waiting == 0 or time.monotonic() - moved_s > quiet_s
            return None if ended else f"the end of {waiting} messages"

        # Which of the three it was the books tell.
        wait_until(missing, until_s - time.monotonic(), WAITING_POLL_S)

    def abort(self, trial: str) -> None:
        """As WorkerCalls."""
        self._stop_beats()
        self._each(self._active, lambda member: member.client.abort(member.trial))

    def _stop_beats(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        for member in self.members:
            if member.beat is not None:
                member.beat.stop()
                member.beat = None


def _await(member: Member, future: Future[Answer]) -> Answer:
    """The answer of one worker. A host that was cut off answers nothing at all, not even with an error: then the
    heartbeat says sooner than the call itself that the worker is lost. Raises WorkerLost and WorkerRefused."""
    while not wait([future], ANSWER_POLL_S).done:
        beat = member.beat
        if beat is not None and beat.failure:
            raise WorkerLost(beat.failure)
    return future.result()


def _station(member: Member) -> Station:
    request = member.part.request if member.part is not None else None
    assert request is not None, "a worker without a part takes no part in the comparison of clocks"
    return Station(
        name=member.name,
        client=member.client,
        trial=member.trial,
        producers=[int(producer["id"]) for producer in request["producers"]],
        receives=bool(request["subscriptions"]),
    )


class CrewFleet(Fleet):
    """A fleet whose workers may be several."""

    def __init__(self) -> None:
        self._crew: Crew | None = None
        """None before they are started, when they were left, and where there is only one."""

    def answers(self) -> bool:
        """As Fleet."""
        return self._crew.answers if self._crew is not None else self.failure() is None

    def notes(self) -> list[str]:
        """As Fleet."""
        return self._crew.notes if self._crew is not None else []

    def losses(self) -> list[str]:
        """As Fleet."""
        return self._crew.losses if self._crew is not None and self._crew.goes_on else []

    def _leave(self, *, abort: bool = False) -> None:
        """Closes the connections to several workers; `abort`: ends a trial that still runs there first. Never raises."""
        if self._crew is not None:
            with contextlib.suppress(Exception):
                if abort:
                    self._crew.abort("")
            with contextlib.suppress(Exception):
                self._crew.close()
            self._crew = None
