"""What people see while a run goes on."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from streamgauge.cli.watch_live import LiveObserver, sparkline
from streamgauge.cli.watch_plain import PlainObserver
from streamgauge.runner.observer import Snapshot, TrialStart

START = TrialStart(2, 6, 1, "kafka@3.9.1", "1-topic-16-partitions-100b", "50,000 msg/s, 100 B")


def snapshot(elapsed_s: float, errors: dict[str, int] | None = None) -> Snapshot:
    return Snapshot(
        elapsed_s=elapsed_s,
        total_s=40.0,
        phase="measure",
        target_msgs_s=50_000.0,
        sent_msgs_s=50_000.0,
        acked_msgs_s=49_998.0,
        acked_mb_s=5.0,
        received_msgs_s=49_990.0,
        publish_ms_p50=0.93,
        publish_ms_p99=4.25,
        end_to_end_ms_p50=1.2,
        end_to_end_ms_p99=123.4,
        backlog_msgs=1234,
        waiting_msgs=48,
        failed_msgs=3 if errors else 0,
        errors=errors or {},
    )


def draw(width: int, errors: dict[str, int] | None = None) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True)
    view = LiveObserver(console)
    view.trial_started(START)
    view.phase_started("measure", 30.0)
    for second in range(1, 20):
        view.interval(snapshot(float(second), errors))
    with console.capture() as captured:
        console.print(view._render())
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get())


def test_the_live_view_shows_rates_latencies_and_backlog() -> None:
    text = draw(110)
    for wanted in (
        "kafka@3.9.1",
        "(2/6)",
        "measure",
        "49,998",
        "0.93",
        "4.25",
        "123",
        "backlog 1,234",
        "50,000",
    ):
        assert wanted in text
    assert "failed" not in text


def test_the_live_view_shows_errors_and_fits_a_narrow_terminal() -> None:
    text = draw(60, {"TIMED_OUT": 2})
    assert "failed 3  TIMED_OUT 2" in text
    assert max(len(line) for line in text.splitlines()) <= 60


def test_a_sparkline_rises_with_its_values() -> None:
    assert sparkline([0.0, 1.0, 2.0]) == "▁▅█"
    assert sparkline([]) == ""
    assert sparkline([0.0]) == ""


def test_plain_lines_come_every_few_seconds_and_carry_no_control_characters() -> None:
    sink = io.StringIO()
    view = PlainObserver(sink)
    view.run_started(Path("runs/x"), 1)
    view.trial_started(START)
    view.phase_started("measure", 30.0)
    for second in range(1, 21):
        view.interval(snapshot(float(second)))
    for count in range(100):
        view.progress(f"{count} of 100 partitions proven")
    lines = sink.getvalue().splitlines()
    assert len([line for line in lines if "msg/s  publish" in line]) == 4
    assert len([line for line in lines if "partitions proven" in line]) == 1
    assert sink.getvalue().isprintable() or "\x1b" not in sink.getvalue()
