"""A cause that is real: a disk that is made slow on purpose, at known times, is what the reference log is found to have waited for."""

from __future__ import annotations

from pathlib import Path

from lab_support import lab, result

PULSES_S = (5, 11, 15, 22, 26, 31)
"""Since the measured phase began; not every so many seconds, which other things are, too."""
DELAY_MS, LASTS_MS = 150, 400
"""Two commits at least, so that the slowest messages of all pulses are alike; far above what neighbours on the machine do."""


def test_a_slow_disk_is_named_by_what_the_log_told_of_itself(real_gauge: Path, tmp_path: Path) -> None:
    faults = [
        fault
        for at_s in PULSES_S
        for fault in (f"fsync-delay={DELAY_MS}ms:1@{at_s}s", f"fsync-delay=0ms:1@{1000 * at_s + LASTS_MS}ms")
    ]
    asked = ["--rate", "500", "--warmup", "1s", "--duration", "34s", "--durability", "L3"]
    with lab(
        real_gauge, tmp_path, "run", "1-topic-1-partition-1kb", *asked, "--fault", ",".join(faults)
    ) as process:
        said = process.communicate(timeout=150)
    found = result(tmp_path)
    assert found["status"] == "complete", said
    metrics = {metric["name"]: metric for metric in found["own_metrics"]}
    assert metrics["commit_ms"]["sources"] == ["node-1"]
    assert metrics["commit_ms"]["max"] > 3 * metrics["commit_ms"]["mean"]
    tail = found["tail"]
    assert tail["coincidences"], tail["explanation"]
    first = tail["coincidences"][0]
    assert first["event"] == "node-1: time of the commit that a message meets, unusually high"
    assert (first["is_echo"], first["share"] > 0.5, first["lift_low"] > 1.0) == (False, True, True)
    assert not any(one["event"].startswith("a JVM") for one in tail["coincidences"])
