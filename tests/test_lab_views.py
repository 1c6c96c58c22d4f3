"""What people see while a run goes on."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from sample_run import LOG, workload, write_run
from streamgauge.cli.app import run as program
from streamgauge.cli.watch import make_observer
from streamgauge.cli.watch_live import LiveObserver, TimeLeft, sparkline
from streamgauge.cli.watch_plain import PlainObserver
from streamgauge.runner import time_left
from streamgauge.runner.observer import Snapshot, TrialStart
from streamgauge.store.directory import RunDirectory
from streamgauge.store.lab import claim, release

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


def test_the_time_that_is_left_is_that_of_the_whole_run() -> None:
    now = 0.0
    loads_s = [60.0, 60.0, 60.0]
    known, left = time_left.TimeLeft(lambda: now), TimeLeft(lambda: now)
    assert left.text == ""

    def start(number: int) -> None:
        known.trial_started(loads_s[number - 1])
        left.told(known.left_s(loads_s[number - 1 :]))

    start(1)
    assert left.text == "about 3m50s left of the run", "three loads of a minute, and starts as usual"
    now = 70.0
    known.trial_ended()
    start(2)
    assert left.text == "about 2m20s left of the run", "starts take as long as the first has"
    now = 100.0
    assert left.text == "about 1m50s left of the run"
    known.trial_ended()
    start(3)
    assert left.text == "about 1m10s left of the run", (
        "a trial that broke off says nothing of starts below none"
    )
    now = 700.0
    assert left.text == "the run is nearly over"


def test_quiet_shows_problems_alone(capsys: pytest.CaptureFixture[str]) -> None:
    observer = make_observer(None, quiet=True)
    observer.run_started(Path("runs/x"), 6)
    observer.trial_started(START)
    observer.phase_started("measure", 30.0)
    observer.progress("starting")
    observer.note("nothing to worry about")
    observer.problem("a worker was lost")
    observer.close()
    assert capsys.readouterr().err == "problem: a worker was lost\n"


def test_a_run_that_goes_on_is_not_called_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", (LOG,), workload(rate=200, seconds=3), status="running")
    run = RunDirectory(tmp_path / "run")
    claim(run)
    assert program(["show", "run", "--out", str(tmp_path)]) == 0
    assert "This run goes on: more trials follow." in capsys.readouterr().out
    (run.path / "trials" / "001" / "result.json").unlink()
    assert program(["show", "run", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "no trial of it has ended yet, and it goes on" in said
    assert "killed" not in said
    release(run)
    assert program(["show", "run", "--out", str(tmp_path)]) == 0
    assert "completes a run that was killed" in capsys.readouterr().out
