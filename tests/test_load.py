"""The load's end: what a worker still has of a trial that has failed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from streamgauge.fleet.base import WorkerCalls
from streamgauge.model.messages import IntervalsPage
from streamgauge.model.resolve import read_workload
from streamgauge.runner.compilers import Compilers
from streamgauge.runner.interrupts import Interrupts
from streamgauge.runner.load import Ending, Health, Load
from streamgauge.runner.observer import Observer
from streamgauge.runner.phases import PhaseLog
from streamgauge.vocabulary.errors import WorkerRefused


class FailedTrial:
    """A worker's trial that has failed: its last intervals wait for its probes, and it answers `abort` when they are there."""

    def __init__(self) -> None:
        self.there = 0

    def intervals(self, _trial: str, since: int) -> IntervalsPage:
        rows: list[dict[str, Any]] = [{"interval": one} for one in range(since, self.there)][:2]
        return IntervalsPage(intervals=rows, next=since + len(rows), shown=[])

    def finish(self, _trial: str, _drain_s: float, _quiet_s: float) -> dict[str, Any]:
        raise WorkerRefused(409, "wrong_state", "the trial has failed", None)

    def abort(self, _trial: str) -> None:
        self.there = 3


@pytest.mark.parametrize(("gone", "kept"), [(None, [0, 1, 2]), ("the worker is gone", [])])
def test_the_last_intervals_of_a_trial_that_has_failed_are_kept(gone: str | None, kept: list[int]) -> None:
    rows: list[dict[str, Any]] = []
    observer = Observer()
    load = Load(
        client=cast(WorkerCalls, FailedTrial()),
        trial="t",
        workload=read_workload("1-topic-16-partitions-100b"),
        interrupts=Interrupts(),
        observer=observer,
        phases=PhaseLog(observer, lambda *_: None),
        health=Health(lambda: gone, lambda: None, lambda: None),
        keep=rows.extend,
        learn_warm_up=lambda *_: None,
        compilers=Compilers(lambda: []),
    )
    assert load.finish(Ending("worker", "not authorised")) is None
    assert [row["interval"] for row in rows] == kept
