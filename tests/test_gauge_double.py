"""The double that stands in for the gauge tells a story that adds up, as a worker's does."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import gauge_double
import pytest
from streamgauge.vocabulary.histograms import decode

RATE, STOP_S = 150, 6.0
REQUEST: dict[str, Any] = {
    "system": {"bootstrap": ["127.0.0.1:1"]},
    "topics": [{"name": "t", "partitions": 1}],
    "subscriptions": [{"name": "s-0"}, {"name": "s-1"}],
    "schedule": {"rate_msgs_s": RATE, "stop_s": STOP_S},
    "phases": [{"name": "warm-up", "from_s": 0.0}, {"name": "measure", "from_s": 2.0}],
    "payload": {"size_bytes": 100},
    "interval_ms": 1000,
    "lease_s": 60,
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Intervals of a trial whose broker is away for one of them and whose second subscription does not fetch for three."""
    trial_at = 0
    monkeypatch.setattr(gauge_double, "alive", lambda *_: trial_at != 1)
    trial = gauge_double.Trial(REQUEST)
    for index in range(8):
        trial_at = index
        if index == 2:
            trial.paused.add("s-1")
        if index == 5:
            trial.paused.discard("s-1")
        trial._interval(index)
    assert (trial.sent, trial.acked, trial.waiting) == (RATE * STOP_S, RATE * STOP_S, 0)
    assert trial.behind == {"s-0": 0, "s-1": 0}
    return trial.intervals


def test_histograms_hold_the_messages_that_are_counted(told: list[dict[str, Any]]) -> None:
    for interval in told:
        held: Counter[tuple[str, str | None]] = Counter()
        for one in interval["latencies"]:
            histogram = decode(base64.b64decode(one["histogram"]))
            assert histogram.count == one["count"]
            for name in ("min_ns", "max_ns"):
                extreme = histogram.percentile(0.0 if name == "min_ns" else 100.0)
                assert extreme == pytest.approx(one[name], rel=1e-3)
            held[one["metric"], one["subscription"]] += one["count"]
        for metric in ("publish", "service", "send_delay"):
            assert held[metric, None] == interval["acked_msgs"]
        for one in interval["subscriptions"]:
            assert held["end_to_end", one["name"]] == one["received_msgs"]


def test_a_message_belongs_to_the_phase_in_which_it_was_due(told: list[dict[str, Any]]) -> None:
    for metric, subscription in (("publish", None), ("end_to_end", "s-0"), ("end_to_end", "s-1")):
        counts: Counter[str] = Counter()
        for one in (one for interval in told for one in interval["latencies"]):
            if (one["metric"], one["subscription"]) == (metric, subscription):
                counts[one["phase"]] += one["count"]
        assert counts == {"warm-up": 2 * RATE, "measure": 4 * RATE}


def test_lanes_use_what_the_worker_uses(told: list[dict[str, Any]]) -> None:
    for interval in told:
        assert interval["cpu_s"] == pytest.approx(sum(interval["lanes_cpu_s"]))
