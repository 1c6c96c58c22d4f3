"""What the runner knows of a trial besides its intervals (`trial.json`).

It is rewritten whenever something is learnt, so that a trial can be analysed whatever ended it, and again
later by a newer analysis.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from streamgauge.model.messages import Moment, ProbesStatus
from streamgauge.model.own_metric import OwnMetric
from streamgauge.model.result import Durability, OnOff, Phase
from streamgauge.model.result_asked import WorkloadResult
from streamgauge.model.result_base import Model, UnixMs
from streamgauge.model.result_hosts import ClusterHost
from streamgauge.model.result_machine import Lane, SystemMetric
from streamgauge.model.result_special import Fault, Search, WarmUpResult
from streamgauge.model.result_told import Finish, ProbeOfMachine

TrialStatusName = Literal["running", "complete", "interrupted", "failed"]


class EventTime(BaseModel):
    """When something happened: the one thing of an event that is read again."""

    unix_ms: UnixMs = 0


class ReadFacts(Model):
    """How one subscription read its backlog, as the runner saw it. Times are on the schedule's axis."""

    subscription: str
    resumed_s: float
    backlog_msgs: int
    received_msgs: int
    """Before it was resumed."""
    caught_up_s: float | None = None
    read_msgs: int = 0


class BacklogFacts(Model):
    """What was done about a backlog; phases that were not reached have no time."""

    build_from_s: float
    built: bool = False
    catch_up_from_s: float | None = None
    cache_dropped: bool = False
    reads: list[ReadFacts] = Field(default_factory=list)
    after_from_s: float | None = None
    end_s: float | None = None


class TrialContext(Model):
    """A trial so far. Times on the schedule's axis are seconds since the schedule's start."""

    run_id: str
    trial: int
    repeat: int
    started_unix_ms: UnixMs
    ended_unix_ms: UnixMs
    status: TrialStatusName = "running"
    failure: str | None = None
    system: str
    system_title: str
    system_version: str
    client: str = ""
    nodes: int
    attached: bool
    cluster_here: bool = False
    """Attached to a cluster that runs on this machine: its CPU is among that of others."""
    tls: OnOff = "off"
    authentication: str | None = None
    durability: Durability
    configuration: dict[str, Any] = Field(default_factory=dict)
    """What the system's module configured (files as written, flags, ports)."""
    data_directory: Annotated[str, Field(max_length=4096)] | None = None
    """Where the system keeps its data while the trial runs; removed at its end."""
    workload: WorkloadResult
    seed: int
    phases: list[Phase] = Field(default_factory=list)
    schedule_start_unix_ms: UnixMs | None = None
    """When the schedule began; None when it never did."""
    measure_from_s: Moment
    measure_until_s: Moment
    rate_msgs_s: float | None = None
    """The rate of the schedule: the workload's, or the one that was found."""
    search: Search | None = None
    backlog: BacklogFacts | None = None
    warm_up: WarmUpResult | None = None
    faults: list[Fault] = Field(default_factory=list)
    finish: Finish | None = None
    probes: list[ProbeOfMachine] = Field(default_factory=list)
    cpu_probes: ProbesStatus | None = None
    """How the workers look for disturbance; None where they do not."""
    lanes: list[Lane] = Field(default_factory=list)
    cannot: list[str] = Field(default_factory=list)
    untold: dict[str, str] = Field(default_factory=dict)
    """Figures that the workers cannot tell, and why."""
    system_metrics: list[SystemMetric] = Field(default_factory=list)
    own_metrics_told: list[OwnMetric] = Field(default_factory=list)
    """What the system's processes were asked for."""
    own_metrics_spared: list[str] = Field(default_factory=list)
    """Processes that were asked for it seldom, because an answer takes long: a sentence each."""
    hosts: list[ClusterHost] = Field(default_factory=list)
    """The cluster's machines that have agents."""
    cores: Annotated[int, Field(ge=1, le=1 << 20)]
    notes: list[str] = Field(default_factory=list)
    """Become warnings."""
    fatal: list[str] = Field(default_factory=list)
    """Become reasons of invalidity."""

    def ended(self) -> TrialContext:
        """As it is judged: a trial that nobody ended has failed, and its rate is the workload's where none was found."""
        rate_msgs_s = self.workload.rate_msgs_s if self.rate_msgs_s is None else self.rate_msgs_s
        status = "failed" if self.status == "running" else self.status
        return self.model_copy(update={"status": status, "rate_msgs_s": rate_msgs_s})
