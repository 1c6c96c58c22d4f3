"""What a system measures of itself, read at the end of each interval of a trial (columns: model/result_columns.py, METRIC_COLUMNS).

Every process is asked by a thread of its own: one that does not answer costs its own values of that moment, and nobody else's. Asking costs the process
what it takes to answer, and that is part of what is measured. So one that takes long (`Pace`) is not asked while it is measured: before the load begins, once
before the measured phase does, and when all is over, so that means are known.
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
"""Of an interval, for the answer of one that is asked in each. Pulsar's take 15 to 60 ms: asked for each second they made its 99th percentile on two cores
about four times as high, and twice in 20 s its 99.9th three times (docs/causes.md)."""
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
        measured_from_s: float | None = None,
        every_interval: bool = False,
    ) -> None:
        """`every_interval`: whatever it costs. `measured_from_s`: on the schedule's axis; None where `measuring_from` will tell."""
        self._lock = threading.Lock()
        self._sink = sink
        self._readers = [
            _Reader(start_s, interval_s, source, self._keep, measured_from_s, every_interval=every_interval)
            for source in sources
        ]

    def start(self) -> None:
        """Begins."""
        for reader in self._readers:
            reader.start()

    def measuring_from(self, from_s: float) -> None:
        """The measured phase begins then, which is soon, on the schedule's axis. Does not wait."""
        for reader in self._readers:
            reader.measuring_from(from_s)

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
    """Whether a process may be asked in each interval, and how many are left out where it does not answer."""

    def __init__(self, interval_s: float, share_max: float = ANSWERING_SHARE_MAX) -> None:
        self._paid_s = share_max * interval_s
        """For an answer."""
        self._dear = 0
        """Answers in a row that took longer."""
        self._silent = 0
        """Failures in a row."""

    @property
    def is_dear(self) -> bool:
        """Whether its answers take too long: two in a row, as the first of a process takes longer than any after it."""
        return self._dear > 1

    def answered(self, took_s: float) -> None:
        """After an answer."""
        self._silent = 0
        self._dear = self._dear + 1 if took_s > self._paid_s else 0

    def failed(self, took_s: float, *, will_again: bool) -> int:
        """After none, or one that cannot be read. What stands still for a moment is asked again soon; who works for nothing is spared more and more, and where
        it is known that it will be for nothing the next time as well, at once."""
        if took_s <= self._paid_s:
            return 0
        self._silent += 1
        if will_again:
            return math.ceil(took_s / self._paid_s) - 1
        return min((1 << (self._silent - 1)) - 1, SILENT_INTERVALS_MAX)


class _Reader(Background):
    """Asks one process."""

    def __init__(
        self,
        start_s: float,
        interval_s: float,
        source: MetricSource,
        keep: Sink,
        measured_from_s: float | None,
        *,
        every_interval: bool,
    ) -> None:
        super().__init__(f"metrics of {source.name}", ENDS_WITHIN_S)
        self._start_s, self._interval_s = start_s, interval_s
        self._measured_from_s = measured_from_s
        self._looking = threading.Lock()
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

    def measuring_from(self, from_s: float) -> None:
        """As the sampler's."""
        self._measured_from_s = from_s
        if self._is_spared:
            # By a thread of its own: this one sleeps until an interval ends, and then it is too late.
            threading.Thread(target=self._look, args=(self._passed() + 1,), daemon=True).start()

    def _run(self) -> None:
        # Before the load: what an answer takes, and where counters begin.
        index = max(0, self._passed() + 1)
        pause = self._look(-1) or self._look(index)
        index += 1 + pause
        while not self._stop.wait(max(0.0, self._start_s + index * self._interval_s - time.monotonic())):
            self._left_out += pause
            if self._is_spared and not self._is_wanted(index):
                self._left_out, pause = self._left_out + 1, 0
            else:
                pause = self._look(index)
            passed = self._passed()
            index = max(index + 1, passed if self._is_early(passed) else passed + 1) + pause
        # What its counters have come to.
        last = self._passed()
        if last > 0 and (self._is_spared or (pause and last < index)):
            self._left_out += max(0, pause - (index - last))
            self._look(last)

    @property
    def _is_spared(self) -> bool:
        """Whether it is left alone while it is measured."""
        return self._pace.is_dear and not self._every_interval

    def _is_wanted(self, index: int) -> bool:
        """Whether this is the last moment from which an answer is there before the measured phase begins."""
        if self._measured_from_s is None:
            return False
        return math.floor(round(self._measured_from_s / self._interval_s, 6)) - index == 1

    def _passed(self) -> int:
        """Intervals that have ended."""
        return math.floor((time.monotonic() - self._start_s) / self._interval_s)

    def _is_early(self, index: int) -> bool:
        late_s = time.monotonic() - self._start_s - index * self._interval_s
        return late_s < LATE_SHARE_MAX * self._interval_s

    def _look(self, index: int) -> int:
        """The interval before `index` has ended, or (0) the load has not begun; -1: nothing is kept. How many are left out after it."""
        with self._looking:
            return self._ask(index)

    def _ask(self, index: int) -> int:
        self._asked += 1
        began_s = time.monotonic()
        at_s = began_s - self._start_s
        try:
            values = self._source.read()
        except NotRead as error:
            self._missed, self._reason = self._missed + 1, str(error)
            return self._pace.failed(self._took(began_s), will_again=isinstance(error, TooMuch))
        self._pace.answered(self._took(began_s))
        # Who answers may be anybody, and the table takes what can be reckoned with.
        values = {name: round(value, 6) for name, value in values.items() if abs(value) < VALUE_MAX}
        if not values:
            self._missed, self._reason = self._missed + 1, "it tells none of the metrics that are declared"
        if index >= 0 and values:
            # What was told before the load is where the first interval's counters begin.
            interval = max(0, index - 1)
            self._keep(
                {
                    "interval": interval,
                    "start_s": interval * self._interval_s,
                    "duration_s": self._interval_s,
                    "at_s": round(at_s, 4),
                    "source": self._source.name,
                    "values": values,
                }
            )
        return 0

    def _took(self, began_s: float) -> float:
        self._answers_s.append(time.monotonic() - began_s)
        return self._answers_s[-1]
