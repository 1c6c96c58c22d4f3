"""Metrics in Prometheus' text format: the few that are wanted are picked out, whatever else is there.

Source: "Exposition formats" of Prometheus' documentation, and OpenMetrics, which writes counters with `_total`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from streamgauge.model.own_metric import OwnMetric
from streamgauge.systems.base.own_metrics import MetricSource, OwnMetrics
from streamgauge.systems.support.endpoint import Endpoint

LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')
SAMPLES_MAX = 50_000
"""Of the series that are wanted: a broker tells some for each topic."""


@dataclass(frozen=True)
class Pick:
    """Which samples make up a metric: they are added up, or the largest counts (`metric.together`)."""

    metric: OwnMetric
    series: tuple[str, ...]
    """Names of the sample, any of them: exporters differ."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that it must have; a value is a regular expression for the whole of it."""
    second: tuple[str, ...] = ()
    """Names of a second sample, with the same labels as the first."""
    by: Literal["times", "minus"] = "times"
    """What is done with it: a mean times its count is a sum, an index minus another is a lag."""
    scale: float = 1.0


class PrometheusMetrics(OwnMetrics):
    """Metrics that are picked from Prometheus' text format."""

    def __init__(self, picks: Sequence[Pick]) -> None:
        self.told = tuple(pick.metric for pick in picks)
        self._picks = picks
        self._wanted: dict[bytes, list[tuple[int, bool]]] = {}
        for number, pick in enumerate(picks):
            for name in pick.series:
                self._wanted.setdefault(name.encode(), []).append((number, False))
            for name in pick.second:
                self._wanted.setdefault(name.encode(), []).append((number, True))
        self._labels = [
            {key.encode(): re.compile(value.encode()) for key, value in pick.labels.items()} for pick in picks
        ]
        names = b"|".join(re.escape(name) for name in sorted(self._wanted, reverse=True))
        self._line = re.compile(rb"^(" + names + rb")(?:\{([^\n]*)\})?[ \t]+([^\s]+)", re.MULTILINE)

    def source(self, name: str, url: str) -> MetricSource:
        endpoint = Endpoint(url)
        return MetricSource(name, url, lambda: self.select(endpoint.get()))

    def select(self, text: bytes) -> dict[str, float]:
        """The metrics that are there, by name. Values that are no numbers are left out."""
        firsts: list[dict[bytes, float]] = [{} for _ in self._picks]
        seconds: list[dict[bytes, float]] = [{} for _ in self._picks]
        for count, found in enumerate(self._line.finditer(text)):
            if count >= SAMPLES_MAX:
                break
            try:
                value = float(found.group(3))
            except ValueError:
                continue
            labels = found.group(2) or b""
            for number, is_factor in self._wanted[found.group(1)]:
                if math.isfinite(value) and self._fits(number, labels):
                    (seconds if is_factor else firsts)[number][labels] = value
        told: dict[str, float] = {}
        for pick, first, second in zip(self._picks, firsts, seconds, strict=True):
            values = list(first.values())
            if pick.second:
                pairs = [(value, second[labels]) for labels, value in first.items() if labels in second]
                values = [
                    one * other if pick.by == "times" else max(0.0, one - other) for one, other in pairs
                ]
            if values:
                whole = sum(values) if pick.metric.together == "sum" else max(values)
                told[pick.metric.name] = whole * pick.scale
        return told

    def _fits(self, number: int, labels: bytes) -> bool:
        wanted = self._labels[number]
        if not wanted:
            return True
        present = dict(LABEL.findall(labels))
        return all(key in present and rule.fullmatch(present[key]) for key, rule in wanted.items())
