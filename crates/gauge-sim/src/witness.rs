//! A client with somebody who looks on: which turn of the lane it is, and when messages are taken. It changes nothing.

use std::rc::Rc;
use std::sync::Arc;

use gauge_client::{Admin, ClientError, Endpoint, LaneClient, LaneSpec, Offer, Patience, Protocol, Waker};
use gauge_load::clock::simulated;
use gauge_load::{Emitter, Observer};

use crate::marks::Mark;
use crate::net::Sim;
use crate::system::System;
use crate::truth::Taken;

/// A reading of the clock takes less.
const ASKED_NS: i64 = 10_000;

/// A protocol, looked at.
struct Witnessed(&'static dyn Protocol);

/// The world as the witness needs it.
pub trait Looks {
    /// Who reads what, by the spec of the lane.
    fn learn_consumers(&self, spec: &LaneSpec);

    /// When the turn began by the lane's reading, which decides to which interval it belongs. Some: a new one begins.
    fn turn(&self, begins_ns: Option<i64>) -> i64;

    /// Now and then the lane is without its CPU for a while.
    fn lose_cpu(&self);

    /// The client did what no client may do.
    fn offend(&self, what: String);

    /// Something happened that a swarm must come to.
    fn mark(&self, mark: Mark);

    /// See [`Truth::is_given_up`](crate::truth::Truth::is_given_up).
    fn gives_up(&self);

    /// Messages were taken.
    fn took(&self, producer: u32, messages: u64, taken: Taken);

    /// See [`Truth::held`](crate::truth::Truth::held).
    fn held(&self, producer: u32, earliest_ns: i64, latest_ns: i64);

    /// See [`Truth::released`](crate::truth::Truth::released).
    fn released(&self, producer: u32, now_ns: i64);
}

impl<S: System> Looks for Sim<S> {
    fn learn_consumers(&self, spec: &LaneSpec) {
        self.world.borrow_mut().learn_consumers(spec);
    }

    fn turn(&self, begins_ns: Option<i64>) -> i64 {
        let mut world = self.world.borrow_mut();
        if let Some(begins_ns) = begins_ns {
            world.turn_ns = begins_ns;
        }
        world.turn_ns
    }

    fn lose_cpu(&self) {
        let Some(until_ns) = self.world.borrow_mut().away_until_ns() else {
            return;
        };
        while self.step(until_ns) {}
        let now_ns = self.world.borrow().now_ns();
        simulated::advance_to(until_ns.max(now_ns));
    }

    fn offend(&self, what: String) {
        self.world.borrow_mut().truth.offend(|| what);
    }

    fn mark(&self, mark: Mark) {
        self.world.borrow_mut().marks.set(mark);
    }

    fn gives_up(&self) {
        self.world.borrow_mut().truth.is_given_up = true;
    }

    fn took(&self, producer: u32, messages: u64, taken: Taken) {
        self.world.borrow_mut().took(producer, messages, taken);
    }

    fn held(&self, producer: u32, earliest_ns: i64, latest_ns: i64) {
        let mut world = self.world.borrow_mut();
        world.truth.held(producer, earliest_ns, latest_ns);
    }

    fn released(&self, producer: u32, now_ns: i64) {
        self.world.borrow_mut().truth.released(producer, now_ns);
    }
}

thread_local! {
    static SIM: std::cell::RefCell<Option<Rc<dyn Looks>>> = const { std::cell::RefCell::new(None) };
}

/// From now on what this thread's clients do is told to that world.
pub fn tell(sim: Option<Rc<dyn Looks>>) {
    SIM.set(sim);
}

impl Protocol for Witnessed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn client_name(&self) -> &'static str {
        self.0.client_name()
    }

    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError> {
        self.0.check(endpoint, spec)
    }

    fn lane(&self, endpoint: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        let sim = SIM
            .with_borrow(Clone::clone)
            .ok_or_else(|| ClientError::system("there is no world"))?;
        sim.learn_consumers(&spec);
        Ok(Box::new(Lane {
            is_held: vec![false; spec.producers.len()],
            linger_ns: spec.batch.linger_ns,
            batch_bytes: spec.batch.bytes,
            client: self.0.lane(endpoint, spec)?,
            sim,
            is_new_turn: true,
        }))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        self.0.admin(endpoint)
    }
}

/// The protocol as the worker takes it.
pub fn protocol(client: &'static dyn Protocol) -> Arc<dyn Protocol> {
    Arc::new(Witnessed(client))
}

struct Lane {
    client: Box<dyn LaneClient>,
    sim: Rc<dyn Looks>,
    /// The lane has waited since it called last: its next call begins a turn.
    is_new_turn: bool,
    /// For how long messages may wait in their batch.
    linger_ns: i64,
    batch_bytes: usize,
    /// Per producer: it has found no room.
    is_held: Vec<bool>,
}

impl Lane {
    /// What was left until the time that was planned must fit into a batch: otherwise one was full before.
    fn watch_patience(&self, mut before: Emitter, until: u64, now_ns: i64) {
        let (planned_ns, first) = (before.planned_ns(), before.sequence());
        let (mut msgs, mut bytes) = (0, 0);
        while before.sequence() < until
            && let Some(departure) = before.take(i64::MAX)
            && departure.stamp.intended_ns < planned_ns.min(now_ns)
        {
            msgs += 1;
            bytes += departure.payload_bytes();
        }
        if msgs > 1 && bytes > self.batch_bytes {
            self.sim.offend(format!(
                "{msgs} messages of {bytes} bytes from {first} on were left until {planned_ns}, and a batch holds {} bytes",
                self.batch_bytes
            ));
        }
        if msgs > 0 {
            self.sim.mark(Mark::Left);
        }
    }

    /// Follows for how long a producer finds no room while something is due, which an offer tells that lasted from `now_ns` to `until_ns`.
    fn watch_room(&self, emitter: &Emitter, offer: Offer, messages: u64, now_ns: i64, until_ns: i64) {
        if emitter.is_closed_loop() {
            return;
        }
        if messages > 0 {
            self.sim.released(emitter.producer(), now_ns);
        }
        // The lane reads the clock once more before it asks what is due.
        if let Some(due_ns) = emitter.next_due_ns()
            && offer == Offer::Full
            && due_ns <= until_ns + ASKED_NS
        {
            let is_sure = due_ns <= now_ns;
            let latest_ns = if is_sure { until_ns + ASKED_NS } else { i64::MAX };
            self.sim.held(emitter.producer(), due_ns, latest_ns);
        }
    }

    fn turn(&mut self, now_ns: i64) -> i64 {
        let is_new = std::mem::take(&mut self.is_new_turn);
        self.sim.turn(is_new.then_some(now_ns))
    }
}

impl LaneClient for Lane {
    fn prepare(&mut self, observer: &mut Observer, deadline_ns: i64) -> Result<(), ClientError> {
        self.client.prepare(observer, deadline_ns)
    }

    fn assigned(&self) -> usize {
        self.client.assigned()
    }

    fn send_probes(&mut self, slots: &[usize]) {
        self.client.send_probes(slots);
    }

    fn probes_waiting(&self) -> usize {
        self.client.probes_waiting()
    }

    fn offer(
        &mut self,
        producer: usize,
        emitter: &mut Emitter,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Offer {
        let turn_ns = self.turn(now_ns);
        let first = emitter.sequence();
        let planned_ns = emitter.planned_ns();
        if let Some(due_ns) = emitter.next_due_ns()
            && due_ns <= now_ns
            && planned_ns > due_ns + self.linger_ns
            && !emitter.is_closed_loop()
        {
            self.sim.offend(format!(
                "a message that was due at {due_ns} was to be taken at {planned_ns}, and its batch lingers for {} ns",
                self.linger_ns
            ));
        }
        let before = (planned_ns > i64::MIN && !emitter.is_closed_loop()).then(|| emitter.clone());
        let offer = self.client.offer(producer, emitter, observer, now_ns);
        if let Some(before) = before {
            self.watch_patience(before, emitter.sequence(), now_ns);
        }
        let until_ns = simulated::now_ns().unwrap_or(now_ns);
        let messages = emitter.sequence() - first;
        self.is_held[producer] |= offer == Offer::Full;
        self.watch_room(emitter, offer, messages, now_ns, until_ns);
        if messages > 0 {
            let taken = Taken {
                planned_ns,
                is_held: self.is_held[producer],
                from_ns: now_ns,
                until_ns: until_ns.max(now_ns),
                turn_ns,
            };
            self.sim.took(emitter.producer(), messages, taken);
        }
        offer
    }

    fn patience(&self, producer: usize, emitter: &Emitter) -> Option<Patience> {
        self.client.patience(producer, emitter)
    }

    fn drive(&mut self, observer: &mut Observer, now_ns: i64) -> Result<bool, ClientError> {
        self.turn(now_ns);
        self.sim.lose_cpu();
        let more = self.client.drive(observer, now_ns)?;
        self.client.check();
        Ok(more)
    }

    fn check(&self) {
        self.client.check();
    }

    fn next_deadline_ns(&self) -> i64 {
        self.client.next_deadline_ns()
    }

    fn wait(&mut self, until_ns: i64) {
        self.client.wait(until_ns);
        self.is_new_turn = true;
    }

    fn waker(&self) -> Waker {
        self.client.waker()
    }

    fn flush(&mut self) {
        self.client.flush();
    }

    fn waiting_msgs(&self) -> u64 {
        self.client.waiting_msgs()
    }

    fn pause(&mut self, subscription: usize, paused: bool) {
        self.client.pause(subscription, paused);
    }

    fn caught_up(&self, subscription: usize) -> bool {
        self.client.caught_up(subscription)
    }

    fn abandon(&mut self, observer: &mut Observer) {
        self.sim.gives_up();
        self.client.abandon(observer);
    }
}
