"""What a system measures of itself, read at the end of each interval of a trial (columns: model/result_columns.py, METRIC_COLUMNS).

Every process is asked by a thread of its own: one that does not answer costs its own values of that moment, and nobody else's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamgauge.systems.base.own_metrics import MetricSource, NotRead
from streamgauge.vocabulary.background import Background
from streamgauge.vocabulary.format import plural

ENDS_WITHIN_S = 2.0
VALUE_MAX = 1e15
LATE_SHARE_MAX = 0.5
"""What is asked later than this share of an interval after its end says more of the next one: a gap."""

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


class _Reader(Background):
    """Asks one process."""

    def __init__(self, start_s: float, interval_s: float, source: MetricSource, keep: Sink) -> None:
        super().__init__(f"metrics of {source.name}", ENDS_WITHIN_S)
        self._start_s, self._interval_s = start_s, interval_s
        self._source, self._keep = source, keep
        self._asked = self._missed = 0
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

    def _run(self) -> None:
        index = max(0, int((time.monotonic() - self._start_s) / self._interval_s + 1.0))
        while not self._stop.wait(max(0.0, self._start_s + index * self._interval_s - time.monotonic())):
            self._look(index)
            passed = int((time.monotonic() - self._start_s) / self._interval_s)
            index = max(index + 1, passed if self._is_early(passed) else passed + 1)

    def _is_early(self, index: int) -> bool:
        late_s = time.monotonic() - self._start_s - index * self._interval_s
        return late_s < LATE_SHARE_MAX * self._interval_s

    def _look(self, index: int) -> None:
        """The interval before `index` has ended."""
        self._asked += 1
        at_s = time.monotonic() - self._start_s
        try:
            values = self._source.read()
        except NotRead as error:
            self._missed, self._reason = self._missed + 1, str(error)
            return
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
