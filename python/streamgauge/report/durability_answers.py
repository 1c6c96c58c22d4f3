"""What publications claim of durability, and what the experiments say to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamgauge.model.durability import DurabilityResult

STREAMNATIVE = "StreamNative, benchmarking Pulsar and Kafka, 2020"
CONFLUENT = "Confluent, benchmarking Kafka, Pulsar and RabbitMQ, 2020"


@dataclass(frozen=True)
class Answer:
    """One statement of a publication and what was measured."""

    statement: str
    source: str
    verdict: str
    evidence: str


def answers(results: Sequence[DurabilityResult]) -> list[Answer]:
    """The statements to which these results have something to say."""
    found = [
        _kafka_flush(results),
        _kafka_default(results),
        _pulsar_without_sync(results),
    ]
    return [answer for answer in found if answer is not None]


def _of(results: Sequence[DurabilityResult], system: str, declared: Sequence[str]) -> list[DurabilityResult]:
    return [
        result
        for result in results
        if result.system == system
        and result.finding.declared in declared
        and result.finding.measured is not None
    ]


def _evidence(results: Sequence[DurabilityResult]) -> str:
    told = []
    for result in results:
        response = f" {result.response.disks_told}," if result.response is not None else ""
        power = [one for one in result.summaries if one.kind == "power cut"]
        cuts = "; ".join(
            f"{one.with_loss} of {one.conclusive} power cuts of {one.scope} lost messages"
            for one in power
            if one.conclusive
        )
        told.append(f"{result.name}:{response} {cuts or 'no power cut was conclusive'}.")
    return " ".join(told)


def _kafka_flush(results: Sequence[DurabilityResult]) -> Answer | None:
    cells = [
        one
        for one in _of(results, "kafka", ("L1", "L3"))
        if one.response is not None and one.response.disks is not None
    ]
    if not cells:
        return None
    waits = all((one.response.disks or 0) > 0 for one in cells if one.response is not None)
    return Answer(
        "Kafka acknowledges before the fsync even with flush.messages=1",
        f"{STREAMNATIVE}; the opposite: {CONFLUENT}",
        "Does not hold: the acknowledgement waits for the sync."
        if waits
        else "Holds: the acknowledgement does not wait.",
        _evidence(cells),
    )


def _kafka_default(results: Sequence[DurabilityResult]) -> Answer | None:
    cells = [
        one for one in _of(results, "kafka", ("L2",)) if any(cut.kind == "power cut" for cut in one.summaries)
    ]
    if not cells:
        return None
    power = [cut for one in cells for cut in one.summaries if cut.kind == "power cut" and cut.conclusive]
    few_lost = any(cut.with_loss for cut in power if cut.scope in ("one", "majority"))
    all_lost = any(cut.with_loss for cut in power if cut.scope == "all")
    if all_lost and not few_lost:
        verdict = "Both are right about different failures: replication covers what does not hit all nodes at once, and nothing else."
    elif all_lost:
        verdict = "Does not hold here: messages were lost also when not all nodes lost power."
    else:
        verdict = "No loss was shown in these cuts."
    return Answer(
        "Kafka needs no fsync to be safe, replication covers it",
        f"{CONFLUENT}; the opposite (data is lost on power failure): {STREAMNATIVE}",
        verdict,
        _evidence(cells),
    )


def _pulsar_without_sync(results: Sequence[DurabilityResult]) -> Answer | None:
    pulsar, kafka = _of(results, "pulsar", ("L2", "L4")), _of(results, "kafka", ("L2", "L4"))
    pairs = [(one, other) for one in pulsar for other in kafka if one.nodes == other.nodes]
    if not pairs:
        return None
    same = all(one.finding.measured == other.finding.measured for one, other in pairs)
    return Answer(
        "Pulsar without a synced journal is as safe as Kafka's default",
        f"implied by the comparisons of {STREAMNATIVE}",
        "Holds: both have the same measured level." if same else "Does not hold: the measured levels differ.",
        _evidence([one for one in (*pulsar, *kafka) if any(one in pair for pair in pairs)]),
    )
