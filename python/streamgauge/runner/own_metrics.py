"""What a system measures of itself, read at the end of each interval of a trial (columns: model/result_columns.py, METRIC_COLUMNS).

Every process is asked by a thread of its own: one that does not answer costs its own values of that moment, and nobody else's. Asking costs the process
what it takes to answer, and that is part of what is measured. So one that takes long is asked seldom (`Pace`): two moments in a row each time, as a counter
tells what happened in a second by two readings that follow each other, and once more at the end, so that means are known.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamgauge.systems.base.own_metrics import MetricSource, NotRead, TooMuch
from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.format import percent, plural, trimmed

ENDS_WITHIN_S = 2.0
VALUE_MAX = 1e15
LATE_SHARE_MAX = 0.5
"""What is asked later than this share of an interval after its end says more of the next one: a gap."""
ANSWERING_SHARE_MAX = 0.002
"""Of the time, for answers, where not every second was asked for: so little that no percentile up to the 99th has them in it. Pulsar's take 30 to 60 ms, and
asked for each second on two cores they made its 99th percentile about four times as high (docs/causes.md)."""
FIRST_PAUSE_MAX = 16
"""Intervals that the first pause may have; each one after it twice as many. What a process answers first, it answers with code that is not compiled yet."""
SILENT_INTERVALS_MAX = 64
"""The longest pause behind one that does not answer at all."""

Sink = Callable[[Mapping[str, Any]], None]


class OwnMetricSampler:
    """Reads all processes until it is stopped. `start_s` is CLOCK_MONOTONIC at the schedule's start."""

    def __init__(
        self,
        start_s: float,
        interval_s: float,
        sources: Sequence[MetricSource],
        sink: Sink,
        *,
        every_interval: bool = False,
    ) -> None:
        """`every_interval`: whatever it costs."""
        self._lock = threading.Lock()
        self._sink = sink
        self._readers = [
            _Reader(start_s, interval_s, source, self._keep, every_interval=every_interval)
            for source in sources
        ]

    def start(self) -> None:
        """Begins."""
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Ends. Idempotent."""
        for reader in self._readers:
            reader.end()
        for reader in self._readers:
            reader.stop()

    def gaps(self) -> list[str]:
        """A sentence for each process that did not always answer."""
        return [told for reader in self._readers if (told := reader.gaps()) is not None]

    def costs(self) -> list[str]:
        """A sentence for each process that worked more for answers than the measured system should."""
        return [told for reader in self._readers if (told := reader.cost()) is not None]

    def spared(self) -> list[str]:
        """A sentence for each process that was asked seldom."""
        return [told for reader in self._readers if (told := reader.spared()) is not None]

    def _keep(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            self._sink(line)


class Pace:
    """How many intervals are left out so that a process spends no more than its share of the time on answers."""

    def __init__(self, interval_s: float, share_max: float = ANSWERING_SHARE_MAX) -> None:
        self._paid_s = share_max * interval_s
        """For each interval."""
        self._first_s: float | None = None
        """What the first answer of two took."""
        self._costly = 0
        """Pauses in a row."""
        self._silent = 0
        """Failures in a row."""

    def answered(self, took_s: float) -> int:
        """After an answer: intervals to leave out."""
        self._silent = 0
        first_s, self._first_s = self._first_s, None
        if first_s is None:
            if took_s > self._paid_s:
                self._first_s = took_s
            else:
                self._costly = 0
            return 0
        # The first answer of a process takes longer than any after it, so that the cheaper one counts, and the pause has to grow into what it should be.
        pause = math.ceil(2.0 * min(first_s, took_s) / self._paid_s) - 2
        if pause <= 0:
            self._costly = 0
            return 0
        self._costly += 1
        return min(pause, FIRST_PAUSE_MAX << (self._costly - 1))

    def failed(self, took_s: float, *, will_again: bool) -> int:
        """After none, or one that cannot be read. What stands still for a moment is asked again soon; who works for nothing is spared more and more, and where
        it is known that it will be for nothing the next time as well, at once."""
        self._first_s = None
        if took_s <= self._paid_s:
            return 0
        self._silent += 1
        if will_again:
            return math.ceil(took_s / self._paid_s) - 1
        return min((1 << (self._silent - 1)) - 1, SILENT_INTERVALS_MAX)


class _Reader(Background):
    """Asks one process."""

    def __init__(
        self, start_s: float, interval_s: float, source: MetricSource, keep: Sink, *, every_interval: bool
    ) -> None:
        super().__init__(f"metrics of {source.name}", ENDS_WITHIN_S)
        self._start_s, self._interval_s = start_s, interval_s
        self._source, self._keep = source, keep
        self._asked = self._missed = 0
        self._left_out = 0
        self._answers_s: list[float] = []
        """What each one took."""
        self._every_interval = every_interval
        self._pace = Pace(interval_s, 1.0 if every_interval else ANSWERING_SHARE_MAX)
        self._reason = ""

    def end(self) -> None:
        """Asks no more; does not wait."""
        self._stop.set()

    def gaps(self) -> str | None:
        """What was missed, as a sentence."""
        if not self._missed:
            return None
        return (
            f"the metrics of {self._source.name} have a gap at {self._missed} of {plural(self._asked, 'moment')}: "
            f"{self._reason}"
        )

    def cost(self) -> str | None:
        """That it has worked for answers, where it was asked all the same."""
        spent_s = sum(self._answers_s)
        share = spent_s / (self._asked * self._interval_s) if self._asked else 0.0
        if not self._every_interval or share <= ANSWERING_SHARE_MAX:
            return None
        return (
            f"{self._source.name} worked on its metrics for {percent(share, 1)} of the time, because every second was asked for: "
            "that much is in its latency, and in the higher percentiles more"
        )

    def spared(self) -> str | None:
        """That it was not asked at every moment."""
        if not self._left_out:
            return None
        took_ms = 1e3 * statistics.median(self._answers_s) if self._answers_s else 0.0
        return (
            f"{self._source.name} was asked at {self._asked} of {plural(self._asked + self._left_out, 'moment')}: an answer takes {trimmed(took_ms, 2)} ms, "
            "in which it works for nobody's messages"
        )

    def _run(self) -> None:
        index = max(0, int((time.monotonic() - self._start_s) / self._interval_s + 1.0))
        pause = 0
        while not self._stop.wait(max(0.0, self._start_s + index * self._interval_s - time.monotonic())):
            self._left_out += pause
            pause = self._look(index)
            passed = self._passed()
            index = max(index + 1, passed if self._is_early(passed) else passed + 1) + pause
        # What its counters have come to.
        last = self._passed()
        if pause and 0 < last < index:
            self._left_out += max(0, pause - (index - last))
            self._look(last)

    def _passed(self) -> int:
        """Intervals that have ended."""
        return int((time.monotonic() - self._start_s) / self._interval_s)

    def _is_early(self, index: int) -> bool:
        late_s = time.monotonic() - self._start_s - index * self._interval_s
        return late_s < LATE_SHARE_MAX * self._interval_s

    def _look(self, index: int) -> int:
        """The interval before `index` has ended. How many are left out after it."""
        self._asked += 1
        began_s = time.monotonic()
        at_s = began_s - self._start_s
        try:
            values = self._source.read()
        except NotRead as error:
            self._missed, self._reason = self._missed + 1, str(error)
            return self._pace.failed(self._took(began_s), will_again=isinstance(error, TooMuch))
        took_s = self._took(began_s)
        # Who answers may be anybody, and the table takes what can be reckoned with.
        values = {name: round(value, 6) for name, value in values.items() if abs(value) < VALUE_MAX}
        if not values:
            self._missed, self._reason = self._missed + 1, "it tells none of the metrics that are declared"
        if index > 0 and values:
            start_s = (index - 1) * self._interval_s
            self._keep(
                {
                    "interval": index - 1,
                    "start_s": start_s,
                    "duration_s": self._interval_s,
                    "at_s": round(at_s, 4),
                    "source": self._source.name,
                    "values": values,
                }
            )
        return self._pace.answered(took_s)

    def _took(self, began_s: float) -> float:
        self._answers_s.append(time.monotonic() - began_s)
        return self._answers_s[-1]
