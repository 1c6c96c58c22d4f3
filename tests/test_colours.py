"""One colour per system, in every report."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_run import KAFKA, KAFKA_SYNC, LOG, workload, write_run
from streamgauge.report import charts, colours, html
from streamgauge.report.run import read_run


@pytest.mark.parametrize(
    ("names", "slot"),
    [
        (("Apache Kafka", "kafka-sync Kafka, flush", "kafka+tls"), 1),
        (("Reference log", "gauge-log"), 0),
        (("NATS JetStream", "nats+tls"), 2),
        (("Apache Pulsar", "Pulsar, no flush"), 3),
        (("RabbitMQ", "rabbit RabbitMQ 4"), 4),
    ],
)
def test_a_system_keeps_its_colour(names: tuple[str, ...], slot: int) -> None:
    assert {colours.slot_of(name) for name in names} == {slot}


def test_a_system_of_another_package_has_one_that_no_shipped_one_has() -> None:
    assert colours.slot_of("Redpanda") == colours.slot_of("redpanda") in colours.OTHERS


def test_several_of_one_system_are_shades_of_its_colour() -> None:
    first, log, second = colours.of(["Apache Kafka", "Reference log", "Apache Kafka"])
    assert first.css == "var(--series-1)"
    assert "--series-1" in second.css
    assert second.css != first.css
    assert log.css == "var(--series-0)"


def test_the_order_in_a_run_does_not_change_it(tmp_path: Path) -> None:
    """Kafka was orange beside the reference log, and blue alone."""
    seen = []
    for place, shapes in enumerate([(LOG, KAFKA), (KAFKA, LOG), (KAFKA, KAFKA_SYNC)]):
        directory = tmp_path / str(place)
        write_run(directory, shapes, workload(rate=500, seconds=3))
        run = read_run(directory)
        found = charts.data(run)["subjects"]
        seen.append(next(one for one in found if "Kafka" in one["label"])["colour"])
        page = html.render(run)
        assert f'style="--c:{seen[-1]}"' in page
    assert seen == ["var(--series-1)"] * 3
