"""Text of OpenMetrics 1.0 (the format that Prometheus scrapes), written exactly: families one after the other, each with its type, and an end mark.

Source: the OpenMetrics specification, version 1.0.0. tests/test_metrics.py reads it back with prometheus_client's own parser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamgauge.vocabulary.histograms import Histogram

KIND = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""The header Content-Type."""
Type = Literal["counter", "gauge", "histogram", "info", "stateset"]

STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)
"""Of a decade: preferred numbers, each at most 28 % above the one before."""
BOUNDS_S = (*(float(f"{step}e{power}") for power in range(-5, 2) for step in STEPS), 100.0)
"""Upper ends of the buckets of latencies, 10 us to 100 s; what lies above is in the bucket of +Inf."""
_BOUNDS = (*map(repr, BOUNDS_S), "+Inf")
"""As the format has them."""
_BOUNDS_NS = np.array([round(bound * 1e9) for bound in BOUNDS_S], dtype=np.int64)

Counts = npt.NDArray[np.int64]


class Buckets:
    """A distribution over BOUNDS_S that only grows."""

    def __init__(self) -> None:
        self.counts: Counts = np.zeros(len(BOUNDS_S) + 1, dtype=np.int64)
        """Not cumulated; the last is what lies above all bounds."""
        self.sum_s = 0.0
        """Of what has a value."""

    def add(self, found: Histogram, *, below: int = 0, above: int = 0) -> None:
        """Adds samples in ns, and samples without a value: below everything, or above it (over the range, or never answered)."""
        if found.count:
            ends = found.layout.lower_ends(found.indices) + found.layout.widths(found.indices) - 1
            # Whatever shares a bucket of the histogram (a thousandth of its value) with a bound is counted above it.
            places = np.searchsorted(_BOUNDS_NS, ends, side="left")
            self.counts += np.bincount(places, weights=found.counts, minlength=len(self.counts)).astype(
                np.int64
            )
            self.sum_s += (found.mean or 0.0) * found.count / 1e9
        self.counts[0] += below
        self.counts[-1] += above


class Exposition:
    """Lines, family by family."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._name = ""
        self._head: list[str] = []
        """Of the family that has no sample yet; without any it is left out."""

    def family(self, name: str, kind: Type, told: str, unit: str = "") -> None:
        """Begins one: `name` ends with the unit, and counters are without `_total`."""
        assert not unit or name.endswith(f"_{unit}"), name
        self._name = name
        of_unit = [f"# UNIT {name} {unit}"] if unit else []
        self._head = [f"# TYPE {name} {kind}", *of_unit, f"# HELP {name} {_escaped(told)}"]

    def counter(self, labels: Mapping[str, str], value: float) -> None:
        """A total so far."""
        self._sample("_total", labels, value)

    def gauge(self, labels: Mapping[str, str], value: float) -> None:
        """A figure of now."""
        self._sample("", labels, value)

    def info(self, labels: Mapping[str, str]) -> None:
        """What is as it is."""
        self._sample("_info", labels, 1)

    def state(self, labels: Mapping[str, str], states: Sequence[str], current: str) -> None:
        """Which of the states it is."""
        for state in states:
            self._sample("", {**labels, self._name: state}, int(state == current))

    def histogram(self, labels: Mapping[str, str], buckets: Buckets) -> None:
        """Cumulative buckets, their sum and count."""
        so_far = np.cumsum(buckets.counts).tolist()
        # Nearly all lines of an answer are buckets: what they have in common is written once.
        told = _told({**labels, "le": ""}).removesuffix('"')
        begin = f"{self._name}_bucket{{{told}"
        self._lines += self._head
        self._head = []
        self._lines += [f'{begin}{bound}"}} {count}' for bound, count in zip(_BOUNDS, so_far, strict=True)]
        self._sample("_count", labels, so_far[-1])
        self._sample("_sum", labels, buckets.sum_s)

    def text(self) -> str:
        """All of it."""
        return "\n".join([*self._lines, "# EOF", ""])

    def _sample(self, suffix: str, labels: Mapping[str, str], value: float) -> None:
        self._lines += self._head
        self._head = []
        self._lines.append(f"{self._name}{suffix}{{{_told(labels)}}} {value!r}")


def _told(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
