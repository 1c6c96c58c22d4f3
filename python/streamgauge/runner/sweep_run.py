"""A run with sweeps: each start of a system is measured at rates that are chosen while it runs, every point a trial of its own.

A start begins with a closed loop, which warms the system up as long as the workload asks for and tells about how much it takes. Then come the points
(`analysis.sweep`), each on topics of its own, after LEAD_S at its rate, when what the one before it had left behind was drained, audited and deleted. Nothing
of a point is shared with another but the start. Where trials are repeated, later starts measure the rates of the first. A start has a limited time, whatever
the machine does meanwhile: no point begins that is not expected to end within it.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamgauge.analysis.curves import Curve, curves
from streamgauge.analysis.sweep import Sweep, tried
from streamgauge.model.resolve_special import sweep_point_s
from streamgauge.model.result import TrialResult
from streamgauge.model.workload import Workload
from streamgauge.runner.interrupts import Interrupts
from streamgauge.runner.keeping import Keeper, place_of_systems
from streamgauge.runner.observer import Observer
from streamgauge.runner.plan import RunPlan, TrialPlan
from streamgauge.runner.run import Run
from streamgauge.vocabulary.exit_status import ExitStatus
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.units import format_duration, format_rate

LEAD_S = 2.0
"""Before the measured time of a point, at its rate."""
LIMIT_TIMES = 2.25
"""A start may take so many times what its points are measured for, beside its warm-up."""
ROUND_S = 10.0
FAILURES_MAX = 2
"""Of one start: then it is given up."""


def limit_s(workload: Workload) -> float:
    """The time of a start of a system, from its beginning to the audit of its last point."""
    return workload.warmup_s + LIMIT_TIMES * workload.duration_s


def budget_s(trials: Sequence[TrialPlan]) -> float:
    """The time of all sweeps among planned trials."""
    return sum(limit_s(trial.workload) for trial in trials if trial.workload.sweep)


def shown(seconds: float) -> str:
    """A time that is an estimate, in whole tens of seconds."""
    return format_duration(max(ROUND_S * round(seconds / ROUND_S), ROUND_S))


class SweepRun(Run):
    """Executes a plan some of whose trials are sweeps."""

    def __init__(self, plan: RunPlan, observer: Observer, gauge: Path | None = None) -> None:
        super().__init__(plan, observer, gauge)
        self._keeper = Keeper(place_of_systems(self._directory, plan.data), observer)
        self._made = 0
        """Trials that have begun."""
        self._block = 0
        self._rates: dict[tuple[str, str], list[float]] = {}
        """System and workload -> rates of the first start."""
        self._budget_left_s = budget_s(plan.trials)
        self._sweep_began_s: float | None = None

    def _trials(self) -> Iterator[TrialPlan]:
        for planned in self._plan.trials:
            trials = self._sweep(planned) if planned.workload.sweep else iter((planned,))
            for trial in trials:
                self._made += 1
                yield dataclasses.replace(trial, number=self._made)

    def _count(self) -> int:
        """As far as is known: a sweep has as many points as there is time for."""
        return max(self._made, len(self._plan.trials))

    def _left_s(self) -> float:
        """At most: the times of the sweeps, and the load of what is no sweep."""
        spent_s = 0.0 if self._sweep_began_s is None else time.monotonic() - self._sweep_began_s
        others = [trial.workload for trial in self._plan.trials if not trial.workload.sweep]
        names = {workload.name for workload in others}
        done = sum(result.workload.name in names for result in self._results)
        loads_s = sum(workload.warmup_s + workload.duration_s for workload in others[done:])
        return max(self._budget_left_s - spent_s, 0.0) + loads_s

    def _sweep(self, planned: TrialPlan) -> Iterator[TrialPlan]:
        """The trials of one start."""
        began_s = self._sweep_began_s = time.monotonic()
        workload, self._block = planned.workload, self._block + 1
        point_s = sweep_point_s(workload.duration_s)
        planned_s = limit = limit_s(workload)
        self._observer.note(
            f"sweep of {planned.choice.name}: points of {format_duration(point_s)}, within {shown(limit)}"
            f"; about {shown(self._budget_left_s)} left for all sweeps"
        )
        yield self._on_system(planned, workload.closed_loop(point_s))
        closed = self._results[-1]
        if closed.warm_up is not None:
            limit -= closed.warm_up.limit_s - closed.warm_up.lasted_s
        if closed.status == "complete" and closed.publish_rate_msgs_s > 0:
            key = planned.choice.name, workload.name
            rates = self._points(planned, closed.publish_rate_msgs_s, key)
            failures, slowest_s = 0, (LEAD_S + point_s)
            for rate in rates:
                if time.monotonic() - began_s + slowest_s > limit or failures >= FAILURES_MAX:
                    break
                point_began_s = time.monotonic()
                yield self._on_system(planned, workload.point(rate, LEAD_S, point_s))
                failures += self._results[-1].status == "failed"
                slowest_s = max(slowest_s, time.monotonic() - point_began_s)
                self._tell(planned, limit - (time.monotonic() - began_s))
        else:
            self._observer.problem(
                f"{planned.choice.name}: the sweep has no points, because the load that begins it failed: "
                f"{closed.failure or 'nothing was acknowledged'}"
            )
        self._keeper.end()
        self._budget_left_s -= planned_s
        self._sweep_began_s = None

    def _points(self, planned: TrialPlan, maximum_msgs_s: float, key: tuple[str, str]) -> Iterator[float]:
        """Rates of the points in msg/s, each when the one before it was measured."""
        known = self._rates.get(key)
        if known is not None:
            # Repeats are of the same rates, or they would be none.
            yield from random.Random(planned.seed).sample(known, len(known))
            return
        self._rates[key] = []
        sweep = Sweep(maximum_msgs_s, planned.seed)
        while True:
            curve = self._curve(planned)
            rate = sweep.next(tried(curve.points) if curve else [], curve.knee if curve else None)
            if rate is None:
                return
            if rate not in self._rates[key]:
                self._rates[key].append(rate)
            yield rate

    def _curve(self, planned: TrialPlan) -> Curve | None:
        """What this start has shown so far."""
        found = curves([one for one in self._results if self._is_of(one, planned)])
        return found[0] if found else None

    @staticmethod
    def _is_of(result: TrialResult, planned: TrialPlan) -> bool:
        return (
            result.system == planned.choice.name
            and result.workload.name == planned.workload.name
            and result.repeat == planned.repeat
        )

    def _tell(self, planned: TrialPlan, left_s: float) -> None:
        """What is known of the knee, and the time that is left."""
        curve = self._curve(planned)
        if curve is None:
            return
        text = "the knee is not known yet"
        if curve.knee is not None:
            low, high = format_rate(curve.knee.low_msgs_s), curve.knee.high_msgs_s
            text = (
                f"the knee is {f'above {low}' if high is None else f'between {low} and {format_rate(high)}'}"
            )
        all_s = self._budget_left_s - limit_s(planned.workload) + max(left_s, 0.0)
        self._observer.note(
            f"{plural(len(curve.points), 'rate')} of {planned.choice.name} measured: {text}; "
            f"at most {shown(max(left_s, 0.0))} left for it, {shown(all_s)} for all sweeps"
        )

    def _on_system(self, planned: TrialPlan, workload: Workload) -> TrialPlan:
        return self._keeper.on_system(dataclasses.replace(planned, workload=workload), self._block)

    def _trial(self, plan: TrialPlan, interrupts: Interrupts) -> None:
        super()._trial(plan, interrupts)
        if self._results[-1].status != "complete":
            # What a failed trial leaves behind is no ground for the next one.
            with interrupts.shielded():
                self._keeper.end()

    def _end(self, interrupts: Interrupts) -> Any:
        self._keeper.close(self._directory.path)
        return super()._end(interrupts)

    def _exit_status(self, status: Any) -> ExitStatus:
        """Points beyond what is sustained are what a sweep looks for: they are no failure of a run whose curves have points that are."""
        found = super()._exit_status(status)
        if found is not ExitStatus.INVALID:
            return found
        swept = {trial.workload.name for trial in self._plan.trials if trial.workload.sweep}
        drawn = curves([one for one in self._results if one.workload.name in swept])
        told = {id(trial) for curve in drawn if curve.sustained for trial in curve.trials}
        others = [one for one in self._results if id(one) not in told]
        return ExitStatus.INVALID if any(one.validity.is_invalid for one in others) else ExitStatus.DONE
