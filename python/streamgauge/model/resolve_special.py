"""The parts of a workload that ask for more than a load at a rate: the search for the maximum sustainable rate,
and a backlog that is built and read (docs/method.md)."""

from __future__ import annotations

from streamgauge.model.fault import describe
from streamgauge.model.refusals import Refusals
from streamgauge.model.result_asked import BacklogAsked, FaultAsked, RateStep, SearchAsked
from streamgauge.model.workload_file import Rate, SearchFile, WorkloadFile
from streamgauge.vocabulary.phases import INTERVAL_S
from streamgauge.vocabulary.units import format_duration

ROUNDED_S = 1e-9
"""0.1 and 0.2 are more than 0.3."""
STEPS_MAX = 2000
"""What a worker takes."""
FIRST_MSGS_S = 10_000.0
PROBE_S_MIN, PROBE_S_MAX = 2.0, 3600.0
GIB = 1 << 30


def resolve_search(written: WorkloadFile, rate: Rate, refuse: Refusals) -> SearchAsked | None:
    """How the maximum sustainable rate is looked for; None for any other rate."""
    if not rate.sustainable:
        # What a file says of the search stays without effect while --rate asks for something else.
        if written.search is not None and not refuse.is_set("rate"):
            refuse("search: belongs to rate: sustainable", "search")
        return None
    asked = written.search or SearchFile()
    first = asked.first or Rate(FIRST_MSGS_S)
    if first.msgs_s is None:
        refuse("search.first: the first probe needs a rate in messages per second", "search.first")
    if not PROBE_S_MIN <= asked.probe <= PROBE_S_MAX or asked.probe % INTERVAL_S:
        refuse(
            f"search.probe {format_duration(asked.probe)}: expected whole seconds, 2s to 1h", "search.probe"
        )
    if asked.publish_p99 is not None and asked.publish_p99 <= 0:
        refuse("search.publish_p99: expected more than 0", "search.publish_p99")
    if asked.within is not None and asked.within <= 0:
        refuse("search.within: expected more than 0", "search.within")
    return SearchAsked(
        first_msgs_s=first.msgs_s or FIRST_MSGS_S,
        width_percent=asked.width,
        probe_s=asked.probe,
        publish_ms_p99_max=None if asked.publish_p99 is None else asked.publish_p99 * 1000,
        within_s=asked.within,
    )


SWEEP_POINTS = 12
"""Points of a start share the measured time of a sweep: so many, as a rule."""
SWEEP_POINT_S_MIN = 3


def sweep_point_s(duration_s: float) -> float:
    """The measured time of a point, of the `duration` of a sweep: whole seconds."""
    return float(max(int(duration_s // SWEEP_POINTS), SWEEP_POINT_S_MIN))


def check_sweep(written: WorkloadFile, duration_s: float, refuse: Refusals) -> None:
    """A sweep's points need time of their own."""
    least_s = SWEEP_POINTS * SWEEP_POINT_S_MIN
    if duration_s < least_s:
        refuse(
            f"duration {format_duration(duration_s)}: the points of a sweep share it: expected {format_duration(least_s)} or more",
            "duration",
            "testDurationMinutes",
        )
    if written.producersPerTopic == 0:
        refuse("rate sweep: nothing is produced (producersPerTopic 0)", "rate")


def resolve_backlog(
    written: WorkloadFile,
    rate: Rate,
    duration_s: float,
    message_bytes: int,
    refuse: Refusals,
) -> BacklogAsked | None:
    """The backlog that is built and read; None when there is none. `duration_s` of measured time lies before
    it."""
    asked = written.backlog
    keys = ("backlog.size", "backlog", "consumerBacklogSizeGB")
    size_bytes = round(written.consumerBacklogSizeGB * GIB)
    if asked is not None:
        size_bytes = asked.size or 0
        if (asked.size is None) == (asked.traffic is None):
            refuse("backlog: expected either size (bytes) or traffic (a time)", "backlog")
        if asked.traffic is not None:
            size_bytes = round((rate.msgs_s or 0.0) * asked.traffic) * message_bytes
    if size_bytes == 0:
        if asked is not None and asked.size == 0 and not refuse.is_set("backlog.size"):
            refuse("backlog.size 0 is none: remove the key, or expected a size such as 1GB", "backlog.size")
        return None
    if rate.msgs_s is None:
        refuse(
            "a backlog needs a rate: there is no telling a backlog from a system that cannot keep up when the "
            "rate is max, sustainable or sweep",
            *keys,
        )
    reader = asked.reader if asked is not None else "same"
    if reader == "same" and written.subscriptionsPerTopic == 0:
        refuse("a backlog needs a subscription that reads it: subscriptionsPerTopic is 0", *keys)
    if size_bytes < message_bytes:
        refuse(
            f"a backlog of {size_bytes} bytes is less than a message ({message_bytes} bytes)",
            *keys,
        )
    after_s = duration_s if asked is None or asked.after is None else asked.after
    within_s = 1800.0 if asked is None else asked.within
    for name, seconds in (("after", after_s), ("within", within_s)):
        if seconds < INTERVAL_S or seconds % INTERVAL_S:
            refuse(
                f"backlog.{name} {format_duration(seconds)}: expected whole seconds, and at least 1s",
                f"backlog.{name}",
            )
    # OMB's ratio stands where nothing of ours does, as where --backlog gives a size alone.
    ratio = written.backlogDrainRatio
    drain = 1.0 if ratio is None else ratio
    if asked is not None and (ratio is None or "drain" in asked.model_fields_set):
        drain = asked.drain
    return BacklogAsked(
        size_bytes=size_bytes,
        reader=reader,
        producing=asked is None or asked.producing == "on",
        drain_share=drain,
        within_s=within_s,
        after_s=after_s,
    )


def resolve_steps(
    written: WorkloadFile, rate: Rate, total_s: float, refuse: Refusals
) -> tuple[RateStep, ...]:
    """Planned changes of the rate until the end of the measured phase; surges are written out."""
    if written.steps is None and written.surges is None:
        return ()
    key = "steps" if written.steps is not None else "surges"
    if written.steps is not None and written.surges is not None:
        refuse("steps and surges both say how the rate changes: keep one of them", "surges")
        return ()
    if rate.msgs_s is None:
        refuse(f"{key} need a rate to begin with: rate max, sustainable and sweep have none", key)
        return ()
    steps = (
        _steps(written, refuse) if written.surges is None else _surges(written, rate.msgs_s, total_s, refuse)
    )
    if len(steps) > STEPS_MAX:
        refuse(f"{key}: {len(steps)} changes of the rate: expected at most {STEPS_MAX}", key)
    return tuple(steps)


def _steps(written: WorkloadFile, refuse: Refusals) -> list[RateStep]:
    free_from_s = written.ramp.over if written.ramp else 0.0
    steps: list[RateStep] = []
    for number, step in enumerate(written.steps or []):
        if step.rate is None or step.rate.msgs_s is None:
            refuse(f"steps[{number}].rate: expected messages per second", "steps")
            continue
        if step.at < free_from_s - ROUNDED_S:
            refuse(
                f"steps[{number}].at {format_duration(step.at)}: the change before it lasts until "
                f"{format_duration(free_from_s)}; expected that time or a later one",
                "steps",
            )
        free_from_s = step.at + step.over
        steps.append(RateStep(at_s=step.at, rate_msgs_s=step.rate.msgs_s, over_s=step.over))
    return steps


def _surges(written: WorkloadFile, rate_msgs_s: float, total_s: float, refuse: Refusals) -> list[RateStep]:
    asked = written.surges
    assert asked is not None
    if written.ramp is not None:
        refuse("surges and ramp: expected one of them", "surges")
    if asked.rate is None or asked.rate.msgs_s is None:
        refuse("surges.rate: expected messages per second", "surges.rate", "surges")
        return []
    if not 0 < asked.for_ < asked.every:
        refuse("surges: for must be above 0 and below every", "surges")
        return []
    steps = []
    for number in range(1, int(total_s / asked.every) + 2):
        end_s = number * asked.every
        steps.append(RateStep(at_s=end_s - asked.for_, rate_msgs_s=asked.rate.msgs_s))
        steps.append(RateStep(at_s=end_s, rate_msgs_s=rate_msgs_s))
    return [step for step in steps if step.at_s < total_s]


def resolve_faults(
    written: WorkloadFile, rate: Rate, duration_s: float, refuse: Refusals
) -> tuple[FaultAsked, ...]:
    """The faults that are made while the workload is measured; none as a rule."""
    faults: tuple[FaultAsked, ...] = written.faults
    late = [describe(fault) for fault in faults if fault.at_s >= duration_s]
    if late:
        refuse(
            f"{', '.join(late)}: the measured phase is over by then; it takes {format_duration(duration_s)}",
            "faults",
        )
    others = [
        name
        for name, given in (
            ("rate sustainable", rate.sustainable),
            ("rate sweep", rate.sweep),
            ("a backlog", written.backlog is not None and written.backlog.size != 0),
        )
        if given
    ]
    if faults and others:
        refuse(
            f"faults together with {' and '.join(others)}: what the one shows, the other hides; keep one of them",
            "faults",
        )
    return faults
