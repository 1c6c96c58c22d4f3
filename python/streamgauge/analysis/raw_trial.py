"""What the analysis of a trial begins with: what the runner collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.model.messages import ProbesStatus
from streamgauge.model.result import Durability, OnOff, Phase
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_machine import Lane, SystemMetric
from streamgauge.model.result_special import Fault, Search, WarmUpResult
from streamgauge.store.context import BacklogFacts, TrialContext


@dataclass
class RawTrial:
    """What the runner knows of a trial when its system is gone. Times are as in `TrialResult`."""

    run_id: str
    trial: int
    repeat: int
    started_unix_ms: int
    ended_unix_ms: int
    status: str
    failure: str | None
    system: str
    system_title: str
    system_version: str
    client: str
    nodes: int
    attached: bool
    cluster_here: bool = field(default=False, kw_only=True)
    """Attached to a cluster that runs on this machine, unlike one elsewhere."""
    durability: Durability
    workload: WorkloadResult
    seed: int
    phases: list[Phase]
    measure_from_s: float
    """The measured window on the schedule's axis, at whole intervals."""
    measure_until_s: float
    directory: Path
    """Holds intervals.parquet and resources.parquet (either may be missing when the trial ended early)."""
    finish: dict[str, Any] | None
    """The workers' /finish answers, merged; None when a worker was lost."""
    probes: list[dict[str, Any]]
    lanes: list[Lane]
    cannot: list[str]
    cores: int
    system_metrics: list[SystemMetric] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Become warnings."""
    rate_msgs_s: float | None = None
    """The rate of the schedule: the workload's, or the one that was found."""
    tls: OnOff = "off"
    authentication: str | None = None
    search: Search | None = None
    backlog: BacklogFacts | None = None
    warm_up: WarmUpResult | None = None
    faults: list[Fault] = field(default_factory=list)
    schedule_start_unix_ms: int | None = None
    """When the schedule began, for what logs tell."""
    fatal: list[str] = field(default_factory=list)
    """Become reasons of invalidity."""
    cpu_probes: ProbesStatus | None = None
    """How the workers look for disturbance; None where they do not."""
    untold: dict[str, str] = field(default_factory=dict)
    """Figures that the workers cannot tell, and why."""


def raw_trial(context: TrialContext, directory: Path) -> RawTrial:
    """A trial as the analysis wants it; its tables are in `directory`."""
    return RawTrial(
        run_id=context.run_id,
        trial=context.trial,
        repeat=context.repeat,
        started_unix_ms=context.started_unix_ms,
        ended_unix_ms=context.ended_unix_ms,
        status="failed" if context.status == "running" else context.status,
        failure=context.failure,
        system=context.system,
        system_title=context.system_title,
        system_version=context.system_version,
        client=context.client,
        nodes=context.nodes,
        attached=context.attached,
        cluster_here=context.cluster_here,
        tls=context.tls,
        authentication=context.authentication,
        durability=context.durability,
        workload=context.workload,
        seed=context.seed,
        phases=context.phases,
        measure_from_s=context.measure_from_s,
        measure_until_s=context.measure_until_s,
        rate_msgs_s=context.rate_msgs_s if context.rate_msgs_s is not None else context.workload.rate_msgs_s,
        search=context.search,
        backlog=context.backlog,
        warm_up=context.warm_up,
        faults=context.faults,
        schedule_start_unix_ms=context.schedule_start_unix_ms,
        directory=directory,
        finish=context.finish,
        probes=context.probes,
        lanes=context.lanes,
        cannot=context.cannot,
        cpu_probes=context.cpu_probes,
        untold=context.untold,
        system_metrics=context.system_metrics,
        cores=context.cores,
        notes=context.notes,
        fatal=context.fatal,
    )


def has_extra_reader(workload: WorkloadResult) -> bool:
    """Whether a further subscription reads the backlog while the others tail."""
    return workload.backlog is not None and workload.backlog.reader == "extra"
