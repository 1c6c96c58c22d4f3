//! A trial's state machine: one thread, the supervisor, that owns the trial; lanes and API talk to it through one bounded queue.
//!
//! ```text
//! preparing -> ready -> running -> draining -> finished
//!     any of the first four -> failed (the trial became pointless) | aborted (asked for, or the lease expired)
//! ```

mod control;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use gauge_client::{Protocol, Waker};
use gauge_load::clock::{monotonic_ns, shown_ns};
use gauge_load::quiet::Board;
use gauge_load::{Books, Counters, Tally};
use serde_json::{Value, json};

use crate::books;
use crate::collector::{Collector, CountersOut};
use crate::drain::Drain;
use crate::error::ApiError;
use crate::handle::{Ask, Event, Handle, LaneStatus, LiveLane, LiveLanes, Readiness, Reply, State, Status};
use crate::judgement::{self, SubscriptionEnd};
use crate::lane::{self, LaneContext};
use crate::link::{Command, LaneEnd, LaneEvent, Progress};
use crate::plan::{PhasePlan, Plan};
use crate::probes::{FOLLOWING, Own, Probes, Seen};
use crate::scheduling;

/// Requests and events that wait for the supervisor.
const QUEUE_MAX: usize = 1024;
/// Commands that wait for a lane.
const COMMANDS_MAX: usize = 256;
/// Empty tallies of each lane besides the one that is being filled.
const SPARE_TALLIES: usize = 2;
/// The supervisor's turn while it waits for lanes.
const BUSY_TURN: Duration = Duration::from_millis(2);
/// Its turn while it has nothing to wait for but the lease.
const IDLE_TURN: Duration = Duration::from_millis(50);
/// How long lanes may take to end before the supervisor stops waiting for them.
const END_NS_MAX: i64 = 10_000_000_000;
/// How long an abort waits for them before it answers.
const ABORT_NS_MAX: i64 = 2_000_000_000;
/// How long the supervisor waits for the lanes' counters.
const REPORT_WAIT: Duration = Duration::from_secs(1);
/// Leases after which a trial that was never started is given up.
const UNSTARTED_LEASES: i64 = 10;

/// A lane as the supervisor sees it.
struct Lane {
    name: String,
    role: &'static str,
    commands: SyncSender<Command>,
    waker: Option<Waker>,
    progress: Arc<Progress>,
    end: Option<Option<Box<LaneEnd>>>,
}

impl Lane {
    fn tell(&self, command: Command) -> bool {
        // A lane that has ended hears nothing, and says so by its last event, which may still be on its way.
        let is_told = !matches!(self.commands.try_send(command), Err(TrySendError::Full(_)));
        if let Some(waker) = &self.waker {
            waker.wake();
        }
        is_told
    }
}

/// Starts a trial: its supervisor, its lanes.
///
/// # Errors
/// Bad requests that only the protocol can see; internal when the system has no threads left.
pub fn create(
    id: u64,
    plan: Plan,
    protocol: &Arc<dyn Protocol>,
    live: &LiveLanes,
) -> Result<Handle, ApiError> {
    let Cast {
        supervisor,
        inbox,
        lanes,
        handle,
    } = Cast::of(id, plan, protocol)?;
    for context in lanes {
        let alive = LiveLane::new(live);
        spawn(context.plan.name.clone(), move || {
            lane::run(context);
            drop(alive);
        })?;
    }
    spawn(format!("trial-{id}"), move || supervisor.run(&inbox))?;
    Ok(handle)
}

/// Who takes part in a trial, before any of them has begun: each is a thread, or all of them are one in a simulated world.
pub(crate) struct Cast {
    pub(crate) supervisor: Supervisor,
    pub(crate) inbox: Receiver<Event>,
    pub(crate) lanes: Vec<LaneContext>,
    pub(crate) handle: Handle,
}

impl Cast {
    /// The cast of a plan.
    ///
    /// # Errors
    /// Bad requests that only the protocol can see.
    pub(crate) fn of(id: u64, plan: Plan, protocol: &Arc<dyn Protocol>) -> Result<Cast, ApiError> {
        let mut cannot: Vec<String> = Vec::new();
        for lane in &plan.lanes {
            for sentence in protocol.check(&plan.endpoint, &lane.spec)? {
                if !cannot.contains(&sentence) {
                    cannot.push(sentence);
                }
            }
        }
        let (events, inbox) = sync_channel(QUEUE_MAX + 8 * plan.lanes.len());
        let prepare_until_ns = monotonic_ns() + plan.ready_timeout_ns;
        let held: Vec<usize> = (0..plan.subscriptions.len())
            .filter(|&at| plan.subscriptions[at].from_earliest)
            .collect();
        let board = plan.probes.then(|| {
            let board = Board::new(scheduling::cores().len(), plan.lanes.len());
            Arc::new(board.every(FOLLOWING.period_ns()))
        });
        let mut lanes = Vec::with_capacity(plan.lanes.len());
        let mut contexts = Vec::with_capacity(plan.lanes.len());
        let mut spares = Vec::with_capacity(plan.lanes.len());
        for (index, lane_plan) in plan.lanes.iter().enumerate() {
            let (commands, lane_commands) = sync_channel(COMMANDS_MAX);
            let (spare_sender, lane_spares) = sync_channel(SPARE_TALLIES + 1);
            for _ in 0..SPARE_TALLIES {
                let _ = spare_sender.try_send(Tally::with_room(plan.subscriptions.len()));
            }
            let progress = Arc::new(Progress::new(plan.subscriptions.len()));
            let context = LaneContext {
                index,
                plan: lane_plan.clone(),
                run: plan.run,
                subscriptions: plan.subscriptions.len(),
                held_subscriptions: held.clone(),
                slots: plan.slots,
                stamped: plan.stamped,
                measured: plan.measured.clone(),
                interval_ns: plan.interval_ns,
                quantum_ns: plan.quantum_ns,
                realtime: plan.realtime && !plan.closed_loop,
                prepare_until_ns,
                protocol: Arc::clone(protocol),
                endpoint: plan.endpoint.clone(),
                commands: lane_commands,
                spares: lane_spares,
                events: events.clone(),
                progress: Arc::clone(&progress),
                board: board.clone(),
            };
            contexts.push(context);
            spares.push(spare_sender);
            lanes.push(Lane {
                name: lane_plan.name.clone(),
                role: lane_plan.role.name(),
                commands,
                waker: None,
                progress,
                end: None,
            });
        }
        let names = plan
            .subscriptions
            .iter()
            .map(|subscription| Arc::from(subscription.name.as_str()))
            .collect();
        let now_ns = monotonic_ns();
        let forgotten = Arc::new(AtomicBool::new(false));
        let supervisor = Supervisor {
            id: id.to_string(),
            collector: Collector::new(plan.interval_ns, names, spares),
            client: protocol.client_name(),
            cannot,
            lanes,
            state: State::Preparing,
            error: None,
            start_ns: None,
            start_unix_ns: None,
            stop_ns: plan.stop_ns,
            phases: plan.phases.clone(),
            paused: vec![false; plan.subscriptions.len()],
            created_ns: now_ns,
            contact_ns: now_ns,
            over_ns: None,
            probing: false,
            deaf: None,
            drain: None,
            finish_replies: Vec::new(),
            abort_replies: Vec::new(),
            result: None,
            forgotten: Arc::clone(&forgotten),
            board,
            probes: None,
            plan,
        };
        Ok(Cast {
            supervisor,
            inbox,
            lanes: contexts,
            handle: Handle {
                id: id.to_string(),
                events,
                forgotten,
            },
        })
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<(), ApiError> {
    std::thread::Builder::new()
        .name(name)
        .spawn(body)
        .map(drop)
        .map_err(|error| ApiError::internal(format!("no thread could be started: {error}")))
}

pub(crate) struct Supervisor {
    id: String,
    plan: Plan,
    client: &'static str,
    cannot: Vec<String>,
    lanes: Vec<Lane>,
    collector: Collector,
    state: State,
    error: Option<String>,
    start_ns: Option<i64>,
    start_unix_ns: Option<i64>,
    /// End of the schedule, as an offset.
    stop_ns: Option<i64>,
    phases: Vec<PhasePlan>,
    paused: Vec<bool>,
    created_ns: i64,
    /// When the controller was heard last.
    contact_ns: i64,
    /// When the lanes were told to end.
    over_ns: Option<i64>,
    /// The probes were asked for.
    probing: bool,
    /// A lane that could not be told something.
    deaf: Option<String>,
    drain: Option<Drain>,
    finish_replies: Vec<Reply<Arc<Value>>>,
    abort_replies: Vec<Reply<Status>>,
    result: Option<Arc<Value>>,
    /// Shared with the handle.
    forgotten: Arc<AtomicBool>,
    /// Where the probes will write, if they were asked for.
    board: Option<Arc<Board>>,
    /// Once the trial is ready.
    probes: Option<Probes>,
}

impl Supervisor {
    fn run(mut self, inbox: &Receiver<Event>) {
        while self.turn(inbox.recv_timeout(self.rest())) {}
    }

    /// How long it waits for an event at most.
    pub(crate) fn rest(&self) -> Duration {
        let waits = self.state == State::Preparing
            || self.drain.is_some()
            || !self.abort_replies.is_empty()
            || self.collector.is_waiting();
        if waits { BUSY_TURN } else { IDLE_TURN }
    }

    /// Deals with an event, or with the time that has passed. False: it is over, and nobody will ask again.
    pub(crate) fn turn(&mut self, event: Result<Event, RecvTimeoutError>) -> bool {
        match event {
            Ok(Event::Lane(lane, event)) => self.hear(lane, event),
            Ok(Event::Ask(Ask::Forget(reply))) => {
                if self.state.is_over() {
                    // Before the queue closes, so that whoever finds it closed knows why.
                    self.forgotten.store(true, Ordering::Release);
                    let _ = reply.send(Ok(()));
                    return false;
                }
                let _ = reply.send(Err(self.wrong_state("forgotten", "that is over")));
            }
            Ok(Event::Ask(ask)) => self.answer(ask),
            Err(RecvTimeoutError::Timeout) => {}
            // Lanes and API hold senders, so this is the end of the process.
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        self.look_around();
        true
    }

    /// What happens by itself as time goes by.
    fn look_around(&mut self) {
        let now_ns = monotonic_ns();
        self.collector.assemble_complete(now_ns);
        if self.lanes_ended()
            && !self.collector.is_waiting()
            && let Some(probes) = &mut self.probes
        {
            probes.stop();
        }
        match self.state {
            State::Preparing => self.look_at_readiness(now_ns),
            State::Draining => self.look_at_drain(now_ns),
            _ => {}
        }
        self.look_at_lease(now_ns);
        if let Some(lane) = self.deaf.take()
            && !self.state.is_over()
        {
            self.fail(format!(
                "{lane} has not looked at its last {COMMANDS_MAX} commands"
            ));
        }
        let waited_ns = self.over_ns.map_or(0, |over_ns| now_ns - over_ns);
        if !self.abort_replies.is_empty() && (self.all_is_here() || waited_ns > ABORT_NS_MAX) {
            for reply in std::mem::take(&mut self.abort_replies) {
                let _ = reply.send(Ok(self.status()));
            }
        }
    }

    fn look_at_readiness(&mut self, now_ns: i64) {
        if self.lanes.iter().all(|lane| lane.waker.is_some()) {
            if !self.probing {
                self.probing = true;
                self.tell_all(|| Command::Probe);
            }
            let readiness = self.readiness();
            let probed = self.lanes.iter().all(|lane| {
                lane.progress.probed.load(Ordering::Acquire)
                    && lane.progress.probes_waiting.load(Ordering::Relaxed) == 0
            });
            if probed
                && readiness.assigned >= readiness.partitions
                && readiness.proven >= readiness.partitions
            {
                self.start_probes();
                self.state = State::Ready;
                return;
            }
        }
        if now_ns - self.created_ns > self.plan.ready_timeout_ns {
            let readiness = self.readiness();
            let unacknowledged: u64 = self
                .lanes
                .iter()
                .map(|lane| lane.progress.probes_waiting.load(Ordering::Relaxed))
                .sum();
            self.fail(format!(
                "not ready after {:.1} s: {} of {} partitions assigned, {} proven by a probe message, {unacknowledged} probes not acknowledged",
                self.plan.ready_timeout_ns as f64 / 1e9, readiness.assigned, readiness.partitions, readiness.proven,
            ));
        }
    }

    /// No probe of its own will begin: who simulates them writes on the board, and tells the collector.
    pub(crate) fn leave_probing(&mut self) -> Option<(Arc<Board>, Seen)> {
        let board = self.board.take()?;
        let seen = Seen::nothing(scheduling::cores(), true);
        board.turn_on();
        self.collector.watch(seen.clone());
        Some((board, seen))
    }

    /// Before the start, so that it need not wait for them, and so that they know by then how busy the CPUs are.
    fn start_probes(&mut self) {
        if let Some(board) = &self.board {
            let own = Own::of(BTreeSet::new(), self.plan.endpoint.ports());
            let probes = Probes::start(scheduling::cores(), Arc::clone(board), own);
            self.collector.watch(probes.seen().clone());
            self.probes = Some(probes);
        }
    }

    fn readiness(&self) -> Readiness {
        let all = &self.plan.subscriptions;
        let owned: usize = all.iter().map(|subscription| subscription.partitions).sum();
        let provable: usize = all.iter().map(|subscription| subscription.provable).sum();
        let sum =
            |of: &dyn Fn(&Progress) -> u64| self.lanes.iter().map(|lane| of(&lane.progress)).sum::<u64>();
        let mut readiness = Readiness {
            partitions: owned as u64,
            assigned: sum(&|progress| progress.assigned.load(Ordering::Relaxed)),
            proven: sum(&|progress| progress.proven.load(Ordering::Relaxed)),
        };
        if readiness.assigned >= readiness.partitions {
            // Partitions into which nobody sends here, and those read from the earliest message on, are proven by their position.
            readiness.proven += (owned - provable) as u64;
        }
        if owned == 0 {
            // Producers alone: each partition is proven by the acknowledgement of its probe.
            let probed = self
                .lanes
                .iter()
                .all(|lane| lane.progress.probed.load(Ordering::Acquire));
            let waiting = sum(&|progress| progress.probes_waiting.load(Ordering::Relaxed));
            let probes: usize = self.plan.lanes.iter().map(|lane| lane.probe_slots.len()).sum();
            readiness.partitions = probes as u64;
            readiness.assigned = if probed { probes as u64 } else { 0 };
            readiness.proven = if probed {
                readiness.partitions.saturating_sub(waiting)
            } else {
                0
            };
        }
        readiness.proven = readiness.proven.min(readiness.partitions);
        readiness
    }

    fn look_at_lease(&mut self, now_ns: i64) {
        let silent_ns = now_ns - self.contact_ns;
        match self.state {
            State::Running | State::Draining if silent_ns > self.plan.lease_ns => self.abort(Some(format!(
                "lease expired: the controller was not heard for {:.1} s",
                silent_ns as f64 / 1e9
            ))),
            State::Preparing | State::Ready if silent_ns > UNSTARTED_LEASES * self.plan.lease_ns => {
                self.abort(Some(format!(
                    "lease expired: the trial was not started, and the controller was not heard for {:.1} s",
                    silent_ns as f64 / 1e9
                )));
            }
            _ => {}
        }
    }

    fn look_at_drain(&mut self, now_ns: i64) {
        let Some(drain) = &mut self.drain else { return };
        match self.over_ns {
            None => {
                let seen: Vec<&Progress> = self.lanes.iter().map(|lane| &*lane.progress).collect();
                if drain.look(&seen, &self.paused, now_ns) {
                    self.tell_all(|| Command::End);
                    self.over_ns = Some(now_ns);
                }
            }
            Some(_) if self.all_is_here() => self.conclude(),
            Some(over_ns) if now_ns - over_ns > END_NS_MAX => {
                let stuck: Vec<&str> = self
                    .lanes
                    .iter()
                    .filter(|lane| lane.end.is_none())
                    .map(|lane| lane.name.as_str())
                    .collect();
                let message = format!("{} did not end within 10 s of being told", stuck.join(", "));
                self.fail(message);
            }
            Some(_) => {}
        }
    }

    fn lanes_ended(&self) -> bool {
        self.lanes.iter().all(|lane| lane.end.is_some())
    }

    /// The lanes have ended, and all of their intervals are complete.
    fn all_is_here(&self) -> bool {
        self.lanes_ended() && !self.collector.is_waiting()
    }

    fn hear(&mut self, at: usize, event: LaneEvent) {
        match event {
            LaneEvent::Prepared(waker) => {
                // A lane that was told to end while it prepared finds the command by itself.
                self.lanes[at].waker = Some(waker);
            }
            LaneEvent::Interval(interval) => self.collector.interval(at, interval),
            LaneEvent::Ended(outcome) => {
                self.collector.ended(at);
                let (end, error) = match outcome {
                    Ok(end) => (Some(end), None),
                    Err(error) => (None, Some(error)),
                };
                self.lanes[at].end = Some(end);
                if let Some(error) = error
                    && !self.state.is_over()
                {
                    self.fail(format!("{}: {error}", self.lanes[at].name));
                }
            }
        }
    }

    fn answer(&mut self, ask: Ask) {
        // Before the start, looking at the status is a sign of life as well: that is what a controller does then.
        let renews = match ask {
            Ask::Status(_) => matches!(self.state, State::Preparing | State::Ready),
            _ => true,
        };
        if renews {
            self.contact_ns = monotonic_ns();
        }
        // An answer that nobody waits for any more is dropped.
        match ask {
            Ask::Status(reply) | Ask::Lease(reply) => drop(reply.send(Ok(self.status()))),
            Ask::Start(begin, reply) => drop(reply.send(self.start(begin))),
            Ask::Rate(rate_msgs_s, reply) => drop(reply.send(self.set_rate(rate_msgs_s))),
            Ask::Phase(name, from_ns, reply) => drop(reply.send(self.add_phase(name, from_ns))),
            Ask::Clocks(clocks, reply) => {
                self.tell_all(|| Command::Clocks(Arc::clone(&clocks)));
                drop(reply.send(Ok(self.status())));
            }
            Ask::Stop(at_ns, reply) => drop(reply.send(self.stop(at_ns))),
            Ask::Pause(name, paused, reply) => drop(reply.send(self.pause(&name, paused))),
            Ask::Intervals(since, limit, reply) => {
                let intervals = self.collector.since(since, limit);
                drop(reply.send(Ok((self.collector.next(), intervals))));
            }
            Ask::Counters(reply) => drop(reply.send(self.counters())),
            Ask::Finish(drain_ns, quiet_ns, reply) => self.finish(drain_ns, quiet_ns, reply),
            Ask::Abort(reply) => {
                self.abort(None);
                self.abort_replies.push(reply);
            }
            Ask::Forget(_) => {}
        }
    }

    fn tell_all(&mut self, command: impl Fn() -> Command) {
        for lane in &self.lanes {
            if !lane.tell(command()) && lane.end.is_none() {
                self.deaf.get_or_insert_with(|| lane.name.clone());
            }
        }
    }

    fn wrong_state(&self, what: &str, expected: &str) -> ApiError {
        let why = self
            .error
            .as_ref()
            .map_or(String::new(), |error| format!(" ({error})"));
        ApiError::conflict(format!(
            "the trial is {}{why}: only a trial {expected} can be {what}",
            self.state.name()
        ))
    }

    fn elapsed_ns(&self) -> i64 {
        self.start_ns.map_or(0, |start_ns| monotonic_ns() - start_ns)
    }

    fn counters(&mut self) -> Result<CountersOut, ApiError> {
        if self.lanes.iter().any(|lane| lane.end.is_some()) || self.start_ns.is_none() {
            return Ok(self.counters_out(self.collector.totals(), self.collector.waiting_msgs()));
        }
        let (sender, reports) = std::sync::mpsc::channel();
        self.tell_all(|| Command::Report(sender.clone()));
        drop(sender);
        let mut totals = Counters::default();
        let mut waiting_msgs = 0;
        for _ in &self.lanes {
            let report = reports.recv_timeout(REPORT_WAIT).map_err(|_| {
                ApiError::internal("a lane did not report its counters within 1 s: try again")
            })?;
            totals.add(&report.counters);
            waiting_msgs += report.waiting_msgs;
        }
        Ok(self.counters_out(&totals, waiting_msgs))
    }

    fn counters_out(&self, totals: &Counters, waiting_msgs: u64) -> CountersOut {
        CountersOut::new(totals, totals, waiting_msgs, self.collector.subscriptions())
    }

    fn finish(&mut self, drain_ns: i64, quiet_ns: i64, reply: Reply<Arc<Value>>) {
        match (self.state, &self.result) {
            (State::Finished, Some(result)) => {
                let _ = reply.send(Ok(Arc::clone(result)));
            }
            (State::Draining, _) => self.finish_replies.push(reply),
            (State::Running, _) => {
                self.finish_replies.push(reply);
                let from_ns = self.stop_schedule(None);
                self.tell_all(|| Command::Drain(from_ns));
                self.drain = Some(Drain::new(&self.plan, from_ns, drain_ns, quiet_ns));
                self.state = State::Draining;
            }
            _ => {
                let _ = reply.send(Err(self.wrong_state("finished", "that is running")));
            }
        }
    }

    /// Everything is here: the audit, and the answers to those who wait for it.
    fn conclude(&mut self) {
        let Some(drain) = self.drain.take() else { return };
        let ends: Vec<Box<LaneEnd>> = self
            .lanes
            .iter_mut()
            .filter_map(|lane| lane.end.replace(None)?)
            .collect();
        let untaken_msgs = ends.iter().map(|end| end.untaken_msgs).sum();
        let subscriptions: Vec<SubscriptionEnd<'_>> = self
            .plan
            .subscriptions
            .iter()
            .zip(drain.gave_up())
            .map(|(subscription, gave_up)| SubscriptionEnd {
                name: &subscription.name,
                gave_up,
            })
            .collect();
        let lanes: Vec<Books> = ends.into_iter().map(|end| end.books).collect();
        let samples = self.collector.samples();
        // What other workers sent or received is in their books: only all of them together can be judged.
        let (audit, books) = if self.plan.shared {
            let books = books::export(&lanes, samples, untaken_msgs, self.plan.stamped, &subscriptions);
            (Value::Null, books)
        } else {
            let audit = judgement::audit(lanes, samples, untaken_msgs, self.plan.stamped, &subscriptions);
            (audit, Value::Null)
        };
        let totals = self.counters_out(self.collector.totals(), self.collector.waiting_msgs());
        self.state = State::Finished;
        let status = self.status();
        let result = Arc::new(json!({
            "state": State::Finished,
            "totals": totals,
            "drained": drain.is_drained(),
            "drain_s": drain.lasted_ns() as f64 / 1e9,
            "start_unix_ns": self.start_unix_ns,
            "start_ns": self.start_ns.map(shown_ns),
            "stopped_s": self.stop_ns.map(|stop_ns| stop_ns as f64 / 1e9),
            "audit": audit,
            "books": books,
            "lanes": status.lanes,
            "probes": status.probes,
            "client": self.client,
            "cannot": self.cannot,
        }));
        self.result = Some(Arc::clone(&result));
        for reply in std::mem::take(&mut self.finish_replies) {
            let _ = reply.send(Ok(Arc::clone(&result)));
        }
    }

    fn fail(&mut self, error: String) {
        self.end_early(State::Failed, Some(error));
    }

    fn abort(&mut self, error: Option<String>) {
        if !self.state.is_over() {
            self.end_early(State::Aborted, error);
        }
    }

    fn end_early(&mut self, state: State, error: Option<String>) {
        self.state = state;
        self.error = error;
        self.drain = None;
        self.over_ns = Some(monotonic_ns());
        self.tell_all(|| Command::End);
        for reply in std::mem::take(&mut self.finish_replies) {
            let _ = reply.send(Err(self.wrong_state("finished", "that is running")));
        }
    }

    fn status(&self) -> Status {
        let lane = |lane: &Lane| LaneStatus {
            name: lane.name.clone(),
            role: lane.role,
            scheduling: lane.progress.scheduling(),
            cpu_s: lane.progress.cpu_ns.load(Ordering::Relaxed) as f64 / 1e9,
        };
        Status {
            id: self.id.clone(),
            state: self.state,
            error: self.error.clone(),
            readiness: self.readiness(),
            start_ns: self.start_ns.map(shown_ns),
            start_unix_ns: self.start_unix_ns,
            elapsed_s: self.start_ns.map(|_| self.elapsed_ns() as f64 / 1e9),
            next_interval: self.collector.next(),
            audit_enabled: self.plan.stamped,
            client: self.client,
            cannot: self.cannot.clone(),
            lanes: self.lanes.iter().map(lane).collect(),
            probes: self.probes.as_ref().map(Probes::status),
            lease_s: self.plan.lease_ns as f64 / 1e9,
        }
    }
}
