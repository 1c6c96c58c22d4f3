"""What a system measures of itself, read while a trial runs (`runner.own_metrics` says how often).

A system declares a short list (`System.own_metrics`): what helps to explain latency, and nothing else. Reading is bounded in time and
size, and whatever goes wrong is a gap in the series.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamgauge.model.own_metric import OwnMetric


class NotRead(Exception):
    """Metrics could not be read now; the message says why, without the address."""


class TooMuch(NotRead):
    """They are more than is read, and will be so a moment later."""


@dataclass(frozen=True)
class MetricSource:
    """One process that tells metrics."""

    name: str
    """The process ("bookie-1"), or the address of one that was running already."""
    url: str = field(repr=False)
    """Where it tells them. May hold credentials."""
    read: Callable[[], Mapping[str, float]]
    """Values by the names of the declared metrics, those that are told now. Raises NotRead, within seconds at the most. Called from one
    thread alone, which is not the one that made it."""


class OwnMetrics(abc.ABC):
    """The metrics that a kind of system declares, and how they are read."""

    told: Sequence[OwnMetric]

    @abc.abstractmethod
    def source(self, name: str, url: str) -> MetricSource:
        """A process whose metrics are at `url` (http or https)."""
