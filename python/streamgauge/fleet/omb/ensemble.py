"""OMB's workers together: who produces, who consumes, and calls to all of them at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import psutil

from streamgauge.fleet.omb.addresses import is_loopback
from streamgauge.fleet.omb.client import STOP_AT_ONCE_TIMEOUT_S, OmbClient, OmbPeriod
from streamgauge.fleet.omb.driver import Driver
from streamgauge.fleet.omb.figures import Usage
from streamgauge.fleet.omb.work import Work, deal, roles
from streamgauge.vocabulary.errors import WorkerLost
from streamgauge.vocabulary.waiting import wait_until

RATE_MIN_MSGS_S = 1.0
"""The least that OMB's workers can be told to send."""
READY_POLL_S = 0.2
CALLS_MAX = 32

Result = TypeVar("Result")


@dataclass
class Member:
    """One of OMB's workers."""

    client: OmbClient
    process: psutil.Process | None = None
    """Where it runs on this machine."""
    cpu_s: float = 0.0
    """What its process had used when it was looked at last."""

    @property
    def name(self) -> str:
        """Host and port."""
        return urlsplit(self.client.url).netloc

    def usage(self) -> Usage:
        """What its process has used since the last look."""
        if self.process is None:
            return Usage()
        try:
            times, memory = self.process.cpu_times(), self.process.memory_info()
        except psutil.Error:
            return Usage()
        before_s, self.cpu_s = self.cpu_s, times.user + times.system
        return Usage(self.cpu_s - before_s, memory.rss)


class Ensemble:
    """Workers of a list, as OMB's leader uses them."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.producing, self.consuming = roles(self.members)
        self.sending: list[Member] = []
        """Those that have producers."""
        self._pool = ThreadPoolExecutor(min(len(members), CALLS_MAX), "omb")

    def close(self) -> None:
        """Closes all connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for member in self.members:
            member.client.close()

    def each(self, members: Sequence[Member], call: Callable[[Member], Result]) -> list[Result]:
        """Calls all at once; their answers in order. Raises the first error when all have answered."""
        futures = [self._pool.submit(call, member) for member in members]
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def stop_all(self, *, at_once: bool = False) -> None:
        """Ends whatever the workers do. Raises WorkerLost and WorkerRefused when all were asked."""
        if at_once:
            self.each(self.members, lambda member: member.client.stop_all(STOP_AT_ONCE_TIMEOUT_S))
        else:
            self.each(self.members, lambda member: member.client.stop_all())

    def prepare(self, driver: Driver, work: Work, ended: Callable[[], bool]) -> None:
        """Driver, consumers, producers; nothing more as soon as it has `ended`."""
        receiving = list(zip(self.consuming, deal(work.consumers, len(self.consuming)), strict=True))
        sending = list(zip(self.producing, deal(work.producers, len(self.producing)), strict=True))
        self.sending = [member for member, topics in sending if topics]
        steps: tuple[Callable[[], object], ...] = (
            self.stop_all,
            lambda: self.each(self.members, lambda member: member.client.initialize_driver(driver.text)),
            lambda: self._hand_out(receiving, OmbClient.create_consumers),
            lambda: self._hand_out(sending, OmbClient.create_producers),
        )
        for step in steps:
            if not ended():
                step()

    def _hand_out(
        self,
        hands: Sequence[tuple[Member, list[Result]]],
        create: Callable[[OmbClient, Sequence[Result]], None],
    ) -> None:
        given = {id(member): items for member, items in hands if items}
        takers = [member for member, items in hands if items]
        self.each(takers, lambda member: create(member.client, given[id(member)]))

    def await_ready(self, work: Work, within_s: float, ended: Callable[[], bool]) -> None:
        """Every producer's probe is acknowledged, and received by every subscription. Raises WorkerLost after `within_s`."""
        if ended():
            return
        probes = len(work.producers)
        self.each(self.sending, lambda member: member.client.probe_producers())

        def missing() -> str | None:
            if ended():
                return None
            sent, received = self.counters()
            if sent >= probes and received >= sent * work.copies:
                return None
            return (
                f"OMB's workers to be ready: of {probes} probes {sent} were acknowledged and "
                f"{received} of {max(sent, probes) * work.copies} received; their logs say why"
            )

        late = wait_until(missing, within_s, READY_POLL_S)
        if late is not None:
            raise WorkerLost(late)

    def counters(self) -> tuple[int, int]:
        """Messages acknowledged and received since the last stop-all, probes included."""
        found = self.each(self.members, lambda member: member.client.counters())
        return sum(one.messages_sent for one in found), sum(one.messages_received for one in found)

    def periods(self) -> list[OmbPeriod]:
        """What came since the last call, of each worker in order."""
        return self.each(self.members, lambda member: member.client.period())

    def start_load(self, work: Work) -> None:
        """All that have producers send from now on, each the same share of the rate."""
        rate = work.rate_msgs_s / max(len(self.sending), 1)
        self.each(
            self.sending, lambda member: member.client.start_load(work.payloads_base64, rate, work.keys)
        )

    def set_rate(self, rate_msgs_s: float) -> None:
        """Another rate of all together; each sends at least one message per second."""
        rate = max(rate_msgs_s / max(len(self.sending), 1), RATE_MIN_MSGS_S)
        self.each(self.sending, lambda member: member.client.adjust_publish_rate(rate))

    def pause(self) -> None:
        """All consumers of all subscriptions."""
        self.each(self.consuming, lambda member: member.client.pause_consumers())

    def resume(self) -> None:
        """As `pause`."""
        self.each(self.consuming, lambda member: member.client.resume_consumers())


def process_behind(url: str) -> psutil.Process | None:
    """The process on this machine that listens where the worker is; None when it is elsewhere, or not ours to see."""
    if not is_loopback(url):
        return None
    port = urlsplit(url).port
    with contextlib.suppress(psutil.Error):
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid:
                return psutil.Process(one.pid)
    return None


def is_busy(client: OmbClient, look_s: float) -> bool:
    """Whether the worker sends or receives at the moment, for whomever. Raises WorkerLost, WorkerRefused."""
    before = client.counters()
    if before.messages_sent == before.messages_received == 0:
        return False
    time.sleep(look_s)
    after = client.counters()
    return (after.messages_sent, after.messages_received) != (before.messages_sent, before.messages_received)
