"""One trial, from provision to wipe.

Whatever goes wrong, three things hold: what was started is stopped, what was measured is written, and the
result says what happened.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from streamgauge.analysis.trial import analyse_or_fail
from streamgauge.fleet.base import Fleet, Worker
from streamgauge.model.messages import LaneStatus, TrialStatus
from streamgauge.model.result import Durability, TrialResult
from streamgauge.model.result_machine import Lane
from streamgauge.model.result_special import Search, WarmUpResult
from streamgauge.model.system_request import is_encrypted, mechanism_of
from streamgauge.model.workload import Workload
from streamgauge.runner import machine
from streamgauge.runner.acks import AckWatch
from streamgauge.runner.backlog import BacklogLeg
from streamgauge.runner.compilers import Compilers
from streamgauge.runner.faults import FaultLeg
from streamgauge.runner.instruments import Instruments
from streamgauge.runner.interrupts import Interrupted, Interrupts, OutOfTime
from streamgauge.runner.load import Ending, EndingKind, Health, Load, QuietWait
from streamgauge.runner.observer import Observer
from streamgauge.runner.pace import Pace
from streamgauge.runner.phases import PhaseLog
from streamgauge.runner.plan import TrialPlan
from streamgauge.runner.record import TrialRecord
from streamgauge.runner.request import quiet_stop_s, ready_within_s, stop_s, waits_for_quiet
from streamgauge.runner.search import Bench, search
from streamgauge.runner.settle import LOOK_KEPT_S, LOOK_S, SETTLE_WITHIN_S, settle
from streamgauge.runner.topics import Topics, check_room
from streamgauge.runner.under_test import UnderTest
from streamgauge.store.context import TrialContext
from streamgauge.store.directory import ACKS_NAME, TrialDirectory
from streamgauge.store.measured import measured_level
from streamgauge.store.tables import seal
from streamgauge.systems.support.network import is_here
from streamgauge.vocabulary.errors import (
    FleetFailure,
    SystemFailure,
    SystemInputError,
    WorkerLost,
    WorkerRefused,
)
from streamgauge.vocabulary.format import plural
from streamgauge.vocabulary.phases import (
    AUDIT,
    COLLECT,
    CREATE_TOPICS,
    INTERVAL_S,
    MEASURE,
    PROVISION,
    SEARCH,
    SETTLE,
    START_CONSUMERS,
    WARM_UP,
    WIPE,
)
from streamgauge.vocabulary.units import format_duration
from streamgauge.vocabulary.waiting import wait_until

READY_POLL_S = 0.1

FAILURES = (SystemFailure, SystemInputError, WorkerLost, WorkerRefused, FleetFailure)


class TrialRunner:
    """Leads one trial through its phases."""

    def __init__(
        self,
        plan: TrialPlan,
        *,
        run_id: str,
        directory: TrialDirectory,
        data: Path,
        fleet: Fleet,
        interrupts: Interrupts,
        observer: Observer,
        probes: list[dict[str, Any]],
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._data = data
        self._fleet = fleet
        self._interrupts = interrupts
        self._observer = observer
        self._worker: Worker | None = None
        self._load: Load | None = None
        self._faults: FaultLeg | None = None
        self._workload = plan.workload
        """The plan's, at the rate that was found where one was to be found."""
        self._waits_for_quiet = False
        """Whether the schedule was given more time than the workload asks for."""
        self._pace: Pace | None = None
        self.input_error = False
        """Whether the trial failed because of what was asked, and not because of the system."""
        request, now = plan.choice.request, machine.unix_ms()
        context = TrialContext(
            run_id=run_id,
            trial=plan.number,
            repeat=plan.repeat,
            started_unix_ms=now,
            ended_unix_ms=now,
            system=plan.choice.name,
            system_title=plan.choice.system.title,
            system_version=plan.choice.version,
            nodes=request.nodes,
            attached=bool(request.connect),
            cluster_here=any(is_here(address) for address in request.connect),
            tls="on" if is_encrypted(request) else "off",
            authentication=mechanism_of(request),
            durability=Durability(asked=request.level),
            workload=plan.workload.result(),
            seed=plan.seed,
            rate_msgs_s=plan.workload.rate_msgs_s,
            measure_from_s=plan.workload.warmup_s,
            measure_until_s=stop_s(plan.workload),
            probes=probes,
            cores=machine.cores(),
            notes=list(plan.workload.notes),
        )
        self._record = TrialRecord(context, directory, observer)
        self._phases = PhaseLog(observer, self._record.event)
        self._topics = Topics(plan, run_id)
        self._under = UnderTest(plan, directory, data, self._record, observer)
        self._instruments = Instruments(directory, data, self._record, self._under)

    @property
    def context(self) -> TrialContext:
        """What is known of the trial."""
        return self._record.context

    def run(self) -> TrialResult:
        """Runs the trial and writes its result. Never raises for what a system, a worker or the user does."""
        self._record.save()
        limit_s = self._plan.limit_s
        try:
            with self._interrupts.within(limit_s):
                with self._interrupts.raising():
                    trial = self._prepare()
                with self._interrupts.flagging():
                    self._drive(trial)
        except OutOfTime:
            assert limit_s is not None
            where = f"'{self._phases.current}' after {format_duration(round(limit_s))}"
            self._ended_by(Ending("time", f"the trial was ended in phase {where}, its time limit"))
        except Interrupted:
            self._ended_by(Ending("interrupted", "stopped by the user"))
        except FAILURES as error:
            self.input_error = isinstance(error, SystemInputError)
            died = self._under.failure()
            kind = "system" if died else _kind_of(error)
            self._ended_by(Ending(kind, died or str(error)))
        finally:
            with self._interrupts.shielded(self._kill):
                self._tear_down()
        with self._interrupts.shielded():
            return self._write()

    # Preparation

    def _prepare(self) -> str:
        """Everything before the load; the worker's id of the trial."""
        self._provision()
        if self._workload.faults:
            under = self._under
            self._faults = FaultLeg(
                under.running, self._workload.faults, under.disks, under.network, self._plan.seed
            )
        self._settle()
        self._search()
        self._begin_profiles()
        self._make_topics()
        return self._start_consumers()

    def _provision(self) -> None:
        self._phases.begin(PROVISION)
        self._observer.progress("starting a load worker")
        self._worker = self._fleet.start(self._directory.logs)
        self._under.start()

    def _settle(self) -> None:
        self._phases.begin(SETTLE, SETTLE_WITHIN_S)
        if self._workload.idle == "poll":
            self._instruments.keep_awake()
        if self._under.running.attached:
            return
        note = machine.drop_page_cache()
        if note:
            self._record.note(note)
        pids = [process.pid for process in self._under.running.processes()]
        look_s = LOOK_KEPT_S if self._under.running.has_run else LOOK_S
        if not settle(self._plan.choice.name, pids, self._observer, look_s):
            self._record.note(
                f"the system was still busy with itself {SETTLE_WITHIN_S:g} s after it had started"
            )

    def _begin_profiles(self) -> None:
        """Before the warm-up: a JVM's recorder has work to do when it begins, which is no part of what is measured."""
        if not self._workload.profile:
            return
        assert self._worker is not None
        self._observer.progress("beginning to profile")
        self._instruments.profile(self._workload, self._worker.processes)

    def _search(self) -> None:
        """Finds the rate, where it is to be found. Its probes are no part of the measured trial."""
        asked = self._plan.workload.search
        if asked is None:
            return
        assert self._worker is not None
        self._phases.begin(SEARCH)
        bench = Bench(
            client=self._worker.client,
            workload=self._plan.workload,
            cores=self.context.cores,
            make_topics=self._make_probe_topics,
            request=self._probe_request,
            delete_topics=self._delete_topics,
            failure=self._failure,
            ready_within_s=ready_within_s(self._workload),
        )
        found = search(bench, asked, self._observer, self._keep_search)
        if found.low_msgs_s is None:
            raise SystemFailure(f"no sustainable rate was found: {found.explanation}")
        self._workload = self._plan.workload.at_rate(found.low_msgs_s)
        self._record.update(rate_msgs_s=found.low_msgs_s)

    def _keep_search(self, found: Search) -> None:
        self._record.update(search=found)
        if found.probes:
            self._record.event("probe", found.probes[-1].model_dump())

    def _failure(self) -> str | None:
        return self._under.failure() or self._fleet.failure() or self._under.disk_problem()

    def _make_probe_topics(self, number: int) -> None:
        assert self._worker is not None
        self._topics.create(self._plan.workload, self._under.running, self._worker.client, probe=number)

    def _probe_request(self, workload: Workload, number: int) -> dict[str, Any]:
        """What the worker is asked to do with the topics of a probe."""
        return self._topics.request(workload, self._under.running, probe=number)

    def _make_topics(self) -> None:
        assert self._worker is not None
        running, client = self._under.running, self._worker.client
        if not self.context.attached:
            check_room(self._plan.workload, running.topic_plan().replication_factor, self._data)
        if self._plan.workload.read_topics:
            self._topics.find(self._plan.workload, running, client)
        else:
            self._phases.begin(CREATE_TOPICS, ready_within_s(self._workload))
            self._topics.create(self._workload, running, client)
        self._observer.progress("reading settings back")
        self._record.update(durability=self._durability())

    def _durability(self) -> Durability:
        """What the live system's settings amount to, and what an experiment has found for the same settings."""
        assert self._worker is not None
        running, client, choice = self._under.running, self._worker.client, self._plan.choice
        found = running.read_back(
            lambda topics: client.describe(running.connection, topics), self._topics.all_names
        )
        measured = measured_level(
            self._directory.path.parents[2],
            system=choice.system.name,
            version=running.version,
            nodes=running.nodes,
            declared=found.level,
            options=choice.request.options,
        )
        if measured is not None and measured[0] != found.level:
            self._record.note(
                f"durability {found.level} is declared, but {measured[1]} has measured {measured[0]}"
            )
        return Durability(
            asked=choice.request.level,
            declared=found.level,
            measured=measured[0] if measured is not None else None,
            settings=dict(found.settings),
            mismatches=list(found.mismatches),
        )

    def _start_consumers(self) -> str:
        running = self._under.running
        assert self._worker is not None
        workload = self._plan.workload
        partitions = workload.topics * workload.partitions_per_topic
        limit_s = ready_within_s(self._workload)
        self._phases.begin(START_CONSUMERS, limit_s)
        client = self._worker.client
        waits = waits_for_quiet(self._workload)
        within_s = quiet_stop_s(self._workload) if waits else None
        status = client.create_trial(
            self._topics.request(self._workload, self._under.running, within_s=within_s)
        )

        def missing() -> str | None:
            nonlocal status
            status = client.status(status.id)
            ready = status.readiness
            self._observer.progress(f"{ready.proven} of {plural(partitions, 'partition')} proven")
            if status.state == "ready":
                return None
            if status.ended:
                raise SystemFailure(f"the consumers could not be started: {status.error or status.state}")
            died = running.failure() or self._fleet.failure()
            if died:
                raise SystemFailure(died)
            return (
                f"the consumers to be ready: {ready.assigned} of {plural(ready.partitions, 'partition')} "
                f"assigned, {ready.proven} proven by a message"
            )

        late = wait_until(missing, limit_s, READY_POLL_S)
        if late is not None:
            raise SystemFailure(late)
        self._learn(status)
        self._waits_for_quiet = waits
        for note in self._fleet.notes():
            self._record.note(note)
        return status.id

    # Load

    def _drive(self, trial: str) -> None:
        """The load and what follows it as long as the worker lives."""
        assert self._worker is not None
        worker, workload = self._worker, self._workload
        if workload.pace_share is not None and workload.rate_msgs_s is not None and workload.warmup_auto:
            self._pace = Pace(
                workload.pace_share, workload.rate_msgs_s, machine.cores(), worker.only.set_rate
            )
        self._load = Load(
            client=worker.client,
            trial=trial,
            workload=self._workload,
            interrupts=self._interrupts,
            observer=self._observer,
            phases=self._phases,
            health=Health(self._worker_problem, self._system_problem, self._under.disk_problem),
            keep=self._keep_intervals,
            learn_warm_up=self._warmed_up,
            compilers=Compilers(lambda: [one.pid for one in self._under.watched()]),
            pace=self._pace,
            quiet=QuietWait(self._measured_for, self._watched_cpus()) if self._waits_for_quiet else None,
        )
        leg = self._backlog_leg(self._load)
        if leg is not None:
            leg.pause_early()
        self._load.start(same_clock=worker.pid is not None or worker.lab_clock)
        assert self._phases.start_s is not None
        delay_s = self._phases.start_s - time.monotonic()
        self._record.update(schedule_start_unix_ms=machine.unix_ms() + int(delay_s * 1000))
        self._instruments.start(
            self._phases.start_s, worker, self._plan.choice.system, self._keep_resources, self._workload
        )
        if self._faults is not None:
            watch = AckWatch(worker.only, trial, self._phases.start_s)
            self._faults.start(
                self._phases.start_s,
                self._workload.warmup_s,
                watch,
                self._instruments.watch_again,
                self._topics.all_names[0],
            )
        ending = self._load.run()
        self._keep_faults()
        if leg is not None and ending.kind == "done":
            ending = leg.run() or ending
        self._keep_losses()
        if ending.kind != "done":
            self._ended_by(ending)
        if ending.kind != "worker":
            self._finish(ending)

    def _worker_problem(self) -> str | None:
        """Why the load must end for the workers' sake. Of several some may be lost while the others go on: the trial is
        not valid then, and that is said when it is noticed."""
        problem = self._fleet.failure()
        if problem is None:
            self._keep_losses()
        return problem

    def _keep_losses(self) -> None:
        for loss in self._fleet.losses():
            text = f"worker lost: {loss}; the others took over its rate"
            if text not in self.context.fatal:
                self._record.fail(text)

    def _warmed_up(self, workload: Workload, found: WarmUpResult) -> None:
        """The warm-up is over whose length was not fixed."""
        self._workload = workload
        self._instruments.measuring_from(workload.warmup_s)
        if self._pace is not None:
            self._record.update(rate_msgs_s=workload.rate_msgs_s, workload=workload.result())
        self._record.update(warm_up=found, measure_from_s=workload.warmup_s, measure_until_s=stop_s(workload))
        if not found.steady:
            self._record.note(
                f"the load was not steady when the warm-up ended after {found.lasted_s:g} s (its limit): "
                f"{found.explanation}"
            )

    def _watched_cpus(self) -> bool:
        """Whether the workers tell how quiet it is."""
        return self.context.cpu_probes is not None and self.context.cpu_probes.is_on

    def _measured_for(self, workload: Workload, quiet_s: float) -> None:
        """The measured phase is over that waited for quiet time."""
        asked_s, lasted_s = self._workload.duration_s, workload.duration_s
        self._workload = workload
        self._record.update(measure_until_s=stop_s(workload))
        if lasted_s > asked_s:
            self._record.note(
                f"measured for {format_duration(lasted_s)} instead of {format_duration(asked_s)}, because the machine was disturbed: "
                f"{quiet_s:.1f} s of it were quiet (--quiet-limit)"
            )

    def _backlog_leg(self, load: Load) -> BacklogLeg | None:
        asked = self._workload.backlog
        if asked is None:
            return None
        return BacklogLeg(
            load,
            asked,
            attached=self.context.attached,
            note=self._record.note,
            learn=lambda facts: self._record.update(backlog=facts),
        )

    def _keep_intervals(self, intervals: list[dict[str, Any]]) -> None:
        assert self._worker is not None
        named = [{"worker": self._worker.name, **interval} for interval in intervals]
        self._directory.append_intervals(named)
        self._observer.recorded(named)

    def _keep_resources(self, rows: list[dict[str, Any]]) -> None:
        self._directory.append_resources(rows)
        self._observer.sampled(rows)
        if self._pace is not None:
            self._pace.see(rows)

    def _keep_faults(self) -> None:
        """What was done and when acknowledgements came; no more faults are made."""
        if self._faults is None:
            return
        self._faults.stop()
        self._tell_faults()
        self._faults.write_acks(self._directory.path / ACKS_NAME)
        self._record.update(faults=self._faults.made)
        broken = self._faults.still_broken()
        if broken:
            self._record.note(
                f"{', '.join(broken)} had not been started again when the load ended: what only they had could not "
                "be audited"
            )

    def _tell_faults(self) -> None:
        assert self._faults is not None
        for text in self._faults.news():
            self._record.event("fault", {"text": text})
            self._observer.note(text)

    def _finish(self, ending: Ending) -> None:
        assert self._load is not None
        began_s = time.monotonic()
        answer = self._load.finish(ending)
        if answer is None:
            if ending.kind == "done":
                self._ended_by(
                    Ending("worker", self._fleet.failure() or "the worker did not finish the trial")
                )
            return
        drained_s = began_s + float(answer.get("drain_s") or 0.0)
        self._phases.begin(AUDIT, at_s=min(drained_s, time.monotonic()))
        self._record.update(finish=answer, lanes=self._lanes(answer.get("lanes")))
        if answer.get("drained") is False and ending.kind == "done":
            self._record.note(
                "the drain ended before everything that was acknowledged had been received "
                f"({float(answer.get('drain_s') or 0.0):.1f} s)"
            )
        stopped_s = answer.get("stopped_s")
        if isinstance(stopped_s, (int, float)):
            self._cut(float(stopped_s))

    def _cut(self, stopped_s: float) -> None:
        """The measured window ends with the last whole interval before the schedule's end."""
        until_s = min(stop_s(self._workload), math.floor(stopped_s / INTERVAL_S) * INTERVAL_S)
        self._record.update(measure_until_s=max(until_s, self.context.measure_from_s))

    def _system_problem(self) -> str | None:
        """Why the load must end for the system's sake. A cluster that has lost a node and goes on is no reason; the
        figures are then not those of what was declared, and the trial says so.
        """
        if self._faults is not None:
            self._tell_faults()
            if self._faults.failure is not None:
                return self._faults.failure
        died = self._under.running.failure()
        if died is None or not self._under.running.goes_on():
            return died
        text = f"a node was lost, and the load went on: {self._under.told(died)}"
        if text not in self.context.fatal:
            self._record.fail(text)
        return None

    # The end

    def _ended_by(self, ending: Ending) -> None:
        """Writes down why the trial ended early; the first reason stays."""
        if self.context.status != "running":
            return
        if self._load is not None:
            self._cut(self._load.seen_s)
        if ending.kind == "interrupted":
            self._record.update(status="interrupted", failure=ending.reason)
            self._observer.problem("stopping: what was measured is kept (Ctrl-C again to stop at once)")
            return
        reason = {
            "worker": "worker lost",
            "fleet": "fleet failed",
            "system": "system failed",
            "disk": "disk full",
            "time": "out of time",
        }[ending.kind]
        text = f"{reason}: {self._under.told(ending.reason)}"
        self._record.fail(text, status="failed", failure=text)

    def _kill(self) -> None:
        """At once: nothing is asked politely any more."""
        self._under.kill()
        self._fleet.stop(at_once=True)

    def _tear_down(self) -> None:
        """Stops and removes everything. Every step is tried, whatever the others did."""
        attempt = self._record.attempt
        self._phases.begin(COLLECT)
        if self._faults is not None:
            attempt("stop making faults", self._faults.stop)
        self._instruments.stop()
        if self._load is not None:
            attempt("stop the heartbeat", self._load.close)
        if self._under.outlives and self._topics.created:
            attempt("delete the topics of the trial", self._delete_topics)
        attempt("stop the worker", self._fleet.stop)
        self._under.stop()
        self._instruments.keep_profiles(self._phases.start_s)
        self._phases.begin(WIPE)
        self._under.wipe()
        self._phases.end()

    def _delete_topics(self) -> None:
        assert self._worker is not None
        if not self._fleet.answers():
            # The load's workers are gone; the topics must go all the same.
            self._worker = self._fleet.start(self._directory.logs)
        self._worker.client.delete_topics(self._under.running.connection, self._topics.created)

    def _write(self) -> TrialResult:
        if self.context.status == "running":
            self._record.update(status="complete")
        if self._phases.start_s is not None:
            self._phases.set_bounds(WARM_UP, 0.0, min(self._workload.warmup_s, self._end_s()))
            measured_s = min(stop_s(self._workload), self._end_s())
            self._phases.set_bounds(MEASURE, self.context.measure_from_s, measured_s)
        self._record.update(phases=self._phases.phases(), ended_unix_ms=machine.unix_ms())
        self._observer.progress("computing the figures")
        seal(self._directory)
        context, result = analyse_or_fail(self.context, self._directory.path)
        self._record.update(status=context.status, failure=context.failure)
        self._directory.write_result(result)
        return result

    def _end_s(self) -> float:
        """Where the schedule ended."""
        if self.context.status == "complete":
            return stop_s(self._workload)
        return max(self.context.measure_until_s, self._load.seen_s if self._load is not None else 0.0)

    # Small things

    def _learn(self, status: TrialStatus) -> None:
        lanes = [self._lane(lane) for lane in status.lanes]
        self._record.update(
            client=status.client,
            cannot=list(status.cannot),
            untold=dict(status.untold),
            lanes=lanes,
            cpu_probes=status.probes,
        )

    def _lanes(self, told: Any) -> list[Lane]:
        if not isinstance(told, list):
            return self.context.lanes
        return [self._lane(LaneStatus.model_validate(lane)) for lane in told]

    def _lane(self, lane: LaneStatus) -> Lane:
        assert self._worker is not None
        return Lane(
            worker=lane.worker or self._worker.name,
            name=lane.name,
            role=lane.role,
            scheduling=lane.scheduling,
            cpu_s=lane.cpu_s,
        )


def _kind_of(error: Exception) -> EndingKind:
    """Whose failure it is. A worker that refuses says what it met, which is the system's."""
    if isinstance(error, WorkerLost):
        return "worker"
    return "fleet" if isinstance(error, FleetFailure) else "system"
