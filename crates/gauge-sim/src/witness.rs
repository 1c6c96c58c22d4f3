//! The Kafka client with somebody who looks on: which turn of the lane it is, and when messages are taken. It changes nothing.

use std::rc::Rc;
use std::sync::Arc;

use gauge_client::{Admin, ClientError, Endpoint, LaneClient, LaneSpec, Offer, Protocol, Waker};
use gauge_load::clock::simulated;
use gauge_load::{Emitter, Observer};

use crate::net::Sim;
use crate::truth::Taken;

/// The Kafka protocol, looked at.
pub struct Witnessed;

thread_local! {
    static SIM: std::cell::RefCell<Option<Rc<Sim>>> = const { std::cell::RefCell::new(None) };
}

/// From now on what this thread's clients do is told to that world.
pub fn tell(sim: Option<Rc<Sim>>) {
    SIM.set(sim);
}

impl Protocol for Witnessed {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn client_name(&self) -> &'static str {
        gauge_client::kafka::Kafka.client_name()
    }

    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError> {
        gauge_client::kafka::Kafka.check(endpoint, spec)
    }

    fn lane(&self, endpoint: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        let sim = SIM
            .with_borrow(Clone::clone)
            .ok_or_else(|| ClientError::system("there is no world"))?;
        sim.world.borrow_mut().learn_consumers(&spec);
        let client = gauge_client::kafka::Kafka.lane(endpoint, spec)?;
        Ok(Box::new(Lane {
            client,
            sim,
            is_new_turn: true,
        }))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        gauge_client::kafka::Kafka.admin(endpoint)
    }
}

/// The protocol as the worker takes it.
pub fn protocol() -> Arc<dyn Protocol> {
    Arc::new(Witnessed)
}

struct Lane {
    client: Box<dyn LaneClient>,
    sim: Rc<Sim>,
    /// The lane has waited since it called last: its next call begins a turn.
    is_new_turn: bool,
}

impl Lane {
    /// When the turn began by the lane's reading, which decides to which interval it belongs.
    fn turn(&mut self, now_ns: i64) -> i64 {
        let mut world = self.sim.world.borrow_mut();
        if std::mem::take(&mut self.is_new_turn) {
            world.turn_ns = now_ns;
        }
        world.turn_ns
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
        let offer = self.client.offer(producer, emitter, observer, now_ns);
        let until_ns = simulated::now_ns().unwrap_or(now_ns);
        let messages = emitter.sequence() - first;
        if messages > 0 {
            let taken = Taken {
                from_ns: now_ns,
                until_ns: until_ns.max(now_ns),
                turn_ns,
            };
            let mut world = self.sim.world.borrow_mut();
            world.truth.took(emitter.producer(), messages, taken);
        }
        offer
    }

    fn drive(&mut self, observer: &mut Observer, now_ns: i64) -> Result<bool, ClientError> {
        self.turn(now_ns);
        self.client.drive(observer, now_ns)
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
        self.client.abandon(observer);
    }
}
