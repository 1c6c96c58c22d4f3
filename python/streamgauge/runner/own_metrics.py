"""What a system measures of itself, read at the end of each interval of a trial (columns: model/result_columns.py, METRIC_COLUMNS).

Every process is asked by a thread of its own: one that does not answer costs its own values of that moment, and nobody else's. Asking costs the process
what it takes to answer, which is a part of what is measured: one that takes long is asked less often (`Pace`), two moments in a row each time, because
counters tell rates by two readings that follow each other.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamgauge.systems.base.own_metrics import MetricSource, NotRead, TooMuch
from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.format import plural, trimmed

ENDS_WITHIN_S = 2.0
VALUE_MAX = 1e15
LATE_SHARE_MAX = 0.5
"""What is asked later than this share of an interval after its end says more of the next one: a gap."""
ANSWERING_SHARE_MAX = 0.02
"""Of the time, for answers. Brokers tell some series for each topic, partition or subscription: of a thousand subscriptions it is megabytes."""
SILENT_INTERVALS_MAX = 16
"""The longest pause behind one that does not answer at all."""

Sink = Callable[[Mapping[str, Any]], None]


class OwnMetricSampler:
    """Reads all processes until it is stopped. `start_s` is CLOCK_MONOTONIC at the schedule's start."""

    def __init__(
        self, start_s: float, interval_s: float, sources: Sequence[MetricSource], sink: Sink
    ) -> None:
        self._lock = threading.Lock()
        self._sink = sink
        self._readers = [_Reader(start_s, interval_s, source, self._keep) for source in sources]

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

    def _keep(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            self._sink(line)


class Pace:
    """How many intervals are left out so that a process spends no more than its share of the time on answers."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._owed_s = 0.0
        """What answers took since the last pause."""
        self._is_second = False
        self._silent = 0
        """Failures in a row."""

    def answered(self, took_s: float) -> int:
        """After an answer: intervals to leave out."""
        self._silent = 0
        self._owed_s += took_s
        pays_for = self._owed_s / (ANSWERING_SHARE_MAX * self._interval_s)
        if pays_for > 1.0 and not self._is_second:
            self._is_second = True
            return 0
        self._owed_s, self._is_second = 0.0, False
        return max(0, math.ceil(pays_for) - 2)

    def failed(self, took_s: float, *, will_again: bool) -> int:
        """After none, or one that cannot be read. What stands still for a moment is asked again soon; who works for nothing is spared more and more, and where
        it is known that it will be for nothing the next time as well, at once."""
        self._owed_s, self._is_second = 0.0, False
        pays_for = took_s / (ANSWERING_SHARE_MAX * self._interval_s)
        if pays_for <= 1.0:
            return 0
        self._silent += 1
        return (
            math.ceil(pays_for) - 1 if will_again else min(2 ** (self._silent - 1) - 1, SILENT_INTERVALS_MAX)
        )


class _Reader(Background):
    """Asks one process."""

    def __init__(self, start_s: float, interval_s: float, source: MetricSource, keep: Sink) -> None:
        super().__init__(f"metrics of {source.name}", ENDS_WITHIN_S)
        self._start_s, self._interval_s = start_s, interval_s
        self._source, self._keep = source, keep
        self._asked = self._missed = 0
        self._pauses: list[tuple[int, int]] = []
        """First and end of the moments that were left out."""
        self._longest_s = 0.0
        self._pace = Pace(interval_s)
        self._reason = ""

    def end(self) -> None:
        """Asks no more; does not wait."""
        self._stop.set()

    def gaps(self) -> str | None:
        """What was missed, as a sentence."""
        last = int((time.monotonic() - self._start_s) / self._interval_s)
        spared = sum(max(0, min(until, last) - begin) for begin, until in self._pauses)
        moments = plural(self._asked + spared, "moment")
        whose = f"the metrics of {self._source.name} have a gap at"
        longest = f"an answer took up to {trimmed(1e3 * self._longest_s, 2)} ms, which is work that a measured system does for nobody"
        if not self._missed:
            return f"{whose} {spared} of {moments}: {longest}" if spared else None
        more = f", and at {spared} more: {longest}" if spared else ""
        return f"{whose} {self._missed} of {moments}: {self._reason}{more}"

    def _run(self) -> None:
        index = max(0, int((time.monotonic() - self._start_s) / self._interval_s + 1.0))
        while not self._stop.wait(max(0.0, self._start_s + index * self._interval_s - time.monotonic())):
            pause = self._look(index)
            passed = int((time.monotonic() - self._start_s) / self._interval_s)
            following = max(index + 1, passed if self._is_early(passed) else passed + 1)
            index = following + pause
            self._pauses.append((following, index))

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
        took_s = time.monotonic() - began_s
        self._longest_s = max(self._longest_s, took_s)
        return took_s
