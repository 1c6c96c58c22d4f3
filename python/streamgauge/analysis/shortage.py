"""A rate that was not reached: whether the machine may have cost what is missing, or the generator or the system fell short by themselves.

What a CPU's absence can cost is the time for which it was away. It is not the recovery from it: then the load runs, and faster than it is due. The less the
load can keep up the longer recovery takes, so that one which is far too much seems to be disturbed nearly all the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_machine import Lane
from streamgauge.vocabulary.bounds import (
    ACHIEVED_SHARE_MIN,
    LANE_BUSY_SHARE_MAX,
)
from streamgauge.vocabulary.format import percent

POISSON_DEVIATIONS = 3.0


def target_msgs(workload: WorkloadResult, window_s: float) -> float | None:
    """Messages that the schedule asks for in the window; None for a closed loop or a rate that changes on the
    way.
    """
    if workload.rate_msgs_s is None or workload.arrival == "closed" or workload.rate_changes:
        return None
    return workload.rate_msgs_s * window_s


def allowance_msgs(workload: WorkloadResult, target: float) -> float:
    """What chance and rounding may take from the target: three deviations of a Poisson count; one message per
    producer else.
    """
    producers = workload.topics * workload.producers_per_topic
    if workload.arrival == "poisson":
        return POISSON_DEVIATIONS * math.sqrt(target)
    burst = float(workload.extra.get("burst_msgs") or 1)
    return producers * burst


@dataclass(frozen=True)
class Shortage:
    """What is missing of the target rate."""

    achieved_share: float
    not_the_machine: str
    """Why it is not what the machine may have cost, where it was disturbed: a sentence. Empty where the machine may explain it."""
    is_explained: bool
    """Whether the machine was disturbed, and may have cost as much."""

    @property
    def achieved(self) -> str:
        """How much there was."""
        return f"Achieved {100 * self.achieved_share:.1f} % of the target rate"

    @property
    def reason(self) -> str:
        """Why the trial is invalid."""
        missed = (
            f"{self.achieved}; at least 99 % is needed: at this rate the system or the generator cannot keep up, so latencies "
            "describe an overload."
        )
        return f"{missed} {self.not_the_machine}".rstrip()

    @property
    def held_up(self) -> str:
        """Why no figure stands although nobody here is at fault."""
        return f"{self.achieved}: who had had more CPU might have kept up."


def may_explain(achieved_share: float, away_share: float) -> bool:
    """Whether no more is missing of a rate than CPUs were away for."""
    return achieved_share >= ACHIEVED_SHARE_MIN - away_share


def shortage(
    workload: WorkloadResult,
    *,
    acked_msgs: int,
    window_s: float,
    is_disturbed: bool,
    away_share: float,
    needed: Mapping[str, float],
) -> Shortage | None:
    """None where enough was acknowledged. `away_share`: of the time, in which a CPU was not to be had. `needed`: by `needed_shares`."""
    target = target_msgs(workload, window_s)
    if not target or acked_msgs >= ACHIEVED_SHARE_MIN * target - allowance_msgs(workload, target):
        return None
    achieved = acked_msgs / target
    if not is_disturbed:
        return Shortage(achieved, "", is_explained=False)
    not_the_machine = ""
    for thread, share in needed.items():
        if share > LANE_BUSY_SHARE_MAX:
            not_the_machine = f"All of the rate would take {percent(share)} of a CPU for thread {thread}: the generator's limit, whatever the machine did."
    if not not_the_machine and not may_explain(achieved, away_share):
        not_the_machine = (
            f"A CPU was away for {percent(away_share, 1)} of the time, which does not explain it."
        )
    return Shortage(achieved, not_the_machine, is_explained=not not_the_machine)


def needed_shares(
    lanes: Sequence[Lane], acked_msgs: int, rate_msgs_s: float | None, unaccounted_s: float
) -> dict[str, float]:
    """Thread of the generator -> share of a CPU that it needs for all of the rate, from what it used for what there was. `acked_msgs`: of the whole trial, its
    warm-up and drain included, as the threads' CPU is. `unaccounted_s`: for so long a CPU was away that no account tells of, so that the kernel may have
    charged it to the thread that ran last."""
    if not acked_msgs or rate_msgs_s is None:
        return {}
    return {
        f"{lane.name} of {lane.worker}": max(0.0, lane.cpu_s - unaccounted_s) / acked_msgs * rate_msgs_s
        for lane in lanes
    }
