"""The rules for publishing: what a result must have before it is shown to others as a measurement (docs/publishing.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamgauge.analysis.cells import cells
from streamgauge.analysis.verify.rules import Requirement
from streamgauge.model.result import Manifest, TrialResult
from streamgauge.vocabulary.format import plural

DURATION_S_MIN = 60.0
WARM_UP_S_MIN = 10.0
REPEATS_MIN = 5
VALID_MIN = 3


def requirements(manifest: Manifest, results: Sequence[TrialResult]) -> tuple[Requirement, ...]:
    """Each of the rules, and whether it is met."""
    return tuple(_requirements(manifest, results)) if results else ()


def _requirements(manifest: Manifest, results: Sequence[TrialResult]) -> Iterator[Requirement]:
    shortest_s = min(one.workload.duration_s for one in results)
    yield Requirement(
        "duration",
        shortest_s >= DURATION_S_MIN,
        f"measured for {shortest_s:g} s: at least {DURATION_S_MIN:g} s in each trial",
    )
    settled = [
        one.warm_up.steady if one.warm_up else one.workload.warmup_s >= WARM_UP_S_MIN for one in results
    ]
    yield Requirement(
        "warm-up",
        all(settled),
        f"{sum(settled)} of {plural(len(settled), 'trial')} had at least {WARM_UP_S_MIN:g} s, or until the load was steady",
    )
    found = cells(results)
    fewest = min(len(cell.trials) for cell in found)
    yield Requirement(
        "repeats",
        fewest >= REPEATS_MIN,
        f"{plural(fewest, 'trial')} of each workload on each system: at least {REPEATS_MIN}",
    )
    valid = min(cell.valid_count for cell in found)
    yield Requirement(
        "validity",
        valid >= VALID_MIN,
        f"{plural(valid, 'valid trial')} of each workload on each system: at least {VALID_MIN}",
    )
    audited = all(one.audit.enabled and one.audit.balanced for one in results)
    yield Requirement(
        "audit",
        audited,
        "every message is accounted for"
        if audited
        else "messages were not audited, or the books do not balance",
    )
    levels = all(one.durability.declared is not None and not one.durability.mismatches for one in results)
    yield Requirement(
        "durability",
        levels,
        "the level was read back" if levels else "a level was not read back, or is not the one asked for",
    )
    opened = all(one.workload.arrival != "closed" for one in results)
    yield Requirement(
        "arrivals",
        opened,
        "latencies count from when a message was due"
        if opened
        else "a closed loop has no latency that users would see: publish its throughput alone",
    )
    when = {str(probe.get("when")) for probe in manifest.probes}
    probed = {"before", "after"} <= when and not any(one.attached for one in results)
    yield Requirement(
        "machine",
        probed,
        "probed before and after"
        if probed
        else "the machines of the system were not probed before and after: say what they are",
    )
    ended = manifest.status == "complete"
    yield Requirement(
        "whole",
        ended,
        "all that was planned was measured" if ended else f"the run's status is '{manifest.status}'",
    )
