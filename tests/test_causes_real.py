"""A cause that is real: a disk that is made slow on purpose, at known times, is what the reference log is found to have waited for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from lab_support import lab, result
from streamgauge.analysis import own_metrics
from streamgauge.analysis.causes import Event, causes
from streamgauge.analysis.measured import Measured
from streamgauge.analysis.tail import own_events
from streamgauge.store.directory import TrialDirectory

PULSES_S = (5, 11, 15, 22, 26, 33, 41)
"""Since the measured phase began; not every so many seconds, which other things are, too."""
DELAY_MS, LASTS_MS = 400, 900
SLOW_NS = 350e6
"""Far above what other programs on the machine do to a commit: with 100 ms their part was as large as that of the fault."""
DURATION_S = 50
"""There are about as many shifts as seconds, and with 34 of them one that fits by chance was enough for the cause to be doubted."""


def test_a_slow_disk_is_named_by_what_the_log_told_of_itself(real_gauge: Path, tmp_path: Path) -> None:
    faults = [
        fault
        for at_s in PULSES_S
        for fault in (f"fsync-delay={DELAY_MS}ms:1@{at_s}s", f"fsync-delay=0ms:1@{1000 * at_s + LASTS_MS}ms")
    ]
    asked = ["--rate", "500", "--warmup", "3s", "--duration", f"{DURATION_S}s", "--durability", "L3"]
    asked += ["--system-metrics", "every-second"]
    with lab(
        real_gauge, tmp_path, "run", "1-topic-1-partition-1kb", *asked, "--fault", ",".join(faults)
    ) as process:
        said = process.communicate(timeout=150)
    found = result(tmp_path)
    assert found["status"] == "complete", said
    metrics = {metric["name"]: metric for metric in found["own_metrics"]}
    assert metrics["commit_ms"]["sources"] == ["node-1"]
    directory = tmp_path / "runs/latest/trials/001"
    context = TrialDirectory(directory).read_context()
    assert context is not None
    measured = Measured.read(context.ended(), directory)
    slow = np.zeros(len(measured.lined_up))
    place = {int(interval): at for at, interval in enumerate(measured.lined_up.interval)}
    for interval, histogram in measured.intervals.histograms_by_interval("publish", "measure").items():
        # Not the slowest thousandth, which may lie in one pulse: what each of them held up.
        slow[place[interval]] = round(histogram.share_above(SLOW_NS) * histogram.count)
    inside = measured.lined_up.within(measured.window)
    own = own_events(own_metrics.read(directory, context.own_metrics_told, measured.lined_up))
    causes_of = causes(slow[inside], [Event(one.name, one.strength[inside], one.role) for one in own])
    assert causes_of, (slow[inside], [(one.name, one.strength[inside]) for one in own])
    assert causes_of[0].event.name == "node-1: time of the commit that a message meets, unusually high"
    assert causes_of[0].share > 0.5
    assert causes_of[0].lift_low > 1.0
