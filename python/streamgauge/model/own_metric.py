"""What a system measures of itself: how such a metric is declared, and how a result tells it."""

from __future__ import annotations

from typing import Literal

from streamgauge.model.result_base import Model

Kind = Literal["counter", "gauge"]
Together = Literal["sum", "max"]
Role = Literal["cause", "sign", "count"]


class OwnMetric(Model):
    """A metric that a system keeps of itself and that helps to explain latency. It says what happened inside; no latency or rate of a
    result comes from it."""

    name: str
    """As the table of metrics has it: "journal_sync_ms"."""
    title: str
    """For people: "journal syncs"."""
    unit: str
    """Of the value as it is read; a counter is shown per second."""
    kind: Kind
    explains: str
    """What it says of latency, in few words."""
    together: Together = "sum"
    """How those of several processes become one line of a chart."""
    role: Role = "cause"
    """A sign (a queue that grows) is seen whatever the reason is, and never comes before a cause. A count is there for `per` alone."""
    per: str | None = None
    """Name of the counter by which this one is divided: time spent per operation is not bound by the time that passes, as time spent per second is."""

    @property
    def shown_unit(self) -> str:
        """Of the values in charts and explanations."""
        return f"{self.unit}/s" if self.kind == "counter" and self.per is None else self.unit


class OwnMetricFigures(OwnMetric):
    """A metric in the measured phase, per second where it counts up."""

    sources: list[str]
    """The processes that told it."""
    mean: float | None = None
    """The processes put together; None where nothing is known of the measured phase."""
    max: float | None = None
    """Of its values per interval; None where none was told of an interval of the measured phase by itself."""
