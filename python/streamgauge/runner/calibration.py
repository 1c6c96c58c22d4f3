"""What became of a pair of known truth."""

from __future__ import annotations

import statistics

from streamgauge.analysis.study_outcome import read_outcome
from streamgauge.inference.claims import Judged
from streamgauge.inference.looks import ROUNDS_MIN
from streamgauge.model.calibration import Answer, Pair
from streamgauge.store.directory import RunDirectory
from streamgauge.store.plan_file import read_plan


def pair_of(directory: RunDirectory, effect_percent: float, delay_us: int, took_s: float) -> Pair | None:
    """From the run of its study; None where side A has no figure."""
    plan = read_plan(directory.path)
    outcome = read_outcome(directory.path, plan, directory.read_manifest(), directory.results())
    base = [one.value for one in outcome.sample("a", "publish_ms.p50").values]
    if not base:
        return None
    first = outcome.claims_after(ROUNDS_MIN)
    answers = [_answer(now, then, outcome.rounds) for now, then in zip(outcome.claims, first, strict=True)]
    cell = plan.cell("a")
    return Pair(
        system=cell.kind,
        rate_msgs_s=float(plan.rate_of("a") or cell.workload["rate"]),
        effect_percent=effect_percent,
        delay_us=delay_us,
        base_p50_ms=statistics.median(base),
        took_s=took_s,
        run=directory.run_id,
        answers=answers,
    )


def _answer(now: Judged, then: Judged, rounds: int) -> Answer:
    [test] = now.tests
    return Answer(
        figure=test.test.figure,
        verdict=now.verdict.value,
        ratio=None if test.measured is None else test.measured.value,
        rounds=rounds,
        decided_after=now.at_round,
        predicted=None if then.verdict.decided else then.rounds,
    )
