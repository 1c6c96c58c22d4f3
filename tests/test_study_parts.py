"""What studies are built of: a system that is kept, a time limit, charts."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from lab_doubles import DoubleSystem
from streamgauge.model.system_request import SystemRequest
from streamgauge.report.svg import POINTS_MAX, Axis, Line, chart, y_axis
from streamgauge.runner.interrupts import Interrupts, OutOfTime
from streamgauge.systems.kept import KeptSystem
from streamgauge.vocabulary.errors import SystemFailure


def quiet(_text: str) -> None:
    pass


def test_a_kept_system_is_started_once_and_stopped_by_its_keeper(tmp_path: Path) -> None:
    kept = KeptSystem.of(DoubleSystem(), tmp_path / "block")
    first = kept.start(SystemRequest(), tmp_path / "trial-1", quiet)
    try:
        assert first.kept
        pid = first.processes()[0].pid
        first.stop()
        first.wipe()
        assert first.failure() is None
        second = kept.start(SystemRequest(), tmp_path / "trial-2", quiet)
        assert [process.pid for process in second.processes()] == [pid]
        assert (tmp_path / "block").is_dir()
    finally:
        kept.end()
    assert first.failure() is not None
    assert not (tmp_path / "block").exists()


def test_a_kept_system_that_does_not_start_leaves_nothing(tmp_path: Path) -> None:
    kept = KeptSystem.of(DoubleSystem(), tmp_path / "block")
    with pytest.raises(SystemFailure):
        kept.start(SystemRequest(options={"fault": "no start"}), tmp_path / "trial", quiet)
    assert not (tmp_path / "block").exists()


def test_a_time_limit_is_raised_where_the_program_stands_and_nowhere_else() -> None:
    with pytest.raises(OutOfTime), Interrupts.within(0.05):
        time.sleep(5)
    with Interrupts.within(0.05):
        pass
    time.sleep(0.1)
    with Interrupts.within(None):
        time.sleep(0.01)


def test_charts_stay_small_and_keep_their_spikes() -> None:
    times = [float(second) for second in range(3600)]
    values = [1.0] * 3600
    values[1801] = 500.0
    y = y_axis("publish latency (ms)", values)
    assert y.log
    drawn = chart("Trial", "lower is better", Axis("s", 0.0, 3600.0), y, [Line("here", times, values, "red")])
    assert drawn.drawn[0].path.count("L") <= POINTS_MAX
    assert drawn.subtitle == "publish latency (ms), lower is better, logarithmic"
    assert "1.00 to 500" in drawn.told


def test_an_axis_without_values_is_an_axis_all_the_same() -> None:
    axis = y_axis("ms", [math.nan])
    assert (axis.low, axis.high) == (0.0, 1.0)
    assert axis.ticks()
