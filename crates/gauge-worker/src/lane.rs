//! A lane: the thread that owns a client, its producers and consumers, and their part of the schedule.
//!
//! # The loop
//!
//! What is due is offered to the client, the client is driven, and the lane sleeps until the next thing happens: a socket is ready, the
//! client has a deadline (linger, retries, timeouts), an interval ends, the schedule has something to send. A wake-up costs far more than a
//! message, so a message that is due and would only wait in its batch wakes nobody: the lane is awake again when the batch must
//! leave, because its first message has lingered or because it is full, and both are known beforehand ([`Patience`]). Such a message counts
//! as handed over when it was due, and late by as much as the lane wakes up after the time that it had planned. Where messages
//! leave at once, the schedule wakes the lane at most once per quantum, and what became due meanwhile leaves together, late by what it has waited.
//! Every other wake-up takes along what is due.
//!
//! # Clock readings
//!
//! `now` is read once at the top of each turn, after the sleep and before the lane looks for commands; what is offered in that turn is handed
//! over then, until the client reads the clock again (every 100 us while it works). So a lane that is without its CPU for a while, wherever that
//! is, does not act at a time of whose commands it has not heard: what changes the load is told 10 ms before it does. Acknowledgements and
//! receipts are timed by the client when it has read their bytes. Nothing is timed by the interval boundaries: they only cut the counters.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError};

use gauge_client::{Acks, ClientError, Endpoint, LaneClient, Offer, Patience, Protocol, world};
use gauge_load::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
use gauge_load::mutants::{self, Mutant};
use gauge_load::quiet::Board;
use gauge_load::{Counters, Emitter, Observer, Received, Tally};

use crate::handle::Event;
use crate::link::{Command, LaneEnd, LaneEvent, LaneInterval, Progress, Report};
use crate::plan::LanePlan;
use crate::processing::Processing;
use crate::scheduling::{self, Guard};

/// How long a lane whose producers are held may sleep without looking for room again, although nothing told it to.
const HELD_LOOK_NS: i64 = 10_000_000;
/// The lane is awake again when so many messages of a producer are due, although their batch could wait for more: taking them takes
/// time, which the last of them, and the batch, would be late by.
const PATIENCE_MSGS_MAX: u64 = 256;
/// How long an idle lane sleeps at most: then it looks for commands, should a wake-up have been lost.
const IDLE_NS: i64 = 100_000_000;
/// How long the end waits for the probes to look past the last answers: for a millisecond or two, unless a CPU is away.
const DECIDE_NS_MAX: i64 = 500_000_000;
/// Messages that were due and never taken are counted up to here, which takes about a second.
const UNTAKEN_MAX: u64 = 50_000_000;

/// Everything a lane is born with.
pub struct LaneContext {
    /// Its number.
    pub index: usize,
    /// What it does.
    pub plan: LanePlan,
    /// The trial's number.
    pub run: u32,
    /// Number of subscriptions of the trial.
    pub subscriptions: usize,
    /// Subscriptions that are held until the start.
    pub held_subscriptions: Vec<usize>,
    /// Partitions of all topics.
    pub slots: usize,
    /// Whether messages carry stamps.
    pub stamped: bool,
    /// The producers whose messages' end-to-end latency is measured here; None: all.
    pub measured: Option<Arc<[u32]>>,
    /// Length of an interval.
    pub interval_ns: i64,
    /// The shortest time between two wake-ups for messages that are due.
    pub quantum_ns: i64,
    /// Whether it may ask for real-time scheduling.
    pub realtime: bool,
    /// How long the client may take to prepare.
    pub prepare_until_ns: i64,
    /// The protocol.
    pub protocol: Arc<dyn Protocol>,
    /// The system.
    pub endpoint: Endpoint,
    /// Commands; looked at in every turn.
    pub commands: Receiver<Command>,
    /// Empty tallies, to be used again.
    pub spares: Receiver<Tally>,
    /// Where events go, with the lane's number.
    pub events: SyncSender<Event>,
    /// What others see.
    pub progress: Arc<Progress>,
    /// Where the probes write, if there are to be any.
    pub board: Option<Arc<Board>>,
}

/// The lane's thread.
pub fn run(context: LaneContext) {
    let (index, events) = (context.index, context.events.clone());
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live(context)));
    let outcome = outcome.unwrap_or_else(|_| {
        Err(ClientError::system(
            "a lane of the worker panicked: a fault of the worker, see its standard error",
        ))
    });
    // When the supervisor is gone, nobody is interested.
    let _ = events.send(Event::Lane(index, LaneEvent::Ended(outcome)));
}

fn live(context: LaneContext) -> Result<Box<LaneEnd>, ClientError> {
    scheduling::exact_timers();
    let pinned = context.plan.pin_to.and_then(scheduling::pin);
    let mut client = context
        .protocol
        .lane(&context.endpoint, context.plan.spec.clone())?;
    let producers: Vec<u32> = context
        .plan
        .spec
        .producers
        .iter()
        .map(|producer| producer.id)
        .collect();
    let mut observer = Observer::new(
        context.run,
        context.stamped,
        &producers,
        context.subscriptions,
        context.slots,
    );
    observer.lay_out(context.plan.spec.topics.iter().map(|topic| topic.partitions));
    if let Some(producers) = &context.measured {
        observer.measure_only(producers);
    }
    if context.plan.spec.acks == Acks::None {
        observer.expect_no_answers();
    }
    client.prepare(&mut observer, context.prepare_until_ns)?;
    for &subscription in &context.held_subscriptions {
        client.pause(subscription, true);
    }
    let _ = context
        .events
        .send(Event::Lane(context.index, LaneEvent::Prepared(client.waker())));
    let emitters: Vec<Emitter> = context.plan.emitters.iter().map(Emitter::new).collect();
    let lane = Lane {
        due_ns: vec![i64::MAX; emitters.len()],
        wanted_ns: vec![i64::MAX; emitters.len()],
        held_since_ns: vec![None; emitters.len()],
        client,
        observer,
        emitters,
        guard: Guard::normal(),
        pinned,
        totals: Counters::default(),
        unsent: None,
        spares: Vec::new(),
        start_ns: i64::MAX,
        is_holding: !context.held_subscriptions.is_empty(),
        boundary_ns: i64::MAX,
        interval: 0,
        drain_ns: i64::MAX,
        draining: false,
        paused: vec![false; context.subscriptions],
        processing: Processing::new(&context.plan.paces),
        offered_ns: 0,
        planned_ns: i64::MIN,
        context,
    };
    lane.run().map(Box::new)
}

struct Lane {
    context: LaneContext,
    client: Box<dyn LaneClient>,
    observer: Observer,
    emitters: Vec<Emitter>,
    /// Per producer: when its next message is due; `i64::MAX` when there is none. Side by side, so that a thousand are looked through quickly.
    due_ns: Vec<i64>,
    /// Per producer: when the lane wants to be awake for it at the latest, as far as its schedule is concerned: later than its next message is due
    /// where messages can wait.
    wanted_ns: Vec<i64>,
    /// Per producer: since when the client has had no room for what is due.
    held_since_ns: Vec<Option<i64>>,
    guard: Guard,
    pinned: Option<usize>,
    /// Counters of the tallies that were handed over.
    totals: Counters,
    /// An interval that found the supervisor's queue full.
    unsent: Option<Box<LaneInterval>>,
    spares: Vec<Tally>,
    start_ns: i64,
    /// It has subscriptions that wait for the start.
    is_holding: bool,
    boundary_ns: i64,
    /// Index of the interval that is running.
    interval: u64,
    /// From when on it drains.
    drain_ns: i64,
    draining: bool,
    /// Per subscription: the controller has paused it.
    paused: Vec<bool>,
    processing: Processing,
    /// When the schedule was looked at last.
    offered_ns: i64,
    /// When the lane wanted to be awake again, when it looked last.
    planned_ns: i64,
}

impl Lane {
    fn run(mut self) -> Result<LaneEnd, ClientError> {
        self.show_readiness();
        while let Some(now_ns) = self.obey() {
            if self.is_holding && now_ns >= self.start_ns {
                self.release();
            }
            if now_ns >= self.drain_ns && !self.draining {
                self.drain();
            }
            if now_ns >= self.boundary_ns && !mutants::is(Mutant::IntervalCutLate) {
                self.cut(now_ns);
            }
            let more = match self.turn(now_ns) {
                Ok(Some(more)) => more,
                Ok(None) => break,
                Err(error) => {
                    // What was measured until then is kept.
                    self.end();
                    return Err(error);
                }
            };
            if now_ns >= self.boundary_ns && mutants::is(Mutant::IntervalCutLate) {
                self.cut(now_ns);
            }
            self.observer.decide(now_ns);
            if !self.processing.is_none() {
                self.process();
            }
            if self.start_ns == i64::MAX {
                self.show_readiness();
            } else if self.draining {
                self.show_progress();
            }
            let elapsed_ns = now_ns.saturating_sub(self.start_ns).max(0);
            if self.guard.watch(now_ns, elapsed_ns) {
                self.show_scheduling();
            }
            // Who has more to do goes on, and what was planned before stays planned.
            let mut until_ns = now_ns;
            if !more {
                until_ns = self.plan(now_ns);
                self.observer.waits();
            }
            self.client.wait(until_ns);
        }
        Ok(self.end())
    }

    /// Charges slow consumers with what has come, and lets those fetch again who are done with it.
    fn process(&mut self) {
        let (totals, now) = (&self.totals.received, &self.observer.counters().received);
        let received = |subscription: usize| {
            let sum = |count: fn(&Received) -> u64| {
                totals.get(subscription).map_or(0, count) + now.get(subscription).map_or(0, count)
            };
            (sum(|one| one.msgs), sum(|one| one.fetches))
        };
        let (client, paused) = (&mut self.client, &self.paused);
        self.processing
            .look(monotonic_ns(), received, |subscription, is_busy| {
                client.pause(subscription, is_busy || paused[subscription]);
            });
    }

    /// One turn: offer, drive, and once more for those who were held when driving made room. Returns whether there is more to do at once; None: the
    /// lane ends.
    fn turn(&mut self, now_ns: i64) -> Result<Option<bool>, ClientError> {
        let mut more = self.offer_due(now_ns, false);
        more |= self.client.drive(&mut self.observer, now_ns)?;
        if self.held_since_ns.iter().any(Option::is_some) {
            let Some(now_ns) = self.obey() else {
                return Ok(None);
            };
            let sent_before = self.observer.counters().sent_msgs;
            more |= self.offer_due(now_ns, true);
            if self.observer.counters().sent_msgs != sent_before {
                more |= self.client.drive(&mut self.observer, now_ns)?;
            }
        }
        Ok(Some(more))
    }

    /// Offers what is due, of all producers or of the held ones alone. Returns whether more is due that the client would take.
    fn offer_due(&mut self, now_ns: i64, held_only: bool) -> bool {
        let mut more = false;
        self.offered_ns = now_ns;
        for at in 0..self.due_ns.len() {
            if self.due_ns[at] > now_ns || (held_only && self.held_since_ns[at].is_none()) {
                continue;
            }
            let emitter = &mut self.emitters[at];
            let sequence = emitter.sequence();
            emitter.expect(self.planned_ns.min(self.wanted_ns[at]));
            let offer = self.client.offer(at, emitter, &mut self.observer, now_ns);
            if emitter.is_closed_loop() {
                more |= offer != Offer::Full;
                if emitter.has_ended(now_ns) {
                    (self.due_ns[at], self.wanted_ns[at]) = (i64::MAX, i64::MAX);
                }
                continue;
            }
            // Time in which nothing was taken ends with the first message that is.
            if emitter.sequence() != sequence
                && let Some(since_ns) = self.held_since_ns[at].take()
            {
                self.observer.backpressured(now_ns - since_ns);
            }
            self.due_ns[at] = emitter.next_due_ns().unwrap_or(i64::MAX);
            if offer == Offer::Full {
                // The client may have worked for a while, so the clock is read again: what it took of that time is not back-pressure.
                if let Some(from_ns) = emitter.hold(monotonic_ns()) {
                    self.held_since_ns[at].get_or_insert(from_ns);
                }
            }
            // What was left, for want of room or of time, is to be taken as soon as that is there, whatever was planned.
            let has_more = offer == Offer::More && self.due_ns[at] <= now_ns;
            let is_left = self.held_since_ns[at].is_some() || has_more;
            self.wanted_ns[at] = match is_left {
                true => i64::MIN,
                false => wanted_ns(self.client.as_ref(), at, emitter, self.due_ns[at]),
            };
            more |= offer == Offer::More;
        }
        more
    }

    /// When the lane must be awake again; what is late then is late against this plan.
    fn plan(&mut self, now_ns: i64) -> i64 {
        let mut wanted_ns = i64::MAX;
        let mut held = false;
        for (wanted, held_since) in self.wanted_ns.iter().zip(&self.held_since_ns) {
            // For a held producer, room is what it waits for, and room comes with a socket.
            if held_since.is_none() {
                wanted_ns = wanted_ns.min(*wanted);
            } else {
                held = true;
            }
        }
        let others_ns = self
            .client
            .next_deadline_ns()
            .min(self.processing.next_ns())
            .min(self.boundary_ns)
            .min(if self.is_holding { self.start_ns } else { i64::MAX })
            .min(if self.draining { i64::MAX } else { self.drain_ns })
            .min(now_ns + if held { HELD_LOOK_NS } else { IDLE_NS });
        self.planned_ns = wanted_ns.min(others_ns);
        let closed = self.context.plan.spec.closed_loop && wanted_ns <= now_ns;
        let schedule_ns = if closed {
            now_ns + HELD_LOOK_NS
        } else {
            wanted_ns.max(self.offered_ns + self.context.quantum_ns)
        };
        schedule_ns.min(others_ns)
    }

    /// Carries out the commands that have come. Returns a time, of which all are carried out that were sent before; None: the lane ends, also when the
    /// supervisor is gone.
    fn obey(&mut self) -> Option<i64> {
        let mut now_ns = monotonic_ns();
        loop {
            match self.context.commands.try_recv() {
                Ok(Command::End) | Err(TryRecvError::Disconnected) => return None,
                Ok(command) => {
                    self.obey_one(command);
                    now_ns = monotonic_ns();
                }
                Err(TryRecvError::Empty) => return Some(now_ns),
            }
        }
    }

    fn obey_one(&mut self, command: Command) {
        match command {
            Command::Probe => {
                self.client.send_probes(&self.context.plan.probe_slots);
                self.show_readiness();
                self.context.progress.probed.store(true, Ordering::Release);
            }
            Command::Start { start_ns, phases } => self.start(start_ns, &phases),
            Command::Rate { at_ns, rate_msgs_s } => {
                self.emitters
                    .iter_mut()
                    .for_each(|emitter| emitter.set_rate(at_ns, rate_msgs_s));
                self.look_up_due();
            }
            Command::Phases(phases) => self.observer.set_phases(&phases),
            Command::Clocks(clocks) => self.observer.set_clocks(clocks),
            Command::Stop(at_ns) => {
                self.emitters
                    .iter_mut()
                    .for_each(|emitter| emitter.stop_at(at_ns));
                self.look_up_due();
            }
            Command::Pause(subscription, paused) => self.pause(subscription, paused),
            Command::Report(reply) => {
                // Nobody may be waiting for it any more.
                let _ = reply.send(self.report());
            }
            Command::Drain(from_ns) => self.drain_ns = from_ns,
            Command::End => {}
        }
    }

    fn drain(&mut self) {
        self.draining = true;
        self.client.flush();
        self.look_up_due();
        self.show_progress();
        self.context.progress.draining.store(true, Ordering::Release);
    }

    fn start(&mut self, start_ns: i64, phases: &[i64]) {
        self.observer.start(start_ns);
        self.observer.set_phases(phases);
        if let Some(board) = self.context.board.as_ref().filter(|board| board.is_on()) {
            self.observer.watch(Arc::clone(board), self.context.index);
        }
        self.emitters
            .iter_mut()
            .for_each(|emitter| emitter.start(start_ns));
        self.look_up_due();
        self.start_ns = start_ns;
        self.boundary_ns = start_ns + self.context.interval_ns;
        if self.context.realtime {
            self.guard.raise();
        }
        self.show_scheduling();
    }

    /// The load begins: what was held is read.
    fn release(&mut self) {
        self.is_holding = false;
        for &subscription in &self.context.held_subscriptions {
            self.client.pause(subscription, self.paused[subscription]);
        }
    }

    fn pause(&mut self, subscription: usize, paused: bool) {
        self.paused[subscription] = paused;
        let held = self.is_holding && self.context.held_subscriptions.contains(&subscription);
        let is_busy = self.processing.is_pausing(subscription);
        self.client.pause(subscription, paused || held || is_busy);
    }

    fn look_up_due(&mut self) {
        for (at, emitter) in self.emitters.iter().enumerate() {
            self.due_ns[at] = emitter.next_due_ns().unwrap_or(i64::MAX);
            // What was left to be taken as soon as possible still is, if it is due at all.
            let is_left = self.wanted_ns[at] == i64::MIN && self.due_ns[at] < i64::MAX;
            if self.held_since_ns[at].is_none() && !is_left {
                self.wanted_ns[at] = wanted_ns(self.client.as_ref(), at, emitter, self.due_ns[at]);
            }
        }
    }

    /// Hands over what was seen in the interval that is over. Without a tally to go on with, or with a full queue, the interval is
    /// handed over together with the next one: nothing is lost, and the lane does not wait.
    fn cut(&mut self, now_ns: i64) {
        let over = (now_ns - self.boundary_ns) / self.context.interval_ns + 1;
        self.boundary_ns += over * self.context.interval_ns;
        let last = self.running_interval() - 1;
        self.charge_holds(now_ns);
        if let Some(unsent) = self.unsent.take() {
            self.hand_over(unsent);
        }
        self.spares.extend(self.context.spares.try_iter());
        if self.unsent.is_some() {
            return;
        }
        let Some(empty) = self.spares.pop() else {
            return;
        };
        let interval = self.swap(now_ns, last, empty);
        self.interval = last + 1;
        self.hand_over(interval);
    }

    /// Index of the interval that ends at the next boundary.
    fn running_interval(&self) -> u64 {
        ((self.boundary_ns - self.start_ns) / self.context.interval_ns - 1).unsigned_abs()
    }

    fn swap(&mut self, now_ns: i64, last: u64, empty: Tally) -> Box<LaneInterval> {
        self.observer.decide_now(now_ns);
        let tally = self.observer.swap(empty);
        self.totals.add(&tally.counters);
        let lane_cpu_ns = thread_cpu_ns();
        self.context
            .progress
            .cpu_ns
            .store(lane_cpu_ns.unsigned_abs(), Ordering::Relaxed);
        Box::new(LaneInterval {
            first: self.interval,
            last,
            tally,
            until_ns: now_ns,
            waiting_msgs: self.client.waiting_msgs(),
            lane_cpu_ns,
            process_cpu_ns: (self.context.index == 0).then(process_cpu_ns),
        })
    }

    fn hand_over(&mut self, interval: Box<LaneInterval>) {
        let event = Event::Lane(self.context.index, LaneEvent::Interval(interval));
        // Sent, or nobody is there to receive it, or kept for the next time.
        if let Err(TrySendError::Full(Event::Lane(_, LaneEvent::Interval(interval)))) =
            self.context.events.try_send(event)
        {
            self.unsent = Some(interval);
        }
    }

    /// Enters the time for which producers have been held so far, so that each interval has its own part of it.
    fn charge_holds(&mut self, now_ns: i64) {
        for since_ns in self.held_since_ns.iter_mut().flatten() {
            self.observer.backpressured(now_ns - *since_ns);
            *since_ns = now_ns;
        }
    }

    fn report(&self) -> Report {
        let mut counters = self.totals.clone();
        counters.add(self.observer.counters());
        Report {
            counters,
            waiting_msgs: self.client.waiting_msgs(),
        }
    }

    fn show_readiness(&self) {
        let progress = &self.context.progress;
        let proven: u64 = self.observer.proven().iter().copied().map(u64::from).sum();
        progress
            .assigned
            .store(self.client.assigned() as u64, Ordering::Relaxed);
        progress.proven.store(proven, Ordering::Relaxed);
        progress
            .probes_waiting
            .store(self.client.probes_waiting() as u64, Ordering::Relaxed);
    }

    fn show_progress(&self) {
        let progress = &self.context.progress;
        let now = self.observer.counters();
        let now_ns = monotonic_ns();
        for (subscription, received) in progress.received_msgs.iter().enumerate() {
            let of = |counters: &Counters| {
                counters
                    .received
                    .get(subscription)
                    .map_or(0, |received| received.msgs)
            };
            received.store(of(&self.totals) + of(now), Ordering::Relaxed);
            progress.unique_msgs[subscription]
                .store(self.observer.unique_msgs(subscription), Ordering::Relaxed);
            progress.caught_up[subscription].store(self.client.caught_up(subscription), Ordering::Relaxed);
        }
        let acked_msgs = self.totals.acked_msgs + now.acked_msgs;
        progress.acked_msgs.store(acked_msgs, Ordering::Relaxed);
        progress
            .retries
            .store(self.totals.retries + now.retries, Ordering::Relaxed);
        progress.ended_msgs.store(
            acked_msgs + self.totals.failed_msgs + now.failed_msgs,
            Ordering::Relaxed,
        );
        let over = self.emitters.iter().all(|emitter| emitter.has_ended(now_ns));
        progress
            .waiting_msgs
            .store(self.client.waiting_msgs(), Ordering::Relaxed);
        progress.schedule_over.store(over, Ordering::Release);
    }

    fn show_scheduling(&self) {
        let mut text = self.guard.description().to_owned();
        if let Some(core) = self.pinned {
            text = format!("{text}, core {core}");
        }
        self.context.progress.set_scheduling(&text);
    }

    /// The end: what still waits is given up, the last interval handed over, the books closed. Not paced any more, so it may block.
    fn end(mut self) -> LaneEnd {
        self.guard.lower();
        let now_ns = monotonic_ns();
        // What was left to be taken later was not kept out by the system.
        while !self.context.plan.spec.closed_loop && self.offer_due(now_ns, false) {}
        self.charge_holds(now_ns);
        let untaken_msgs = self
            .emitters
            .iter()
            .map(|emitter| emitter.untaken_msgs(now_ns, UNTAKEN_MAX))
            .sum();
        self.client.abandon(&mut self.observer);
        for emitter in &self.emitters {
            self.observer
                .close_producer(emitter.producer(), emitter.sequence());
        }
        if self.start_ns != i64::MAX {
            self.decide_rest(now_ns);
            self.hand_over_last(now_ns);
        }
        LaneEnd {
            books: self.observer.into_books(),
            untaken_msgs,
        }
    }

    /// Waits until the probes have looked past the last answers, so that they need not count as disturbed.
    fn decide_rest(&mut self, now_ns: i64) {
        while !self.observer.decide_now(now_ns) && monotonic_ns() < now_ns + DECIDE_NS_MAX {
            world::sleep(1_000_000);
        }
        self.observer.decide_rest();
    }

    fn hand_over_last(&mut self, now_ns: i64) {
        let beyond = (now_ns - self.boundary_ns)
            .max(-1)
            .div_euclid(self.context.interval_ns)
            + 1;
        let last = self.running_interval() + beyond.unsigned_abs();
        let interval = self.swap(now_ns, last, Tally::default());
        for interval in self.unsent.take().into_iter().chain([interval]) {
            // When the supervisor is gone, nobody is interested.
            let _ = self
                .context
                .events
                .send(Event::Lane(self.context.index, LaneEvent::Interval(interval)));
        }
    }
}

/// When the lane must look at a producer's schedule again whose next message is due at `due_ns`.
fn wanted_ns(client: &dyn LaneClient, at: usize, emitter: &Emitter, due_ns: i64) -> i64 {
    if due_ns == i64::MAX || emitter.is_closed_loop() {
        return due_ns;
    }
    let Some(Patience { linger_ns, room_msgs }) = client.patience(at, emitter) else {
        return due_ns;
    };
    let (linger_ns, room_msgs) = if mutants::is(Mutant::PatienceTooLong) {
        (2 * linger_ns, room_msgs)
    } else if mutants::is(Mutant::FullBatchOverlooked) {
        (linger_ns, u64::MAX)
    } else {
        (linger_ns, room_msgs)
    };
    due_ns
        .saturating_add(linger_ns)
        .min(emitter.earliest_ns(room_msgs.min(PATIENCE_MSGS_MAX)))
}
