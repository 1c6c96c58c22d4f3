"""A backlog that is built and read while producing goes on: what follows the measured phase of such a trial.

build backlog: the subscriptions that will read it do not fetch. catch-up: the page cache was dropped where that is
allowed, and they fetch. after: all of them have caught up. Each phase begins at a whole interval of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable

from streamgauge.model.result_asked import BacklogAsked
from streamgauge.runner import machine
from streamgauge.runner.load import Ending, Load
from streamgauge.runner.request import catching_up, stop_s
from streamgauge.store.context import BacklogFacts, ReadFacts
from streamgauge.vocabulary.errors import WorkerLost, WorkerRefused
from streamgauge.vocabulary.phases import AFTER, BUILD, CATCH_UP, INTERVAL_S

LOOK_S = 0.1
"""How often it is looked whether a subscription has caught up: the resolution of the chase time."""
CAUGHT_UP_MSGS = 1000
CAUGHT_UP_S = 0.05
"""A subscription has caught up when it is no further behind than this many messages, or this much traffic: a
tailing one always is some way behind."""


class BacklogLeg:
    """Leads a load through building, catch-up and after."""

    def __init__(
        self,
        load: Load,
        asked: BacklogAsked,
        *,
        attached: bool,
        note: Callable[[str], None],
        learn: Callable[[BacklogFacts], None],
    ) -> None:
        self._load = load
        self._asked = asked
        self._attached = attached
        self._note = note
        self._learn = learn
        self._readers = catching_up(load.workload)
        self._facts = BacklogFacts(build_from_s=stop_s(load.workload))

    def pause_early(self) -> None:
        """Before the schedule's start: an extra reader leaves everything from the first message on."""
        if self._asked.reader == "extra":
            for name in self._readers:
                self._load.client.pause(self._load.trial, name)

    def run(self) -> Ending | None:
        """Builds and reads the backlog; None when all went as asked. The schedule's end is known then."""

        try:
            return self._build() or self._catch_up() or self._after()
        except (WorkerLost, WorkerRefused) as error:
            return Ending("worker", str(error))

    def _keep(self, **changes: object) -> None:
        self._facts = self._facts.model_copy(update=changes)
        self._learn(self._facts)

    def _build(self) -> Ending | None:
        load, asked = self._load, self._asked
        began_s = stop_s(load.workload)
        self._facts = self._facts.model_copy(update={"build_from_s": began_s})
        ending = load.wait_until(began_s)
        if ending is not None:
            return ending
        if asked.reader == "same":
            for name in self._readers:
                load.client.pause(load.trial, name)
        load.begin(BUILD, asked.within_s, began_s)
        while True:
            ending = load.advance(load.seen_s + INTERVAL_S)
            if ending is not None:
                return ending
            backlog_bytes = self._backlog_msgs() * load.workload.message_size_bytes
            load.say(f"{backlog_bytes / 1e6:,.0f} of {asked.size_bytes / 1e6:,.0f} MB")
            if load.seen_s > began_s and backlog_bytes >= asked.size_bytes:
                self._keep(built=True)
                return None
            if load.seen_s - began_s >= asked.within_s:
                self._note(
                    f"the backlog had {backlog_bytes / 1e6:,.0f} of {asked.size_bytes / 1e6:,.0f} MB after "
                    f"{asked.within_s:g} s (backlog.within) and was read as it was"
                )
                return None

    def _backlog_msgs(self) -> int:
        return sum(self._load.backlogs.get(name, 0) for name in self._readers)

    def _catch_up(self) -> Ending | None:
        load = self._load
        problem = None if self._attached else machine.drop_page_cache()
        if problem is not None:
            self._note(problem.replace("before the trial", "before the backlog was read"))
        begin_s = load.client.begin_phase(load.trial, CATCH_UP)
        if not self._asked.producing:
            load.client.stop_schedule(load.trial, begin_s)
        self._keep(catch_up_from_s=begin_s, cache_dropped=not self._attached and problem is None)
        ending = load.wait_until(begin_s)
        if ending is not None:
            return ending
        before = {one.name: one for one in load.client.counters(load.trial).subscriptions}
        for name in self._readers:
            load.client.resume(load.trial, name)
        resumed_s = load.now_s
        reads = [
            ReadFacts(
                subscription=name,
                resumed_s=resumed_s,
                backlog_msgs=before[name].backlog_msgs,
                received_msgs=before[name].received_msgs,
            )
            for name in self._readers
        ]
        self._keep(reads=reads)
        load.begin(CATCH_UP, self._asked.within_s, begin_s)
        return self._chase(reads, begin_s + self._asked.within_s)

    def _chase(self, reads: list[ReadFacts], until_s: float) -> Ending | None:
        load = self._load
        rate = (load.workload.rate_msgs_s or 0.0) if self._asked.producing else 0.0
        while any(read.caught_up_s is None for read in reads) and load.now_s < until_s:
            ending = load.wait_until(load.now_s + LOOK_S)
            is_whole = load.now_s >= load.seen_s + INTERVAL_S
            if ending is None and is_whole:
                ending = load.advance(load.seen_s + INTERVAL_S)
            if ending is not None:
                return ending
            seen_s = load.now_s
            levels = {one.name: one for one in load.client.counters(load.trial).subscriptions}
            for read in reads:
                left = levels[read.subscription]
                enough = max(
                    CAUGHT_UP_MSGS,
                    CAUGHT_UP_S * rate,
                    (1.0 - self._asked.drain_share) * read.backlog_msgs,
                )
                if not self._asked.producing:
                    # Nothing comes in any more: there is an end that can be reached.
                    enough = (1.0 - self._asked.drain_share) * read.backlog_msgs
                if read.caught_up_s is None:
                    read.read_msgs = left.received_msgs - read.received_msgs
                    if left.backlog_msgs <= enough:
                        read.caught_up_s = seen_s
            if is_whole:
                worst = max(levels[read.subscription].backlog_msgs for read in reads)
                load.say(f"{worst:,} messages behind")
        self._keep(reads=reads)
        return None

    def _after(self) -> Ending | None:
        load = self._load
        behind = [read.subscription for read in self._facts.reads if read.caught_up_s is None]
        if behind:
            self._note(
                f"{', '.join(behind)} had not caught up {self._asked.within_s:g} s after being resumed "
                "(backlog.within); there is no phase after it"
            )
            end_s = float(int(load.now_s) + 1)
        elif not self._asked.producing:
            end_s = float(int(load.now_s) + 1)
        else:
            begin_s = load.client.begin_phase(load.trial, AFTER)
            self._keep(after_from_s=begin_s)
            end_s = begin_s + self._asked.after_s
        load.end_at(end_s)
        self._keep(end_s=end_s)
        if self._facts.after_from_s is not None:
            begin_s = self._facts.after_from_s
            ending = load.wait_until(begin_s)
            if ending is not None:
                return ending
            load.begin(AFTER, self._asked.after_s, begin_s)
        return load.advance(end_s)
