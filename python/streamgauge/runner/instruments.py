"""What looks on while the load of a trial runs: resources of every process, agents of a cluster's machines, the system's own metrics, profiles, and the
process that keeps CPUs awake for them all. None of it decides anything; what one of them missed is a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamgauge.fleet.base import Worker
from streamgauge.model.workload import Workload
from streamgauge.runner.agents import AgentSampler
from streamgauge.runner.awake import Awake
from streamgauge.runner.own_metrics import OwnMetricSampler
from streamgauge.runner.profiles import Profiles
from streamgauge.runner.record import TrialRecord
from streamgauge.runner.request import quiet_stop_s
from streamgauge.runner.resources import IDLE, ResourceSampler, Watched
from streamgauge.runner.syncs import Syncs
from streamgauge.runner.under_test import UnderTest
from streamgauge.store.directory import PROFILE_NAME, TrialDirectory
from streamgauge.store.tables import write_profile
from streamgauge.systems.base import System
from streamgauge.vocabulary.phases import INTERVAL_S


class Instruments:
    """Begins them, each when it is wanted, and ends them all."""

    def __init__(self, directory: TrialDirectory, data: Path, record: TrialRecord, under: UnderTest) -> None:
        """`data`: where the system's own data is."""
        self._directory = directory
        self._data = data
        self._record = record
        self._under = under
        self._awake: Awake | None = None
        self._profiles: Profiles | None = None
        self._resources: ResourceSampler | None = None
        self._agents: AgentSampler | None = None
        self._own_metrics: OwnMetricSampler | None = None

    def keep_awake(self) -> None:
        """From now on no CPU sleeps."""
        self._awake = Awake()

    def profile(self, workload: Workload, workers: Mapping[str, int]) -> None:
        """Begins to profile the system's processes and the workers' (name -> process id)."""
        logs, load_s = self._directory.made_logs(), quiet_stop_s(workload)
        self._profiles = Profiles(logs, self._data, load_s, self._record.note)
        self._profiles.start(self._under.running.processes(), workers)

    def start(
        self,
        start_s: float,
        worker: Worker,
        system: System,
        keep: Callable[[list[dict[str, Any]]], None],
        workload: Workload,
    ) -> None:
        """Samples once per interval. `start_s`: of the schedule, on the monotonic clock. `keep`: is given the rows of resources of this machine."""
        watched = self._under.watched()
        watched.extend(Watched("worker", name, pid) for name, pid in worker.processes.items())
        if self._awake is not None:
            watched.append(Watched(IDLE, None, self._awake.pid))
        is_here = not self._record.context.attached
        self._resources = ResourceSampler(
            start_s,
            INTERVAL_S,
            watched,
            keep,
            self._data if is_here else None,
            Syncs() if is_here else None,
        )
        self._resources.start()
        if self._under.agents:
            self._agents = AgentSampler(
                start_s, INTERVAL_S, self._under.agents, self._directory.append_resources
            )
            self._agents.start()
        sources = self._under.running.metric_sources()
        if sources:
            told = system.own_metrics
            self._record.update(own_metrics_told=[] if told is None else list(told.told))
            self._own_metrics = OwnMetricSampler(
                start_s,
                INTERVAL_S,
                sources,
                self._directory.append_metrics,
                measured_from_s=None if workload.warmup_auto else workload.warmup_s,
                every_interval=self._under.metrics_every_second,
            )
            self._own_metrics.start()

    def measuring_from(self, from_s: float) -> None:
        """A warm-up ends then, on the schedule's axis, whose length was not fixed."""
        if self._own_metrics is not None:
            self._own_metrics.measuring_from(from_s)

    def watch_again(self) -> None:
        """Processes of the system that were started again have other ids."""
        if self._resources is not None:
            self._resources.watch(self._under.watched())

    def stop(self) -> None:
        """Ends them all."""
        attempt = self._record.attempt
        if self._resources is not None:
            attempt("stop sampling", self._resources.stop)
        if self._agents is not None:
            attempt("stop asking the agents", self._agents.stop)
            for note in self._agents.gaps():
                self._record.note(note)
        for agent in self._under.agents:
            agent.client.close()
        if self._own_metrics is not None:
            attempt("stop reading the system's metrics", self._own_metrics.stop)
            for note in [*self._own_metrics.gaps(), *self._own_metrics.costs()]:
                self._record.note(note)
            self._record.update(own_metrics_spared=self._own_metrics.spared())
        if self._profiles is not None:
            attempt("stop profiling", self._profiles.stop)
        if self._awake is not None:
            attempt("let the CPUs fall asleep again", self._awake.end)

    def keep_profiles(self, start_s: float | None) -> None:
        """Writes what was profiled, when the system's logs are where they are kept. `start_s`: as in `start`; None where the load never began."""
        profiles, start_unix_ms = self._profiles, self._record.context.schedule_start_unix_ms
        if profiles is not None and start_s is not None and start_unix_ms is not None:
            rows = profiles.rows
            self._record.attempt(
                "keep the profiles",
                lambda: write_profile(rows(start_s, start_unix_ms), self._directory.path / PROFILE_NAME),
            )
